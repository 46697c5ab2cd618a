//! What comes out of loading: the value, where each part of it comes from, and what its reader should know.

use std::collections::BTreeMap;
use std::fmt;

use super::error::Place;
use super::keys::Table;

/// A loaded configuration.
#[derive(Debug, Clone)]
pub struct Loaded<T> {
    pub value: T,
    pub(crate) table: &'static Table,
    pub(crate) origins: BTreeMap<&'static str, Origin>,
    /// Keys without effect, defaults that differ between the vocabularies, and the like.
    pub notes: Vec<Note>,
}

impl<T> Loaded<T> {
    /// Where the value of a key comes from, by its TOML path.
    pub fn origin(&self, key: &str) -> Option<&Origin> {
        self.origins.get(key)
    }
}

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Nobody set it.
    Default,
    /// A preset set it.
    Preset(&'static str),
    /// It takes the value of another key.
    Follows(&'static str),
    /// A file or an argument set it.
    Set(Place),
    /// An environment variable set it.
    Environment(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::Preset(name) => write!(f, "preset {name}"),
            Origin::Follows(key) => write!(f, "default: follows {key}"),
            Origin::Set(place) => f.write_str(&place.brief()),
            Origin::Environment(name) => write!(f, "environment variable {name}"),
        }
    }
}

/// Something worth knowing that stops nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    pub place: Option<Place>,
    pub text: String,
}

impl Note {
    pub(crate) fn at(place: &Place, text: String) -> Self {
        Note { place: Some(place.clone()), text }
    }

    /// Keys that were set and change nothing.
    pub(crate) fn in_vain(place: &Place, names: &[&str], why: &str) -> Self {
        let verb = if names.len() == 1 { "has" } else { "have" };
        Note::at(place, format!("{} {verb} no effect: {why}", names.join(", ")))
    }

    pub(crate) fn general(text: String) -> Self {
        Note { place: None, text }
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Some(place) => write!(f, "{place}: {}", self.text),
            None => f.write_str(&self.text),
        }
    }
}
