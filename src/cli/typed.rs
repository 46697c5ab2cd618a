//! Sorts what was typed into options, a configuration file and settings, in every spelling that the
//! predecessors' commands accept: `a.b=c`, `--a.b=c`, `--a.b c`.

use std::path::PathBuf;

use crate::config::train::Preset;
use crate::config::{self, Source};
use crate::error::{Explain, Kind};

/// Arguments that make no sense.
#[derive(Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct UsageError {
    pub message: String,
    /// The command that explains them.
    pub help: &'static str,
}

impl Explain for UsageError {
    fn kind(&self) -> Kind {
        Kind::Input
    }

    fn hint(&self) -> Option<String> {
        Some(self.help.into())
    }
}

/// An option of a command.
pub(super) struct Flag {
    /// With its dashes.
    pub name: &'static str,
    /// What its value is called, if it takes one.
    pub value: Option<&'static str>,
    /// Empty: not listed.
    pub help: &'static str,
}

/// Arguments, sorted.
#[derive(Debug, Default)]
pub(super) struct Typed {
    pub positionals: Vec<String>,
    /// Options with their values (empty for those that take none).
    pub flags: Vec<(&'static str, String)>,
    /// `key=value`.
    pub overrides: Vec<String>,
}

/// Sorts `arguments`; the error is a message.
pub(super) fn sort(flags: &[Flag], arguments: &[String]) -> Result<Typed, String> {
    let mut typed = Typed::default();
    let mut rest = arguments.iter().peekable();
    while let Some(argument) = rest.next() {
        let argument = if argument == "-h" { "--help" } else { argument.as_str() };
        let (name, value) = match argument.split_once('=') {
            // `key = value`, as a message or a file has it, is one argument when quoted.
            Some((name, value)) => (name.trim_end(), Some(value.trim_start())),
            None => (argument, None),
        };
        // The value behind a name without `=`; another option is none, a negative number is.
        let mut next = || rest.next_if(|next| !next.starts_with("--")).cloned();
        if let Some(flag) = flags.iter().find(|flag| flag.name == name) {
            let value = match (flag.value, value) {
                (None, None) => String::new(),
                (None, Some(_)) => return Err(format!("{name} takes no value")),
                (Some(_), Some(value)) => value.to_string(),
                (Some(what), None) => next().ok_or_else(|| format!("{name} needs a value: {name} {what}"))?,
            };
            typed.flags.push((flag.name, value));
        } else if let Some(key) = name.strip_prefix("--") {
            match value {
                Some(value) => typed.overrides.push(format!("{key}={value}")),
                None if key.contains('.') || config::is_key(key) || !near(flags, name) => {
                    let setting = key.contains('.') || config::is_key(key);
                    let value = next().ok_or_else(|| match setting {
                        true => format!("{name} needs a value, as in {name}=VALUE"),
                        false => format!("{}; a setting is written {name}=VALUE", unknown(flags, name)),
                    })?;
                    typed.overrides.push(format!("{key}={value}"));
                }
                None => return Err(unknown(flags, name)),
            }
        } else if let Some(value) = value.filter(|_| is_word(name)) {
            typed.overrides.push(format!("{name}={value}"));
        } else if name.starts_with('-') {
            return Err(unknown(flags, name));
        } else {
            typed.positionals.push(argument.to_string());
        }
    }
    Ok(typed)
}

/// The listed options, one a line.
pub(super) fn help(flags: &[Flag]) -> String {
    let listed = flags.iter().filter(|flag| !flag.help.is_empty());
    let lines = listed.map(|flag| {
        let name = flag.value.map_or(flag.name.to_string(), |value| format!("{} {value}", flag.name));
        format!("  {name:<22} {}\n", flag.help)
    });
    std::iter::once("Options:\n".to_string()).chain(lines).collect()
}

/// The configuration that is meant: the one file among `positionals`, `--config_path` and `--config`, and `--preset`.
/// The error is a message.
pub(super) fn configuration(
    positionals: Vec<String>,
    flags: &[(&'static str, String)],
) -> Result<(Source, Option<Preset>), String> {
    let values = |name: &'static str| flags.iter().filter(move |(flag, _)| *flag == name).map(|(_, v)| v.clone());
    let preset = match values("--preset").next_back() {
        None => None,
        Some(word) => {
            let known = Preset::ALL.into_iter().find(|preset| preset.name() == word);
            Some(known.ok_or_else(|| format!("--preset: \"{word}\" is not one of tiny, small, full"))?)
        }
    };
    let files: Vec<String> = positionals.into_iter().chain(values("--config_path")).chain(values("--config")).collect();
    let source = match files.as_slice() {
        [] => Source::Embedded,
        [file] => Source::File(PathBuf::from(file)),
        [first, second, ..] => {
            return Err(format!("two configuration files, {first} and {second}; settings are written key=value"));
        }
    };
    Ok((source, preset))
}

fn near(flags: &[Flag], name: &str) -> bool {
    config::nearest(name, flags.iter().map(|flag| flag.name)).is_some()
}

fn unknown(flags: &[Flag], name: &str) -> String {
    match config::nearest(name, flags.iter().map(|flag| flag.name)) {
        Some(flag) => format!("unknown option {name}; did you mean {flag}?"),
        None => format!("unknown option {name}"),
    }
}

/// Whether `name` can be a key rather than a piece of a path that holds a `=`.
fn is_word(name: &str) -> bool {
    name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'))
        && name.starts_with(|c: char| c.is_ascii_alphabetic())
}
