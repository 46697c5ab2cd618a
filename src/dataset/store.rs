//! A generated directory in the cache: written once, known by its digests, safe against company.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::dataset::write::{WriteError, io_error};
use crate::files::{sync_directory, temporary_beside, write_atomic};

/// Lists the SHA-256 of every other file, in the format of `sha256sum`; written last.
const MANIFEST: &str = "SHA256SUMS";

/// Returns `root` once it holds a whole copy of what `generate` writes.
pub(crate) fn ensure(
    root: &Path,
    generate: impl FnOnce(&Path) -> Result<(), WriteError>,
) -> Result<PathBuf, WriteError> {
    if is_whole(root) {
        return Ok(root.to_path_buf());
    }
    let parent = root.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(parent).map_err(io_error(parent))?;
    let _lock = lock(&root.with_extension("lock"));
    // Whoever held the lock before may have done the work.
    if is_whole(root) {
        return Ok(root.to_path_buf());
    }
    let fresh = temporary_beside(root);
    let result = generate(&fresh).and_then(|()| {
        let manifest = manifest(&fresh).map_err(io_error(&fresh))?;
        let path = fresh.join(MANIFEST);
        write_atomic(&path, manifest.as_bytes()).map_err(io_error(&path))?;
        replace(root, &fresh).map_err(io_error(root))
    });
    if result.is_err() {
        let _ = fs::remove_dir_all(&fresh);
    }
    result.map(|()| root.to_path_buf())
}

/// An advisory lock until dropped. Some network file systems have none: then the renames alone must do.
fn lock(path: &Path) -> Option<File> {
    let file = File::create(path).ok()?;
    file.lock().ok()?;
    Some(file)
}

/// Moves `fresh` to `root`; a damaged directory there is moved away and removed.
fn replace(root: &Path, fresh: &Path) -> io::Result<()> {
    let damaged = temporary_beside(root);
    if fs::rename(root, &damaged).is_ok() {
        fs::remove_dir_all(&damaged)?;
    }
    match fs::rename(fresh, root) {
        // Another process without a lock was faster, with the same content.
        Err(_) if is_whole(root) => fs::remove_dir_all(fresh),
        result => result.and_then(|()| sync_directory(root.parent().unwrap_or(Path::new(".")))),
    }
}

fn is_whole(root: &Path) -> bool {
    let stored = fs::read_to_string(root.join(MANIFEST));
    stored.is_ok_and(|stored| manifest(root).is_ok_and(|found| found == stored))
}

fn manifest(root: &Path) -> io::Result<String> {
    let mut files = Vec::new();
    collect_files(root, root, &mut files)?;
    files.sort();
    let mut text = String::new();
    for name in files.iter().filter(|name| name.as_str() != MANIFEST) {
        let digest = Sha256::digest(fs::read(root.join(name))?);
        text.push_str(&format!("{digest:x}  {name}\n"));
    }
    Ok(text)
}

fn collect_files(root: &Path, directory: &Path, files: &mut Vec<String>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            collect_files(root, &path, files)?;
        } else if let Ok(name) = path.strip_prefix(root) {
            files.push(name.to_string_lossy().into_owned());
        }
    }
    Ok(())
}
