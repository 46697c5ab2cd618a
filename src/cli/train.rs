//! `vlash train`.

use std::process::ExitCode;

use crate::error::Failure;

#[derive(clap::Args)]
pub struct Args {}

pub fn run(_args: Args) -> Result<ExitCode, Failure> {
    Ok(ExitCode::SUCCESS)
}
