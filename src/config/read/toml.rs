//! TOML to nodes, with every syntax error of the file at once.

use std::ops::Range;
use std::sync::Arc;

use ::toml::Spanned;
use ::toml::de::{DeTable, DeValue};

use crate::config::error::{ConfigError, Place};
use crate::config::node::{Entry, Form, Node, Value};

/// Parses a document.
pub(crate) fn parse(text: &str, file: &Arc<str>) -> Result<Node, Vec<ConfigError>> {
    let lines = Lines::new(text, file);
    let (table, errors) = DeTable::parse_recoverable(text);
    if errors.is_empty() {
        let start = lines.place(0);
        return Ok(Node { value: lines.table(table.into_inner()), place: start });
    }
    Err(errors.iter().map(|error| lines.error(error)).collect())
}

/// Parses one value as it would stand behind `key =`; `None` when it is not TOML.
pub(crate) fn value(text: &str, place: &Place) -> Option<Node> {
    let lines = Lines { starts: vec![0], text, at: At::Fixed(place) };
    let value = DeValue::parse(text).ok()?;
    Some(lines.node(value))
}

/// Turns byte offsets into places.
struct Lines<'a> {
    /// Offset of the first byte of every line.
    starts: Vec<usize>,
    text: &'a str,
    at: At<'a>,
}

enum At<'a> {
    File(&'a Arc<str>),
    Fixed(&'a Place),
}

impl<'a> Lines<'a> {
    fn new(text: &'a str, file: &'a Arc<str>) -> Self {
        let starts = std::iter::once(0).chain(text.match_indices('\n').map(|(i, _)| i + 1)).collect();
        Lines { starts, text, at: At::File(file) }
    }

    fn place(&self, offset: usize) -> Place {
        match self.at {
            At::Fixed(place) => place.clone(),
            At::File(file) => {
                let line = self.starts.partition_point(|&start| start <= offset);
                let start = line.checked_sub(1).and_then(|i| self.starts.get(i)).copied().unwrap_or(0);
                let column = 1 + self.text.get(start..offset).map_or(0, |before| before.chars().count());
                Place::Position { file: file.clone(), line, column }
            }
        }
    }

    fn error(&self, error: &::toml::de::Error) -> ConfigError {
        let span: Range<usize> = error.span().unwrap_or(0..0);
        ConfigError::at(&self.place(span.start), format!("not TOML: {}", error.message().replace('\n', ", ")))
    }

    fn table(&self, table: DeTable<'_>) -> Value {
        let entries = table.into_iter().map(|(key, value)| {
            let key_place = self.place(key.span().start);
            Entry { key: key.into_inner().into_owned(), key_place, node: self.node(value) }
        });
        Value::Map(entries.collect())
    }

    fn node(&self, value: Spanned<DeValue<'_>>) -> Node {
        let place = self.place(value.span().start);
        let scalar = |text: String, form| Value::Scalar { text, form };
        let value = match value.into_inner() {
            DeValue::String(text) => scalar(text.into_owned(), Form::Quoted),
            DeValue::Integer(number) => {
                let text = match i64::from_str_radix(number.as_str(), number.radix()) {
                    Ok(number) => number.to_string(),
                    Err(_) => number.as_str().to_string(),
                };
                scalar(text, Form::Number)
            }
            DeValue::Float(number) => scalar(number.as_str().to_string(), Form::Number),
            DeValue::Boolean(value) => scalar(value.to_string(), Form::Boolean),
            DeValue::Datetime(date) => scalar(date.to_string(), Form::Date),
            DeValue::Array(items) => Value::List(items.into_iter().map(|item| self.node(item)).collect()),
            DeValue::Table(table) => self.table(table),
        };
        Node { value, place }
    }
}
