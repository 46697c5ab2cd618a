//! `vlash eval --open-loop`: which episodes, and what is written.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::{Args, Numbers, pretty, save};
use crate::cli::output::{print, tell};
use crate::config::ranges;
use crate::config::train::{DeviceKind, TrainConfig};
use crate::dataset::resolve::resolve;
use crate::dataset::{Dataset, Metadata, Selection};
use crate::error::Failure;
use crate::eval::EvalError;
use crate::eval::open_loop::{self, Settings};
use crate::eval::source::Source;
use crate::track::run_dir::{RUN_FILE, RunRecord};
use crate::train::split::split;

/// A run's directory lies at most so far above its policy (RUN/checkpoints/STEP/pretrained_model).
const DEEPEST: usize = 5;

/// Predictions on recordings instead of rollouts.
#[derive(clap::Args)]
pub(super) struct OpenLoopArgs {
    /// Predict chunks on recorded episodes instead: a dataset's directory, or owner/name
    #[arg(long, value_name = "DATASET")]
    open_loop: Option<String>,
    /// Episodes of it [default: those that the checkpoint's run held out]
    #[arg(long, value_name = "LIST", requires = "open_loop")]
    episodes: Option<Numbers>,
    /// Steps of a chunk that are compared [default: all]
    #[arg(long, value_name = "STEPS", requires = "open_loop")]
    horizon: Option<usize>,
    /// Frames to predict at, spread evenly
    #[arg(long, value_name = "N", default_value_t = 256, requires = "open_loop",
        value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    frames: u32,
}

impl OpenLoopArgs {
    pub(super) fn dataset(&self) -> Option<&str> {
        self.open_loop.as_deref()
    }
}

pub(super) fn run(args: &Args, dataset: &str) -> Result<ExitCode, Failure> {
    let root = resolve(Some(dataset), None)?.path;
    let episodes = match &args.open_loop.episodes {
        Some(Numbers(episodes)) => episodes.clone(),
        None => held_out(args.checkpoint.as_deref(), &root)?,
    };
    let dataset = Dataset::open(&root, Selection { episodes: Some(episodes), ..Selection::default() })?;
    dataset.findings().iter().for_each(|finding| tell(format_args!("warning: {}", finding.message)));
    let source = Source::open(args.checkpoint.as_deref(), args.steps(), DeviceKind::Cpu)?;
    let delay = args.delays.as_ref().and_then(|delays| delays.iter().max()).map(|&delay| delay as usize);
    let settings = Settings {
        horizon: args.open_loop.horizon,
        frames: args.open_loop.frames as usize,
        delay,
        threads: args.threads(),
        seed: 0,
    };
    let report = open_loop::run(&dataset, &source, &settings)?;
    let (json, text) = (pretty(&report)?, report.markdown());
    let files = [
        ("open-loop.json", json.clone()),
        ("open-loop.md", text.clone()),
        ("open-loop-joints.svg", report.by_joint()),
        ("open-loop-delays.svg", report.by_delay()),
    ];
    save(&args.out, &files)?;
    print(if args.json { &json } else { &text })?;
    Ok(ExitCode::SUCCESS)
}

/// The episodes that the run around `checkpoint` did not train on.
fn held_out(checkpoint: Option<&Path>, root: &Path) -> Result<Vec<usize>, Failure> {
    let meta = Metadata::read(root)?;
    let all: Vec<usize> = meta.episodes.iter().map(|episode| episode.index).collect();
    let unknown = |why: String| EvalError::Setting {
        problem: format!("which episodes were held out is not known: {why}"),
        hint: "--episodes 40:50 (the dataset has ".to_string() + &ranges::list(&all) + ")",
    };
    let checkpoint = checkpoint.ok_or_else(|| unknown("the policy in the box has no run beside it".into()))?;
    let run = run_of(checkpoint).ok_or_else(|| unknown(format!("no {RUN_FILE} above {}", checkpoint.display())))?;
    let read = |path: &Path| -> Result<TrainConfig, String> {
        let text = std::fs::read(path).map_err(|error| error.to_string())?;
        let record: RunRecord = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
        serde_json::from_value(record.config).map_err(|error| error.to_string())
    };
    let config = read(&run).map_err(|why| unknown(format!("{}: {why}", run.display())))?;
    let selected = config.data.episodes.clone().unwrap_or(all.clone());
    let split = split(&selected, &config.validation, config.run.seed).map_err(unknown)?;
    match split.validation.as_slice() {
        [] => Err(unknown(format!("{} held out none", run.display())).into()),
        held => Ok(held.to_vec()),
    }
}

/// `run.json` at `checkpoint` or above it.
fn run_of(checkpoint: &Path) -> Option<PathBuf> {
    let place = checkpoint.canonicalize().ok()?;
    place.ancestors().take(DEEPEST).map(|above| above.join(RUN_FILE)).find(|path| path.is_file())
}
