//! `vlash policy info`: what is in a checkpoint?

use std::path::PathBuf;
use std::process::ExitCode;

use super::place;
use crate::cli::output::print;
use crate::error::Failure;
use crate::policy::checkpoint::{CheckpointError, info};

const EXAMPLES: &str = "\
Examples:
  vlash policy info outputs/tiny                                       the newest checkpoint of a run
  vlash policy info outputs/tiny/checkpoints/last/pretrained_model
  vlash policy info /models/pi05_base --json";

/// Show kind, sizes, statistics, processor, adapters and trained delay of a checkpoint
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Directory of a policy, of a checkpoint, of a run (its newest checkpoint), or of an adapter
    checkpoint: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> Result<ExitCode, Failure> {
    let directory = place::checkpoint(&args.checkpoint)?;
    let described = info::describe(&directory)?;
    if args.json {
        let text = serde_json::to_string_pretty(&described)
            .map_err(|e| CheckpointError::Json { path: directory, problem: e.to_string() })?;
        print(&format!("{text}\n"))?;
    } else {
        print(&described.to_string())?;
    }
    Ok(ExitCode::SUCCESS)
}
