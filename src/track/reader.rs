//! Following a run directory from outside: new events, the status, the log, without locks and over NFS.
//!
//! Files are opened anew at every look, which is what makes a network file system check for fresh content.
//! Nothing read here is trusted: lines are bounded, a torn last line waits for its rest, a file that shrank or
//! was replaced is read again from its start, and kinds of events that this version does not know are counted.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::event::Event;
use super::run_dir::{LOGS, RUN_FILE};
use super::status::Status;

/// Longest line that is parsed, in bytes; longer ones are skipped and counted.
const MAX_LINE: usize = 1 << 20;
/// Most bytes read from one file in one look, so that a long history arrives in portions.
const MAX_READ: u64 = 1 << 20;
/// Largest `status.json` or `run.json` that is read.
const MAX_DOCUMENT: u64 = 16 << 20;
/// How much of an existing log is read at the first look.
const LOG_TAIL: u64 = 256 << 10;

/// The part of `run.json` that a viewer shows. Absent members stay absent.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct RunFacts {
    pub name: Option<String>,
    /// Version of the program that began the run.
    pub version: Option<String>,
    pub host: Option<String>,
    /// The command line that began the run.
    pub command: Vec<String>,
}

/// What one look at the run directory found that was new.
#[derive(Debug, Default)]
pub struct Update {
    pub events: Vec<Event>,
    /// The event file began anew: what was read before is void.
    pub restarted: bool,
    /// Event lines of a kind that this version does not know.
    pub unknown: u64,
    /// Event lines that are no events.
    pub damaged: u64,
    /// Share of the event file that has been read, 0 to 1.
    pub progress: f64,
    /// Present when `status.json` was read (not only when it changed).
    pub status: Option<Status>,
    /// Present once, when `run.json` was first read.
    pub run: Option<RunFacts>,
    /// New lines of `logs/rank-0.log`.
    pub log: Vec<String>,
    /// What kept the look from being complete.
    pub problem: Option<Problem>,
}

/// Why a run directory cannot be followed at the moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub path: PathBuf,
    pub cause: Cause,
}

/// What is the matter with a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// Nothing is at the path.
    Gone,
    NotADirectory,
    PermissionDenied,
    /// Anything else the system reports (a stale mount, an I/O error).
    Io(String),
    /// The file is there and is not what it should be.
    Damaged(String),
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let path = self.path.display();
        match &self.cause {
            Cause::Gone => write!(f, "{path} is gone (moved, deleted, or its mount is away)"),
            Cause::NotADirectory => write!(f, "{path} is not a directory"),
            Cause::PermissionDenied => write!(f, "{path}: no permission to read it"),
            Cause::Io(text) => write!(f, "{path} cannot be read: {text}"),
            Cause::Damaged(text) => write!(f, "{path} is damaged: {text}"),
        }
    }
}

impl Problem {
    fn io(path: &Path, error: &io::Error) -> Problem {
        let cause = match error.kind() {
            io::ErrorKind::NotFound => Cause::Gone,
            io::ErrorKind::NotADirectory => Cause::NotADirectory,
            io::ErrorKind::PermissionDenied => Cause::PermissionDenied,
            _ => Cause::Io(error.to_string()),
        };
        Problem { path: path.into(), cause }
    }
}

/// Follows one run directory.
#[derive(Debug)]
pub struct Reader {
    run_dir: PathBuf,
    events: LineTail,
    log: LineTail,
    run_seen: bool,
}

impl Reader {
    /// A reader that begins with the whole history. The directory need not exist yet.
    pub fn new(run_dir: &Path) -> Reader {
        Reader {
            run_dir: run_dir.into(),
            events: LineTail::new(run_dir.join("events.jsonl")),
            log: LineTail::from_end(run_dir.join(LOGS).join("rank-0.log"), LOG_TAIL),
            run_seen: false,
        }
    }

    /// Looks once. Call again at once while `progress` is below 1, else after a while (500 ms is kind to NFS).
    pub fn poll(&mut self) -> Update {
        let mut update = Update { progress: 1.0, ..Update::default() };
        if let Err(problem) = readable_directory(&self.run_dir) {
            update.problem = Some(problem);
            return update;
        }
        let result = self.poll_events(&mut update).and_then(|()| self.poll_documents(&mut update));
        if let Err(problem) = result {
            update.problem = Some(problem);
        }
        if let Ok(lines) = self.log.read() {
            update.log = lines.lines;
        }
        update
    }

    fn poll_events(&mut self, update: &mut Update) -> Result<(), Problem> {
        let lines = match self.events.read() {
            Ok(lines) => lines,
            // Between the making of the directory and the first event there is no file yet.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(Problem::io(&self.events.path, &error)),
        };
        update.restarted = lines.restarted;
        update.damaged = lines.overlong;
        update.progress = lines.progress;
        for line in &lines.lines {
            match serde_json::from_str(line) {
                Ok(event) => update.events.push(event),
                Err(_) if is_foreign_event(line) => update.unknown += 1,
                Err(_) if line.trim().is_empty() => {}
                Err(_) => update.damaged += 1,
            }
        }
        Ok(())
    }

