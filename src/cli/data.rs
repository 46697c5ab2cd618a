//! `vlash data …`.

use std::process::ExitCode;

use crate::error::Failure;

#[derive(clap::Subcommand)]
pub enum Command {
    Info,
}

pub fn run(_command: Command) -> Result<ExitCode, Failure> {
    Ok(ExitCode::SUCCESS)
}
