//! One owner at a time: `lease.json` with a heartbeat, so that a crashed owner does not block for ever.
//!
//! Correctness does not rest on file locks, which network file systems fake: the lease is a file created
//! exclusively, refreshed by a thread, and taken over when its owner is provably gone.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{Explain, Kind};
use crate::files;

const FILE: &str = "lease.json";
/// How often the owner refreshes its lease.
const REFRESH: Duration = Duration::from_secs(5);
/// An owner on another host that has been silent for so long is taken for gone.
const EXPIRY_S: f64 = 60.0;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Owner {
    host: String,
    pid: u32,
    /// Start time of the process in clock ticks since boot: tells a recycled pid from the owner.
    started: Option<u64>,
    heartbeat: f64,
}

impl Owner {
    fn current() -> Owner {
        let pid = std::process::id();
        Owner { host: super::host(), pid, started: process_start(pid), heartbeat: super::now() }
    }

    /// Whether the owner can still be at work.
    fn may_live(&self, here: &str, now: f64) -> bool {
        if self.host == here {
            match process_start(self.pid) {
                Some(started) => self.started.is_none_or(|mine| mine == started),
                None => false,
            }
        } else {
            now - self.heartbeat < EXPIRY_S
        }
    }
}

/// Start time of `pid` from `/proc/<pid>/stat` (field 22), none when there is no such process.
fn process_start(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command name may hold spaces and brackets: count fields after its closing bracket.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// Why a run directory cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    #[error("run directory {path} belongs to process {pid} on {host} (last sign of life {age:.0} s ago)")]
    Held { path: PathBuf, host: String, pid: u32, age: f64 },
    #[error("cannot write the lease {path}")]
    Io { path: PathBuf, source: io::Error },
}

impl Explain for LeaseError {
    fn kind(&self) -> Kind {
        match self {
            LeaseError::Held { .. } => Kind::Input,
            LeaseError::Io { .. } => Kind::Environment,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            LeaseError::Held { path, .. } => Some(format!(
                "watch it with `vlash watch {}`, or choose another directory with run.dir=…",
                path.display()
            )),
            LeaseError::Io { .. } => None,
        }
    }
}

/// Ownership of a run directory while it lives.
#[derive(Debug)]
pub struct Lease {
    path: PathBuf,
    stop: Option<mpsc::Sender<()>>,
    refresher: Option<JoinHandle<()>>,
}

impl Lease {
    /// Takes the lease of `directory`, over a dead owner's if need be.
    pub fn acquire(directory: &Path) -> Result<Lease, LeaseError> {
        let path = directory.join(FILE);
        let io_error = |source| LeaseError::Io { path: path.clone(), source };
        let mine = Owner::current();
        // Twice: the first try may find a dead owner's file and clear it away.
        for _ in 0..2 {
            match fs::OpenOptions::new().write(true).create_new(true).open(&path) {
                Ok(mut file) => {
                    let bytes = serde_json::to_vec(&mine).map_err(|e| io_error(e.into()))?;
                    file.write_all(&bytes).and_then(|()| file.sync_all()).map_err(io_error)?;
                    return Ok(Lease::refreshing(path));
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => clear_if_dead(directory, &path, &mine)?,
                Err(source) => return Err(io_error(source)),
            }
        }
        Err(held(directory, &path))
    }

    fn refreshing(path: PathBuf) -> Lease {
        let (stop, stopped) = mpsc::channel();
        let file = path.clone();
        let refresher = std::thread::spawn(move || {
            while stopped.recv_timeout(REFRESH) == Err(mpsc::RecvTimeoutError::Timeout) {
                if let Ok(bytes) = serde_json::to_vec(&Owner::current()) {
                    // A full disk must not end the run; the next refresh tries again.
                    let _ = files::write_atomic(&file, &bytes);
                }
            }
        });
        Lease { path, stop: Some(stop), refresher: Some(refresher) }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(refresher) = self.refresher.take() {
            let _ = refresher.join();
        }
        let _ = fs::remove_file(&self.path);
    }
}

fn read_owner(path: &Path) -> Option<Owner> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

fn held(directory: &Path, path: &Path) -> LeaseError {
    let owner =
        read_owner(path).unwrap_or(Owner { host: "unknown".into(), pid: 0, started: None, heartbeat: super::now() });
    LeaseError::Held {
        path: directory.into(),
        host: owner.host,
        pid: owner.pid,
        age: (super::now() - owner.heartbeat).max(0.0),
    }
}

/// Removes the lease at `path` when its owner is gone; else says who holds it.
fn clear_if_dead(directory: &Path, path: &Path, mine: &Owner) -> Result<(), LeaseError> {
    let dead = match read_owner(path) {
        Some(owner) => !owner.may_live(&mine.host, super::now()),
        // Being written this moment, or torn by a crash: old enough means torn.
        None => fs::metadata(path)
            .and_then(|m| m.modified())
            .is_ok_and(|m| m.elapsed().is_ok_and(|age| age.as_secs_f64() > EXPIRY_S)),
    };
    if !dead {
        return Err(held(directory, path));
    }
    // By rename, so that of two processes that see the dead owner only one clears each file.
    let aside = files::temporary_beside(path);
    if fs::rename(path, &aside).is_ok() {
        let _ = fs::remove_file(aside);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plant(directory: &Path, owner: &Owner) {
        fs::write(directory.join(FILE), serde_json::to_vec(owner).unwrap()).unwrap();
    }

    #[test]
    fn a_dead_process_of_this_host_does_not_block() {
        let dir = tempfile::tempdir().unwrap();
        plant(
            dir.path(),
            &Owner { host: super::super::host(), pid: u32::MAX - 1, started: Some(1), heartbeat: super::super::now() },
        );
        Lease::acquire(dir.path()).unwrap();
    }

    #[test]
    fn a_recycled_pid_is_not_the_owner() {
        let mut owner = Owner::current();
        assert!(owner.may_live(&owner.host.clone(), owner.heartbeat + 1e6));
        owner.started = owner.started.map(|s| s + 1);
        assert!(!owner.may_live(&owner.host.clone(), owner.heartbeat));
    }

    #[test]
    fn another_host_blocks_until_it_has_been_silent_long_enough() {
        let dir = tempfile::tempdir().unwrap();
        let owner =
            |age: f64| Owner { host: "elsewhere".into(), pid: 1, started: None, heartbeat: super::super::now() - age };
        plant(dir.path(), &owner(10.0));
        let error = Lease::acquire(dir.path()).unwrap_err();
        assert!(error.to_string().contains("process 1 on elsewhere"), "{error}");
        plant(dir.path(), &owner(EXPIRY_S + 1.0));
        Lease::acquire(dir.path()).unwrap();
    }
}
