//! `vlash policy …`: look into policy checkpoints.

use std::process::ExitCode;

use crate::error::Failure;

mod info;
pub(super) mod place;
mod verify;

/// Look into a policy checkpoint: what it is, whether it computes what another implementation computes.
#[derive(clap::Subcommand)]
pub enum Command {
<<<<<<< HEAD
    /// Kind, sizes, statistics, processor, adapters and trained delay of a checkpoint.
    #[command(after_help = "\
Examples:
  vlash policy info outputs/tiny/checkpoints/last/pretrained_model
  vlash policy info /models/pi05_base --json")]
    Info {
        /// Directory with config.json and model.safetensors.
        checkpoint: PathBuf,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
=======
    Info(info::Args),
    Verify(verify::Args),
>>>>>>> policycli
}

pub fn run(command: Command) -> Result<ExitCode, Failure> {
    match command {
        Command::Info(args) => info::run(args),
        Command::Verify(args) => verify::run(args),
    }
}
