//! Which keys a file and the arguments set; unknown names are errors.

use super::Vocabulary;
use super::error::{ConfigError, printable};
use super::keys::{Alias, Key, Table};
use super::near;
use super::node::{Entry, Node, Value};
use super::overrides::Override;

/// A file with more unknown keys than this is no configuration; comparing every name would only take time.
const MOST_SUGGESTIONS: usize = 100;

/// A key with what was written for it.
#[derive(Debug)]
pub(crate) struct Assignment {
    pub key: &'static Key,
    pub alias: Alias,
    pub node: Node,
    pub layer: Layer,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layer {
    File,
    Argument,
}

/// What was set, in the order of precedence, and the errors on the way.
pub(crate) struct Collected {
    table: &'static Table,
    pub assignments: Vec<Assignment>,
    pub errors: Vec<ConfigError>,
}

impl Collected {
    /// Nothing yet, of the keys of `table`.
    pub fn new(table: &'static Table) -> Self {
        Collected { table, assignments: Vec::new(), errors: Vec::new() }
    }

    /// Adds everything that a file says.
    pub fn file(&mut self, vocabulary: Vocabulary, root: Node) {
        if let Value::Map(entries) = root.value {
            self.walk(vocabulary, "", entries, Layer::File);
        }
    }

    /// Adds an argument; its name may come from either vocabulary, suggestions come from the file's.
    pub fn argument(&mut self, vocabulary: Vocabulary, argument: Override) {
        let table = self.table;
        let known = |v: &Vocabulary| table.find(*v, &argument.path).is_some() || table.is_section(*v, &argument.path);
        let spoken = [vocabulary, Vocabulary::Toml, Vocabulary::Yaml].into_iter().find(known).unwrap_or(vocabulary);
        let key_place = argument.node.place.clone();
        let entry = Entry { key: argument.path, key_place, node: argument.node };
        self.walk(spoken, "", vec![entry], Layer::Argument);
    }

    fn walk(&mut self, vocabulary: Vocabulary, section: &str, entries: Vec<Entry>, layer: Layer) {
        for entry in entries {
            let path = if section.is_empty() { entry.key.clone() } else { format!("{section}.{}", entry.key) };
            let is_section = |vocabulary| self.table.is_section(vocabulary, &path);
            if let Some((key, alias)) = self.table.find(vocabulary, &path) {
                self.assignments.push(Assignment { key, alias, node: entry.node, layer });
            } else if is_section(vocabulary) || is_section(vocabulary.other()) {
                self.section(vocabulary, path, entry, layer);
            } else {
                let message = match self.errors.len() {
                    0..=MOST_SUGGESTIONS => unknown(self.table, vocabulary, &path, &entry.node),
                    _ => format!("unknown key {}", printable(&path)),
                };
                self.errors.push(ConfigError::at(&entry.key_place, message));
            }
        }
    }

    fn section(&mut self, vocabulary: Vocabulary, path: String, entry: Entry, layer: Layer) {
        match entry.node.value {
            Value::Map(entries) => self.walk(vocabulary, &path, entries, layer),
            // `wandb:` with nothing below, `peft: null`.
            Value::Null => {}
            _ => {
                let meant = near::key(self.table, vocabulary, &path)
                    .map(|name| format!("; did you mean {name}?"))
                    .unwrap_or_default();
                let message = format!("{path} is a section of keys, found {}{meant}", entry.node.shown());
                self.errors.push(ConfigError::at(&entry.node.place, message));
            }
        }
    }
}

fn unknown(table: &Table, vocabulary: Vocabulary, path: &str, node: &Node) -> String {
    let what = if matches!(node.value, Value::Map(_)) { "section" } else { "key" };
    let near = match what {
        "section" => near::section(table, vocabulary, path).or_else(|| near::key(table, vocabulary, path)),
        _ => near::key(table, vocabulary, path),
    };
    let meant = match near {
        Some(name) => format!("; did you mean {name}?"),
        None => match path.rsplit_once('.') {
            Some((section, _)) if table.is_section(vocabulary, section) => {
                format!("; {section} has: {}", members(table, vocabulary, section))
            }
            _ => String::new(),
        },
    };
    format!("unknown {what} {}{meant}", printable(path))
}

/// The names right below a section.
fn members(table: &Table, vocabulary: Vocabulary, section: &str) -> String {
    let mut names: Vec<&str> = Vec::new();
    for name in table.all().flat_map(|key| key.names(vocabulary)) {
        let rest = name.path.strip_prefix(section).and_then(|rest| rest.strip_prefix('.'));
        if let Some(first) = rest.and_then(|rest| rest.split('.').next()).filter(|first| !names.contains(first)) {
            names.push(first);
        }
    }
    names.join(", ")
}
