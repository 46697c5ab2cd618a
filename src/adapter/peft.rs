//! An adapter as PEFT stores it: `adapter_config.json` and `adapter_model.safetensors`.
//!
//! Keys in the file are `base_model.model.` + `model.` + canonical name. Read are also keys without the inner
//! `model.`, and those of a live PEFT model, which carry the adapter's name (`lora_A.default.weight`,
//! `modules_to_save.default.`). Written is f32, always.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use candle_core::{DType, Device, Tensor, Var};

use super::base::BaseIdentity;
use super::config::PeftConfig;
use super::error::{AdapterError, listed};
use super::select::{Plan, factor_a, factor_b, in_memory};
use super::targets::IN_MEMORY;
use crate::files::write_atomic;

/// The weights' file in an adapter's directory.
pub const WEIGHTS_FILE: &str = "adapter_model.safetensors";

/// What PEFT puts before the names of the model that it wraps.
const WRAPPED: &str = "base_model.model.";

/// A trained adapter.
#[derive(Debug, Clone)]
pub struct Adapter {
    /// Where it was read from or what it is for, in messages.
    pub label: String,
    pub config: PeftConfig,
    /// The factors of each adapted linear, by its canonical name.
    pub factors: BTreeMap<String, Factors>,
    /// f32 tensors that were trained in full (`modules_to_save`), by canonical name.
    pub saved: BTreeMap<String, Tensor>,
    /// The weights that it was trained on; none when the adapter does not say (a peer's).
    pub base: Option<BaseIdentity>,
}

/// The factors of one linear, f32.
#[derive(Debug, Clone)]
pub struct Factors {
    /// `[rank, in]`
    pub a: Tensor,
    /// `[out, rank]`
    pub b: Tensor,
}

impl Adapter {
    /// An adapter from a network's trained tensors: `<module>.lora_A.weight` and `.lora_B.weight` in pairs, every
    /// other name trained in full.
    pub fn from_trained(
        label: &str,
        config: PeftConfig,
        trained: impl IntoIterator<Item = (String, Tensor)>,
        base: Option<BaseIdentity>,
    ) -> Result<Self, AdapterError> {
        let mut parts = Parts::default();
        for (name, tensor) in trained {
            parts.add(&name, tensor).map_err(|problem| weights_problem(Path::new(label), problem))?;
        }
        parts.finish(label, config, base, Path::new(label))
    }

    /// Reads the adapter in `directory`.
    pub fn read(directory: &Path) -> Result<Self, AdapterError> {
        let config = PeftConfig::read(directory)?;
        let base = BaseIdentity::read(directory)?;
        let path = directory.join(WEIGHTS_FILE);
        let bytes = std::fs::read(&path).map_err(|source| AdapterError::Read { path: path.clone(), source })?;
        Self::parse(&bytes, config, base, &path)
    }

    /// Interprets the content of an `adapter_model.safetensors`; `path` is for messages.
    pub fn parse(
        bytes: &[u8],
        config: PeftConfig,
        base: Option<BaseIdentity>,
        path: &Path,
    ) -> Result<Self, AdapterError> {
        let tensors = candle_core::safetensors::load_buffer(bytes, &Device::Cpu)
            .map_err(|error| weights_problem(path, error.to_string()))?;
        let mut parts = Parts::default();
        for (key, tensor) in tensors {
            parts.add(&canonical(&key), tensor).map_err(|problem| weights_problem(path, problem))?;
        }
        let label = path.parent().unwrap_or(path).display().to_string();
        parts.finish(&label, config, base, path)
    }

    /// Writes the adapter's files into `directory`, which must exist.
    pub fn write(&self, directory: &Path) -> Result<(), AdapterError> {
        let path = directory.join(WEIGHTS_FILE);
        let named: BTreeMap<String, Tensor> =
            self.trained().into_iter().map(|(name, tensor)| (file_key(&name), tensor)).collect();
        // What PyTorch's readers look for.
        let metadata = HashMap::from([("format".to_string(), "pt".to_string())]);
        let bytes = safetensors::serialize(&named, Some(metadata))
            .map_err(|error| weights_problem(&path, error.to_string()))?;
        write_atomic(&path, &bytes).map_err(|source| AdapterError::Write { path, source })?;
        self.config.write(directory)?;
        match &self.base {
            Some(base) => base.write(directory),
            None => Ok(()),
        }
    }

    /// Every tensor under the name that a network gives it.
    pub fn trained(&self) -> BTreeMap<String, Tensor> {
        let factors = self
            .factors
            .iter()
            .flat_map(|(module, Factors { a, b })| [(factor_a(module), a.clone()), (factor_b(module), b.clone())]);
        factors.chain(self.saved.iter().map(|(name, tensor)| (name.clone(), tensor.clone()))).collect()
    }

