//! Runs the real binary in a directory of its own.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use vlash_forge::track::event::{Body, Event};

/// A directory for one test, with a cache that all tests of a file share.
pub struct Bench {
    pub dir: tempfile::TempDir,
}

impl Bench {
    pub fn new() -> Bench {
        Bench { dir: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// `vlash` with `arguments`, away from the user's directories and from a terminal.
    pub fn vlash(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vlash"));
        command.args(arguments).current_dir(self.dir.path());
        command.env("VLASH_CACHE", Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache"));
        command.env("HOME", self.dir.path()).env_remove("SCRATCH").env_remove("CI").env_remove("SSH_CONNECTION");
        command.stdin(Stdio::null());
        command
    }

    /// Trains with `settings` into `run`, a short run of the embedded default on the reaching task.
    pub fn train(&self, run: &str, settings: &[&str]) -> Command {
        let dir = format!("run.dir={run}");
        let base = ["train", "--no-tui", &dir];
        self.vlash(&[&base[..], SHORT, settings].concat())
    }

    pub fn events(&self, run: &str) -> Vec<Event> {
        let text = fs::read_to_string(self.path(run).join("events.jsonl")).unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// Waits until an event of `run` satisfies `wanted`.
    pub fn wait_for(&self, run: &str, what: &str, wanted: impl Fn(&Body) -> bool) -> Event {
        let since = Instant::now();
        loop {
            if let Some(event) = self.events(run).into_iter().find(|event| wanted(&event.body)) {
                return event;
            }
            assert!(since.elapsed() < Duration::from_secs(120), "no {what} within two minutes: {:?}", self.events(run));
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The content of a file of the checkpoint at `step`.
    pub fn saved(&self, run: &str, step: usize, file: &str) -> Vec<u8> {
        let path = self.path(run).join(format!("checkpoints/{step:06}/{file}"));
        fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }
}

/// Settings that make a run of seconds: a small task, few held-out samples, small batches, a log line a step.
pub const SHORT: &[&str] = &[
    "data.repo=bundled/reach",
    "train.batch_size=2",
    "validation.batches=1",
    "validation.every=0",
    "checkpoint.every=1000",
    "log.every=1",
    "schedule.warmup_steps=2",
];

/// Runs to the end.
pub fn finish(mut command: Command) -> Output {
    command.output().unwrap()
}

/// Runs to the end, which must be a success.
pub fn succeed(command: Command) -> Output {
    let output = finish(command);
    assert!(output.status.success(), "{}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    output
}

/// Starts, with its output thrown away.
pub fn start(mut command: Command) -> Child {
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
