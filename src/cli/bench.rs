//! `vlash bench …`: measurements that anyone can repeat.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::bench::place::Wanted;
use crate::bench::report::Report;
use crate::bench::{BenchError, infer, load, ops, render, table, train};
use crate::cli::output::{print, tell};
use crate::cli::typed::{self, UsageError};
use crate::config;
use crate::config::train::{DeviceKind, Dtype, LossParity, Preset, TrainConfig};
use crate::error::{Failure, Kind};

const INFER: &str = "\
Examples:
  vlash bench infer                                   full size on a GPU, tiny on the CPU; random weights
  vlash bench infer --cameras 3 --calls 2000 --json
  vlash bench infer --checkpoint outputs/pi05_lora/checkpoints/last/pretrained_model";

const TRAIN: &str = "\
Examples:
  vlash bench train --lora 16 --batch 8               adapters on every linear, nothing else
  vlash bench train --lora-extras --batch 16 --recompute
  vlash bench train --full --batch 8 --steps 10
  vlash bench train --lora-extras --batch 4 --shared 8    nine delays of a frame over one prefix
  vlash bench train run.toml data.repo=/data/pick     sizes, recipe and batch of a configuration; no data is read";

const LOAD: &str = "\
Examples:
  vlash bench load                                    the bundled dataset
  vlash bench load configs/train/pi05_lora.toml data.repo=/data/pick --workers 0,4,8,16";

const OPS: &str = "\
Examples:
  vlash bench ops
  vlash bench ops --preset full --only attention --json";

const TABLE: &str = "\
Examples:
  vlash bench table --out bench                       writes bench/table.md and bench/table.json
  vlash bench table --only infer-2,infer-3 --budget 300
  vlash bench table --preset tiny --runs 3            the same list, small: does it run at all?";

/// Measure inference, training, the loader and single operations, each beside what the machine allows
#[derive(clap::Subcommand)]
pub enum Command {
    Infer(Infer),
    Train(Box<Train>),
    Load(Load),
    Ops(Ops),
    Table(Table),
}

/// Where and in what precision, and how it is printed.
#[derive(clap::Args)]
struct Where {
    /// The device
    #[arg(long, value_name = "auto|cpu|cuda|cuda:N", value_parser = word::<DeviceKind>)]
    device: Option<DeviceKind>,
    /// Of the transformers' weights [default: bfloat16 on a GPU, float32 on the CPU]
    #[arg(long, value_name = "bfloat16|float32", value_parser = word::<Dtype>)]
    dtype: Option<Dtype>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Where {
    fn wanted(&self) -> Wanted {
        Wanted { device: self.device.unwrap_or(DeviceKind::Auto), dtype: self.dtype }
    }
}

/// Time of sampling action chunks, from the observation on the host to actions on the host
#[derive(clap::Args)]
#[command(after_help = INFER)]
pub struct Infer {
    /// Sizes, with random weights [default: full on a GPU, tiny on the CPU]
    #[arg(long, value_name = "tiny|small|full", value_parser = word::<Preset>, conflicts_with = "checkpoint")]
    preset: Option<Preset>,
    /// A policy directory, whose sizes and weights are used
    #[arg(long, value_name = "DIR")]
    checkpoint: Option<PathBuf>,
    /// Observations in a call
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = size(4096))]
    batch: u64,
    #[arg(long, value_name = "N", default_value_t = 2, help = "Cameras", value_parser = size(16))]
    cameras: u64,
    /// Prompt tokens
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = size(4096))]
    prompt: u64,
    /// Denoising steps
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = runs())]
    steps: u64,
    /// Calls that count
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = runs())]
    calls: u64,
    /// Calls before them
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = warmups())]
    warmup: u64,
    /// Of weights and inputs
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    #[command(flatten)]
    place: Where,
}

