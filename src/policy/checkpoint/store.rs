//! Tensors on disk: one safetensors file, or several with an index, mapped into memory.
//!
//! Nothing is copied until a tensor is asked for. Headers are checked against the file's real size before anything
//! is believed.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use candle_core::{DType, Device, Tensor};
use memmap2::Mmap;
use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};
use serde::Deserialize;

use super::error::CheckpointError;

/// Weights in one file.
pub const SINGLE_FILE: &str = "model.safetensors";
/// Which of several files holds which tensor.
pub const INDEX_FILE: &str = "model.safetensors.index.json";

/// One mapped file.
struct TensorFile {
    path: PathBuf,
    map: Mmap,
    header: Header,
}

/// A checked header and where the data begins.
#[derive(Debug)]
pub struct Header {
    metadata: Metadata,
    data: usize,
}

/// Reads and checks the header of a safetensors file that is `bytes` as a whole.
///
/// The library's own check adds untrusted sizes without care for overflow, so the sum is done here.
pub fn read_header(bytes: &[u8]) -> Result<Header, String> {
    const LENGTH: usize = size_of::<u64>();
    let short = || format!("{} bytes are too few for a header", bytes.len());
    let length = bytes.first_chunk::<LENGTH>().ok_or_else(short)?;
    let length = u64::from_le_bytes(*length);
    let data = usize::try_from(length).ok().and_then(|n| n.checked_add(LENGTH)).filter(|&end| end <= bytes.len());
    let data = data.ok_or_else(|| format!("a header of {length} bytes in a file of {}", bytes.len()))?;
    let text = bytes.get(LENGTH..data).ok_or_else(short)?;
    let metadata: Metadata = serde_json::from_slice(text).map_err(|e| format!("its header: {e}"))?;
    let declared = metadata.data_len().checked_add(data);
    match declared {
        Some(declared) if declared == bytes.len() => Ok(Header { metadata, data }),
        Some(declared) if declared > bytes.len() => {
            Err(format!("it has {} bytes, {} fewer than its header declares", bytes.len(), declared - bytes.len()))
        }
        _ => Err(format!("it has {} bytes, its header declares {}", bytes.len(), declared.unwrap_or(usize::MAX))),
    }
}

impl Header {
    /// Every tensor with its type, shape and place.
    pub fn tensors(&self) -> impl Iterator<Item = (String, &TensorInfo)> {
        self.metadata.tensors().into_iter()
    }
}

impl TensorFile {
    fn open(path: PathBuf) -> Result<TensorFile, CheckpointError> {
        let read = |source| CheckpointError::Read { path: path.clone(), source };
        let file = File::open(&path).map_err(read)?;
        #[expect(unsafe_code, reason = "mapping a file")]
        // SAFETY: the map is read-only. Checkpoint files are replaced by renaming, never written in place, so the
        // mapped content does not change under us; whoever truncates one by hand gets SIGBUS, as with any loader.
        let map = unsafe { Mmap::map(&file) }.map_err(read)?;
        let header = read_header(&map).map_err(|problem| CheckpointError::Broken { path: path.clone(), problem })?;
        Ok(TensorFile { path, map, header })
    }

    fn bytes(&self, info: &TensorInfo) -> Option<&[u8]> {
        let (start, end) = info.data_offsets;
        self.map.get(self.header.data.checked_add(start)?..self.header.data.checked_add(end)?)
    }
}

/// Type and shape of a stored tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    pub dtype: Dtype,
    pub shape: Vec<usize>,
    file: usize,
}

/// All tensors of a checkpoint, under their stored names.
pub struct Store {
    files: Vec<TensorFile>,
    tensors: BTreeMap<String, Stored>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Store({} tensors in {} files)", self.tensors.len(), self.files.len())
    }
}

#[derive(Deserialize)]
struct Index {
    #[serde(default)]
    metadata: IndexMetadata,
    weight_map: BTreeMap<String, String>,
}

#[derive(Default, Deserialize)]
struct IndexMetadata {
    total_size: Option<f64>,
}

