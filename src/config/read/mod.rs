//! Text to [`Node`]s: TOML in our vocabulary, YAML in the predecessors'.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use super::Vocabulary;
use super::error::{ConfigError, ConfigErrors, Place};
use super::node::Node;

pub(crate) mod toml;
pub(crate) mod yaml;

/// Far above any configuration, far below what would hurt.
const LARGEST_FILE: u64 = 1 << 20;

/// The vocabulary that a file's extension promises.
pub(crate) fn vocabulary_of(path: &Path) -> Option<Vocabulary> {
    match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
        "toml" => Some(Vocabulary::Toml),
        // JSON is YAML: a peer's `train_config.json` reads as well.
        "yaml" | "yml" | "json" => Some(Vocabulary::Yaml),
        _ => None,
    }
}

/// Reads and parses a configuration file.
pub(crate) fn file(path: &Path) -> Result<(Vocabulary, Node), ConfigErrors> {
    let name: Arc<str> = path.to_string_lossy().into();
    let whole = Place::File(name.clone());
    let refuse = |message: String| ConfigErrors::input(vec![ConfigError::at(&whole, message)]);

    let metadata = fs::metadata(path).map_err(|error| unreadable(path, &whole, &error))?;
    if metadata.is_dir() {
        return Err(refuse(format!("is a directory, not a configuration file{}", files_in(path))));
    }
    let Some(vocabulary) = vocabulary_of(path) else {
        return Err(refuse("a configuration ends in .toml, .yaml, .yml or .json".into()));
    };
    if metadata.len() > LARGEST_FILE {
        return Err(refuse(format!(
            "{} bytes are too many for a configuration (at most {LARGEST_FILE})",
            metadata.len()
        )));
    }
    let bytes = fs::read(path).map_err(|error| unreadable(path, &whole, &error))?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        refuse(format!("is not UTF-8 text (first bad byte at offset {at})"))
    })?;
    let node = parse(vocabulary, &text, &name).map_err(ConfigErrors::input)?;
    Ok((vocabulary, node))
}

/// Parses the text of a configuration; a byte order mark in front is skipped.
pub(crate) fn parse(vocabulary: Vocabulary, text: &str, file: &Arc<str>) -> Result<Node, Vec<ConfigError>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.trim().is_empty() {
        let message = "the file is empty; copy one below configs/ to start from";
        return Err(vec![ConfigError::at(&Place::File(file.clone()), message)]);
    }
    match vocabulary {
        Vocabulary::Toml => toml::parse(text, file),
        Vocabulary::Yaml => yaml::parse(text, file),
    }
}

fn unreadable(path: &Path, place: &Place, error: &io::Error) -> ConfigErrors {
    match error.kind() {
        io::ErrorKind::NotFound => {
            let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
            let message = format!("there is no such file{}", files_in(folder));
            ConfigErrors::input(vec![ConfigError::at(place, message)])
        }
        _ => ConfigErrors::environment(ConfigError::at(place, format!("cannot be read: {error}"))),
    }
}

/// `; it holds a.toml, b.yaml`, or nothing.
fn files_in(folder: &Path) -> String {
    const MOST: usize = 8;
    let Ok(entries) = fs::read_dir(folder) else { return String::new() };
    let mut names: Vec<String> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| vocabulary_of(path).is_some())
        .filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned()))
        .collect();
    names.sort();
    if names.is_empty() {
        return String::new();
    }
    let more = if names.len() > MOST { ", …" } else { "" };
    names.truncate(MOST);
    format!("; {} holds {}{more}", folder.display(), names.join(", "))
}
