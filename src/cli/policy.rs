//! `vlash policy …`.

use std::path::PathBuf;
use std::process::ExitCode;

use crate::error::Failure;
use crate::policy::checkpoint::{CheckpointError, info};

/// Look into a policy checkpoint.
#[derive(clap::Subcommand)]
pub enum Command {
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
}

pub fn run(command: Command) -> Result<ExitCode, Failure> {
    match command {
        Command::Info { checkpoint, json } => {
            let info = info::describe(&checkpoint)?;
            if json {
                let text = serde_json::to_string_pretty(&info)
                    .map_err(|e| CheckpointError::Json { path: checkpoint, problem: e.to_string() })?;
                println!("{text}");
            } else {
                print!("{info}");
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}