/// Time of optimizer steps on synthetic batches: forward, backward, clipping, AdamW
#[derive(clap::Args)]
#[command(after_help = TRAIN)]
pub struct Train {
    /// A configuration, and settings for it; without one the options below say everything
    #[arg(value_name = "CONFIG | KEY=VALUE")]
    typed: Vec<String>,
    /// Sizes [default: full on a GPU, tiny on the CPU]
    #[arg(long, value_name = "tiny|small|full", value_parser = word::<Preset>)]
    preset: Option<Preset>,
    /// Adapters of this rank on every linear, vision tower included [default: 16]
    #[arg(long, value_name = "RANK", value_parser = size(1024), group = "recipe")]
    lora: Option<u64>,
    /// Adapters of rank 16 and the modules that VLASH's configurations train in full beside them
    #[arg(long, group = "recipe")]
    lora_extras: bool,
    /// Every parameter
    #[arg(long, group = "recipe")]
    full: bool,
    /// Frames of a micro-step [default: 1, or the configuration's]
    #[arg(long, value_name = "N", value_parser = size(4096))]
    batch: Option<u64>,
    #[arg(long, value_name = "N", default_value_t = 2, help = "Cameras", value_parser = size(16))]
    cameras: u64,
    /// Prompt tokens
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = size(4096))]
    prompt: u64,
    /// Keep only the inputs of each segment and compute again in the backward pass
    #[arg(long)]
    recompute: bool,
    /// Train the delays 0 … D of a frame over one prefix, and beside it a drawn one of as many frames
    #[arg(long, value_name = "D", value_parser = size(256))]
    shared: Option<u64>,
    /// Micro-steps of a step [default: 1, or the configuration's]
    #[arg(long, value_name = "N", value_parser = size(4096))]
    accum: Option<u64>,
    /// Steps that count
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = runs())]
    steps: u64,
    /// Steps before them
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = warmups())]
    warmup: u64,
    #[command(flatten)]
    place: Where,
}

/// Throughput of the dataset loader alone, by number of workers
#[derive(clap::Args)]
#[command(after_help = LOAD)]
pub struct Load {
    /// A configuration, and settings for it
    #[arg(value_name = "CONFIG | KEY=VALUE")]
    typed: Vec<String>,
    /// Loader threads, one measurement each [default: 0, 1, 2, 4, … up to the host's threads]
    #[arg(long, value_name = "N,N,…", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(0..=1024))]
    workers: Vec<u64>,
    /// Batches that count
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = runs())]
    batches: u64,
    /// Batches before them
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = runs())]
    warmup: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Every operation at the network's sizes, forward and backward, against the roofline
#[derive(clap::Args)]
#[command(after_help = OPS)]
pub struct Ops {
    /// Sizes [default: full on a GPU, tiny on the CPU]
    #[arg(long, value_name = "tiny|small|full", value_parser = word::<Preset>)]
    preset: Option<Preset>,
    #[arg(long, value_name = "N", default_value_t = 1, help = "Observations", value_parser = size(4096))]
    batch: u64,
    #[arg(long, value_name = "N", default_value_t = 3, help = "Cameras", value_parser = size(16))]
    cameras: u64,
    /// Prompt tokens
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = size(4096))]
    prompt: u64,
    /// Passes that count
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = runs())]
    calls: u64,
    /// Passes before them
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = warmups())]
    warmup: u64,
    /// Only operations whose name contains this
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    #[command(flatten)]
    place: Where,
}

/// A list of works, each in a process of its own, as one table
#[derive(clap::Args)]
#[command(after_help = TABLE)]
pub struct Table {
    /// Names of works, comma-separated [default: all]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    only: Vec<String>,
    /// Stop after this time; what is left is skipped
    #[arg(long, value_name = "SECONDS")]
    budget: Option<u64>,
    /// Directory for table.md, table.json and the reports of the works
    #[arg(long, value_name = "DIR", default_value = "outputs/bench")]
    out: PathBuf,
    /// Calls or steps of each work
    #[arg(long, value_name = "N", value_parser = runs())]
    runs: Option<u64>,
    /// Sizes [default: full on a GPU, tiny on the CPU]
    #[arg(long, value_name = "tiny|small|full", value_parser = word::<Preset>)]
    preset: Option<Preset>,
    #[command(flatten)]
    place: Where,
}

pub fn run(command: Command) -> Result<ExitCode, Failure> {
    match command {
        Command::Infer(args) => {
            let report = infer::run(&args.settings())?;
            show(&report, args.place.json)?;
        }
        Command::Train(args) => {
            let report = train::run(&args.settings()?)?;
            show(&report, args.place.json)?;
        }
        Command::Load(args) => show(&args.measure()?, args.json)?,
        Command::Ops(args) => show(&ops::run(&args.settings())?, args.place.json)?,
        Command::Table(args) => return args.run(),
    }
    Ok(ExitCode::SUCCESS)
}

fn show(report: &Report, json: bool) -> Result<(), Failure> {
    if json { print_json(report) } else { Ok(print(&render::report(report))?) }
}

fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let text =
        serde_json::to_string_pretty(value).map_err(|error| BenchError::Report { problem: error.to_string() })?;
    Ok(print(&format!("{text}\n"))?)
}

impl Infer {
    fn settings(&self) -> infer::Settings {
        infer::Settings {
            place: self.place.wanted(),
            preset: self.preset,
            checkpoint: self.checkpoint.clone(),
            batch: self.batch as usize,
            cameras: self.cameras as usize,
            prompt: self.prompt as usize,
            steps: self.steps as usize,
            calls: self.calls as usize,
            warmup: self.warmup as usize,
            seed: self.seed,
        }
    }
}

