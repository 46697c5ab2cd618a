//! `manifest.json`: what a complete checkpoint holds.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::files;

/// The file that makes a checkpoint complete.
pub const FILE: &str = "manifest.json";

/// `manifest.json`: what a complete checkpoint consists of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of this file's form.
    pub format: u32,
    /// Optimizer steps done.
    pub step: u64,
    pub files: Vec<Entry>,
}

/// One file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Relative to the checkpoint, with `/`.
    pub path: String,
    pub bytes: u64,
    /// SHA-256, hexadecimal.
    pub sha256: String,
}

impl Manifest {
    /// Syncs and hashes every file below `directory`, then writes the manifest of it.
    pub fn seal(directory: &Path, step: u64) -> io::Result<Manifest> {
        let mut paths = Vec::new();
        collect(directory, &mut paths)?;
        paths.sort();
        let mut files = Vec::with_capacity(paths.len());
        for path in paths {
            let (bytes, sha256) = hash(&path, true)?;
            let relative = path.strip_prefix(directory).map_err(io::Error::other)?;
            files.push(Entry { path: relative.to_string_lossy().into_owned(), bytes, sha256 });
        }
        let manifest = Manifest { format: 1, step, files };
        files::write_atomic(&directory.join(FILE), &serde_json::to_vec_pretty(&manifest)?)?;
        Ok(manifest)
    }

    /// Reads the manifest of the checkpoint at `directory`.
    pub fn read(directory: &Path) -> io::Result<Manifest> {
        Ok(serde_json::from_slice(&fs::read(directory.join(FILE))?)?)
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|entry| entry.bytes).sum()
    }

    /// Checks sizes and hashes against the files; the first difference is the error's text.
    pub fn verify(&self, directory: &Path) -> Result<(), String> {
        for entry in &self.files {
            let path = directory.join(&entry.path);
            let (bytes, sha256) = hash(&path, false).map_err(|error| format!("{}: {error}", entry.path))?;
            if bytes != entry.bytes {
                return Err(format!("{} has {bytes} bytes, {} were written", entry.path, entry.bytes));
            }
            if sha256 != entry.sha256 {
                return Err(format!("{} is not what was written (its hash differs)", entry.path));
            }
        }
        Ok(())
    }
}

fn collect(directory: &Path, paths: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, paths)?;
        } else {
            paths.push(path);
        }
    }
    Ok(())
}

fn hash(path: &Path, sync: bool) -> io::Result<(u64, String)> {
    let mut file = File::open(path)?;
    if sync {
        file.sync_all()?;
    }
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    let mut bytes = 0;
    loop {
        let n = file.read(&mut buffer)?;
        if n == 0 {
            break;
        }
        hash.update(&buffer[..n]);
        bytes += n as u64;
    }
    Ok((bytes, hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()))
}
