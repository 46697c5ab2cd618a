//! YAML to nodes: the predecessors' files, written for PyYAML (YAML 1.1).
//!
//! Scalars keep their text: whether `no` is a word or a boolean and whether `5e-5` is a number is decided
//! by the key that it is given to, not by a schema. Aliases and merge keys (`<<`) are followed, tags ignored.

use std::collections::HashMap;
use std::sync::Arc;

use granit_parser::{Event, Marker, Parser, ScalarStyle, ScanError, Span};

use crate::config::error::{ConfigError, Place};
use crate::config::node::{Entry, Form, Node, Value};

/// Bounds what aliases of aliases can blow up to.
const MOST_NODES: usize = 20_000;

/// Parses a document with a mapping at its top.
pub(crate) fn parse(text: &str, file: &Arc<str>) -> Result<Node, Vec<ConfigError>> {
    let place = |mark: &Marker| Place::Position { file: file.clone(), line: mark.line(), column: mark.col() + 1 };
    let root = Tree::new(&place).build(text).map_err(|error| vec![tab_or(error, text, file)])?;
    match root.value {
        Value::Map(_) => Ok(root),
        _ => {
            let message = format!("a configuration consists of `key: value` lines; found {}", root.shown());
            Err(vec![ConfigError::at(&root.place, message)])
        }
    }
}

/// Parses one value as it would stand behind `key:`; `None` when it is not YAML.
pub(crate) fn value(text: &str, place: &Place) -> Option<Node> {
    Tree::new(&|_| place.clone()).build(text).ok()
}

/// YAML's messages about tabs are hard to recognise as such; replaces them.
fn tab_or(error: ConfigError, text: &str, file: &Arc<str>) -> ConfigError {
    let Some(Place::Position { line: at, .. }) = error.place else { return error };
    let near = text.lines().enumerate().skip(at.saturating_sub(2)).take(2);
    for (index, line) in near {
        let indent = line.len() - line.trim_start().len();
        if let Some(tab) = line.get(..indent).and_then(|indent| indent.find('\t')) {
            let place = Place::Position { file: file.clone(), line: index + 1, column: tab + 1 };
            return ConfigError::at(&place, "a tab in the indentation; YAML wants spaces");
        }
    }
    error
}

type Places<'a> = &'a dyn Fn(&Marker) -> Place;

/// An unfinished list or mapping.
enum Open {
    List(Vec<Node>),
    Map { entries: Vec<Entry>, key: Option<(String, Place)> },
}

struct Tree<'a> {
    place: Places<'a>,
    stack: Vec<(Open, Place, usize)>,
    anchors: HashMap<usize, Node>,
    root: Option<Node>,
    nodes: usize,
}

impl<'a> Tree<'a> {
    fn new(place: Places<'a>) -> Self {
        Tree { place, stack: Vec::new(), anchors: HashMap::new(), root: None, nodes: 0 }
    }

    fn build(mut self, text: &str) -> Result<Node, ConfigError> {
        for next in Parser::new_from_str(text) {
            let (event, span) = next.map_err(|error| self.syntax(&error))?;
            self.event(event, &span)?;
        }
        let start = (self.place)(&Marker::new(0, 1, 0));
        Ok(self.root.unwrap_or(Node { value: Value::Null, place: start }))
    }

    fn syntax(&self, error: &ScanError) -> ConfigError {
        ConfigError::at(&(self.place)(error.marker()), format!("not YAML: {}", error.info()))
    }

    fn event(&mut self, event: Event<'_>, span: &Span) -> Result<(), ConfigError> {
        let place = (self.place)(&span.start);
        match event {
            Event::DocumentStart(..) if self.root.is_some() => {
                Err(ConfigError::at(&place, "a second document begins here; one file is one configuration"))
            }
            Event::Scalar(text, style, anchor, _) => {
                let value = scalar(text.into_owned(), style);
                self.finish(Node { value, place }, anchor)
            }
            Event::SequenceStart(_, anchor, _) => {
                self.stack.push((Open::List(Vec::new()), place, anchor));
                Ok(())
            }
            Event::MappingStart(_, anchor, _) => {
                self.stack.push((Open::Map { entries: Vec::new(), key: None }, place, anchor));
                Ok(())
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let Some((open, place, anchor)) = self.stack.pop() else { return Ok(()) };
                let value = match open {
                    Open::List(items) => Value::List(items),
                    Open::Map { entries, .. } => Value::Map(merge(entries)),
                };
                self.finish(Node { value, place }, anchor)
            }
            Event::Alias(id) => match self.anchors.get(&id) {
                Some(node) => {
                    let node = node.clone();
                    self.nodes += count(&node);
                    self.finish(node, 0)
                }
                None => Err(ConfigError::at(&place, "an alias inside of what it stands for")),
            },
            _ => Ok(()),
        }
    }

    /// Hands a finished node to the list or mapping that it stands in.
    fn finish(&mut self, node: Node, anchor: usize) -> Result<(), ConfigError> {
        self.nodes += 1;
        if anchor != 0 {
            self.nodes += count(&node);
            self.anchors.insert(anchor, node.clone());
        }
        if self.nodes > MOST_NODES {
            return Err(ConfigError::at(&node.place, "too many values for a configuration"));
        }
        match self.stack.last_mut() {
            None => self.root = Some(node),
            Some((Open::List(items), ..)) => items.push(node),
            Some((Open::Map { entries, key }, ..)) => match key.take() {
                Some((name, key_place)) => entries.push(Entry { key: name, key_place, node }),
                None => *key = Some(name_of(node, entries)?),
            },
        }
        Ok(())
    }
}

/// Only scalars are names, and each only once.
fn name_of(node: Node, entries: &[Entry]) -> Result<(String, Place), ConfigError> {
    let name = match node.value {
        Value::Scalar { text, .. } => text,
        Value::Null => "null".to_string(),
        _ => return Err(ConfigError::at(&node.place, "a key must be a word")),
    };
    match entries.iter().find(|entry| entry.key == name && name != "<<") {
        Some(first) => {
            let message =
                format!("{} is set twice; first at {}", crate::config::error::printable(&name), first.key_place);
            Err(ConfigError::at(&node.place, message))
        }
        None => Ok((name, node.place)),
    }
}

/// Puts in what `<<: *defaults` names; keys written out win.
fn merge(entries: Vec<Entry>) -> Vec<Entry> {
    let (merged, mut own): (Vec<Entry>, Vec<Entry>) = entries.into_iter().partition(|entry| entry.key == "<<");
    let sources = merged.into_iter().flat_map(|entry| match entry.node.value {
        Value::List(items) => items,
        _ => vec![entry.node],
    });
    for source in sources {
        if let Value::Map(entries) = source.value {
            for entry in entries {
                if own.iter().all(|present| present.key != entry.key) {
                    own.push(entry);
                }
            }
        }
    }
    own
}

fn scalar(text: String, style: ScalarStyle) -> Value {
    match style {
        ScalarStyle::Plain if matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL") => Value::Null,
        ScalarStyle::Plain => Value::Scalar { text, form: Form::Plain },
        _ => Value::Scalar { text, form: Form::Quoted },
    }
}

fn count(node: &Node) -> usize {
    match &node.value {
        Value::List(items) => 1 + items.iter().map(count).sum::<usize>(),
        Value::Map(entries) => 1 + entries.iter().map(|entry| count(&entry.node)).sum::<usize>(),
        _ => 1,
    }
}