    /// Sets a network's trained variables, built by [`Adapter::plan`] or a plan like it, to this adapter's values.
    ///
    /// # Errors
    /// [`AdapterError::OtherTensors`] when the two do not hold the same tensors; nothing is set then.
    pub fn assign<'v>(&self, variables: impl IntoIterator<Item = (&'v str, &'v Var)>) -> Result<(), AdapterError> {
        let mut values = self.trained();
        let (mut pairs, mut lacking) = (Vec::new(), Vec::new());
        for (name, var) in variables {
            match values.remove(name) {
                Some(value) if value.dims() == var.dims() => pairs.push((name, var, value)),
                _ => lacking.push(name.to_string()),
            }
        }
        if !lacking.is_empty() || !values.is_empty() {
            let unused: Vec<String> = values.into_keys().collect();
            let (lacking, unused) = (listed(&lacking), listed(&unused));
            return Err(AdapterError::OtherTensors { adapter: self.label.clone(), lacking, unused });
        }
        for (name, var, value) in pairs {
            let set = value.to_device(var.device()).and_then(|value| var.set(&value));
            set.map_err(|source| AdapterError::Tensor { name: name.to_string(), source })?;
        }
        Ok(())
    }

    /// The plan that builds a network with room for exactly this adapter.
    pub fn plan(&self, seed: u64) -> Plan {
        let lora = self.factors.keys().map(|module| (module.clone(), self.config.spec(module))).collect();
        let full: BTreeSet<String> = self.saved.keys().cloned().collect();
        Plan::from_parts(lora, full, seed)
    }
}

/// What has been read so far.
#[derive(Default)]
struct Parts {
    a: BTreeMap<String, Tensor>,
    b: BTreeMap<String, Tensor>,
    saved: BTreeMap<String, Tensor>,
}

impl Parts {
    /// Sorts one tensor in by its canonical name; the error is the problem in words.
    fn add(&mut self, name: &str, tensor: Tensor) -> Result<(), String> {
        if [".lora_embedding_A", ".lora_embedding_B", ".lora_magnitude_vector"].iter().any(|part| name.contains(part))
            || name.ends_with(".lora_B.bias")
        {
            return Err(format!("{name} belongs to a kind of adapter that is not supported"));
        }
        let tensor = tensor.to_dtype(DType::F32).map_err(|error| format!("{name}: {error}"))?;
        let (place, key) = if let Some(module) = name.strip_suffix(".lora_A.weight") {
            (&mut self.a, module)
        } else if let Some(module) = name.strip_suffix(".lora_B.weight") {
            (&mut self.b, module)
        } else {
            (&mut self.saved, name)
        };
        match place.insert(key.to_string(), tensor) {
            None => Ok(()),
            Some(_) => Err(format!("{name} is stored twice, under two spellings of its name")),
        }
    }

    fn finish(
        mut self,
        label: &str,
        config: PeftConfig,
        base: Option<BaseIdentity>,
        path: &Path,
    ) -> Result<Adapter, AdapterError> {
        let mut factors = BTreeMap::new();
        for (module, a) in self.a {
            let Some(b) = self.b.remove(&module) else {
                return Err(weights_problem(path, format!("{module} has lora_A but no lora_B")));
            };
            let rank = config.spec(&module).rank;
            if !matches!((a.dims(), b.dims()), (&[r, _], &[_, s]) if r == rank && s == rank) {
                let (a, b) = (a.dims(), b.dims());
                let problem =
                    format!("{module}: lora_A is {a:?}, lora_B {b:?}, where adapter_config.json says r = {rank}");
                return Err(weights_problem(path, problem));
            }
            factors.insert(module, Factors { a, b });
        }
        if let Some(module) = self.b.keys().next() {
            return Err(weights_problem(path, format!("{module} has lora_B but no lora_A")));
        }
        if factors.is_empty() && self.saved.is_empty() {
            return Err(weights_problem(path, "it holds no adapter tensors".to_string()));
        }
        Ok(Adapter { label: label.to_string(), config, factors, saved: self.saved, base })
    }
}

fn weights_problem(path: &Path, problem: String) -> AdapterError {
    AdapterError::Weights { path: PathBuf::from(path), problem }
}

/// A key of the file without PEFT's and LeRobot's prefixes and without an adapter's name.
fn canonical(key: &str) -> String {
    let key = key.strip_prefix(WRAPPED).unwrap_or(key);
    let key = key.strip_prefix(IN_MEMORY).unwrap_or(key);
    for factor in [".lora_A.", ".lora_B."] {
        if let Some((module, rest)) = key.split_once(factor) {
            let rest = rest.strip_prefix("default.").unwrap_or(rest);
            return format!("{module}{factor}{rest}");
        }
    }
    match key.split_once(".modules_to_save.default.") {
        Some((module, rest)) => format!("{module}.{rest}"),
        None => key.to_string(),
    }
}

/// The key under which PEFT stores a canonical name.
fn file_key(name: &str) -> String {
    format!("{WRAPPED}{}", in_memory(name))
}

#[cfg(test)]
#[path = "peft_tests.rs"]
mod tests;
