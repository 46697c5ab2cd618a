//! The thread that reads the run directory and writes requests, so that a slow file system never slows a key.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use super::crash;
use super::process;
use super::state::Data;
use crate::track;
use crate::track::control::Command;
use crate::track::inbox;
use crate::track::reader::Reader;

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
        let alive = update.status.as_ref().map(|status| process::is_alive(status.pid, &status.host, &here));
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

#[cfg(test)]
mod tests {
    use super::*;

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
