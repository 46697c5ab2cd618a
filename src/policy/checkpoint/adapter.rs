//! Adapters that lie in or beside a checkpoint: found and described here, read by the adapter room.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::error::CheckpointError;

const CONFIG: &str = "adapter_config.json";

/// A PEFT adapter directory.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AdapterFound {
    pub directory: PathBuf,
    pub rank: Option<usize>,
    pub alpha: Option<f64>,
    /// Module names, or one pattern.
    pub targets: Vec<String>,
    pub base: Option<String>,
}

#[derive(Deserialize)]
struct Config {
    r: Option<usize>,
    lora_alpha: Option<f64>,
    target_modules: Option<Targets>,
    base_model_name_or_path: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Targets {
    List(Vec<String>),
    Pattern(String),
}

/// Adapters at the places that LeRobot (the checkpoint itself) and VLASH (`lora_adapters/`) use.
pub fn find(directory: &Path) -> Result<Vec<AdapterFound>, CheckpointError> {
    let mut found = Vec::new();
    for place in [directory.to_owned(), directory.join("lora_adapters")] {
        let path = place.join(CONFIG);
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(source) => return Err(CheckpointError::Read { path, source }),
        };
        let config: Config = serde_json::from_slice(&text)
            .map_err(|e| CheckpointError::Json { path: path.clone(), problem: e.to_string() })?;
        found.push(AdapterFound {
            directory: place,
            rank: config.r,
            alpha: config.lora_alpha,
            targets: match config.target_modules {
                Some(Targets::List(list)) => list,
                Some(Targets::Pattern(pattern)) => vec![pattern],
                None => Vec::new(),
            },
            base: config.base_model_name_or_path,
        });
    }
    Ok(found)
}
