//! `vlash collect`: record demonstrations of the simulated task.

use std::path::PathBuf;
use std::process::ExitCode;

use rayon::prelude::*;

use super::output::tell;
use crate::collect::demonstration::{Demonstration, RATE, TIME_LIMIT, play};
use crate::dataset::write::{DatasetSpec, DatasetWriter, Episode, FeatureSpec, NumericType, Value, WriteError};
use crate::error::Failure;
use crate::robot::sim::render::Camera;
use crate::robot::sim::{IMAGE_SIZE, JOINT_NAMES, Outcome, ROBOT_TYPE, Setup, TASK, Variant};

/// Record demonstrations of the simulated task as a LeRobot dataset
#[derive(clap::Args)]
pub struct Args {
    /// Where the dataset goes
    #[arg(long)]
    out: PathBuf,
    #[arg(long, default_value_t = 100)]
    episodes: u64,
    /// Seed of the first episode
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// static, moving or mixed
    #[arg(long, default_value = "static")]
    variant: String,
    /// Disturbance of what is executed
    #[arg(long, default_value_t = 0.0)]
    noise: f32,
}

const BATCH: u64 = 64;

pub fn run(args: Args) -> Result<ExitCode, Failure> {
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
        tell(format_args!("{kept} of {} episodes", args.episodes));
    }
    writer.finish()?;
    Ok(ExitCode::SUCCESS)
}

fn record(args: &Args, seed: u64, mut episode: Episode) -> Result<Option<Episode>, WriteError> {
    let variant = match args.variant.as_str() {
        "moving" => Variant::Moving,
        "mixed" if seed % 2 == 1 => Variant::Moving,
        _ => Variant::Static,
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
