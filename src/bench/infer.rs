//! Sampling action chunks: from an observation on the host to actions on the host.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

use candle_core::{DType, Tensor};
use serde_json::{Value, json};

use super::ceilings::repeat;
use super::error::BenchError;
use super::inputs;
use super::place::{Place, Wanted};
use super::report::{Kind, Measure, Report, SCHEMA};
use crate::adapter::plan::Frozen;
use crate::config::train::Preset;
use crate::plan::cost::{self, Shape};
use crate::policy::arch::{Arch, TINY_EXPERT_WIDTH};
use crate::policy::batch::Batch;
use crate::policy::checkpoint::Checkpoint;
use crate::policy::{Policy, RandomInit};

/// What to measure.
#[derive(Debug, Clone)]
pub struct Settings {
    pub place: Wanted,
    /// Sizes of a policy with random weights; none: `full` on a GPU, else `tiny`.
    pub preset: Option<Preset>,
    /// A checkpoint directory, whose sizes and weights are used instead.
    pub checkpoint: Option<PathBuf>,
    pub batch: usize,
    pub cameras: usize,
    /// Prompt tokens.
    pub prompt: usize,
    /// Euler steps.
    pub steps: usize,
    /// Calls that count, and calls before them.
    pub calls: usize,
    pub warmup: usize,
    pub seed: u64,
}

/// Measures whole calls, then their two halves.
pub fn run(settings: &Settings) -> Result<Report, BenchError> {
    let place = Place::open(settings.place, Instant::now())?;
    let weights = Instant::now();
    let policy = policy(settings, &place)?;
    place.device.synchronize()?;
    let weights_s = weights.elapsed().as_secs_f64();
    let loaded = place.used();
    let arch = policy.arch().clone();
    let shape = Shape { batch: settings.batch, cameras: settings.cameras, prompt: settings.prompt, suffixes: 1 };
    let call = Call { policy: &policy, place: &place, batch: inputs::batch(&arch, &shape, settings.seed)?, settings };

    let first = Instant::now();
    let actions = call.whole()?;
    let first_s = first.elapsed().as_secs_f64();
    if actions.iter().any(|action| !action.is_finite()) {
        return Err(BenchError::NotFinite { what: "the sampled chunk" });
    }
    let mut last = actions.clone();
    let whole = repeat(&place.device, settings.warmup, settings.calls, || {
        last = call.whole()?;
        Ok(())
    })?;
    let (prefix, denoise) = call.halves()?;

    let work = cost::inference(&arch, &shape, settings.steps, place.dtype);
    let ceilings = &place.ceilings;
    let mut measures = vec![
        Measure::of("call", &whole).works(&[work.vision, work.prefix, work.denoise], ceilings),
        Measure::of("vision and prefix", &prefix).works(&[work.vision, work.prefix], ceilings),
        Measure::of("denoising", &denoise).work(&work.denoise, ceilings),
    ];
    let start = [("open device", place.open_s), ("weights", weights_s), ("first call", first_s)];
    measures.extend(start.iter().map(|(name, seconds)| Measure::of(*name, &[*seconds])));
    let p50 = measures.first().map_or(0.0, |measure| measure.seconds.p50);
    let rates = BTreeMap::from([
        ("start_to_first_action_s".into(), start.iter().map(|(_, seconds)| seconds).sum()),
        ("chunks_per_s".into(), settings.batch as f64 / p50.max(f64::MIN_POSITIVE)),
    ]);
    let mut notes = place.notes();
    notes.push("call: from the batch on the host to actions on the host; the halves run on the device alone".into());
    if last != actions {
        notes.push(format!(
            "the same call gave other numbers: they differ by up to {:.1e}",
            difference(&last, &actions)
        ));
    }
    Ok(Report {
        schema: SCHEMA,
        kind: Kind::Infer,
        origin: place.origin(),
        settings: described(settings, &place, &arch),
        memory: place.memory(loaded),
        ceilings: Some(place.ceilings),
        measures,
        rates,
        notes,
    })
}

fn policy(settings: &Settings, place: &Place) -> Result<Policy, BenchError> {
    let (device, dtype, fresh) = (&place.device, place.tensor_dtype(), RandomInit { seed: settings.seed });
    if let Some(directory) = &settings.checkpoint {
        let checkpoint = Checkpoint::open(directory)?;
        let weights = checkpoint.weights(&checkpoint.arch, &[], Box::new(fresh))?;
        return Ok(Policy::build(&checkpoint.arch, &weights, &Frozen, device, dtype)?);
    }
    Ok(Policy::build(&sizes(place.preset(settings.preset)), &fresh, &Frozen, device, dtype)?)
}

/// The sizes of a preset.
pub(super) fn sizes(preset: Preset) -> Arch {
    match preset {
        Preset::Full => Arch::full_pi05(),
        Preset::Small => Arch::small(),
        Preset::Tiny => Arch::tiny(TINY_EXPERT_WIDTH),
    }
}

struct Call<'a> {
    policy: &'a Policy,
    place: &'a Place,
    /// On the host.
    batch: Batch,
    settings: &'a Settings,
}

impl Call<'_> {
    fn noise(&self) -> Result<Tensor, BenchError> {
        let arch = self.policy.arch();
        let shape = [self.settings.batch, arch.chunk_size, arch.max_action_dim];
        inputs::uniform(self.settings.seed, "bench/noise", &shape, DType::F32, &self.place.device)
    }

    /// Everything that a robot would wait for, but the camera's pixels and their resizing.
    fn whole(&self) -> Result<Vec<f32>, BenchError> {
        let batch = self.batch.to_device(&self.place.device)?;
        Ok(self.policy.sample(&batch, &self.noise()?, self.settings.steps)?.flatten_all()?.to_vec1()?)
    }

    /// Seconds of vision tower with language model, and of all denoising steps.
    fn halves(&self) -> Result<(Vec<f64>, Vec<f64>), BenchError> {
        let Settings { warmup, calls, steps, .. } = *self.settings;
        let device = &self.place.device;
        let batch = self.batch.to_device(device)?;
        let prefix = repeat(device, warmup, calls, || {
            self.policy.observe(&batch)?;
            Ok(())
        })?;
        let (observed, noise) = (self.policy.observe(&batch)?, self.noise()?);
        let denoise = repeat(device, warmup, calls, || {
            self.policy.denoise(&observed, &noise, steps)?;
            Ok(())
        })?;
        Ok((prefix, denoise))
    }
}

fn difference(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

fn described(settings: &Settings, place: &Place, arch: &Arch) -> BTreeMap<String, Value> {
    let weights = match &settings.checkpoint {
        Some(directory) => json!(directory),
        None => json!(format!("random, {:?}", place.preset(settings.preset)).to_lowercase()),
    };
    let pairs = [
        ("weights", weights),
        ("dtype", json!(place.dtype)),
        ("batch", json!(settings.batch)),
        ("cameras", json!(settings.cameras)),
        ("prompt", json!(settings.prompt)),
        ("chunk", json!(arch.chunk_size)),
        ("steps", json!(settings.steps)),
        ("calls", json!(settings.calls)),
        ("warmup", json!(settings.warmup)),
        ("seed", json!(settings.seed)),
    ];
    pairs.map(|(name, value)| (name.to_string(), value)).into_iter().collect()
}