    fn poll_documents(&mut self, update: &mut Update) -> Result<(), Problem> {
        if !self.run_seen {
            update.run = read_json(&self.run_dir.join(RUN_FILE))?;
            self.run_seen = update.run.is_some();
        }
        update.status = read_json(&self.run_dir.join("status.json"))?;
        Ok(())
    }
}

/// Whether `path` is a run directory to follow: it holds at least one of the files that a run writes.
pub fn looks_like_run(path: &Path) -> Result<bool, Problem> {
    readable_directory(path)?;
    Ok([RUN_FILE, "events.jsonl", "status.json"].iter().any(|name| path.join(name).exists()))
}

fn readable_directory(path: &Path) -> Result<(), Problem> {
    // Listing, not only a stat: a directory without read permission or on a dead mount fails here.
    fs::read_dir(path).map(drop).map_err(|error| Problem::io(path, &error))
}

/// An event of a newer version: it names a kind, and this version cannot read it.
fn is_foreign_event(line: &str) -> bool {
    serde_json::from_str::<serde_json::Value>(line).is_ok_and(|value| value.get("event").is_some_and(|e| e.is_string()))
}

/// Reads a small JSON document; `None` when there is none.
fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Result<Option<T>, Problem> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Problem::io(path, &error)),
    };
    let mut bytes = Vec::new();
    file.take(MAX_DOCUMENT).read_to_end(&mut bytes).map_err(|error| Problem::io(path, &error))?;
    serde_json::from_slice(&bytes)
        .map(Some)
        .map_err(|error| Problem { path: path.into(), cause: Cause::Damaged(error.to_string()) })
}

/// Complete lines that were appended to a file since the last look.
#[derive(Debug, Default)]
struct Lines {
    lines: Vec<String>,
    restarted: bool,
    overlong: u64,
    progress: f64,
}

#[derive(Debug)]
struct LineTail {
    path: PathBuf,
    offset: u64,
    /// The beginning of a line whose end has not been written yet.
    partial: Vec<u8>,
    /// The rest of an overlong line is being passed over.
    skipping: bool,
    identity: Option<(u64, u64)>,
    /// Begin this many bytes before the end.
    tail: Option<u64>,
}

impl LineTail {
    fn new(path: PathBuf) -> LineTail {
        LineTail { path, offset: 0, partial: Vec::new(), skipping: false, identity: None, tail: None }
    }

    fn from_end(path: PathBuf, bytes: u64) -> LineTail {
        LineTail { tail: Some(bytes), ..LineTail::new(path) }
    }

    fn read(&mut self) -> io::Result<Lines> {
        let mut file = File::open(&self.path)?;
        let metadata = file.metadata()?;
        let mut result = Lines { restarted: self.begin(&metadata), ..Lines::default() };
        file.seek(SeekFrom::Start(self.offset))?;
        let mut bytes = Vec::new();
        file.take(MAX_READ).read_to_end(&mut bytes)?;
        self.offset += bytes.len() as u64;
        self.split(&bytes, &mut result);
        result.progress = if metadata.len() == 0 { 1.0 } else { (self.offset as f64 / metadata.len() as f64).min(1.0) };
        Ok(result)
    }

    /// Notices a new or cut file and sets the place to read from. True when earlier content is void.
    fn begin(&mut self, metadata: &fs::Metadata) -> bool {
        let identity = (metadata.dev(), metadata.ino());
        let first = self.identity.is_none();
        let replaced = self.identity.is_some_and(|old| old != identity) || metadata.len() < self.offset;
        self.identity = Some(identity);
        if replaced {
            self.offset = 0;
            self.partial.clear();
            self.skipping = false;
        }
        if let (true, Some(tail)) = (first, self.tail) {
            self.offset = metadata.len().saturating_sub(tail);
            // The first line is cut in the middle unless the file is short.
            self.skipping = self.offset > 0;
        }
        replaced
    }

