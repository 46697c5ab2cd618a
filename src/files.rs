//! Writing files so that a crash, a full disk or a kill never leaves half of one.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Writes `bytes` to `path` under a temporary name beside it, syncs, then renames over `path`.
///
/// The previous file survives any failure. The directory must exist.
pub fn write_atomic(path: &Path, bytes: &[u8]) -> io::Result<()> {
    write_atomic_with(path, |file| file.write_all(bytes))
}

/// As [`write_atomic`], with the content produced by `write`.
pub fn write_atomic_with(path: &Path, write: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    let temporary = temporary_beside(path);
    let result = (|| {
        let mut file = File::create(&temporary)?;
        write(&mut file)?;
        file.sync_all()?;
        drop(file);
        fs::rename(&temporary, path)
    })();
    if result.is_err() {
        let _ = fs::remove_file(&temporary);
        return result;
    }
    sync_directory(path.parent().unwrap_or(Path::new(".")))
}

/// A name for a temporary file in the directory of `path`, unique to this process and thread.
pub fn temporary_beside(path: &Path) -> PathBuf {
    use std::sync::atomic::{AtomicU64, Ordering};
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let count = COUNTER.fetch_add(1, Ordering::Relaxed);
    path.with_file_name(format!(".tmp-{name}-{}-{count}", std::process::id()))
}

/// Makes renames and removals inside `directory` durable.
pub fn sync_directory(directory: &Path) -> io::Result<()> {
    let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    match File::open(directory)?.sync_all() {
        // Some network file systems cannot sync a directory; the rename itself has happened.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_write_leaves_the_previous_file_and_no_litter() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.json");
        write_atomic(&path, b"first").unwrap();
        let error = write_atomic_with(&path, |file| {
            file.write_all(b"half of the sec")?;
            Err(io::Error::other("disk full"))
        });
        assert!(error.is_err());
        assert_eq!(fs::read(&path).unwrap(), b"first");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
