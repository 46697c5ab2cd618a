//! Typed configurations, from TOML (our vocabulary) or YAML (the predecessors' vocabulary).
//!
//! Text becomes [`node`]s with places ([`read`]); names are looked up in a key table ([`keys`],
//! [`collect`]); layers become one value per key with its origin ([`resolve`]), then the typed
//! [`train::TrainConfig`] or [`run::RunConfig`], which is checked as a whole. Every error of a configuration is
//! reported at once, at its place, in the vocabulary of the file.

use std::path::PathBuf;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value as Json};

mod collect;
mod error;
mod expand;
mod keys;
mod near;
mod node;
mod origin;
mod overrides;
pub mod paths;
pub mod print;
pub mod ranges;
mod read;
mod resolve;
pub mod run;
pub mod train;
mod validate;
mod value;

#[cfg(test)]
mod tests;

pub use error::{ConfigError, ConfigErrors, Place};
pub use origin::{Loaded, Note, Origin};

use collect::Collected;
use expand::Env;
use keys::Table;
use node::Node;
use resolve::{Resolved, Values};
use run::RunConfig;
use train::{Preset, TrainConfig};
use validate::{Finding, Name};

/// Whose names a file uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Vocabulary {
    /// Ours.
    Toml,
    /// VLASH's, VLASH-Forge's, LeRobot's.
    Yaml,
}

impl Vocabulary {
    fn other(self) -> Self {
        match self {
            Vocabulary::Toml => Vocabulary::Yaml,
            Vocabulary::Yaml => Vocabulary::Toml,
        }
    }
}

/// Where a configuration comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// What is built into the binary. Of a training `tiny.toml`, with the small preset `sim.toml`, with the full one
    /// `pi05_lora.toml`; of a rollout `sim.toml`.
    Embedded,
    /// A `.toml`, `.yaml`, `.yml` or `.json` file.
    File(PathBuf),
}

const TINY: &str = include_str!("../../configs/train/tiny.toml");
const SIM: &str = include_str!("../../configs/train/sim.toml");
const PI05_LORA: &str = include_str!("../../configs/train/pi05_lora.toml");

/// Loads a training configuration: defaults < preset < file < `overrides` (`key=value`, in either vocabulary,
/// with or without leading dashes).
///
/// # Errors
///
/// Everything that is wrong, in one go: unreadable file, syntax, unknown keys, types, unset environment
/// variables, placeholders, values that contradict each other, features that this version lacks.
pub fn load(
    source: &Source,
    preset: Option<Preset>,
    overrides: &[String],
) -> Result<Loaded<TrainConfig>, ConfigErrors> {
    load_with(source, preset, overrides, &environment)
}

/// Loads a rollout's configuration, as [`load`] does a training's; built in is `configs/run/sim.toml`.
///
/// # Errors
///
/// As [`load`].
pub fn load_run(source: &Source, overrides: &[String]) -> Result<Loaded<RunConfig>, ConfigErrors> {
    load_as(source, None, overrides, &environment)
}

fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// As [`load`], with the environment given.
pub(crate) fn load_with(
    source: &Source,
    preset: Option<Preset>,
    overrides: &[String],
    env: Env<'_>,
) -> Result<Loaded<TrainConfig>, ConfigErrors> {
    load_as(source, preset, overrides, env)
}

/// A kind of configuration: its keys, and what must hold between their values.
pub(crate) trait Schema: Serialize + DeserializeOwned {
    fn table() -> &'static Table;
    /// Name and text of the configuration that is built in.
    fn embedded(preset: Option<Preset>) -> (&'static str, &'static str);
    /// Everything that is wrong with the configuration as a whole.
    fn check(&self, name: Name<'_>) -> Vec<Finding>;
    /// Settings without effect beside the others, and defaults that a predecessor's user may not expect.
    fn remarks(&self, vocabulary: Vocabulary, values: &Values) -> Vec<Note>;
}

pub(crate) fn load_as<T: Schema>(
    source: &Source,
    preset: Option<Preset>,
    overrides: &[String],
    env: Env<'_>,
) -> Result<Loaded<T>, ConfigErrors> {
    let table = T::table();
    let (vocabulary, file) = match source {
        Source::File(path) => read::file(path)?,
        Source::Embedded => {
            let (name, text) = T::embedded(preset);
            let file = read::parse(Vocabulary::Toml, text, &Arc::from(name)).map_err(ConfigErrors::input)?;
            (Vocabulary::Toml, file)
        }
    };
    let (mut resolved, mut errors) = layers(table, vocabulary, file, preset, overrides, env);
    errors.append(&mut resolved.errors);
    let config: T = typed(&resolved.values)?;
    for finding in config.check(&|toml| table.name(vocabulary, toml)) {
        if finding.keys.iter().any(|key| resolved.broken.contains(key)) {
            continue;
        }
        let origins = finding.keys.iter().filter_map(|key| resolved.values.get(key));
        let place = origins.filter_map(|(_, origin)| written(origin)).next().cloned();
        errors.push(ConfigError { place, message: finding.message });
    }
    if !errors.is_empty() {
        return Err(ConfigErrors::input(errors));
    }
    resolved.notes.extend(config.remarks(vocabulary, &resolved.values));
    let origins = resolved.values.into_iter().map(|(key, (_, origin))| (key, origin)).collect();
    Ok(Loaded { value: config, table, origins, notes: resolved.notes })
}

/// Whether `name` is a key of either vocabulary, of any command.
pub(crate) fn is_key(name: &str) -> bool {
    let named = |table: &Table| [Vocabulary::Toml, Vocabulary::Yaml].iter().any(|v| table.find(*v, name).is_some());
    [&keys::TRAIN, &keys::RUN].into_iter().any(named)
}

/// The word of `choices` that `unknown` most likely means.
pub(crate) fn nearest<'a>(unknown: &str, choices: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    near::word(unknown, choices)
}

