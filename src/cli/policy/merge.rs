//! `vlash policy merge`: an adapter and its base to a whole policy.

use std::path::PathBuf;
use std::process::ExitCode;

use super::place;
use crate::adapter::merge::BasePolicy;
use crate::cli::output::print;
use crate::error::Failure;
use crate::policy::checkpoint::merge::merge_adapter;
use crate::train::prepare::identity::digest;

const EXAMPLES: &str = "\
Examples:
  vlash policy merge outputs/tiny/checkpoints/last/pretrained_model/lora_adapters --base outputs/tiny/base --out merged
  vlash policy merge adapters/pick --base /models/pi05_base --out /models/pick";

/// Merge an adapter into the base that it was trained on, and write the policy
///
/// Checkpoints of `vlash train` hold the merged policy already; this is for adapters that travel alone.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Directory with adapter_config.json and adapter_model.safetensors (PEFT's files)
    adapter: PathBuf,
    /// Checkpoint directory of the base
    #[arg(long, value_name = "CHECKPOINT")]
    base: PathBuf,
    /// Directory for the policy
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Merge also onto other weights than the adapter was trained on
    #[arg(long)]
    force_base: bool,
}

pub fn run(args: Args) -> Result<ExitCode, Failure> {
    let base = place::checkpoint(&args.base)?;
    let policy = if args.force_base { BasePolicy::Forced } else { BasePolicy::Same };
    let verified = merge_adapter(&args.adapter, &base, &args.out, policy, digest)?;
    let known = match verified {
        true => "the base is the one that the adapter was trained on",
        false if args.force_base => "the base was not held against the adapter's own, as asked",
        false => "whether the base is the adapter's own is not known: the adapter records none",
    };
    print(&format!("merged policy: {}\n{known}\n", args.out.display()))?;
    Ok(ExitCode::SUCCESS)
}
