//! What was written, before it means anything: a tree of scalars, lists and maps with their places.

use super::error::Place;

/// A value with the place where it starts.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Node {
    pub value: Value,
    pub place: Place,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Null,
    Scalar { text: String, form: Form },
    List(Vec<Node>),
    Map(Vec<Entry>),
}

/// How a scalar was written; decides which types may read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Without quotes in YAML or on the command line: the key's type decides what it is.
    Plain,
    /// A quoted string.
    Quoted,
    /// A TOML integer or float.
    Number,
    /// A TOML boolean.
    Boolean,
    /// A TOML date or time: no key takes one.
    Date,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entry {
    pub key: String,
    pub key_place: Place,
    pub node: Node,
}

impl Node {
    pub fn scalar(text: impl Into<String>, form: Form, place: &Place) -> Self {
        Node { value: Value::Scalar { text: text.into(), form }, place: place.clone() }
    }

    pub fn is_null(&self) -> bool {
        matches!(self.value, Value::Null)
    }

    /// The value as a message shows it: numbers bare, everything else quoted, long ones cut.
    pub fn shown(&self) -> String {
        match &self.value {
            Value::Null => "null".into(),
            Value::Scalar { text, form: Form::Plain } if text.parse::<f64>().is_ok() => text.clone(),
            Value::Scalar { text, form: Form::Plain | Form::Quoted } => {
                format!("\"{}\"", super::error::printable(text))
            }
            Value::Scalar { text, .. } => text.clone(),
            Value::List(items) => format!("a list of {}", items.len()),
            Value::Map(entries) => match entries.first() {
                Some(entry) => format!("a section ({}: …)", super::error::printable(&entry.key)),
                None => "an empty section".into(),
            },
        }
    }
}
