//! Finished rollouts, a line each, so that an evaluation that was stopped continues.
//!
//! `rollouts.jsonl` is only ever appended to. A line is written at once and is whole or, after a kill or a full disk, the
//! last and torn: then it does not count, and its rollout is done again.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use super::error::EvalError;
use super::grid::Key;
use super::rollout::Rollout;

/// The file's name.
pub const FILE: &str = "rollouts.jsonl";

#[derive(Debug, Serialize, Deserialize)]
struct Line {
    key: Key,
    rollout: Rollout,
}

/// What is there already, and where the next goes.
#[derive(Debug)]
pub struct Ledger {
    path: PathBuf,
    known: HashMap<Key, Rollout>,
    /// Lines that are none: torn, or somebody else's.
    pub unreadable: usize,
    file: Mutex<File>,
}

impl Ledger {
    /// Opens or begins the ledger in `directory`, which is made.
    ///
    /// # Errors
    /// The directory or the file cannot be made, read or written.
    pub fn open(directory: &Path) -> Result<Ledger, EvalError> {
        let path = directory.join(FILE);
        fs::create_dir_all(directory).map_err(|source| EvalError::io("make", directory, source))?;
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)
            .map_err(|source| EvalError::io("write", &path, source))?;
        let bytes = fs::read(&path).map_err(|source| EvalError::io("read", &path, source))?;
        let mut known = HashMap::new();
        let mut unreadable = 0;
        for line in bytes.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
            match serde_json::from_slice::<Line>(line) {
                Ok(line) => drop(known.insert(line.key, line.rollout)),
                Err(_) => unreadable += 1,
            }
        }
        if bytes.last().is_some_and(|&byte| byte != b'\n') {
            // The next line must not continue the torn one.
            file.write_all(b"\n").map_err(|source| EvalError::io("write", &path, source))?;
        }
        Ok(Ledger { path, known, unreadable, file: Mutex::new(file) })
    }

    /// The rollout of `key`, if it was finished before this ledger was opened.
    pub fn get(&self, key: &Key) -> Option<&Rollout> {
        self.known.get(key)
    }

    /// Adds a finished rollout.
    ///
    /// # Errors
    /// The line was not written as a whole.
    pub fn add(&self, key: Key, rollout: &Rollout) -> Result<(), EvalError> {
        let line = Line { key, rollout: rollout.clone() };
        let mut text = serde_json::to_vec(&line).map_err(|error| EvalError::Report(error.to_string()))?;
        text.push(b'\n');
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(&text).map_err(|source| EvalError::io("write", &self.path, source))
    }
}

#[cfg(test)]
mod tests {
    use super::super::grid::Method;
    use super::*;

    fn key(seed: u64) -> Key {
        Key {
            policy: "p".into(),
            variant: "static".into(),
            method: Method::Vlash,
            delay: "4".into(),
            execute: 16,
            seed,
            time_limit_ms: 20_000,
            version: "1".into(),
        }
    }

    #[test]
    fn what_was_written_is_there_again_to_the_bit_and_a_torn_line_is_done_again() {
        let directory = tempfile::tempdir().unwrap();
        let rollout = Rollout { jerk: 1.0 / 3.0, seconds: 0.1 + 0.2, ..Rollout::default() };
        let ledger = Ledger::open(directory.path()).unwrap();
        for seed in 0..3 {
            ledger.add(key(seed), &rollout).unwrap();
        }
        drop(ledger);
        let path = directory.path().join(FILE);
        let bytes = fs::read(&path).unwrap();
        fs::write(&path, &bytes[..bytes.len() - 20]).unwrap();

        let ledger = Ledger::open(directory.path()).unwrap();
        assert_eq!(ledger.unreadable, 1);
        assert_eq!((ledger.get(&key(1)), ledger.get(&key(2))), (Some(&rollout), None));
        ledger.add(key(2), &rollout).unwrap();
        let again = Ledger::open(directory.path()).unwrap();
        assert_eq!(again.get(&key(2)), Some(&rollout));
    }
}
