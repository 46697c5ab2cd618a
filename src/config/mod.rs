//! Typed configurations, from TOML (our vocabulary) or YAML (the predecessors' vocabulary).
//!
//! Text becomes [`node`]s with places ([`read`]); names are looked up in the one key table ([`keys`],
//! [`collect`]); layers become one value per key with its origin ([`resolve`]), then the typed
//! [`train::TrainConfig`], which is checked as a whole ([`validate`]). Every error of a configuration is
//! reported at once, at its place, in the vocabulary of the file.

use std::path::PathBuf;
use std::sync::Arc;

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
pub mod train;
mod validate;
mod value;

#[cfg(test)]
mod tests;

pub use error::{ConfigError, ConfigErrors, Place};
pub use origin::{Loaded, Note, Origin};

use collect::Collected;
use expand::Env;
use node::Node;
use resolve::{Resolved, Values};
use train::{Preset, TrainConfig};

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
    /// What is built into the binary: `tiny.toml`, with the small preset `sim.toml`, with the full one `pi05_lora.toml`.
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
    load_with(source, preset, overrides, &|name| std::env::var(name).ok())
}

/// As [`load`], with the environment given.
pub(crate) fn load_with(
    source: &Source,
    preset: Option<Preset>,
    overrides: &[String],
    env: Env<'_>,
) -> Result<Loaded<TrainConfig>, ConfigErrors> {
    let (vocabulary, file) = match source {
        Source::File(path) => read::file(path)?,
        Source::Embedded => (Vocabulary::Toml, embedded(preset)?),
    };
    let (mut resolved, mut errors) = layers(vocabulary, file, preset, overrides, env);
    errors.append(&mut resolved.errors);
    let config = typed(&resolved.values)?;
    let name = |toml: &str| keys::field(toml).map_or("", |key| key.name(vocabulary));
    for finding in validate::check(&config, &name) {
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
    resolved.notes.extend(remarks(vocabulary, &config, &resolved.values));
    let origins = resolved.values.into_iter().map(|(key, (_, origin))| (key, origin)).collect();
    Ok(Loaded { value: config, origins, notes: resolved.notes })
}

/// Whether `name` is a key of either vocabulary.
pub(crate) fn is_key(name: &str) -> bool {
    [Vocabulary::Toml, Vocabulary::Yaml].into_iter().any(|vocabulary| keys::find(vocabulary, name).is_some())
}

/// The word of `choices` that `unknown` most likely means.
pub(crate) fn nearest<'a>(unknown: &str, choices: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    near::word(unknown, choices)
}

fn embedded(preset: Option<Preset>) -> Result<Node, ConfigErrors> {
    let (name, text) = match preset {
        Some(Preset::Full) => ("pi05_lora.toml (built in)", PI05_LORA),
        Some(Preset::Small) => ("sim.toml (built in)", SIM),
        Some(Preset::Tiny) | None => ("tiny.toml (built in)", TINY),
    };
    read::parse(Vocabulary::Toml, text, &Arc::from(name)).map_err(ConfigErrors::input)
}

/// Collects and resolves all layers; `--preset` counts as an argument in front of the others.
fn layers(
    vocabulary: Vocabulary,
    file: Node,
    preset: Option<Preset>,
    overrides: &[String],
    env: Env<'_>,
) -> (Resolved, Vec<ConfigError>) {
    let mut collected = Collected::default();
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
                let message =
                    format!("not a setting; settings are written key=value, as in {}=500", name_of_steps(vocabulary));
                collected.errors.push(ConfigError::at(&place, message));
            }
        }
    }
    (resolve::resolve(vocabulary, &collected.assignments, env), collected.errors)
}

fn name_of_steps(vocabulary: Vocabulary) -> &'static str {
    keys::field("train.steps").map_or("", |key| key.name(vocabulary))
}

/// The typed configuration. The key table and the types agree (a test sees to it), so a failure is a defect.
fn typed(values: &Values) -> Result<TrainConfig, ConfigErrors> {
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
        .map_err(|error| ConfigErrors::internal(format!("the table of keys and TrainConfig disagree: {error}")))
}

fn written(origin: &Origin) -> Option<&Place> {
    match origin {
        Origin::Set(place) => Some(place),
        _ => None,
    }
}

/// Settings without effect beside the others, and defaults that a predecessor's user may not expect.
fn remarks(vocabulary: Vocabulary, config: &TrainConfig, values: &Values) -> Vec<Note> {
    let origin = |key: &str| values.get(key).map(|(_, origin)| origin);
    let name = |key: &str| keys::field(key).map_or("", |key| key.name(vocabulary));
    let mut notes = Vec::new();
    for (idle, why) in validate::idle(config) {
        let set: Vec<(&str, &Place)> =
            idle.iter().filter_map(|key| Some((name(key), written(origin(key)?)?))).collect();
        if let Some((_, place)) = set.first() {
            let names: Vec<&str> = set.iter().map(|(name, _)| *name).collect();
            notes.push(Note::in_vain(place, &names, why));
        }
    }
    for (key, says) in validate::odd(config, &name) {
        notes.push(Note { place: origin(key).and_then(written).cloned(), text: says });
    }
    if vocabulary == Vocabulary::Yaml {
        for (key, says) in validate::silent(config) {
            if origin(key).and_then(written).is_none() {
                notes.push(Note::general(format!("{} is not set: {says}", name(key))));
            }
        }
    }
    if config.model.base.is_none() && config.model.preset == Preset::Full {
        let says = "training starts from RANDOM weights, not from a pretrained policy";
        notes.push(Note::general(format!("{} is not set: {says}", name("model.base"))));
    }
    notes
}