impl Store {
    /// The weights of `directory`; none when it has neither the single file nor an index.
    pub fn open(directory: &Path) -> Result<Option<Store>, CheckpointError> {
        let index = directory.join(INDEX_FILE);
        if index.is_file() {
            return Store::sharded(directory, &index).map(Some);
        }
        let single = directory.join(SINGLE_FILE);
        if single.exists() { Store::of(vec![TensorFile::open(single)?]).map(Some) } else { Ok(None) }
    }

    /// One file by its path.
    pub fn file(path: &Path) -> Result<Store, CheckpointError> {
        Store::of(vec![TensorFile::open(path.to_owned())?])
    }

    fn of(files: Vec<TensorFile>) -> Result<Store, CheckpointError> {
        let mut tensors = BTreeMap::new();
        for (file, entry) in files.iter().enumerate() {
            for (name, info) in entry.header.tensors() {
                let stored = Stored { dtype: info.dtype, shape: info.shape.clone(), file };
                if tensors.insert(name.clone(), stored).is_some() {
                    let problem = format!("{name} lies in more than one shard");
                    return Err(CheckpointError::Broken { path: entry.path.clone(), problem });
                }
            }
        }
        Ok(Store { files, tensors })
    }

    fn sharded(directory: &Path, path: &Path) -> Result<Store, CheckpointError> {
        let problem = |problem: String| CheckpointError::Json { path: path.to_owned(), problem };
        let text = std::fs::read(path).map_err(|source| CheckpointError::Read { path: path.to_owned(), source })?;
        let index: Index = serde_json::from_slice(&text).map_err(|e| problem(e.to_string()))?;
        let mut shards: Vec<&String> = index.weight_map.values().collect();
        shards.sort();
        shards.dedup();
        let mut files = Vec::new();
        let mut absent = Vec::new();
        for shard in shards {
            // A name, not a path: an index must not reach outside of its directory.
            if Path::new(shard).file_name().is_none_or(|name| name != shard.as_str()) {
                return Err(problem(format!("{shard:?} is no file name")));
            }
            let file = directory.join(shard);
            if file.exists() { files.push(TensorFile::open(file)?) } else { absent.push(shard.clone()) }
        }
        if let Some(shard) = absent.first() {
            let present: u64 = files.iter().map(|file| file.header.metadata.data_len() as u64).sum();
            let total = index.metadata.total_size.filter(|_| absent.len() == 1).map(|size| size as u64);
            return Err(CheckpointError::MissingShard {
                directory: directory.to_owned(),
                shard: absent.join(", "),
                bytes: total.map(|total| total.saturating_sub(present)).filter(|_| !shard.is_empty()),
            });
        }
        let store = Store::of(files)?;
        match index.weight_map.into_iter().find(|(tensor, _)| !store.tensors.contains_key(tensor)) {
            Some((tensor, shard)) => {
                Err(CheckpointError::NotInShard { directory: directory.to_owned(), tensor, shard })
            }
            None => Ok(store),
        }
    }

    /// Stored names with type and shape, sorted.
    pub fn tensors(&self) -> &BTreeMap<String, Stored> {
        &self.tensors
    }

    /// The raw bytes of a tensor.
    pub fn bytes(&self, name: &str) -> Option<&[u8]> {
        let file = self.files.get(self.tensors.get(name)?.file)?;
        file.bytes(file.header.metadata.info(name)?)
    }

    /// Both tensors hold the same bytes of the same type.
    pub fn same(&self, a: &str, b: &str) -> bool {
        let shape = |name: &str| self.tensors.get(name).map(|stored| (stored.dtype, &stored.shape));
        shape(a).is_some() && shape(a) == shape(b) && self.bytes(a) == self.bytes(b)
    }

