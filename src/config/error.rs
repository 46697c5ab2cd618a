//! Errors in configurations: every one with its place, all of them in one go.

use std::fmt;
use std::sync::Arc;

use crate::error::{Explain, Kind};

/// Lines of a message at most; who has more errors than this has given the wrong file.
const MOST_SHOWN: usize = 100;

/// Where something was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A file as a whole.
    File(Arc<str>),
    /// A position in a file; line and column count from 1, the column in characters.
    Position { file: Arc<str>, line: usize, column: usize },
    /// An argument of the command line, as typed.
    Argument(Arc<str>),
}

impl Place {
    /// `file:line` or the argument: what the printed configuration names as an origin.
    pub fn brief(&self) -> String {
        match self {
            Place::Position { file, line, .. } => format!("{}:{line}", printable(file)),
            other => other.to_string(),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::File(file) => write!(f, "{}", printable(file)),
            Place::Position { file, line, column } => write!(f, "{}:{line}:{column}", printable(file)),
            Place::Argument(text) => write!(f, "argument {}", printable(text)),
        }
    }
}

/// `text` on one line and of bounded length, so that neither a message nor a comment breaks on foreign text.
pub(crate) fn printable(text: &str) -> String {
    const LONGEST: usize = 200;
    let mut out = String::new();
    for c in text.chars().take(LONGEST) {
        if c.is_control() { out.extend(c.escape_default()) } else { out.push(c) }
    }
    if text.chars().nth(LONGEST).is_some() {
        out.push('…');
    }
    out
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// None: the value stands at its default.
    pub place: Option<Place>,
    /// What was found against what is accepted, and what to write instead.
    pub message: String,
}

impl ConfigError {
    pub(crate) fn at(place: &Place, message: impl Into<String>) -> Self {
        ConfigError { place: Some(place.clone()), message: message.into() }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Some(place) => write!(f, "{place}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

/// Everything that is wrong with a configuration, one line each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigErrors {
    errors: Vec<ConfigError>,
    kind: Kind,
}

impl ConfigErrors {
    /// The file from top to bottom, then the arguments, then what stands nowhere.
    pub(crate) fn input(mut errors: Vec<ConfigError>) -> Self {
        errors.sort_by_key(|error| match error.place {
            Some(Place::File(_)) => (0, 0, 0),
            Some(Place::Position { line, column, .. }) => (0, line, column),
            Some(Place::Argument(_)) => (1, 0, 0),
            None => (2, 0, 0),
        });
        errors.dedup();
        ConfigErrors { errors, kind: Kind::Input }
    }

    /// A file that could not be read although it is there.
    pub(crate) fn environment(error: ConfigError) -> Self {
        ConfigErrors { errors: vec![error], kind: Kind::Environment }
    }

    /// A defect of the key table.
    pub(crate) fn internal(message: String) -> Self {
        ConfigErrors { errors: vec![ConfigError { place: None, message }], kind: Kind::Internal }
    }

    /// The errors in the order in which they are shown.
    pub fn iter(&self) -> impl Iterator<Item = &ConfigError> {
        self.errors.iter()
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.errors.as_slice() {
            [one] => write!(f, "{one}"),
            many => {
                write!(f, "{} errors in the configuration", many.len())?;
                many.iter().take(MOST_SHOWN).try_for_each(|error| write!(f, "\n  {error}"))?;
                match many.len().checked_sub(MOST_SHOWN) {
                    Some(more @ 1..) => write!(f, "\n  … and {more} more"),
                    _ => Ok(()),
                }
            }
        }
    }
}

impl std::error::Error for ConfigErrors {}

impl Explain for ConfigErrors {
    fn kind(&self) -> Kind {
        self.kind
    }
}
