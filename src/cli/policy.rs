//! `vlash policy …`: look into policy checkpoints, and merge adapters.

use std::process::ExitCode;

use crate::error::Failure;

mod info;
mod merge;
mod pack;
pub(super) mod place;
mod verify;

/// Look into a policy checkpoint: what it is, whether it computes what another implementation does; merge adapters, pack
#[derive(clap::Subcommand)]
pub enum Command {
    Info(info::Args),
    Verify(verify::Args),
    Merge(merge::Args),
    Pack(pack::Args),
}

pub fn run(command: Command) -> Result<ExitCode, Failure> {
    match command {
        Command::Info(args) => info::run(args),
        Command::Verify(args) => verify::run(args),
        Command::Merge(args) => merge::run(args),
        Command::Pack(args) => pack::run(args),
    }
}
