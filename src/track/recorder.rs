//! The writing side of the run directory: events, status with heartbeat, the log, and who else listens.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use super::event::{Body, Event, Level, Outcome};
use super::run_dir::LOGS;
use super::status::{State, Status};
use crate::files;

/// How often `status.json` is replaced while nothing else changes it.
const HEARTBEAT: Duration = Duration::from_secs(2);

/// Receives every event after it has been written: the progress bar, the line log, a test.
pub trait Listener: Send {
    /// Called once an event, with the status as it then stands.
    fn event(&mut self, event: &Event, status: &Status);
}

/// Nobody listens.
pub struct Silent;

impl Listener for Silent {
    fn event(&mut self, _event: &Event, _status: &Status) {}
}

/// Writes what a run reports about itself. A full disk costs reports, never the run: failures are counted and
/// reported once the disk takes events again.
pub struct Recorder {
    events: File,
    log: File,
    listener: Box<dyn Listener>,
    status: Arc<Mutex<Status>>,
    status_path: PathBuf,
    heart: Option<(mpsc::Sender<()>, JoinHandle<()>)>,
    lost: u64,
}

impl Recorder {
    /// Opens `events.jsonl` and `logs/rank-0.log` of `run` for appending and starts the heartbeat.
    pub fn open(run: &Path, status: Status, listener: Box<dyn Listener>) -> io::Result<Recorder> {
        let append = |path: PathBuf| OpenOptions::new().create(true).append(true).open(path);
        let mut events = append(run.join("events.jsonl"))?;
        end_torn_line(&run.join("events.jsonl"), &mut events)?;
        let log = append(run.join(LOGS).join("rank-0.log"))?;
        let status_path = run.join("status.json");
        let status = Arc::new(Mutex::new(status));
        write_status(&status_path, &lock(&status))?;
        let heart = Some(start_heart(status.clone(), status_path.clone()));
        Ok(Recorder { events, log, listener, status, status_path, heart, lost: 0 })
    }

    /// Appends an event, logs it, and tells the listener.
    pub fn emit(&mut self, body: Body) {
        let event = Event { time: super::now(), body };
        if self.append(&event).is_err() {
            self.lost += 1;
        } else if self.lost > 0 {
            let text = format!("{} events were lost while the disk took no writes", std::mem::take(&mut self.lost));
            let notice = Event { time: event.time, body: Body::Notice { level: Level::Warn, text } };
            let _ = self.append(&notice);
        }
        let status = self.status();
        self.listener.event(&event, &status);
    }

    fn append(&mut self, event: &Event) -> io::Result<()> {
        append(&self.events, event)?;
        if let Some(text) = super::console::line(&event.body) {
            writeln!(self.log, "{} {text}", super::console::clock(event.time))?;
        }
        Ok(())
    }

    /// A line for a person.
    pub fn notice(&mut self, level: Level, text: impl Into<String>) {
        self.emit(Body::Notice { level, text: text.into() });
    }

    /// A way for other threads to say what they wait for: it shows as what the run is doing.
    pub fn waiting(&self) -> Arc<dyn Fn(String) + Send + Sync> {
        let status = self.status.clone();
        Arc::new(move |text| lock(&status).doing = Some(text))
    }

    /// Changes the status; written at once when the state or the task at hand changes, else with the next heartbeat.
    pub fn update(&mut self, change: impl FnOnce(&mut Status)) {
        // Written under the lock, here and elsewhere: no older status replaces a newer one.
        let mut status = lock(&self.status);
        if status.state.is_final() {
            return;
        }
        let before = (status.state, status.doing.clone(), status.checkpoint.clone());
        change(&mut status);
        status.heartbeat = super::now();
        let after = (status.state, status.doing.clone(), status.checkpoint.clone());
        if before != after {
            let _ = write_status(&self.status_path, &status);
        }
    }

