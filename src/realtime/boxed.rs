//! The policy in the box: part of the executable, written into the cache when it is first wanted.

use std::io;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::loaded::{LoadError, LoadOptions, LoadedPolicy};
use crate::config::paths::cache_dir;
use crate::files;
use crate::policy::processor::Tokenizer;

macro_rules! file {
    ($name:literal) => {
        ($name, include_bytes!(concat!("box/", $name)).as_slice())
    };
}

/// Its files but the tokenizer's, which the executable holds anyway; `box/README.md` says what each is.
const FILES: [(&str, &[u8]); 8] = [
    file!("config.json"),
    file!("vlash_forge.json"),
    file!("policy_preprocessor.json"),
    file!("policy_preprocessor_step_3_normalizer_processor.safetensors"),
    file!("policy_postprocessor.json"),
    file!("policy_postprocessor_step_0_unnormalizer_processor.safetensors"),
    file!("recipe.json"),
    file!("model.safetensors"),
];

/// Opens it. Nothing is downloaded.
///
/// # Errors
/// A cache that cannot be written, or what [`LoadedPolicy::open`] refuses.
pub fn open(options: &LoadOptions) -> Result<LoadedPolicy, LoadError> {
    LoadedPolicy::open(&ensure(&cache_dir())?, options)
}

/// The checkpoint directory of the policy in the box, below `cache`. It is whole when this returns: what is there is held
/// against the executable byte by byte, and replaced when it differs.
///
/// # Errors
/// A cache that cannot be written.
pub fn ensure(cache: &Path) -> Result<PathBuf, LoadError> {
    let tokenizer = Tokenizer::builtin()?;
    let contents: Vec<(&str, &[u8])> = FILES.into_iter().chain(tokenizer.files()).collect();
    let place = cache.join("policies").join(format!("box-{}", digest(&contents)));
    if is_whole(&place, &contents) {
        return Ok(place);
    }
    match write(&place, &contents) {
        // Another process was faster.
        Err(_) if is_whole(&place, &contents) => Ok(place),
        Err(source) => Err(LoadError::Unpack { path: place, source }),
        Ok(()) => Ok(place),
    }
}

/// A name that another version's policy does not have.
fn digest(contents: &[(&str, &[u8])]) -> String {
    let mut hash = Sha256::new();
    for (name, bytes) in contents {
        hash.update((name.len() as u64).to_le_bytes());
        hash.update(name.as_bytes());
        hash.update((bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    }
    hash.finalize().iter().take(6).map(|byte| format!("{byte:02x}")).collect()
}

fn is_whole(place: &Path, contents: &[(&str, &[u8])]) -> bool {
    contents.iter().all(|(name, bytes)| std::fs::read(place.join(name)).is_ok_and(|found| found == *bytes))
}

/// Writes all files into a directory of its own and renames it: it is there as a whole or not at all.
fn write(place: &Path, contents: &[(&str, &[u8])]) -> io::Result<()> {
    let parent = place.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(parent)?;
    let beside = files::temporary_beside(place);
    let written = (|| {
        std::fs::create_dir(&beside)?;
        for (name, bytes) in contents {
            files::write_atomic(&beside.join(name), bytes)?;
        }
        if place.exists() {
            // Damaged: it has not passed as whole.
            std::fs::remove_dir_all(place)?;
        }
        std::fs::rename(&beside, place)
    })();
    if written.is_err() {
        let _ = std::fs::remove_dir_all(&beside);
        return written;
    }
    files::sync_directory(parent)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn it_is_written_once_and_mended_when_it_was_damaged() {
        let cache = tempfile::tempdir().unwrap();
        let place = ensure(cache.path()).unwrap();
        let written = |name: &str| fs::metadata(place.join(name)).unwrap().modified().unwrap();
        let first = written("model.safetensors");
        assert_eq!(ensure(cache.path()).unwrap(), place);
        assert_eq!(written("model.safetensors"), first);
        fs::write(place.join("config.json"), "{}").unwrap();
        assert_eq!(ensure(cache.path()).unwrap(), place);
        assert_eq!(fs::read(place.join("config.json")).unwrap(), FILES[0].1);
        let others: Vec<_> = fs::read_dir(cache.path().join("policies")).unwrap().collect();
        assert_eq!(others.len(), 1, "no litter: {others:?}");
    }

    #[test]
    fn a_cache_that_cannot_be_written_is_named() {
        let cache = tempfile::tempdir().unwrap();
        let file = cache.path().join("file");
        fs::write(&file, "").unwrap();
        let error = ensure(&file).unwrap_err();
        assert!(error.to_string().contains("file"), "{error}");
    }
}
