//! The thread that reads the run directory and writes requests, so that a slow file system never slows a key.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::Pid;

use super::crash;
use super::state::Data;
use crate::track;
use crate::track::control::Command;
use crate::track::inbox;
use crate::track::reader::Reader;
use crate::track::status::Status;

/// Between two looks at the directory: quick enough to watch, slow enough for NFS.
const INTERVAL: Duration = Duration::from_millis(500);

/// What the thread is asked for.
#[derive(Debug)]
pub enum Request {
    Send { ticket: u64, command: Command },
    Refresh,
}

/// The way to the thread. The thread ends when this is dropped.
#[derive(Debug)]
pub struct Source {
    requests: mpsc::Sender<Request>,
}

impl Source {
    /// Starts reading `run_dir`. `emit` passes data on and returns false when nobody listens any more.
    pub fn spawn(run_dir: &Path, emit: impl Fn(Data) -> bool + Send + 'static) -> std::io::Result<Source> {
        let (requests, inbox) = mpsc::channel();
        let run_dir = run_dir.to_owned();
        std::thread::Builder::new().name("run-reader".into()).spawn(move || follow(run_dir, &inbox, &emit))?;
        Ok(Source { requests })
    }

    /// Asks without waiting.
    pub fn request(&self, request: Request) {
        // The thread can only be gone after a panic, which is reported on its own.
        let _ = self.requests.send(request);
    }
}

fn follow(run_dir: PathBuf, requests: &mpsc::Receiver<Request>, emit: &dyn Fn(Data) -> bool) {
    let mut reader = Reader::new(&run_dir);
    let here = track::host();
    loop {
        crash::rehearse("source");
        let update = reader.poll();
        let more = update.progress < 1.0 && update.problem.is_none();
        let alive = update.status.as_ref().map(|status| process_alive(status, &here));
        let listening = emit(Data::Update(Box::new(update))) && alive.is_none_or(|alive| emit(Data::Process(alive)));
        if !listening {
            return;
        }
        match requests.recv_timeout(if more { Duration::ZERO } else { INTERVAL }) {
            Ok(Request::Send { ticket, command }) => {
                let result = inbox::send(&run_dir, command).map_err(|error| explain(&error));
                if !emit(Data::Sent { ticket, result }) {
                    return;
                }
            }
            Ok(Request::Refresh) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

fn explain(error: &inbox::SendError) -> String {
    format!("{error}: {}", error.source)
}

/// Whether the run's process is on this host; none when the run is on another.
fn process_alive(status: &Status, here: &str) -> Option<bool> {
    if here != status.host {
        return None;
    }
    let pid = Pid::from_raw(i32::try_from(status.pid).ok().filter(|&pid| pid > 0)?);
    match kill(pid, None) {
        // It answers to signals even when it is dead and only waits to be collected.
        Ok(()) => Some(!is_zombie(status.pid)),
        Err(Errno::ESRCH) => Some(false),
        Err(_) => Some(true),
    }
}

fn is_zombie(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The command name may contain brackets and spaces: the state follows its closing bracket.
    stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with(['Z', 'X']))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::track::status::State as RunState;

    fn status(pid: u32, host: &str) -> Status {
        Status {
            state: RunState::Running,
            name: "t".into(),
            step: 0,
            steps: 1,
            heartbeat: 0.0,
            started: 0.0,
            pid,
            host: host.into(),
            loss: None,
            lr: None,
            samples_per_s: None,
            eta_s: None,
            checkpoint: None,
            doing: None,
        }
    }

    #[test]
    fn the_living_the_dead_and_those_elsewhere() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        // Dead but not collected: a zombie until `wait`.
        while !is_zombie(child.id()) {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(process_alive(&status(child.id(), "here"), "here"), Some(false));
        child.wait().unwrap();
        assert_eq!(process_alive(&status(std::process::id(), "here"), "here"), Some(true));
        assert_eq!(process_alive(&status(1, "there"), "here"), None);
        assert_eq!(process_alive(&status(0, "here"), "here"), None);
        assert_eq!(process_alive(&status(u32::MAX, "here"), "here"), None);
    }

    #[test]
    fn looks_and_requests_come_back_and_the_thread_ends_with_its_owner() {
        let run = tempfile::tempdir().unwrap();
        let (sender, receiver) = mpsc::channel();
        let source = Source::spawn(run.path(), move |data| sender.send(data).is_ok()).unwrap();
        source.request(Request::Send { ticket: 7, command: Command::Pause });
        let sent = receiver.iter().find_map(|data| match data {
            Data::Sent { ticket, result } => Some((ticket, result)),
            _ => None,
        });
        let (ticket, id) = sent.unwrap();
        assert_eq!(ticket, 7);
        assert!(run.path().join("control").join(format!("{}.json", id.unwrap())).exists());
        drop(source);
        // Ends: the iterator is exhausted only when the thread has dropped its sender.
        let _ = receiver.iter().count();
    }
}
