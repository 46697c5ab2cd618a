//! `vlash data check`: can this dataset be trained on?

use std::process::ExitCode;

use super::{DatasetArgs, print};
use crate::dataset::check::{Options, check};
use crate::dataset::{DatasetError, Selection};
use crate::error::Kind;

const EXAMPLES: &str = "\
Examples:
  vlash data check /data/pick
  vlash data check /data/pick --episodes 0..=39 --horizon 50 --deep
  vlash data check lab/pick --root /data --json";

/// Check everything that the files tell before training: exits 0 only when it could start
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    dataset: DatasetArgs,
    /// Decode every frame, not only three a file
    #[arg(long)]
    deep: bool,
    /// Action steps a sample, for the share of padding
    #[arg(long, value_name = "STEPS", default_value_t = 50)]
    horizon: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> Result<ExitCode, DatasetError> {
    let root = args.dataset.path()?;
    let episodes = args.dataset.episodes.map(|episodes| episodes.0);
    let selection = Selection { episodes, cameras: args.dataset.cameras, ..Selection::default() };
    let report = check(&root, &Options { selection, deep: args.deep, horizon: args.horizon, ..Options::default() });
    let text = if args.json { format!("{:#}", report.to_json()) } else { report.to_string().trim_end().to_owned() };
    print(&text)?;
    let code = if report.can_train() { ExitCode::SUCCESS } else { Kind::Input.exit_code().into() };
    Ok(code)
}
