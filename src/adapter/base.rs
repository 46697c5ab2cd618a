//! Which weights an adapter belongs to.
//!
//! An adapter is worth nothing without the exact weights it was trained on, and a name alone does not identify
//! them: repositories move on. So the identity holds a hash over the tensors, independent of how they are spread
//! over files or in which order they are stored. It lies in a file of our own beside PEFT's two, since PEFT answers
//! unknown keys in its configuration with a warning that tells people to upgrade.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use candle_core::safetensors::MmapedSafetensors;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::error::AdapterError;
use crate::files::write_atomic;

/// The identity's file in an adapter's directory.
pub const BASE_FILE: &str = "vlash_base.json";

/// Characters of a hash that a message shows.
const SHOWN: usize = 8;

/// The weights that an adapter was trained on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BaseIdentity {
    /// As the user named it: a repository or a directory.
    pub name: String,
    /// The commit, where it is known.
    pub revision: Option<String>,
    /// [`WeightsDigest`] over the base's tensors, hexadecimal.
    pub sha256: String,
}

impl fmt::Display for BaseIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name)?;
        if let Some(revision) = &self.revision {
            write!(f, "@{}", shortened(revision))?;
        }
        write!(f, " (sha256 {}…)", shortened(&self.sha256))
    }
}

/// The beginning of a hash.
pub(super) fn shortened(hash: &str) -> &str {
    hash.char_indices().nth(SHOWN).and_then(|(end, _)| hash.get(..end)).unwrap_or(hash)
}

impl BaseIdentity {
    /// Reads the identity beside an adapter; none when the adapter brings none (a peer's).
    pub fn read(directory: &Path) -> Result<Option<Self>, AdapterError> {
        let path = directory.join(BASE_FILE);
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(AdapterError::Read { path, source }),
        };
        match serde_json::from_slice(&text) {
            Ok(identity) => Ok(Some(identity)),
            Err(error) => Err(AdapterError::Config { path, problem: error.to_string() }),
        }
    }

    /// Writes the identity into an adapter's directory.
    pub fn write(&self, directory: &Path) -> Result<(), AdapterError> {
        let path = directory.join(BASE_FILE);
        let text = serde_json::to_vec_pretty(self)
            .map_err(|source| AdapterError::Write { path: path.clone(), source: source.into() })?;
        write_atomic(&path, &text).map_err(|source| AdapterError::Write { path, source })
    }
}

/// A hash over named tensors: SHA-256 of the sorted names with each tensor's own SHA-256 over dtype, shape and
/// little-endian bytes.
#[derive(Debug, Clone, Default)]
pub struct WeightsDigest {
    tensors: BTreeMap<String, [u8; 32]>,
}

impl WeightsDigest {
    /// The digest of safetensors files under the names that `canonical` gives; a tensor it gives none is left out.
    pub fn of_files(paths: &[PathBuf], canonical: impl Fn(&str) -> Option<String>) -> Result<Self, AdapterError> {
        let shown = || paths.first().cloned().unwrap_or_default();
        // SAFETY: the files are only read, and nobody changes a checkpoint that is in use; a truncation underneath
        // would end the process, as it does for every user of memory-mapped weights.
        #[expect(unsafe_code, reason = "memory-mapped weights: reading 14 GB into memory for a hash is no option")]
        let mapped = unsafe { MmapedSafetensors::multi(paths) }
            .map_err(|error| AdapterError::Weights { path: shown(), problem: error.to_string() })?;
        let named: Vec<_> =
            mapped.tensors().into_iter().filter_map(|(name, view)| Some((canonical(&name)?, view))).collect();
        let hash = |(name, view): (String, safetensors::tensor::TensorView<'_>)| {
            (name, tensor_hash(&format!("{:?}", view.dtype()), view.shape(), view.data()))
        };
        Ok(Self { tensors: named.into_par_iter().map(hash).collect() })
    }

