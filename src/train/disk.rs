//! Whether the checkpoints of a run will fit, found out by trying: free-space figures ignore quotas.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use crate::files;

/// Reserves `bytes` in a temporary file in `directory`, then gives them back.
pub fn probe(directory: &Path, bytes: u64) -> io::Result<()> {
    let path = files::temporary_beside(&directory.join("space-probe"));
    let result = File::create(&path).and_then(|file| reserve(&file, bytes));
    let _ = fs::remove_file(&path);
    result
}

fn reserve(file: &File, bytes: u64) -> io::Result<()> {
    let length = i64::try_from(bytes).map_err(io::Error::other)?;
    if length == 0 {
        return Ok(());
    }
    match nix::fcntl::posix_fallocate(file, 0, length) {
        // Not every file system can reserve; the first checkpoint will tell there.
        Ok(()) | Err(nix::errno::Errno::EOPNOTSUPP | nix::errno::Errno::EINVAL) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_leaves_nothing_behind_and_what_does_not_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        probe(dir.path(), 1 << 20).unwrap();
        assert!(probe(dir.path(), 1 << 60).is_err());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
