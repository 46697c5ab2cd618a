//! What can go wrong with adapters.

use std::path::PathBuf;

use crate::error::{Explain, Kind};

/// Names that a message lists at most.
const NAMED: usize = 5;

/// An adapter that cannot be planned, read, written or merged.
#[derive(Debug, thiserror::Error)]
pub enum AdapterError {
    #[error("adapter.{key} {problem}")]
    Setting { key: &'static str, problem: String },
    #[error("adapter.{key}: `{entry}` matches no {what}{}", did_you_mean(nearest))]
    NoMatch {
        key: &'static str,
        entry: String,
        /// What was searched: `linear layer` or `parameter`.
        what: &'static str,
        nearest: Vec<String>,
    },
    #[error("adapter.{key}: `{entry}` names only parts that model.freeze excludes (first: {first})")]
    Frozen { key: &'static str, entry: String, first: String },
    #[error("adapter.{key}: `{pattern}` is not a regular expression that can be used here")]
    Pattern { key: &'static str, pattern: String, source: Box<regex::Error> },
    #[error("nothing would train: {reason}")]
    NothingTrains { reason: String },

    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("cannot write {}", path.display())]
    Write { path: PathBuf, source: std::io::Error },
    #[error("{} is not an adapter configuration: {problem}", path.display())]
    Config { path: PathBuf, problem: String },
    #[error("{} asks for {feature}, which is not supported", path.display())]
    Unsupported { path: PathBuf, feature: String },
    #[error("{} is not a usable safetensors file: {problem}", path.display())]
    Weights { path: PathBuf, problem: String },

    #[error("adapter {adapter} was trained on {trained_on}; the given base hashes to {found}…")]
    OtherBase { adapter: String, trained_on: String, found: String },
    #[error("the adapter changes {count} tensors that the base does not have (first: {first})")]
    NotInBase { count: usize, first: String },
    #[error("{name}: the base has shape {base:?}, the adapter makes {adapter:?}")]
    BaseShape { name: String, base: Vec<usize>, adapter: Vec<usize> },
    #[error(
        "adapter {adapter} does not fit the network: tensors of this shape that it lacks: {}; tensors that the network has no place for: {}",
        or_none(lacking),
        or_none(unused)
    )]
    OtherTensors { adapter: String, lacking: String, unused: String },
    #[error("the adapter arithmetic failed on {name}")]
    Tensor { name: String, source: candle_core::Error },
}

impl Explain for AdapterError {
    fn kind(&self) -> Kind {
        match self {
            AdapterError::Read { .. } | AdapterError::Write { .. } => Kind::Environment,
            AdapterError::Tensor { .. } => Kind::Internal,
            _ => Kind::Input,
        }
    }

    fn hint(&self) -> Option<String> {
        let text = match self {
            AdapterError::NoMatch { nearest, key, .. } => {
                let name = nearest.first()?;
                format!("adapter.{key} = [\"{name}\"]")
            }
            AdapterError::Frozen { .. } => "drop the entry, or the part from model.freeze".to_string(),
            AdapterError::Pattern { .. } => {
                "look-around and back references are not available; a list of module names always works".to_string()
            }
            AdapterError::OtherBase { .. } => "use that base and revision, or --force-base to merge anyway".to_string(),
            AdapterError::Unsupported { .. } => {
                "merge the adapter with PEFT (merge_and_unload) and start from the merged checkpoint".to_string()
            }
            _ => return None,
        };
        Some(text)
    }
}

fn did_you_mean(nearest: &[String]) -> String {
    if nearest.is_empty() { String::new() } else { format!("; nearest: {}", listed(nearest)) }
}

fn or_none(names: &str) -> &str {
    if names.is_empty() { "none" } else { names }
}

/// The first few names.
pub(super) fn listed(names: &[String]) -> String {
    names.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ")
}
