//! Reading the small files of a dataset.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use super::error::DatasetError;

/// First bytes of a Git-LFS pointer file.
const LFS_MARK: &[u8] = b"version https://git-lfs";

/// Whether the file at `path` is a Git-LFS pointer in place of the file itself.
pub fn is_lfs_pointer(path: &Path) -> io::Result<bool> {
    let mut head = [0u8; LFS_MARK.len()];
    match File::open(path)?.read_exact(&mut head) {
        Ok(()) => Ok(head == LFS_MARK),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

/// The text of a metadata file.
pub(super) fn read_text(path: &Path) -> Result<String, DatasetError> {
    let text = std::fs::read(path).map_err(|source| DatasetError::read(path, source))?;
    if text.starts_with(LFS_MARK) {
        return Err(DatasetError::LfsPointer { path: path.to_path_buf() });
    }
    String::from_utf8(text).map_err(|_| DatasetError::metadata(path, "not UTF-8 text"))
}

/// The non-empty lines of a JSON-lines file, each parsed, with its line number (from 1).
pub(super) fn read_json_lines(path: &Path) -> Result<Vec<(usize, serde_json::Value)>, DatasetError> {
    let text = read_text(path)?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(at, line)| match serde_json::from_str(line) {
            Ok(value) => Ok((at + 1, value)),
            Err(error) => Err(DatasetError::metadata(path, format!("line {}: not valid JSON: {error}", at + 1))),
        })
        .collect()
}
