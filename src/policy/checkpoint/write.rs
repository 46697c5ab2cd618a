//! Writing `pretrained_model/` in LeRobot's layout (≥ 0.4), so that LeRobot loads it as its own.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use candle_core::{DType, Device, Tensor};
use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};

use super::config::{CONFIG_FILE, PolicyConfig};
use super::error::CheckpointError;
use super::store::SINGLE_FILE;
use super::{pipeline, statistics};
use crate::dataset::stats::Statistics;
use crate::files;
use crate::policy::parameters::{parameters, path};
use crate::policy::processor::Tokenizer;

pub const TRAIN_CONFIG_FILE: &str = "train_config.json";

/// Everything of a policy but its weights.
#[derive(Debug)]
pub struct Contents<'a> {
    pub config: &'a PolicyConfig,
    /// As used in training; stored in f32.
    pub statistics: &'a Statistics,
    pub rename: &'a BTreeMap<String, String>,
    pub tokenizer: &'a Tokenizer,
    /// The run's resolved configuration.
    pub train_config: &'a serde_json::Value,
}

/// Writes the whole policy into `directory` (made if absent): small files first, weights last.
///
/// `tensors`: every parameter of the network under its canonical name, once, f32, bf16 or f16, on any device.
pub fn write(
    directory: &Path,
    contents: &Contents<'_>,
    tensors: impl IntoIterator<Item = (String, Tensor)>,
) -> Result<(), CheckpointError> {
    write_changed(directory, contents, tensors, |_, tensor| Ok(tensor.clone()))
}

/// As [`write()`], with each tensor as `change` makes it of its canonical name and itself, in the same shape and type. It is
/// changed on its way into the file, so that no second policy is held, on a device least of all.
pub fn write_changed(
    directory: &Path,
    contents: &Contents<'_>,
    tensors: impl IntoIterator<Item = (String, Tensor)>,
    mut change: impl FnMut(&str, &Tensor) -> candle_core::Result<Tensor>,
) -> Result<(), CheckpointError> {
    write_description(directory, contents)?;
    let named = named(contents.config, &directory.join(SINGLE_FILE), tensors)?;
    stream_changed(&directory.join(SINGLE_FILE), named, |name, tensor| match canonical(name) {
        Some(name) => change(name, tensor),
        None => Ok(tensor.clone()),
    })
}

/// Writes everything but the weights: config, processors with statistics, tokenizer, training configuration. What
/// lies beside an adapter, too.
pub fn write_description(directory: &Path, contents: &Contents<'_>) -> Result<(), CheckpointError> {
    std::fs::create_dir_all(directory)
        .map_err(|source| CheckpointError::Write { path: directory.to_owned(), source })?;
    let put = |name: &str, bytes: &[u8]| {
        let path = directory.join(name);
        files::write_atomic(&path, bytes).map_err(|source| CheckpointError::Write { path, source })
    };
    let json = |name: &str| {
        let path = directory.join(name);
        move |e: serde_json::Error| CheckpointError::Json { path, problem: e.to_string() }
    };
    put(CONFIG_FILE, contents.config.to_json().map_err(json(CONFIG_FILE))?.as_bytes())?;
    contents.config.vlash_forge.write(directory)?;
    let train_config = serde_json::to_string_pretty(contents.train_config).map_err(json(TRAIN_CONFIG_FILE))?;
    put(TRAIN_CONFIG_FILE, train_config.as_bytes())?;
    for (name, bytes) in contents.tokenizer.files() {
        put(name, bytes)?;
    }
    for written in pipeline::write(contents.config, contents.rename).map_err(json(pipeline::PREPROCESSOR))? {
        put(written.file, written.json.as_bytes())?;
        write_statistics(&directory.join(&written.state_file), contents.statistics)?;
    }
    Ok(())
}

fn write_statistics(path: &Path, statistics: &Statistics) -> Result<(), CheckpointError> {
    let tensors: Result<Vec<_>, CheckpointError> = statistics::to_tensors(statistics)
        .into_iter()
        .map(|(name, values)| {
            let tensor = Tensor::new(values, &Device::Cpu);
            tensor.map(|tensor| (name.clone(), tensor)).map_err(|source| CheckpointError::Tensor { name, source })
        })
        .collect();
    stream(path, tensors?)
}

