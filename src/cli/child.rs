//! A command of ours as a process of its own, under a screen in this one.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::output::tell;
use crate::error::{Explain, Kind};

/// Between two looks at the process.
const INTERVAL: Duration = Duration::from_millis(100);
/// When it is first said that the process is not ready yet, and how often then.
const FIRST_WORD: Duration = Duration::from_millis(500);
const SAY_AGAIN: Duration = Duration::from_secs(15);
const ENDING: [i32; 2] = [SIGINT, SIGTERM];
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

    /// Waits until it is `ready`; the exit code when it left before. `doing` is said when that takes long. Whoever ends
    /// this process meanwhile means that one: it is asked to end in its orderly way.
    pub fn wait_until(&mut self, ready: impl Fn(u32) -> bool, doing: &str) -> Result<Option<ExitCode>, SpawnError> {
        let mut signals = self.signals().map_err(|source| self.failed(source))?;
        let since = Instant::now();
        let (mut said, mut ending) = (0, false);
        loop {
            for _ in signals.pending() {
                ending = true;
                tell(format_args!("vlash {} is asked to end; once more: at once", self.what));
                // It may have ended by itself just now.
                let _ = kill(self.pid(), Signal::SIGTERM);
            }
            if let Some(code) = self.try_wait()? {
                return Ok(Some(code));
            }
            if !ending && ready(self.id()) {
                return Ok(None);
            }
            let elapsed = since.elapsed();
            if elapsed > FIRST_WORD + SAY_AGAIN * said {
                let seconds = if said > 0 { format!(" ({} s)", elapsed.as_secs()) } else { String::new() };
                tell(format_args!("{doing} …{seconds}"));
                said += 1;
            }
            std::thread::sleep(INTERVAL);
        }
    }

    /// What asks this process to end, until these are dropped; afterwards its usual effect is back.
    fn signals(&self) -> io::Result<Handed> {
        let defaults = Arc::new(AtomicBool::new(false));
        for signal in ENDING {
            signal_hook::flag::register_conditional_default(signal, defaults.clone())?;
        }
        Ok(Handed { signals: Signals::new(ENDING)?, defaults })
    }

    fn pid(&self) -> Pid {
        // A process number is never that large.
        Pid::from_raw(i32::try_from(self.child.id()).unwrap_or(i32::MAX))
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

    fn failed(&self, source: io::Error) -> SpawnError {
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
        if let Some(signal) = status.signal() {
            let name = Signal::try_from(signal).map_or("unknown", Signal::as_str);
            tell(format_args!("vlash {} was killed from outside (signal {signal}, {name})", self.what));
        }
        let killed = Kind::Internal.exit_code();
        ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(killed))
    }
}

/// Signals that are handed on while this lives.
struct Handed {
    signals: Signals,
    defaults: Arc<AtomicBool>,
}

impl Handed {
    fn pending(&mut self) -> impl Iterator<Item = i32> + '_ {
        self.signals.pending()
    }
}

impl Drop for Handed {
    fn drop(&mut self) {
        self.defaults.store(true, Ordering::SeqCst);
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
    source: io::Error,
}

impl Explain for SpawnError {
    fn kind(&self) -> Kind {
        Kind::Environment
    }

    fn hint(&self) -> Option<String> {
        Some(format!("vlash {} --no-tui works in this process", self.what))
    }
}