/// Collects and resolves all layers; `--preset` counts as an argument in front of the others.
fn layers(
    table: &'static Table,
    vocabulary: Vocabulary,
    file: Node,
    preset: Option<Preset>,
    overrides: &[String],
    env: Env<'_>,
) -> (Resolved, Vec<ConfigError>) {
    let mut collected = Collected::new(table);
    collected.file(vocabulary, file);
    if let Some(preset) = preset {
        let word = preset.name();
        collected.argument(vocabulary, overrides::named("model.preset", word, &format!("--preset {word}")));
    }
    for text in overrides {
        match overrides::parse(text) {
            Some(argument) => collected.argument(vocabulary, argument),
            None => {
                let place = Place::Argument(Arc::from(text.as_str()));
                let (key, value) = table.example;
                let key = table.name(vocabulary, key);
                let message = format!("not a setting; settings are written key=value, as in {key}={value}");
                collected.errors.push(ConfigError::at(&place, message));
            }
        }
    }
    (resolve::resolve(table, vocabulary, &collected.assignments, env), collected.errors)
}

/// The typed configuration. Key tables and types agree (a test sees to it), so a failure is a defect.
fn typed<T: Schema>(values: &Values) -> Result<T, ConfigErrors> {
    let mut root = Json::Object(Map::new());
    for (path, (json, _)) in values {
        let mut at = &mut root;
        for part in path.split('.') {
            let Json::Object(map) = at else { break };
            at = map.entry(part).or_insert_with(|| Json::Object(Map::new()));
        }
        *at = json.clone();
    }
    serde_path_to_error::deserialize(root)
        .map_err(|error| ConfigErrors::internal(format!("the table of keys and its type disagree: {error}")))
}

fn written(origin: &Origin) -> Option<&Place> {
    match origin {
        Origin::Set(place) => Some(place),
        _ => None,
    }
}

/// Notes on settings that mean nothing beside others: the keys to look for, and why.
fn idle_notes(
    table: &Table,
    vocabulary: Vocabulary,
    values: &Values,
    idle: &[(&'static [&'static str], &'static str)],
) -> Vec<Note> {
    let set = |key: &&'static str| Some((table.name(vocabulary, key), written(&values.get(key)?.1)?));
    let note = |(keys, why): &(&'static [&'static str], &str)| {
        let set: Vec<(&str, &Place)> = keys.iter().filter_map(set).collect();
        let names: Vec<&str> = set.iter().map(|(name, _)| *name).collect();
        set.first().map(|(_, place)| Note::in_vain(place, &names, why))
    };
    idle.iter().filter_map(note).collect()
}

impl Schema for TrainConfig {
    fn table() -> &'static Table {
        &keys::TRAIN
    }

    fn embedded(preset: Option<Preset>) -> (&'static str, &'static str) {
        match preset {
            Some(Preset::Full) => ("pi05_lora.toml (built in)", PI05_LORA),
            Some(Preset::Small) => ("sim.toml (built in)", SIM),
            Some(Preset::Tiny) | None => ("tiny.toml (built in)", TINY),
        }
    }

    fn check(&self, name: Name<'_>) -> Vec<Finding> {
        validate::check(self, name)
    }

    fn remarks(&self, vocabulary: Vocabulary, values: &Values) -> Vec<Note> {
        let table = Self::table();
        let origin = |key: &str| values.get(key).map(|(_, origin)| origin);
        let name = |key: &str| table.name(vocabulary, key);
        let mut notes = idle_notes(table, vocabulary, values, &validate::idle(self));
        for (key, says) in validate::odd(self, &name) {
            notes.push(Note { place: origin(key).and_then(written).cloned(), text: says });
        }
        if vocabulary == Vocabulary::Yaml {
            for (key, says) in validate::silent(self) {
                if origin(key).and_then(written).is_none() {
                    notes.push(Note::general(format!("{} is not set: {says}", name(key))));
                }
            }
        }
        if self.model.base.is_none() && self.model.preset == Preset::Full {
            let says = "training starts from RANDOM weights, not from a pretrained policy";
            notes.push(Note::general(format!("{} is not set: {says}", name("model.base"))));
        }
        notes
    }
}