impl Train {
    /// What the configuration says, then what the options say.
    fn settings(&self) -> Result<train::Settings, Failure> {
        let mut settings = train::Settings {
            place: self.place.wanted(),
            sizes: train::Sizes::Preset(self.preset),
            recipe: train::Recipe::lora(16, false),
            optim: None,
            parity: LossParity::Valid,
            batch: 1,
            cameras: self.cameras as usize,
            prompt: self.prompt as usize,
            recompute: false,
            shared: None,
            accum: 1,
            steps: self.steps as usize,
            warmup: self.warmup as usize,
            seed: 0,
        };
        if !self.typed.is_empty() {
            settings = train::Settings::of_config(&configuration(&self.typed, self.preset)?, settings)?;
            settings.place.device = self.place.device.unwrap_or(settings.place.device);
        }
        match (self.lora, self.lora_extras, self.full) {
            (Some(rank), _, _) => settings.recipe = train::Recipe::lora(rank as usize, false),
            (None, true, _) => settings.recipe = train::Recipe::lora(16, true),
            (None, false, true) => settings.recipe = train::Recipe::full(),
            (None, false, false) => {}
        }
        settings.batch = self.batch.map_or(settings.batch, |batch| batch as usize);
        settings.accum = self.accum.map_or(settings.accum, |accum| accum as usize);
        settings.recompute |= self.recompute;
        settings.shared = self.shared.map_or(settings.shared, |delays| Some(delays as usize));
        Ok(settings)
    }
}

impl Load {
    fn measure(&self) -> Result<Report, Failure> {
        let settings = load::Settings {
            workers: self.workers.iter().map(|&workers| workers as usize).collect(),
            batches: self.batches as usize,
            warmup: self.warmup as usize,
        };
        Ok(load::run(&configuration(&self.typed, None)?, &settings)?)
    }
}

impl Ops {
    fn settings(&self) -> ops::Settings {
        ops::Settings {
            place: self.place.wanted(),
            preset: self.preset,
            batch: self.batch as usize,
            cameras: self.cameras as usize,
            prompt: self.prompt as usize,
            calls: self.calls as usize,
            warmup: self.warmup as usize,
            only: self.only.clone(),
        }
    }
}

impl Table {
    /// Succeeds when every work was measured or skipped.
    fn run(self) -> Result<ExitCode, Failure> {
        let passed = [
            self.place.device.map(|device| ("--device", written(&device))),
            self.place.dtype.map(|dtype| ("--dtype", written(&dtype))),
            self.preset.map(|preset| ("--preset", written(&preset))),
        ];
        let settings = table::Settings {
            only: self.only,
            budget: self.budget.map(Duration::from_secs),
            out: self.out,
            runs: self.runs.map(|runs| runs as usize),
            passed: passed.into_iter().flatten().flat_map(|(name, value)| [name.to_string(), value]).collect(),
        };
        let table = table::run(&settings, &mut |line| tell(format_args!("{line}")))?;
        if self.place.json {
            print_json(&table)?;
        } else {
            print(&table::markdown(&table))?;
        }
        let failed = table.rows.iter().any(|row| matches!(row.outcome, table::Outcome::Failed(_)));
        Ok(if failed { Kind::Environment.exit_code().into() } else { ExitCode::SUCCESS })
    }
}

/// A configuration file with settings, or settings of the built-in one.
fn configuration(typed: &[String], preset: Option<Preset>) -> Result<TrainConfig, Failure> {
    let (settings, files): (Vec<String>, Vec<String>) = typed.iter().cloned().partition(|text| text.contains('='));
    let (source, _) =
        typed::configuration(files, &[]).map_err(|message| UsageError { message, help: "vlash bench --help" })?;
    let loaded = config::load(&source, preset, &settings)?;
    for note in &loaded.notes {
        tell(format_args!("note: {note}"));
    }
    Ok(loaded.value)
}

/// A word of a configuration's enumeration.
fn word<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_value(Value::String(text.into())).map_err(|error| error.to_string())
}

/// The word for a value of such an enumeration.
fn written(value: &impl Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|value| value.as_str().map(str::to_string)).unwrap_or_default()
}

type Range = clap::builder::RangedU64ValueParser<u64>;

/// How often something is run.
fn runs() -> Range {
    clap::value_parser!(u64).range(1..=1 << 20)
}

/// The same, where none is enough.
fn warmups() -> Range {
    clap::value_parser!(u64).range(0..=1 << 20)
}

/// A size: at least one, and not so large that a slip asks for all memory there is.
fn size(most: u64) -> Range {
    clap::value_parser!(u64).range(1..=most)
}
