//! A command of ours as a process of its own, under a screen in this one.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use super::output::tell;
use crate::error::{Explain, Kind};

/// Between two looks at the process.
const INTERVAL: Duration = Duration::from_millis(200);
/// Lines of the child's output that are shown when it has ended.
const TAIL: usize = 8;

/// A process with its output in a file.
pub struct Worker {
    child: Child,
    output: PathBuf,
    what: &'static str,
}

impl Worker {
    /// Starts `vlash` with `arguments`; `what` names it in messages.
    pub fn start(what: &'static str, arguments: impl IntoIterator<Item = OsString>) -> Result<Worker, SpawnError> {
        let output = std::env::temp_dir().join(format!("vlash-{what}-{}.log", std::process::id()));
        let error = |source| SpawnError { what, path: output.clone(), source };
        let log = File::create(&output).map_err(error)?;
        let program = std::env::current_exe().map_err(error)?;
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null());
        command.stdout(log.try_clone().map_err(error)?).stderr(log);
        // A process group of its own: neither Ctrl-C nor the terminal's end reaches it.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let child = command.spawn().map_err(error)?;
        Ok(Worker { child, output, what })
    }

    /// Its process number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it is `ready`; the exit code when it left before. `doing` is said when that takes long.
    pub fn wait_until(&mut self, ready: impl Fn(u32) -> bool, doing: &str) -> Result<Option<ExitCode>, SpawnError> {
        let since = Instant::now();
        let mut said = false;
        loop {
            if let Some(code) = self.try_wait()? {
                return Ok(Some(code));
            }
            if ready(self.id()) {
                return Ok(None);
            }
            if !said && since.elapsed() > Duration::from_secs(2) {
                tell(format_args!("{doing} …"));
                said = true;
            }
            std::thread::sleep(INTERVAL);
        }
    }

    /// The exit code, if it has ended.
    pub fn try_wait(&mut self) -> Result<Option<ExitCode>, SpawnError> {
        let status = self.child.try_wait().map_err(|source| self.failed(source))?;
        Ok(status.map(|status| self.conclude(status)))
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> Result<Option<ExitCode>, SpawnError> {
        let status = self.child.wait().map_err(|source| self.failed(source))?;
        Ok(Some(self.conclude(status)))
    }

    fn failed(&self, source: std::io::Error) -> SpawnError {
        SpawnError { what: self.what, path: self.output.clone(), source }
    }

    /// Prints the end of what it printed, and passes its exit code on.
    fn conclude(&self, status: ExitStatus) -> ExitCode {
        if let Ok(text) = fs::read_to_string(&self.output) {
            let lines: Vec<&str> = text.lines().collect();
            for line in lines.iter().skip(lines.len().saturating_sub(TAIL)) {
                tell(format_args!("{line}"));
            }
        }
        let _ = fs::remove_file(&self.output);
        let killed = Kind::Internal.exit_code();
        ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(killed))
    }
}

/// Says that the run at `run` goes on although nobody watches.
pub fn goes_on(run: &Path) {
    let run = run.display();
    tell(format_args!("the run goes on: {run}\nwatch it again with `vlash watch {run}`"));
}

/// The process cannot be had.
#[derive(Debug, thiserror::Error)]
#[error("cannot start vlash {what} as a process of its own (its output goes to {path})")]
pub struct SpawnError {
    what: &'static str,
    path: PathBuf,
    source: std::io::Error,
}

impl Explain for SpawnError {
    fn kind(&self) -> Kind {
        Kind::Environment
    }

    fn hint(&self) -> Option<String> {
        Some(format!("vlash {} --no-tui works in this process", self.what))
    }
}
