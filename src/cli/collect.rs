//! `vlash collect`: record demonstrations of the simulated task.

use std::path::PathBuf;
use std::process::ExitCode;

use rayon::prelude::*;

use super::output::tell;
use crate::collect::demonstration::{Demonstration, RATE, TIME_LIMIT, play};
use crate::dataset::write::{DatasetSpec, DatasetWriter, Episode, FeatureSpec, NumericType, Value, WriteError};
use crate::error::{Explain, Failure, Kind};
use crate::robot::sim::render::Camera;
use crate::robot::sim::{IMAGE_SIZE, JOINT_NAMES, Outcome, ROBOT_TYPE, Setup, TASK, Variant};

const EXAMPLES: &str = "\
Examples:
  vlash collect --out demos --episodes 100                      the expert's, undisturbed
  vlash collect --out demos --episodes 1000 --noise 1.5 --variant mixed
                                                                what the policy in the box learned from
  vlash data check demos
  vlash train configs/train/sim.toml data.repo=demos

The dataset appears when it is whole; an interrupted recording leaves nothing.";

/// Which worlds are recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Worlds {
    Static,
    Moving,
    /// Even seeds static, odd ones moving.
    Mixed,
}

/// Why nothing is recorded.
#[derive(Debug, thiserror::Error)]
enum CollectError {
    #[error("--noise {0}: a level is a number from 0 to 3")]
    Noise(f32),
    #[error("the expert solved {kept} of {tried} seeds with --noise {noise}: too few to go on")]
    Hopeless { kept: u64, tried: u64, noise: f32 },
}

impl Explain for CollectError {
    fn kind(&self) -> Kind {
        Kind::Input
    }
    fn hint(&self) -> Option<String> {
        Some("--noise 1".into())
    }
}

/// Record demonstrations of the simulated task as a LeRobot dataset
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Where the dataset goes
    #[arg(long)]
    out: PathBuf,
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    episodes: u64,
    /// Seed of the first episode
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Whether the platform with the ball stands or travels
    #[arg(long, value_enum, default_value = "static")]
    variant: Worlds,
    /// How far the arm is led astray before the recording begins; 0: not, every episode from its beginning
    #[arg(long, default_value_t = 0.0)]
    noise: f32,
}

const BATCH: u64 = 64;

pub fn run(args: Args) -> Result<ExitCode, Failure> {
    if !(0.0..=3.0).contains(&args.noise) {
        return Err(CollectError::Noise(args.noise).into());
    }
    let mut features: Vec<FeatureSpec> = Camera::ALL
        .iter()
        .map(|camera| FeatureSpec::image(&format!("observation.images.{}", camera.name()), IMAGE_SIZE, IMAGE_SIZE))
        .collect();
    features.push(FeatureSpec::vector("observation.state", NumericType::Float32, &JOINT_NAMES));
    features.push(FeatureSpec::vector("action", NumericType::Float32, &JOINT_NAMES));
    let mut writer = DatasetWriter::create(&args.out, DatasetSpec::new(RATE, Some(ROBOT_TYPE), features))?;
    let (mut kept, mut seed) = (0, args.seed);
    while kept < args.episodes {
        let seeds: Vec<u64> = (seed..seed + BATCH.min(args.episodes - kept)).collect();
        seed += seeds.len() as u64;
        let begun: Vec<(u64, Episode)> = seeds.into_iter().map(|seed| (seed, writer.begin(TASK))).collect();
        let recorded = begun.into_par_iter().map(|(seed, episode)| record(&args, seed, episode));
        for episode in recorded.collect::<Result<Vec<_>, WriteError>>()?.into_iter().flatten() {
            writer.save(episode)?;
            kept += 1;
        }
        let tried = seed - args.seed;
        if tried >= 4 * BATCH && kept * 2 < tried {
            return Err(CollectError::Hopeless { kept, tried, noise: args.noise }.into());
        }
        tell(format_args!("{kept} of {} episodes", args.episodes));
    }
    let tried = seed - args.seed;
    let place = writer.finish()?;
    tell(format_args!(
        "{}: {kept} episodes of seeds {}..{}, {} failed ones left out",
        place.display(),
        args.seed,
        seed - 1,
        tried - kept
    ));
    Ok(ExitCode::SUCCESS)
}

fn record(args: &Args, seed: u64, mut episode: Episode) -> Result<Option<Episode>, WriteError> {
    let variant = match args.variant {
        Worlds::Moving => Variant::Moving,
        Worlds::Mixed if seed % 2 == 1 => Variant::Moving,
        Worlds::Static | Worlds::Mixed => Variant::Static,
    };
    let Demonstration { steps, outcome } = play(&Setup { variant, seed }, args.noise, TIME_LIMIT, IMAGE_SIZE);
    if !matches!(outcome, Outcome::Placed { .. }) {
        return Ok(None);
    }
    for step in &steps {
        let mut values: Vec<Value> = step.images.iter().map(Value::Image).collect();
        values.push(Value::F32(&step.state));
        values.push(Value::F32(&step.action));
        episode.push(&values)?;
    }
    Ok(Some(episode))
}