/// Writes the weights under LeRobot's names: `model.` in front, and both output heads, which nothing reads but which
/// LeRobot's strict loading asks for (the language model's repeats the embedding, the expert's is zero).
pub fn write_weights(
    path: &Path,
    config: &PolicyConfig,
    tensors: impl IntoIterator<Item = (String, Tensor)>,
) -> Result<(), CheckpointError> {
    stream(path, named(config, path, tensors)?)
}

/// The parameter that a name in the file stands for; none: the head that nothing reads.
fn canonical(name: &str) -> Option<&str> {
    match name.strip_prefix("model.")? {
        path::LM_HEAD => Some(path::EMBED_TOKENS),
        path::EXPERT_LM_HEAD => None,
        name => Some(name),
    }
}

/// All parameters, once each, and both heads, by their names in the file.
fn named(
    config: &PolicyConfig,
    path: &Path,
    tensors: impl IntoIterator<Item = (String, Tensor)>,
) -> Result<Vec<(String, Tensor)>, CheckpointError> {
    let arch = config.arch().map_err(|source| CheckpointError::Arch { path: path.to_owned(), source })?;
    let incomplete = |problem: String| CheckpointError::Incomplete { problem };
    let mut expected: BTreeMap<String, Vec<usize>> = parameters(&arch).into_iter().map(|p| (p.name, p.shape)).collect();
    let mut named = Vec::new();
    for (name, tensor) in tensors {
        match expected.remove(&name) {
            Some(shape) if shape == tensor.dims() => {}
            Some(shape) => return Err(incomplete(format!("{name} is {:?} instead of {shape:?}", tensor.dims()))),
            None => return Err(incomplete(format!("{name} is no parameter, or came twice"))),
        }
        if name == path::EMBED_TOKENS {
            let head = Tensor::zeros((arch.vocab_size, arch.expert.width), tensor.dtype(), &Device::Cpu);
            let head = head.map_err(|source| CheckpointError::Tensor { name: path::EXPERT_LM_HEAD.into(), source })?;
            named.push((format!("model.{}", path::LM_HEAD), tensor.clone()));
            named.push((format!("model.{}", path::EXPERT_LM_HEAD), head));
        }
        named.push((format!("model.{name}"), tensor));
    }
    if let Some((name, _)) = expected.first_key_value() {
        return Err(incomplete(format!("{} are missing, first {name}", expected.len())));
    }
    Ok(named)
}

/// Writes a safetensors file tensor by tensor: never more than one of them is held a second time.
pub fn stream(path: &Path, tensors: Vec<(String, Tensor)>) -> Result<(), CheckpointError> {
    stream_changed(path, tensors, |_, tensor| Ok(tensor.clone()))
}

fn stream_changed(
    path: &Path,
    mut tensors: Vec<(String, Tensor)>,
    mut change: impl FnMut(&str, &Tensor) -> candle_core::Result<Tensor>,
) -> Result<(), CheckpointError> {
    // As the library orders them: wide types first, so that all data stays aligned.
    tensors.sort_by(|(a, left), (b, right)| {
        let width = |t: &Tensor| std::cmp::Reverse(t.dtype().size_in_bytes());
        width(left).cmp(&width(right)).then(a.cmp(b))
    });
    let mut seen = BTreeSet::new();
    let mut end = 0usize;
    let mut infos = Vec::with_capacity(tensors.len());
    for (name, tensor) in &tensors {
        if !seen.insert(name) {
            return Err(CheckpointError::Incomplete { problem: format!("{name} came twice") });
        }
        let dtype = stored_type(tensor.dtype())
            .ok_or_else(|| CheckpointError::Incomplete { problem: format!("{name} is {:?}", tensor.dtype()) })?;
        let start = end;
        end += tensor.elem_count() * tensor.dtype().size_in_bytes();
        infos.push((name.clone(), TensorInfo { dtype, shape: tensor.dims().to_vec(), data_offsets: (start, end) }));
    }
    let metadata = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    let broken = |problem: String| CheckpointError::Broken { path: path.to_owned(), problem };
    let metadata = Metadata::new(Some(metadata), infos).map_err(|e| broken(e.to_string()))?;
    let mut header = serde_json::to_vec(&metadata).map_err(|e| broken(e.to_string()))?;
    header.resize(header.len().next_multiple_of(8), b' ');
    let write = |file: &mut File| -> std::io::Result<()> {
        let mut file = BufWriter::with_capacity(1 << 20, file);
        file.write_all(&(header.len() as u64).to_le_bytes())?;
        file.write_all(&header)?;
        for (name, tensor) in &tensors {
            let changed = change(name, tensor).map_err(std::io::Error::other)?;
            if (changed.dims(), changed.dtype()) != (tensor.dims(), tensor.dtype()) {
                return Err(std::io::Error::other(format!("{name} changed its form to {:?}", changed.shape())));
            }
            write_data(&mut file, &changed)?;
        }
        file.flush()
    };
    files::write_atomic_with(path, write).map_err(|source| CheckpointError::Write { path: path.to_owned(), source })
}

