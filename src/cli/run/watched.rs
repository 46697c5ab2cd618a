//! The control process as a child, under the Robot screen.

use std::path::Path;
use std::process::ExitCode;

use crate::cli::child::{self, Worker};
use crate::error::Failure;
use crate::track::telemetry::SOCKET_FILE;
use crate::tui::robot::{self, RobotSource};
use crate::tui::{Exit, Options};

/// Starts the rollout as a process of its own and shows its screen. Losing the terminal does not stop it.
pub fn run(directory: &Path) -> Result<ExitCode, Failure> {
    let place = format!("run.dir={}", directory.display());
    let arguments = std::env::args_os().skip(1).chain(["--no-tui".into(), place.into()]);
    let mut rollout = Worker::start("run", arguments)?;
    let socket = directory.join(SOCKET_FILE);
    if let Some(code) = rollout.wait_until(|_| socket.exists(), "loading the policy")? {
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
