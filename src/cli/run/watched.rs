//! The control process as a child, under the Robot screen.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use crate::cli::child::{self, Worker};
use crate::error::Failure;
use crate::track::telemetry::SOCKET_FILE;
use crate::tui::robot::{self, RobotSource};
use crate::tui::{Exit, Options};

/// Starts the rollout of `policy` (its name) as a process of its own and shows its screen. Losing the terminal does not
/// stop it.
pub fn run(directory: &Path, policy: &str) -> Result<ExitCode, Failure> {
    let place = format!("run.dir={}", directory.display());
    let arguments = std::env::args_os().skip(1).chain(["--no-tui".into(), place.into()]);
    let socket = directory.join(SOCKET_FILE);
    let written = || fs::metadata(&socket).and_then(|file| file.modified()).ok();
    // A rollout that was killed in this directory has left its own.
    let before = written();
    let mut rollout = Worker::start("run", arguments)?;
    let ready = |_| written().is_some_and(|now| Some(now) != before);
    if let Some(code) = rollout.wait_until(ready, &format!("loading the policy {policy}"))? {
        return Ok(code);
    }
    let options = Options { owned: true, ..Options::default() };
    let exit = robot::run(&RobotSource::Directory(directory.into()), &options);
    let ended = match &exit {
        Ok(Exit::Ended(_)) => rollout.wait()?,
        _ => rollout.try_wait()?,
    };
    match ended {
        Some(code) => Ok(code),
        None => {
            child::goes_on(directory);
            exit?;
            Ok(ExitCode::SUCCESS)
        }
    }
}