    /// Adds one tensor. `dtype` is the safetensors name (`F32`, `BF16`).
    pub fn add(&mut self, name: &str, dtype: &str, shape: &[usize], bytes: &[u8]) {
        self.tensors.insert(name.to_string(), tensor_hash(dtype, shape, bytes));
    }

    /// The digest in hexadecimal.
    pub fn hex(&self) -> String {
        let mut hash = Sha256::new();
        for (name, tensor) in &self.tensors {
            part(&mut hash, name.as_bytes());
            part(&mut hash, tensor);
        }
        hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

fn tensor_hash(dtype: &str, shape: &[usize], bytes: &[u8]) -> [u8; 32] {
    let mut hash = Sha256::new();
    part(&mut hash, dtype.as_bytes());
    hash.update((shape.len() as u64).to_le_bytes());
    for &side in shape {
        hash.update((side as u64).to_le_bytes());
    }
    part(&mut hash, bytes);
    hash.finalize().into()
}

/// One part with its length, so that no two lists of parts hash alike by concatenation.
fn part(hash: &mut Sha256, bytes: &[u8]) {
    hash.update((bytes.len() as u64).to_le_bytes());
    hash.update(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::{Device, Tensor};
    use std::collections::HashMap;

    fn save(path: &Path, tensors: &[(&str, f32)]) {
        let tensors: HashMap<String, Tensor> =
            tensors.iter().map(|(n, v)| (n.to_string(), Tensor::new(&[*v, 1.0], &Device::Cpu).unwrap())).collect();
        candle_core::safetensors::save(&tensors, path).unwrap();
    }

    fn digest(paths: &[PathBuf]) -> String {
        let canonical = |name: &str| {
            let name = name.strip_prefix("model.").unwrap_or(name);
            (name != "ignored").then(|| name.to_string())
        };
        WeightsDigest::of_files(paths, canonical).unwrap().hex()
    }

    #[test]
    fn the_digest_depends_on_the_tensors_and_not_on_the_files() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        save(&path("whole"), &[("a", 1.0), ("b", 2.0)]);
        save(&path("shard1"), &[("model.b", 2.0), ("ignored", 5.0)]);
        save(&path("shard2"), &[("model.a", 1.0)]);
        save(&path("changed"), &[("a", 1.0), ("b", 2.5)]);
        save(&path("swapped"), &[("a", 2.0), ("b", 1.0)]);
        let whole = digest(&[path("whole")]);
        assert_eq!(digest(&[path("shard1"), path("shard2")]), whole);
        assert_ne!(digest(&[path("changed")]), whole);
        assert_ne!(digest(&[path("swapped")]), whole);
        let mut by_hand = WeightsDigest::default();
        let bytes = |v: f32| [v.to_le_bytes(), 1f32.to_le_bytes()].concat();
        by_hand.add("b", "F32", &[2], &bytes(2.0));
        by_hand.add("a", "F32", &[2], &bytes(1.0));
        assert_eq!(by_hand.hex(), whole);
        assert_eq!(whole.len(), 64);
    }

    #[test]
    fn an_identity_survives_its_file_and_its_absence_is_no_error() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(BaseIdentity::read(dir.path()).unwrap(), None);
        let identity = BaseIdentity {
            name: "lerobot/pi05_base".to_string(),
            revision: Some("1f0c22d09a7b".to_string()),
            sha256: "77ab".repeat(16),
        };
        identity.write(dir.path()).unwrap();
        assert_eq!(BaseIdentity::read(dir.path()).unwrap(), Some(identity.clone()));
        assert_eq!(identity.to_string(), "lerobot/pi05_base@1f0c22d0 (sha256 77ab77ab…)");
        std::fs::write(dir.path().join(BASE_FILE), "{").unwrap();
        assert!(matches!(BaseIdentity::read(dir.path()), Err(AdapterError::Config { .. })));
    }
}
