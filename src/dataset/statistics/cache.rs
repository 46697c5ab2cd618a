//! Computed statistics on disk, found again by what they were computed from.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::dataset::reader::Dataset;
use crate::dataset::stats::Statistics;
use crate::files::write_atomic;

/// To be raised when the same rows would give other numbers.
const METHOD: u32 = 1;

/// The place of one dataset's statistics.
pub(super) struct Entry {
    path: PathBuf,
    identity: String,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    identity: String,
    statistics: Statistics,
}

impl Entry {
    /// Keyed by directory, selection in its order, and size and modification time of each parquet file. None when the
    /// files cannot be looked at.
    pub(super) fn of(dataset: &Dataset, directory: &Path) -> Option<Entry> {
        let meta = dataset.meta();
        let mut hash = Sha256::new();
        let mut feed = |part: &[u8]| {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        };
        feed(&METHOD.to_le_bytes());
        feed(fs::canonicalize(&meta.root).ok()?.as_os_str().as_encoded_bytes());
        feed(dataset.state_feature().map_or("", |feature| feature.name.as_str()).as_bytes());
        feed(dataset.action_feature().name.as_bytes());
        for episode in dataset.episodes() {
            let path = meta.data_path(&episode.meta);
            let facts = fs::metadata(meta.root.join(&path)).ok()?;
            let modified = facts.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
            feed(&(episode.meta.index as u64).to_le_bytes());
            feed(path.as_os_str().as_encoded_bytes());
            feed(&facts.len().to_le_bytes());
            feed(&modified.as_nanos().to_le_bytes());
        }
        let identity: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        Some(Entry { path: directory.join(format!("{identity}.json")), identity })
    }

    /// The stored statistics, unless there are none or they are damaged.
    pub(super) fn load(&self) -> Option<Statistics> {
        let stored: Stored = serde_json::from_slice(&fs::read(&self.path).ok()?).ok()?;
        let usable = stored.identity == self.identity && stored.statistics.values().all(|s| s.impossible().is_none());
        usable.then_some(stored.statistics)
    }

    pub(super) fn store(self, statistics: &Statistics) -> io::Result<()> {
        if let Some(directory) = self.path.parent() {
            fs::create_dir_all(directory)?;
        }
        let stored = Stored { identity: self.identity, statistics: statistics.clone() };
        write_atomic(&self.path, &serde_json::to_vec_pretty(&stored).map_err(io::Error::other)?)
    }
}
