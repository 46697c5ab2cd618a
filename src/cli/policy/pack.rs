//! `vlash policy pack`: a checkpoint to a small one that can travel.

use std::path::PathBuf;
use std::process::ExitCode;

use super::place;
use crate::cli::output::print;
use crate::error::Failure;
use crate::policy::checkpoint::CheckpointError;
use crate::policy::checkpoint::pack::{Recipe, pack};

const EXAMPLES: &str = "\
Examples:
  vlash policy pack outputs/sim --out small
  vlash policy pack outputs/sim --out src/realtime/box --data 'vlash collect --episodes 400' --evaluation eval.json";

/// Write a policy with its weights in bfloat16, and how it was made: what the policy in the box consists of
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Directory of a policy, of a checkpoint, or of a run (its newest checkpoint)
    checkpoint: PathBuf,
    /// Directory for the packed policy
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// How the data was made, for the recipe
    #[arg(long, value_name = "TEXT")]
    data: Option<String>,
    /// Results of an evaluation, for the recipe
    #[arg(long, value_name = "FILE.json")]
    evaluation: Option<PathBuf>,
}

pub fn run(args: Args) -> Result<ExitCode, Failure> {
    let checkpoint = place::checkpoint(&args.checkpoint)?;
    let evaluation = args.evaluation.map(read).transpose()?;
    let bytes = pack(&checkpoint, &args.out, &Recipe { data: args.data, evaluation })?;
    print(&format!("packed policy: {} ({:.2} MB)\n", args.out.display(), bytes as f64 / 1e6))?;
    Ok(ExitCode::SUCCESS)
}

fn read(path: PathBuf) -> Result<serde_json::Value, CheckpointError> {
    let text = std::fs::read(&path).map_err(|source| CheckpointError::Read { path: path.clone(), source })?;
    serde_json::from_slice(&text).map_err(|e| CheckpointError::Json { path, problem: e.to_string() })
}
