//! The dataset loader alone: reading, decoding, augmenting and processing, nothing trained.

use std::collections::BTreeMap;
use std::io::Write;
use std::num::NonZero;
use std::sync::Arc;
use std::time::Instant;

use candle_core::Device;
use serde_json::json;

use super::error::BenchError;
use super::place;
use super::report::{Kind, Measure, Memory, Report, SCHEMA};
use crate::config::train::TrainConfig;
use crate::dataset::loader::LoaderOptions;
use crate::dataset::order::Order;
use crate::policy::processor::Processor;
use crate::train::feed::Feed;
use crate::train::memory::peak_resident_bytes;
use crate::train::prepare::data::{self, Data};
use crate::train::prepare::{self, model};

/// What to measure.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Loader threads, one measurement each; empty: 0, 1, 2, 4, … up to the host's threads.
    pub workers: Vec<usize>,
    /// Batches that count, and batches before them.
    pub batches: usize,
    pub warmup: usize,
}

/// Measures the loader of `config` with each number of workers.
pub fn run(config: &TrainConfig, settings: &Settings) -> Result<Report, BenchError> {
    let data = data::open(config)?;
    let processor = model::processor_for(config, &data)?;
    let workers = if settings.workers.is_empty() { doubling() } else { settings.workers.clone() };
    let (mut measures, mut rates) = (Vec::new(), BTreeMap::new());
    let cameras = data.train.cameras().len();
    for &workers in &workers {
        let (first, times) = times(config, &data, &processor, workers, settings)?;
        // Batches wait in the queue, so the time of one says little; all together say how fast they are made.
        let per_s = (times.len() * config.train.batch_size) as f64 / times.iter().sum::<f64>().max(f64::MIN_POSITIVE);
        rates.insert(format!("{workers} workers: samples_per_s"), per_s);
        rates.insert(format!("{workers} workers: frames_per_s"), per_s * cameras as f64);
        measures.push(Measure::of(format!("{workers} workers: batch"), &times));
        measures.push(Measure::of(format!("{workers} workers: first batch"), &[first]));
    }
    let settings = BTreeMap::from([
        ("data".to_string(), json!(data.root)),
        ("batch".to_string(), json!(config.train.batch_size)),
        ("cameras".to_string(), json!(cameras)),
        ("frames".to_string(), json!(data.train.len())),
        ("frame_cache".to_string(), json!(config.data.frame_cache)),
        ("augment".to_string(), json!(config.data.augment.enabled)),
        ("batches".to_string(), json!(settings.batches)),
        ("warmup".to_string(), json!(settings.warmup)),
    ]);
    Ok(Report {
        schema: SCHEMA,
        kind: Kind::Load,
        origin: place::host("cpu".into()),
        settings,
        ceilings: None,
        measures,
        rates,
        memory: Memory { host_peak: peak_resident_bytes(), ..Memory::default() },
        notes: vec!["0 workers: samples are made when they are asked for; rates are over all batches together".into()],
    })
}

/// 0, 1, 2, 4, … up to the host's threads.
fn doubling() -> Vec<usize> {
    let most = std::thread::available_parallelism().map_or(1, NonZero::get);
    std::iter::once(0).chain(std::iter::successors(Some(1), |n| Some(2 * n)).take_while(|n| *n <= most)).collect()
}

/// Seconds of the first batch and of those that count.
fn times(
    config: &TrainConfig,
    data: &Data,
    processor: &Arc<Processor>,
    workers: usize,
    settings: &Settings,
) -> Result<(f64, Vec<f64>), BenchError> {
    let seed = config.run.seed;
    let order = Order::shuffled(seed, data.train.len());
    let options = LoaderOptions {
        batch_size: config.train.batch_size,
        workers,
        prefetch: 2 * workers.max(1),
        window: data.window,
        delays: prepare::delays(config),
        start: order.cursor(0),
        notice: Arc::new(|text| {
            let _ = writeln!(std::io::stderr(), "{text}");
        }),
    };
    let begun = Instant::now();
    let mut feed = Feed::new(
        data.train.clone(),
        order,
        options,
        processor.clone(),
        config.data.augment.clone(),
        seed,
        Device::Cpu,
    )?;
    feed.next_batch()?;
    let first = begun.elapsed().as_secs_f64();
    for _ in 1..settings.warmup {
        feed.next_batch()?;
    }
    let mut times = Vec::with_capacity(settings.batches);
    for _ in 0..settings.batches {
        let begun = Instant::now();
        feed.next_batch()?;
        times.push(begun.elapsed().as_secs_f64());
    }
    Ok((first, times))
}