fn stored_type(dtype: DType) -> Option<Dtype> {
    match dtype {
        DType::F64 => Some(Dtype::F64),
        DType::F32 => Some(Dtype::F32),
        DType::F16 => Some(Dtype::F16),
        DType::BF16 => Some(Dtype::BF16),
        DType::I64 => Some(Dtype::I64),
        DType::U32 => Some(Dtype::U32),
        DType::U8 => Some(Dtype::U8),
        _ => None,
    }
}

fn write_data(file: &mut impl Write, tensor: &Tensor) -> std::io::Result<()> {
    fn values<T: candle_core::WithDType, const N: usize>(
        file: &mut impl Write,
        tensor: &Tensor,
        bytes: impl Fn(T) -> [u8; N],
    ) -> std::io::Result<()> {
        let flat: Vec<T> = tensor.flatten_all().and_then(|t| t.to_vec1()).map_err(std::io::Error::other)?;
        flat.into_iter().try_for_each(|value| file.write_all(&bytes(value)))
    }
    match tensor.dtype() {
        DType::F64 => values(file, tensor, f64::to_le_bytes),
        DType::F32 => values(file, tensor, f32::to_le_bytes),
        DType::F16 => values(file, tensor, half::f16::to_le_bytes),
        DType::BF16 => values(file, tensor, half::bf16::to_le_bytes),
        DType::I64 => values(file, tensor, i64::to_le_bytes),
        DType::U32 => values(file, tensor, u32::to_le_bytes),
        DType::U8 => values(file, tensor, u8::to_le_bytes),
        other => Err(std::io::Error::other(format!("{other:?} is not stored"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_change_on_their_way_and_keep_their_form() -> candle_core::Result<()> {
        let directory = tempfile::tempdir()?;
        let file = directory.path().join("model.safetensors");
        let ones = Tensor::ones((2, 3), DType::BF16, &Device::Cpu)?;
        let names = [path::LM_HEAD, path::EXPERT_LM_HEAD, path::EMBED_TOKENS, "time_mlp_in.weight"];
        let tensors = || names.map(|name| (format!("model.{name}"), ones.clone())).to_vec();
        let mut seen = Vec::new();
        let double = |name: &str, tensor: &Tensor| {
            seen.extend(canonical(name).map(str::to_owned));
            tensor * 2.0
        };
        stream_changed(&file, tensors(), double).map_err(candle_core::Error::wrap)?;
        seen.sort();
        assert_eq!(seen, [path::EMBED_TOKENS, path::EMBED_TOKENS, "time_mlp_in.weight"]);
        let read = candle_core::safetensors::load(&file, &Device::Cpu)?;
        assert!(read.len() == 4 && read.values().all(|tensor| tensor.dtype() == DType::BF16));
        assert_eq!(read["model.time_mlp_in.weight"].to_dtype(DType::F32)?.to_vec2::<f32>()?, [[2.0; 3]; 2]);
        let turned = stream_changed(&file, tensors(), |_, tensor| tensor.t());
        assert!(turned.is_err_and(|error| matches!(error, CheckpointError::Write { .. })));
        Ok(())
    }
}
