//! The resolved configuration, and the reference of all keys, as commented TOML.

use serde::Serialize;
use serde_json::Value as Json;

use super::Vocabulary;
use super::keys::{self, Default, Effect, Key, Table};
use super::origin::Loaded;

/// Lines of the printed files stay within this width where they can.
const WIDTH: usize = 110;

/// The resolved configuration as TOML, every value with its origin; loading the text gives the same configuration.
pub fn resolved<T: Serialize>(loaded: &Loaded<T>) -> String {
    // A structure of plain fields with text keys always has a JSON form.
    let tree = serde_json::to_value(&loaded.value).unwrap_or_default();
    let mut page = Page::default();
    for key in loaded.table.all().filter(|key| key.is_field()) {
        page.enter(key);
        let value = key.toml.split('.').try_fold(&tree, |tree, part| tree.get(part)).unwrap_or(&Json::Null);
        let origin = loaded.origin(key.toml).map(ToString::to_string).unwrap_or_default();
        match value {
            Json::Null => page.line(&format!("# {} is not set  ({origin})", page.leaf(key))),
            value => page.line(&format!("{} = {}  # {origin}", page.leaf(key), literal(value))),
        }
    }
    page.text
}

/// Every key of a training configuration with its default and what it does: `configs/train/reference.toml`.
pub fn reference() -> String {
    reference_of(&keys::TRAIN)
}

/// Every key of a rollout's configuration: `configs/run/reference.toml`.
pub fn run_reference() -> String {
    reference_of(&keys::RUN)
}

fn reference_of(table: &Table) -> String {
    let mut page = Page::default();
    let of = table.of;
    page.line(&format!("# Every key of a {of} configuration with its default. Generated from the key table;"));
    page.line("# `cargo test` fails when it is stale. Beside each key: what a predecessor's YAML calls it.");
    for key in table.all().filter(|key| key.is_field()) {
        page.enter(key);
        for line in wrapped(key.doc) {
            page.line(&format!("# {line}"));
        }
        let yaml = theirs(key);
        if let Effect::Nothing(why) = key.effect {
            page.line(&format!("# No effect: {why}."));
        }
        if !yaml.is_empty() {
            page.line(&format!("# YAML: {yaml}"));
        }
        match key.default {
            Default::Is(text) => page.line(&format!("{} = {text}", page.leaf(key))),
            Default::Absent => page.line(&format!("# {} =", page.leaf(key))),
            Default::Follows(other) => page.line(&format!("# {} = (the value of {other})", page.leaf(key))),
        }
        page.line("");
    }
    page.text.pop();
    page.text
}

/// `batch_size`, and the predecessors' default where it differs.
fn theirs(key: &Key) -> String {
    let names: Vec<&str> = key.yaml.iter().map(|alias| alias.path).collect();
    match key.default_in(Vocabulary::Yaml) {
        Default::Is(text) if key.yaml_default.is_some() => {
            let names = if names.is_empty() { key.toml.to_string() } else { names.join(", ") };
            format!("{names} (default {text})")
        }
        _ => names.join(", "),
    }
}

#[derive(Default)]
struct Page {
    text: String,
    section: &'static str,
}

impl Page {
    /// Opens the key's section unless it is open.
    fn enter(&mut self, key: &Key) {
        let section = key.toml.rsplit_once('.').map_or("", |(section, _)| section);
        if section != self.section {
            self.section = section;
            if !self.text.is_empty() && !self.text.ends_with("\n\n") {
                self.line("");
            }
            self.line(&format!("[{section}]"));
        }
    }

    fn leaf<'k>(&self, key: &'k Key) -> &'k str {
        key.toml.rsplit_once('.').map_or(key.toml, |(_, leaf)| leaf)
    }

    fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }
}

/// A JSON value in TOML's notation.
fn literal(value: &Json) -> String {
    match value {
        Json::String(text) => string(text),
        // `{:?}` is the shortest text that reads back as the same number.
        Json::Number(number) => match number.as_u64() {
            Some(whole) => whole.to_string(),
            None => number.as_f64().map(|real| format!("{real:?}")).unwrap_or_default(),
        },
        Json::Array(items) => format!("[{}]", items.iter().map(literal).collect::<Vec<_>>().join(", ")),
        Json::Object(entries) if entries.is_empty() => "{}".into(),
        Json::Object(entries) => {
            let entries: Vec<String> =
                entries.iter().map(|(key, value)| format!("{} = {}", quoted(key), literal(value))).collect();
            format!("{{ {} }}", entries.join(", "))
        }
        Json::Bool(value) => value.to_string(),
        Json::Null => String::new(),
    }
}

/// As [`quoted`], with what would be taken for a variable escaped.
fn string(text: &str) -> String {
    quoted(&text.replace("${", "$${"))
}

/// A TOML basic string on one line.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => out.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

fn wrapped(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + word.chars().count() < WIDTH => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_string()),
        }
    }
    lines
}
