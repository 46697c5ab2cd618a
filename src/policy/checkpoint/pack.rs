//! A checkpoint to a small one that can travel inside the executable: weights in bfloat16, and how it was made.

use std::path::{Path, PathBuf};

use candle_core::{DType, Device, Tensor};
use serde_json::{Value, json};

use super::account::Nothing;
use super::write::TRAIN_CONFIG_FILE;
use super::{Checkpoint, CheckpointError, Contents, write_description, write_weights};
use crate::error::{Explain, Kind};
use crate::files;
use crate::policy::checkpoint::store::SINGLE_FILE;
use crate::policy::parameters::parameters;
use crate::policy::processor::{ProcessorError, Tokenizer};
use crate::policy::weights::WeightSource;

/// How a packed policy was made.
pub const RECIPE_FILE: &str = "recipe.json";

/// Most bytes of a packed policy, all files together.
pub const MOST_BYTES: u64 = 10_000_000;

/// Keys of a training configuration that name places of one machine: only the last component is kept.
const PLACES: [&str; 5] = ["/data/repo", "/data/root", "/run/dir", "/model/base", "/model/tokenizer"];

#[derive(Debug, thiserror::Error)]
pub enum PackError {
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    #[error(transparent)]
    Tokenizer(#[from] ProcessorError),
    #[error("{} was trained with another tokenizer than the built-in one", directory.display())]
    OtherTokenizer { directory: PathBuf },
    #[error("cannot convert the weights of {}", directory.display())]
    Weights { directory: PathBuf, source: candle_core::Error },
    #[error("{} takes {bytes} bytes, {MOST_BYTES} are the most that travel in the executable", directory.display())]
    TooLarge { directory: PathBuf, bytes: u64 },
    #[error("cannot write {}", path.display())]
    Write { path: PathBuf, source: std::io::Error },
}

impl Explain for PackError {
    fn kind(&self) -> Kind {
        match self {
            PackError::Checkpoint(error) => error.kind(),
            PackError::Tokenizer(error) => error.kind(),
            PackError::Write { .. } => Kind::Environment,
            _ => Kind::Input,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            PackError::Checkpoint(error) => error.hint(),
            PackError::Tokenizer(error) => error.hint(),
            PackError::OtherTokenizer { .. } | PackError::TooLarge { .. } => {
                Some("train with configs/train/sim.toml, whose policy fits".into())
            }
            _ => None,
        }
    }
}

/// What is told about a policy beside its configuration.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Recipe {
    /// Where the data came from: the command that made it.
    pub data: Option<String>,
    /// Results of an evaluation.
    pub evaluation: Option<Value>,
}

/// Writes the policy of `checkpoint` into `out` (made if absent; files of the same names are replaced). Gives the bytes of
/// all that was written.
///
/// # Errors
/// A checkpoint that is incomplete, of another tokenizer, or too large when packed.
pub fn pack(checkpoint: &Path, out: &Path, recipe: &Recipe) -> Result<u64, PackError> {
    let checkpoint = Checkpoint::open(checkpoint)?;
    let directory = checkpoint.directory.clone();
    let builtin = Tokenizer::builtin()?;
    if checkpoint.tokenizer()?.is_some_and(|tokenizer| !same(&tokenizer, &builtin)) {
        return Err(PackError::OtherTokenizer { directory });
    }
    let statistics =
        checkpoint.statistics.as_ref().ok_or_else(|| CheckpointError::NoStatistics { directory: directory.clone() })?;
    let tensors = narrow(&checkpoint)?;
    let bytes: u64 = tensors.iter().map(|(_, t)| (t.elem_count() * t.dtype().size_in_bytes()) as u64).sum();
    if bytes > MOST_BYTES {
        return Err(PackError::TooLarge { directory, bytes });
    }
    let trained = trained(&directory);
    let contents = Contents {
        config: &checkpoint.config,
        statistics,
        rename: &checkpoint.pipelines.as_ref().map(|pipelines| pipelines.rename.clone()).unwrap_or_default(),
        tokenizer: &builtin,
        train_config: &trained,
    };
    write_description(out, &contents)?;
    write_weights(&out.join(SINGLE_FILE), &checkpoint.config, tensors)?;
    write_recipe(out, recipe, &trained)?;
    let bytes = size(out)?;
    if bytes > MOST_BYTES {
        return Err(PackError::TooLarge { directory: out.to_owned(), bytes });
    }
    Ok(bytes)
}

/// All parameters in bfloat16.
fn narrow(checkpoint: &Checkpoint) -> Result<Vec<(String, Tensor)>, PackError> {
    let weights = checkpoint.weights(&checkpoint.arch, &[], Box::new(Nothing))?;
    let one = |name: &str, shape: &[usize]| weights.tensor(name, shape, &Device::Cpu)?.to_dtype(DType::BF16);
    parameters(&checkpoint.arch)
        .into_iter()
        .map(|parameter| Ok((parameter.name.clone(), one(&parameter.name, &parameter.shape)?)))
        .collect::<candle_core::Result<_>>()
        .map_err(|source| PackError::Weights { directory: checkpoint.directory.clone(), source })
}

fn same(a: &Tokenizer, b: &Tokenizer) -> bool {
    let vocabulary = |tokenizer: &Tokenizer| tokenizer.files().next().map(|(_, bytes)| bytes.to_vec());
    vocabulary(a) == vocabulary(b)
}

/// The training configuration without places of the machine that trained; null when it is not there.
fn trained(directory: &Path) -> Value {
    let text = std::fs::read(directory.join(TRAIN_CONFIG_FILE)).ok();
    let mut config: Value = text.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or(Value::Null);
    for place in PLACES {
        if let Some(Value::String(path)) = config.pointer_mut(place) {
            let last = Path::new(path.as_str()).file_name().map(|name| name.to_string_lossy().into_owned());
            *path = last.unwrap_or_default();
        }
    }
    config
}

fn write_recipe(out: &Path, recipe: &Recipe, trained: &Value) -> Result<(), PackError> {
    let path = out.join(RECIPE_FILE);
    let value = json!({
        "made_by": format!("vlash policy pack {}", env!("CARGO_PKG_VERSION")),
        "data": recipe.data,
        "evaluation": recipe.evaluation,
        "config": trained,
    });
    files::write_atomic(&path, format!("{value:#}\n").as_bytes()).map_err(|source| PackError::Write { path, source })
}

fn size(directory: &Path) -> Result<u64, PackError> {
    let sum =
        || -> std::io::Result<u64> { std::fs::read_dir(directory)?.map(|entry| Ok(entry?.metadata()?.len())).sum() };
    sum().map_err(|source| PackError::Write { path: directory.to_owned(), source })
}
