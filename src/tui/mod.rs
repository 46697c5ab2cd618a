//! The terminal interface: a viewer and remote control of runs that live in their own processes.
//!
//! `State` is plain data. Keys become actions (`keymap`), actions change the state and leave effects (`update`), the
//! view draws the state (`view`); the loop (`app`) owns the channel, the clock and the terminal. Nothing is known of
//! a run but what its directory says, so that leaving and coming back, from any host, loses nothing.

use std::io::{self, IsTerminal};
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::mpsc;

use crate::error::{Explain, Kind};
use crate::track::event::Outcome;
use crate::track::reader::{self, Cause, Problem};

mod action;
mod app;
mod capability;
mod commands;
mod crash;
mod format;
mod history;
mod input;
mod keymap;
mod log;
mod overlay;
mod pace;
mod palette;
mod plain;
mod process;
pub mod robot;
mod run;
mod source;
mod state;
mod terminal;
#[cfg(test)]
mod testing;
mod theme;
mod update;
mod view;

pub use capability::{ColorChoice, GlyphChoice};

/// How to watch a run.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The caller started the run: its directory may not exist yet, and leaving asks what becomes of the run.
    pub owned: bool,
    /// Nothing that steers the run is offered.
    pub read_only: bool,
    /// Lines of text in place of the screen.
    pub plain: bool,
    pub mouse: bool,
    /// One frame a second, for slow lines.
    pub slow: bool,
    pub color: ColorChoice,
    pub glyphs: GlyphChoice,
}

/// Why watching ended. The run is never ended by it, except where the person asked for that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// The person left; the run goes on.
    Left,
    /// The run had ended when the person left.
    Ended(Outcome),
    /// A signal asked this process to end.
    Signal(i32),
    /// The terminal is gone.
    TerminalLost,
}

/// Why the dashboard cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum TuiError {
    #[error("cannot watch a run: {0}")]
    Directory(Problem),
    #[error("cannot watch {path}: it holds none of run.json, events.jsonl, status.json")]
    NotARun { path: PathBuf },
    #[error("cannot watch {path}: it holds none of run.json, telemetry.jsonl, robot.socket")]
    NotARollout { path: PathBuf },
    #[error("the terminal failed")]
    Terminal { source: io::Error },
    #[error("internal error {}", describe(.0))]
    Crashed(Option<crash::Report>),
}

fn describe(report: &Option<crash::Report>) -> String {
    let Some(report) = report else { return "in the interface. Your runs are not affected.".into() };
    let path = report.path.as_ref().map(|path| format!(" Report: {}", path.display())).unwrap_or_default();
    format!("at {} ({}). Your runs are not affected.{path}", report.place, report.text)
}

impl Explain for TuiError {
    fn kind(&self) -> Kind {
        match self {
            TuiError::Directory(problem) if matches!(problem.cause, Cause::Gone | Cause::NotADirectory) => Kind::Input,
            TuiError::Directory(_) | TuiError::Terminal { .. } => Kind::Environment,
            TuiError::NotARun { .. } | TuiError::NotARollout { .. } => Kind::Input,
            TuiError::Crashed(_) => Kind::Internal,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            TuiError::Directory(_) | TuiError::NotARun { .. } => {
                Some("give the directory of a run, e.g. vlash watch outputs/NAME".into())
            }
            TuiError::NotARollout { .. } => {
                Some("give the run directory of a rollout, or the host:port of its socket".into())
            }
            TuiError::Terminal { .. } => Some("vlash watch RUN_DIR --plain needs no terminal".into()),
            TuiError::Crashed(_) => None,
        }
    }
}

/// Why the full-screen interface cannot run in this process; nothing when it can.
pub fn obstacle() -> Option<&'static str> {
    capability::obstacle(io::stdin().is_terminal(), io::stdout().is_terminal(), &capability::process_environment)
}

/// Shows the run at `run_dir` until the person leaves, in full screen where that is possible, else as lines.
///
/// # Errors
/// A directory that cannot be watched, a terminal that fails, or a defect of the interface. In every case the terminal
/// is as it was before, and the run is untouched.
pub fn watch(run_dir: &Path, options: &Options) -> Result<Exit, TuiError> {
    if !options.owned {
        match reader::looks_like_run(run_dir) {
            Ok(true) => {}
            Ok(false) => return Err(TuiError::NotARun { path: run_dir.into() }),
            Err(problem) => return Err(TuiError::Directory(problem)),
        }
    }
    let capability = capability::Capability::detect(options.color, options.glyphs, &capability::process_environment);
    if options.plain {
        return plain::run(run_dir, options, &capability, &mut io::stdout());
    }
    if let Some(reason) = obstacle() {
        use std::io::Write;
        // Standard error may be closed: that is no reason not to go on.
        let _ = writeln!(io::stderr(), "vlash: {reason}: plain lines follow (as with --plain)");
        return plain::run(run_dir, options, &capability, &mut io::stdout());
    }
    full_screen(|sender, events| app::run(run_dir, options, &capability, sender, events))
}

/// Runs `body` with a channel of its own; whatever happens in it, the terminal is as before afterwards.
fn full_screen<D: Send + 'static, T>(
    body: impl FnOnce(&mpsc::SyncSender<input::Event<D>>, &mpsc::Receiver<input::Event<D>>) -> Result<T, TuiError>,
) -> Result<T, TuiError> {
    let (sender, receiver) = mpsc::sync_channel(256);
    let notify = sender.clone();
    // A full channel is no loss: the loop is awake then, and a panic of its own thread ends it anyway.
    let _guard = crash::install(move || drop(notify.try_send(input::Event::Crashed)));
    let result = std::panic::catch_unwind(AssertUnwindSafe(|| body(&sender, &receiver)));
    terminal::restore();
    match (result, crash::taken()) {
        (_, Some(report)) => Err(TuiError::Crashed(Some(report))),
        (Ok(result), None) => result,
        (Err(_), None) => Err(TuiError::Crashed(None)),
    }
}