    /// Rows `start .. start + shape[0]` of the stored tensor as f32, bf16 or f16 (f64 becomes f32).
    pub fn read(&self, name: &str, start: usize, shape: &[usize], device: &Device) -> candle_core::Result<Tensor> {
        let broken = || candle_core::Error::Msg(format!("{name}: rows {start}.. of {shape:?} lie outside of it")).bt();
        let stored = self.tensors.get(name).ok_or_else(broken)?;
        let Some(dtype) = float_type(stored.dtype) else {
            candle_core::bail!("{name}: {:?} is no type of a weight", stored.dtype)
        };
        let row: usize = shape.iter().skip(1).product::<usize>() * dtype.size_in_bytes();
        let rows = shape.first().copied().unwrap_or(1);
        let bytes = self.bytes(name).and_then(|bytes| bytes.get(start * row..(start + rows) * row));
        let tensor = Tensor::from_raw_buffer(bytes.ok_or_else(broken)?, dtype, shape, device)?;
        if dtype == DType::F64 { tensor.to_dtype(DType::F32) } else { Ok(tensor) }
    }
}

/// The types in which weights are stored.
pub fn float_type(dtype: Dtype) -> Option<DType> {
    match dtype {
        Dtype::F64 => Some(DType::F64),
        Dtype::F32 => Some(DType::F32),
        Dtype::F16 => Some(DType::F16),
        Dtype::BF16 => Some(DType::BF16),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn file_bytes() -> Vec<u8> {
        std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/pi05-tiny/model.safetensors")).unwrap()
    }

    fn with_header(json: &str, data: usize) -> Vec<u8> {
        let mut bytes = (json.len() as u64).to_le_bytes().to_vec();
        bytes.extend(json.as_bytes());
        bytes.resize(bytes.len() + data, 0);
        bytes
    }

    #[test]
    fn a_file_one_byte_short_is_refused_with_the_number() {
        let bytes = file_bytes();
        assert_eq!(read_header(&bytes).unwrap().tensors().count(), 112);
        let problem = read_header(&bytes[..bytes.len() - 1]).unwrap_err();
        assert!(problem.contains("1 fewer than its header declares"), "{problem}");
    }

    #[test]
    fn sizes_that_overflow_are_refused() {
        let huge = u64::MAX / 8;
        let tensor = |name: usize, start: u128| {
            format!(
                r#""{name}":{{"dtype":"U8","shape":[{huge}],"data_offsets":[{start},{}]}}"#,
                start + u128::from(huge)
            )
        };
        // Eight tensors of 2^61 bytes: the offsets still fit in 64 bits, offset plus header no longer do.
        let many: Vec<String> = (0..8).map(|k| tensor(k, k as u128 * u128::from(huge))).collect();
        assert!(read_header(&with_header(&format!("{{{}}}", many.join(",")), 4)).is_err());
        let shape = r#"{"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}}"#;
        assert!(read_header(&with_header(shape, 0)).is_err());
        assert!(read_header(&u64::MAX.to_le_bytes()).is_err());
        assert!(read_header(&[]).is_err());
    }

    proptest! {
        #[test]
        fn random_bytes_are_an_error_not_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            // An honest empty file is the only thing that random bytes could spell.
            if let Ok(header) = read_header(&bytes) {
                prop_assert_eq!(header.tensors().count(), 0);
            }
        }

        #[test]
        fn random_headers_are_an_error_or_lie_within_the_file(
            dtype in prop::sample::select(vec!["F32", "BF16", "F64", "I64", "U8", "F4", "X"]),
            shape in proptest::collection::vec(prop_oneof![0u64..5, any::<u64>()], 0..4),
            start in prop_oneof![0u64..8, any::<u64>()],
            end in prop_oneof![0u64..64, any::<u64>()],
            data in 0usize..64,
        ) {
            let json = format!(r#"{{"a":{{"dtype":"{dtype}","shape":{shape:?},"data_offsets":[{start},{end}]}}}}"#);
            let bytes = with_header(&json, data);
            if let Ok(header) = read_header(&bytes) {
                for (_, info) in header.tensors() {
                    prop_assert!(header.data + info.data_offsets.1 <= bytes.len());
                    prop_assert!(info.data_offsets.0 <= info.data_offsets.1);
                }
            }
        }

        #[test]
        fn a_damaged_real_header_never_panics(at in 0usize..13_000, value: u8, cut in 0usize..20_000) {
            let mut bytes = file_bytes();
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
            let _ = read_header(&bytes);
            prop_assert!(read_header(&bytes[..bytes.len() - 1 - cut]).is_err());
        }
    }
}
