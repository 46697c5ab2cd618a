//! `vlash data check`: can this dataset be trained on?

use std::collections::BTreeMap;
use std::process::ExitCode;

use super::{DatasetArgs, fit, print};
use crate::dataset::Selection;
use crate::dataset::check::{Options, check};
use crate::error::{Failure, Kind};

const EXAMPLES: &str = "\
Examples:
  vlash data check /data/pick
  vlash data check /data/pick --episodes 0..=39 --horizon 50 --deep
  vlash data check /data/pick --policy /models/pi05_base --tokenizer /models/paligemma
  vlash data check lab/pick --root /data --json";

/// Check everything that the files tell before training: exits 0 only when it could start
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    dataset: DatasetArgs,
    #[command(flatten)]
    fit: fit::PolicyArgs,
    /// Features to rename, as data.rename will: observation.images.front=observation.images.top
    #[arg(long, value_name = "FROM=TO", value_delimiter = ',', value_parser = renamed)]
    rename: Vec<(String, String)>,
    /// Cameras of the policy that may be without data, as model.empty_cameras
    #[arg(long, value_name = "N", default_value_t = 0)]
    empty_cameras: usize,
    /// Decode every frame, not only three a file
    #[arg(long)]
    deep: bool,
    /// Action steps a sample, for the share of padding [default: the policy's chunk, else 50]
    #[arg(long, value_name = "STEPS")]
    horizon: Option<usize>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn renamed(text: &str) -> Result<(String, String), String> {
    let (from, to) = text.split_once('=').ok_or("expected FROM=TO")?;
    Ok((from.trim().to_owned(), to.trim().to_owned()))
}

pub fn run(args: Args) -> Result<ExitCode, Failure> {
    let root = args.dataset.path()?;
    let fit = args.fit.open()?;
    let episodes = args.dataset.episodes.map(|episodes| episodes.0);
    let rename: BTreeMap<String, String> = args.rename.into_iter().collect();
    let selection = Selection { episodes, cameras: args.dataset.cameras, rename };
    let horizon = args.horizon.unwrap_or(fit.horizon());
    let mut report = check(&root, &Options { selection, deep: args.deep, horizon, ..Options::default() });
    let findings = report.facts.as_ref().map(|facts| fit.findings(&root, facts, args.empty_cameras));
    findings.into_iter().flatten().for_each(|finding| report.push(finding));
    let text = if args.json { format!("{:#}", report.to_json()) } else { report.to_string().trim_end().to_owned() };
    print(&text)?;
    let code = if report.can_train() { ExitCode::SUCCESS } else { Kind::Input.exit_code().into() };
    Ok(code)
}
