//! Adapters that lie in or beside a checkpoint: found and described here, read by the adapter room.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::config::CONFIG_FILE;
use super::error::CheckpointError;
use super::info::thousands;
use super::store::Store;
use crate::adapter::base::BaseIdentity;
use crate::adapter::config::CONFIG_FILE as ADAPTER_CONFIG;
use crate::adapter::peft::WEIGHTS_FILE;

/// VLASH's folder of an adapter, inside the policy's.
const FOLDER: &str = "lora_adapters";

/// How many targets are named before they are counted.
const NAMED: usize = 8;

/// A PEFT adapter directory. `Display` is what `vlash policy info` says about it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AdapterFound {
    pub directory: PathBuf,
    pub rank: Option<usize>,
    pub alpha: Option<f64>,
    pub dropout: Option<f64>,
    /// Module names, or one pattern.
    pub targets: Vec<String>,
    /// Linears that have factors; none of the following when the weights are not here.
    pub linears: usize,
    /// Tensors that were trained in full and travel along (`modules_to_save`).
    pub whole: usize,
    /// Of factors and whole tensors.
    pub parameters: u64,
    /// As PEFT records it.
    pub base: Option<String>,
    /// The exact weights that it was trained on, when we trained it.
    pub trained_on: Option<BaseIdentity>,
    /// The policy, merged, in whose directory it lies.
    pub policy: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Config {
    r: Option<usize>,
    lora_alpha: Option<f64>,
    lora_dropout: Option<f64>,
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
    let places = [directory.to_owned(), directory.join(FOLDER)];
    places.iter().filter_map(|place| read(place).transpose()).collect()
}

/// The adapter in `directory` itself; none when there is none. The weights' header is read, not the weights.
pub fn read(directory: &Path) -> Result<Option<AdapterFound>, CheckpointError> {
    let path = directory.join(ADAPTER_CONFIG);
    let text = match std::fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(CheckpointError::Read { path, source }),
    };
    let json = |problem: String| CheckpointError::Json { path: path.clone(), problem };
    let config: Config = serde_json::from_slice(&text).map_err(|e| json(e.to_string()))?;
    let trained_on = BaseIdentity::read(directory).map_err(|e| json(e.to_string()))?;
    let weights = directory.join(WEIGHTS_FILE);
    let (mut linears, mut whole, mut parameters) = (0, 0, 0u64);
    if weights.is_file() {
        for (name, tensor) in Store::file(&weights)?.tensors() {
            match name.contains(".lora_A.") {
                true => linears += 1,
                false if !name.contains(".lora_") => whole += 1,
                false => {}
            }
            parameters += tensor.shape.iter().map(|&side| side as u64).product::<u64>();
        }
    }
    let around = directory.parent().filter(|_| !directory.join(CONFIG_FILE).is_file());
    Ok(Some(AdapterFound {
        directory: directory.to_owned(),
        rank: config.r,
        alpha: config.lora_alpha,
        dropout: config.lora_dropout,
        targets: match config.target_modules {
            Some(Targets::List(list)) => list,
            Some(Targets::Pattern(pattern)) => vec![pattern],
            None => Vec::new(),
        },
        linears,
        whole,
        parameters,
        base: config.base_model_name_or_path,
        trained_on,
        policy: around.filter(|parent| parent.join(CONFIG_FILE).is_file()).map(Path::to_owned),
    }))
}

impl fmt::Display for AdapterFound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = |label: &str, text: String| writeln!(f, "{label:<12}{text}");
        line("adapter", self.directory.display().to_string())?;
        let number = |value: Option<f64>| value.map_or_else(|| "?".to_owned(), |value| value.to_string());
        let (rank, alpha) = (number(self.rank.map(|rank| rank as f64)), number(self.alpha));
        line("  rank", format!("{rank}, alpha {alpha}, dropout {}", number(self.dropout)))?;
        let mut targets = self.targets.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
        if self.targets.len() > NAMED {
            targets.push_str(&format!(" and {} more", self.targets.len() - NAMED));
        }
        line("  targets", targets)?;
        let weights = match self.parameters {
            0 => format!("no {WEIGHTS_FILE} here"),
            parameters => format!(
                "{} linears adapted, {} tensors whole; {} parameters",
                self.linears,
                self.whole,
                thousands(parameters)
            ),
        };
        line("  weights", weights)?;
        let base = match (&self.trained_on, &self.base) {
            (Some(identity), _) => identity.to_string(),
            (None, Some(name)) => name.clone(),
            (None, None) => "not said".into(),
        };
        line("  base", base)?;
        match &self.policy {
            Some(policy) => line("  merged", format!("into the policy {}", policy.display())),
            None => Ok(()),
        }
    }
}