    /// What another thread does before it ends the process: the event and the status of a run that was stopped without
    /// a checkpoint. The status stays so.
    pub fn last_words(&self, detail: &'static str) -> io::Result<impl Fn() + Send + 'static> {
        let events = self.events.try_clone()?;
        let (status, path) = (self.status.clone(), self.status_path.clone());
        Ok(move || {
            let mut status = lock(&status);
            if status.state.is_final() {
                return;
            }
            (status.state, status.doing, status.heartbeat) = (State::Stopped, None, super::now());
            let _ = write_status(&path, &status);
            let (step, checkpoint) = (status.step, status.checkpoint.clone());
            let body = Body::Ended { step, outcome: Outcome::Stopped, detail: detail.into(), checkpoint };
            let _ = append(&events, &Event { time: status.heartbeat, body });
        })
    }

    /// The status as it stands.
    pub fn status(&self) -> Status {
        lock(&self.status).clone()
    }

    /// Writes the last status and stops the heartbeat.
    pub fn finish(mut self, state: State) {
        self.stop_heart();
        let mut status = lock(&self.status);
        (status.state, status.doing, status.heartbeat) = (state, None, super::now());
        let _ = write_status(&self.status_path, &status);
        let _ = self.events.sync_all();
    }

    fn stop_heart(&mut self) {
        if let Some((stop, thread)) = self.heart.take() {
            drop(stop);
            let _ = thread.join();
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.stop_heart();
    }
}

fn append(mut events: &File, event: &Event) -> io::Result<()> {
    let mut line = serde_json::to_vec(event)?;
    line.push(b'\n');
    // One write a line: readers over a network file system see whole lines or none.
    events.write_all(&line)
}

fn lock(status: &Mutex<Status>) -> MutexGuard<'_, Status> {
    status.lock().unwrap_or_else(PoisonError::into_inner)
}

fn write_status(path: &Path, status: &Status) -> io::Result<()> {
    files::write_atomic(path, &serde_json::to_vec(status)?)
}

fn start_heart(status: Arc<Mutex<Status>>, path: PathBuf) -> (mpsc::Sender<()>, JoinHandle<()>) {
    let (stop, stopped) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        while stopped.recv_timeout(HEARTBEAT) == Err(mpsc::RecvTimeoutError::Timeout) {
            let mut status = lock(&status);
            status.heartbeat = super::now();
            let _ = write_status(&path, &status);
        }
    });
    (stop, thread)
}

/// A kill may have torn the last line: ends it, so that the next event starts on a line of its own.
fn end_torn_line(path: &Path, events: &mut File) -> io::Result<()> {
    use std::io::{Read, Seek, SeekFrom};
    let mut reader = File::open(path)?;
    if reader.seek(SeekFrom::End(0))? == 0 {
        return Ok(());
    }
    reader.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    reader.read_exact(&mut last)?;
    if last[0] != b'\n' {
        events.write_all(b"\n")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    pub fn status() -> Status {
        Status {
            state: State::Starting,
            name: "t".into(),
            step: 0,
            steps: 10,
            heartbeat: 0.0,
            started: 0.0,
            pid: 1,
            host: "h".into(),
            loss: None,
            lr: None,
            samples_per_s: None,
            eta_s: None,
            checkpoint: None,
            doing: None,
        }
    }

    #[test]
    fn events_append_behind_a_torn_line_and_status_is_final() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join(LOGS)).unwrap();
        fs::write(dir.path().join("events.jsonl"), b"{\"time\":1.0,\"ev").unwrap();
        let mut recorder = Recorder::open(dir.path(), status(), Box::new(Silent)).unwrap();
        recorder.notice(Level::Warn, "look");
        recorder.update(|s| s.step = 7);
        recorder.finish(State::Finished);
        let text = fs::read_to_string(dir.path().join("events.jsonl")).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2);
        let event: Event = serde_json::from_str(lines[1]).unwrap();
        assert_eq!(event.body, Body::Notice { level: Level::Warn, text: "look".into() });
        let status: Status = serde_json::from_slice(&fs::read(dir.path().join("status.json")).unwrap()).unwrap();
        assert_eq!((status.step, status.state), (7, State::Finished));
        assert!(fs::read_to_string(dir.path().join("logs/rank-0.log")).unwrap().contains("look"));
    }

    #[test]
    fn last_words_are_final() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join(LOGS)).unwrap();
        let mut recorder = Recorder::open(dir.path(), status(), Box::new(Silent)).unwrap();
        recorder.update(|s| (s.state, s.step) = (State::Stopping, 3));
        recorder.last_words("left").unwrap()();
        // The thread that trains has not noticed yet.
        recorder.update(|s| s.state = State::Running);
        let status: Status = serde_json::from_slice(&fs::read(dir.path().join("status.json")).unwrap()).unwrap();
        assert_eq!((status.step, status.state), (3, State::Stopped));
        let text = fs::read_to_string(dir.path().join("events.jsonl")).unwrap();
        let event: Event = serde_json::from_str(text.lines().last().unwrap()).unwrap();
        let ended = Body::Ended { step: 3, outcome: Outcome::Stopped, detail: "left".into(), checkpoint: None };
        assert_eq!(event.body, ended);
    }
}