    fn split(&mut self, bytes: &[u8], result: &mut Lines) {
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|&b| b == b'\n') {
            let (line, after) = rest.split_at(end);
            rest = after.get(1..).unwrap_or_default();
            if std::mem::take(&mut self.skipping) {
                continue;
            }
            self.partial.extend_from_slice(line);
            result.lines.push(String::from_utf8_lossy(&self.partial).into_owned());
            self.partial.clear();
        }
        if self.skipping {
            return;
        }
        self.partial.extend_from_slice(rest);
        if self.partial.len() > MAX_LINE {
            self.partial = Vec::new();
            self.skipping = true;
            result.overlong += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::track::event::{Body, Level};
    use std::io::Write;

    fn append(path: &Path, text: &[u8]) {
        fs::OpenOptions::new().create(true).append(true).open(path).unwrap().write_all(text).unwrap();
    }

    fn notice(text: &str) -> String {
        let event = Event { time: 1.0, body: Body::Notice { level: Level::Info, text: text.into() } };
        serde_json::to_string(&event).unwrap() + "\n"
    }

    fn texts(update: &Update) -> Vec<String> {
        let text = |event: &Event| match &event.body {
            Body::Notice { text, .. } => text.clone(),
            other => format!("{other:?}"),
        };
        update.events.iter().map(text).collect()
    }

    #[test]
    fn a_torn_line_waits_for_its_rest() {
        let run = tempfile::tempdir().unwrap();
        let path = run.path().join("events.jsonl");
        let mut reader = Reader::new(run.path());
        assert!(reader.poll().events.is_empty());
        let line = notice("ä long one");
        // Cut inside the two bytes of "ä": the pieces are no UTF-8 on their own.
        let cut = line.find('ä').unwrap() + 1;
        append(&path, notice("first").as_bytes());
        append(&path, &line.as_bytes()[..cut]);
        assert_eq!(texts(&reader.poll()), ["first"]);
        assert!(reader.poll().events.is_empty());
        append(&path, &line.as_bytes()[cut..]);
        assert_eq!(texts(&reader.poll()), ["ä long one"]);
    }

    #[test]
    fn a_truncated_or_replaced_file_is_read_anew() {
        let run = tempfile::tempdir().unwrap();
        let path = run.path().join("events.jsonl");
        append(&path, (notice("a") + &notice("b")).as_bytes());
        let mut reader = Reader::new(run.path());
        assert_eq!(texts(&reader.poll()), ["a", "b"]);
        fs::write(&path, notice("c")).unwrap();
        let update = reader.poll();
        assert!(update.restarted);
        assert_eq!(texts(&update), ["c"]);
        let other = run.path().join("other");
        fs::write(&other, notice("d") + &notice("e") + &notice("f")).unwrap();
        fs::rename(&other, &path).unwrap();
        let update = reader.poll();
        assert!(update.restarted);
        assert_eq!(texts(&update), ["d", "e", "f"]);
    }

    #[test]
    fn unknown_kinds_and_damaged_lines_are_counted_and_passed_over() {
        let run = tempfile::tempdir().unwrap();
        let text =
            notice("a") + "{\"time\":2.0,\"event\":\"teleported\",\"to\":3}\n{\"time\":\nnoise\n\n" + &notice("b");
        append(&run.path().join("events.jsonl"), text.as_bytes());
        let update = Reader::new(run.path()).poll();
        assert_eq!(texts(&update), ["a", "b"]);
        assert_eq!((update.unknown, update.damaged), (1, 2));
    }

    #[test]
    fn an_overlong_line_costs_bounded_memory_and_the_next_line_is_read() {
        let run = tempfile::tempdir().unwrap();
        let path = run.path().join("events.jsonl");
        append(&path, &vec![b'x'; 3 * MAX_LINE]);
        append(&path, ("\n".to_owned() + &notice("after")).as_bytes());
        let mut reader = Reader::new(run.path());
        let (mut seen, mut damaged) = (Vec::new(), 0);
        for _ in 0..5 {
            let update = reader.poll();
            seen.extend(texts(&update));
            damaged += update.damaged;
            assert!(reader.events.partial.capacity() <= 4 * MAX_LINE);
        }
        assert_eq!((seen, damaged), (vec!["after".to_owned()], 1));
    }

    #[test]
    fn a_non_finite_loss_written_as_null_is_read_as_nan() {
        let run = tempfile::tempdir().unwrap();
        let metrics = crate::track::event::StepMetrics { step: 3, loss: f64::NAN, ..Default::default() };
        let line = serde_json::to_string(&Event { time: 1.0, body: Body::Step(metrics) }).unwrap() + "\n";
        append(&run.path().join("events.jsonl"), line.as_bytes());
        let update = Reader::new(run.path()).poll();
        let [Event { body: Body::Step(step), .. }] = update.events.as_slice() else { panic!("{update:?}") };
        assert!(step.loss.is_nan());
        assert_eq!(step.step, 3);
    }

    #[test]
    fn problems_name_the_path_and_the_log_begins_at_a_whole_line() {
        let dir = tempfile::tempdir().unwrap();
        let gone = dir.path().join("gone");
        let problem = Reader::new(&gone).poll().problem.unwrap();
        assert_eq!(problem, Problem { path: gone.clone(), cause: Cause::Gone });
        assert!(problem.to_string().contains("gone"));
        fs::write(&gone, "x").unwrap();
        assert_eq!(Reader::new(&gone).poll().problem.unwrap().cause, Cause::NotADirectory);

        fs::create_dir(dir.path().join("logs")).unwrap();
        let long: String = (0..40_000).map(|i| format!("line {i}\n")).collect();
        fs::write(dir.path().join("logs/rank-0.log"), &long).unwrap();
        let update = Reader::new(dir.path()).poll();
        assert!(update.log.len() < 40_000 && update.log.len() > 10_000);
        assert!(update.log.iter().all(|line| line.starts_with("line ")));
        assert_eq!(update.log.last().unwrap(), "line 39999");
    }

    #[test]
    fn a_damaged_status_is_a_problem_and_not_a_panic() {
        let run = tempfile::tempdir().unwrap();
        fs::write(run.path().join("status.json"), "{\"state\":\"dancing\"}").unwrap();
        let problem = Reader::new(run.path()).poll().problem.unwrap();
        assert!(matches!(problem.cause, Cause::Damaged(_)), "{problem}");
    }
}
