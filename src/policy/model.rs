//! The policy as the trainer, the sampler and the checkpoint writer see it.

use std::collections::BTreeMap;
use std::time::Instant;

use candle_core::{DType, Device, Result, Tensor, bail};

use super::arch::Arch;
use super::batch::{Batch, Draw, Targets};
use super::network::geometry::{Geometry, prefix_real};
use super::network::loss::{Losses, Mean, Velocities};
use super::network::trace::Trace;
use super::network::{Builder, Network, PrefixCache, SuffixInputs, Weight, flow};
use super::segment::{Tape, Trained, Value, Walk};
use super::weights::WeightSource;
use crate::adapter::plan::TrainPlan;
use crate::config::train::LossParity;

/// A built network with its parameters.
#[derive(Debug)]
pub struct Policy {
    arch: Arch,
    pub(super) network: Network,
    device: Device,
    pub(super) parameters: Vec<(String, Weight)>,
    trained: Vec<Trained>,
}

/// How one training step is computed.
#[derive(Debug, Clone, Copy)]
pub struct StepOptions {
    /// The loss that is differentiated.
    pub parity: LossParity,
    /// Keep only the inputs of each segment and compute again in the backward pass.
    pub recompute: bool,
    /// Key of this (micro-)step's dropout masks; none: no dropout.
    pub dropout_key: Option<u64>,
    /// Factor on the gradients: 1/G for G accumulated micro-batches.
    pub loss_scale: f64,
}

/// What a training step gives.
#[derive(Debug)]
pub struct StepOutput {
    /// Unscaled, by the definition asked for.
    pub loss: f64,
    /// By our own definition.
    pub loss_valid: f64,
    /// By our own definition, as sum and count, of each row (branch) alone.
    pub rows: Vec<Mean>,
    /// f32, scaled, by parameter name; a parameter that no gradient reached is absent.
    pub gradients: BTreeMap<String, Tensor>,
    pub forward_s: f64,
    pub backward_s: f64,
}

/// Observations of a batch as the denoising steps read them.
pub struct Observed {
    pub(super) geometry: Geometry,
    pub(super) cache: PrefixCache,
    pub(super) state: Tensor,
    pub(super) samples: usize,
}

/// One chunk on its way from noise to actions, f32 `[B, H, A]`.
pub(super) struct Sampled {
    pub actions: Tensor,
    /// Intermediate tensors under the names of the reference files, when they were recorded.
    pub trace: BTreeMap<String, Tensor>,
}

impl Policy {
    /// Builds the network of `arch` from `source`; `plan` decides what trains. On the CPU `dtype` must be f32.
    pub fn build(
        arch: &Arch,
        source: &dyn WeightSource,
        plan: &dyn TrainPlan,
        device: &Device,
        dtype: DType,
    ) -> Result<Policy> {
        if device.is_cpu() && dtype != DType::F32 {
            bail!("the CPU computes in f32, {dtype:?} was asked for: set model.dtype = \"float32\"")
        }
        let mut builder = Builder::new(source, plan, device, dtype);
        let network = Network::build(arch, &mut builder)?;
        let Builder { parameters, mut trained, .. } = builder;
        trained.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(Policy { arch: arch.clone(), network, device: device.clone(), parameters, trained })
    }

    /// Its sizes.
    pub fn arch(&self) -> &Arch {
        &self.arch
    }

    /// Where it computes; batches must lie there.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// What trains, sorted by name: base parameters and adapter factors (`<module>.lora_A.weight`, `.lora_B.weight`).
    pub fn trained(&self) -> &[Trained] {
        &self.trained
    }

    /// Every base parameter (adapters not merged) under its canonical name, as it stands now: f32 when it trains,
    /// else in the dtype it computes in.
    pub fn parameters(&self) -> impl Iterator<Item = (&str, Tensor)> {
        self.parameters.iter().map(|(name, weight)| (name.as_str(), weight.value()))
    }

    /// The adapter factors as they stand now, sorted by name.
    pub fn adapter_factors(&self) -> impl Iterator<Item = (&str, Tensor)> {
        let factor = |t: &&Trained| t.name.ends_with(".lora_A.weight") || t.name.ends_with(".lora_B.weight");
        self.trained.iter().filter(factor).map(|t| (t.name.as_str(), t.var.as_detached_tensor()))
    }

    /// Loss and gradients of a (micro-)batch, whose prefix is computed once for all branches of an observation.
    pub fn gradients(
        &self,
        batch: &Batch,
        targets: &Targets,
        draw: &Draw,
        options: &StepOptions,
    ) -> Result<StepOutput> {
        let started = Instant::now();
        let walk = Walk { record: true, recompute: options.recompute, dropout_key: options.dropout_key };
        let mut tape = Tape::new(walk);
        let (velocity, wanted) =
            self.training_forward(&mut tape, &batch.trimmed()?, targets, draw, &mut Trace::off())?;
        let compared = Compared::new(&velocity.tensor, &wanted, targets, draw)?;
        let losses = compared.velocities().losses(options.parity);
        let gradient = compared.velocities().gradient(options.parity, options.loss_scale);
        let gradient = Tensor::from_vec(gradient, velocity.tensor.shape(), &self.device)?;
        let forward_s = started.elapsed().as_secs_f64();

        let started = Instant::now();
        let mut gradients: BTreeMap<String, Tensor> = BTreeMap::new();
        tape.backward(&velocity, gradient, &mut |name, gradient| {
            let sum = match gradients.remove(&name) {
                Some(so_far) => (so_far + gradient)?,
                None => gradient,
            };
            gradients.insert(name, sum);
            Ok(())
        })?;
        for trained in self.trained.iter().filter(|t| self.is_last_query(&t.name)) {
            gradients.insert(trained.name.clone(), trained.var.as_detached_tensor().zeros_like()?);
        }
        let backward_s = started.elapsed().as_secs_f64();
        let Losses { loss, loss_valid, rows, .. } = losses;
        Ok(StepOutput { loss, loss_valid, rows, gradients, forward_s, backward_s })
    }

    /// The losses alone: no graph, no dropout.
    pub fn losses(&self, batch: &Batch, targets: &Targets, draw: &Draw, parity: LossParity) -> Result<Losses> {
        let mut tape = Tape::new(Walk::EVALUATE);
        let batch = batch.trimmed()?;
        let (velocity, wanted) = self.training_forward(&mut tape, &batch, targets, draw, &mut Trace::off())?;
        Ok(Compared::new(&velocity.tensor, &wanted, targets, draw)?.velocities().losses(parity))
    }

    /// Bytes that the chain keeps between the forward and the backward pass of this batch.
    pub fn kept_bytes(&self, batch: &Batch, targets: &Targets, draw: &Draw, recompute: bool) -> Result<usize> {
        let mut tape = Tape::new(Walk { record: true, recompute, dropout_key: None });
        self.training_forward(&mut tape, &batch.trimmed()?, targets, draw, &mut Trace::off())?;
        Ok(tape.kept_bytes())
    }

    /// A chunk of normalised actions f32 `[B, H, A]` by `steps` Euler steps from `noise` of the same shape. The
    /// prefix is computed once; its keys and values serve all steps.
    pub fn sample(&self, batch: &Batch, noise: &Tensor, steps: usize) -> Result<Tensor> {
        self.denoise(&self.observe(batch)?, noise, steps)
    }

    /// The first half of [`Policy::sample`]: what the denoising steps need of the observations.
    pub fn observe(&self, batch: &Batch) -> Result<Observed> {
        self.observe_traced(&batch.trimmed()?, &mut Trace::off())
    }

    /// The second half of [`Policy::sample`].
    pub fn denoise(&self, observed: &Observed, noise: &Tensor, steps: usize) -> Result<Tensor> {
        Ok(self.denoise_traced(observed, noise, steps, Trace::off())?.actions)
    }

    /// The training forward with every boundary tensor under its name in the reference files (`u_t` and `v_t`: the wanted
    /// and the predicted velocity f32 `[B·K, H, A]`). Nothing is trimmed.
    pub fn trace_training(&self, batch: &Batch, targets: &Targets, draw: &Draw) -> Result<BTreeMap<String, Tensor>> {
        let (mut tape, mut trace) = (Tape::new(Walk::EVALUATE), Trace::on());
        self.training_forward(&mut tape, batch, targets, draw, &mut trace)?;
        Ok(trace.into_tensors())
    }

    /// [`Policy::sample`] on the batch as it stands, with a trace.
    pub(super) fn sample_traced(&self, batch: &Batch, noise: &Tensor, steps: usize) -> Result<Sampled> {
        let mut record = Trace::on();
        let observed = self.observe_traced(batch, &mut record)?;
        self.denoise_traced(&observed, noise, steps, record)
    }

    fn observe_traced(&self, batch: &Batch, record: &mut Trace) -> Result<Observed> {
        let (geometry, cache) = self.prefix(&mut Tape::new(Walk::EVALUATE), batch, 1, record)?;
        Ok(Observed { geometry, cache, state: batch.state.clone(), samples: batch.len() })
    }

    fn denoise_traced(&self, observed: &Observed, noise: &Tensor, steps: usize, mut record: Trace) -> Result<Sampled> {
        if steps == 0 {
            bail!("sampling takes at least one step")
        }
        self.expect_chunk("noise", noise, observed.samples)?;
        let Observed { geometry, cache, state, samples } = observed;
        let mut tape = Tape::new(Walk::EVALUATE);
        let dt = -1.0 / steps as f64;
        let mut x_t = noise.to_dtype(DType::F32)?;
        for (step, time) in flow::times(steps).into_iter().enumerate() {
            let time = vec![time; *samples];
            let value = Value::constant(x_t.clone());
            let inputs = SuffixInputs { x_t: &value, time: &time, state };
            // The layers of the first step are worth comparing; the later ones are the same code.
            let mut layers = if record.is_on() && step == 0 { Trace::on() } else { Trace::off() };
            let velocity = self.network.velocity(&mut tape, cache, &inputs, geometry, &mut layers)?.tensor;
            for (name, tensor) in layers.into_tensors() {
                record.record(format_args!("step.{step}.{name}"), &tensor);
            }
            record.record(format_args!("step.{step}.x_t"), &x_t);
            record.record(format_args!("step.{step}.v_t"), &velocity);
            if record.is_on() {
                record.record(format_args!("step.{step}.time"), &Tensor::new(&time[..], &self.device)?);
            }
            x_t = (x_t + (velocity * dt)?)?;
        }
        Ok(Sampled { actions: x_t, trace: record.into_tensors() })
    }

    /// Predicted velocity and wanted velocity at x_t.
    fn training_forward<'p>(
        &'p self,
        tape: &mut Tape<'p>,
        batch: &Batch,
        targets: &Targets,
        draw: &Draw,
        trace: &mut Trace,
    ) -> Result<(Value, Tensor)> {
        let branches = targets.branches.count();
        let rows = batch.len() * branches;
        self.expect_chunk("actions", &targets.actions, rows)?;
        self.expect_chunk("noise", &draw.noise, rows)?;
        if draw.time.dims() != [rows] && draw.time.dims() != [rows, self.arch.chunk_size] {
            bail!("flow times {:?} for {} samples of {branches} branches", draw.time.dims(), batch.len())
        }
        if self.arch.state_cond && batch.state.dims() != [rows, self.arch.max_state_dim] {
            let wanted = [rows, self.arch.max_state_dim];
            bail!("states of shape {:?}, wanted {wanted:?}", batch.state.dims())
        }
        let (geometry, cache) = self.prefix(tape, batch, branches, trace)?;
        let x_t = flow::interpolate(&targets.actions, draw)?;
        let wanted = flow::velocity(&targets.actions, draw)?;
        trace.record("x_t", &x_t);
        trace.record("u_t", &wanted);
        let time = draw.time.flatten_all()?.to_vec1::<f32>()?;
        let inputs = SuffixInputs { x_t: &Value::constant(x_t), time: &time, state: &batch.state };
        Ok((self.network.velocity(tape, &cache, &inputs, &geometry, trace)?, wanted))
    }

    fn prefix<'p>(
        &'p self,
        tape: &mut Tape<'p>,
        batch: &Batch,
        branches: usize,
        trace: &mut Trace,
    ) -> Result<(Geometry, PrefixCache)> {
        if batch.is_empty() {
            bail!("a batch without a sample")
        }
        let geometry = Geometry::new(&self.arch, &prefix_real(&self.arch, batch)?, branches, &self.device)?;
        let cache = self.network.prefix(tape, &batch.images, &batch.tokens, &geometry, trace)?;
        Ok((geometry, cache))
    }

    pub(super) fn expect_chunk(&self, what: &str, tensor: &Tensor, batch: usize) -> Result<()> {
        let wanted = [batch, self.arch.chunk_size, self.arch.max_action_dim];
        if tensor.dims() != wanted {
            bail!("{what} of shape {:?}, wanted {wanted:?}", tensor.dims())
        }
        Ok(())
    }
}

/// Velocities on the host, where the loss is computed: they are small and every sum is in f64.
struct Compared {
    predicted: Vec<f32>,
    wanted: Vec<f32>,
    is_pad: Vec<bool>,
    given: Vec<bool>,
    counts: Vec<bool>,
    chunk: usize,
    dims: usize,
    action_dim: usize,
}

impl Compared {
    fn new(predicted: &Tensor, wanted: &Tensor, targets: &Targets, draw: &Draw) -> Result<Self> {
        let (rows, chunk, dims) = predicted.dims3()?;
        if targets.is_pad.dims() != [rows, chunk] {
            bail!("pad flags of shape {:?}, wanted {:?}", targets.is_pad.dims(), [rows, chunk])
        }
        if targets.action_dim == 0 || targets.action_dim > dims {
            bail!("{} real action dimensions of {dims}", targets.action_dim)
        }
        let values = |tensor: &Tensor| tensor.to_dtype(DType::F32)?.flatten_all()?.to_vec1::<f32>();
        Ok(Self {
            predicted: values(predicted)?,
            wanted: values(wanted)?,
            is_pad: values(&targets.is_pad)?.into_iter().map(|pad| pad != 0.0).collect(),
            given: draw.given()?,
            counts: (0..rows).map(|row| targets.branches.counts(row)).collect(),
            chunk,
            dims,
            action_dim: targets.action_dim,
        })
    }

    fn velocities(&self) -> Velocities<'_> {
        let Self { predicted, wanted, is_pad, given, counts, chunk, dims, action_dim } = self;
        Velocities { predicted, wanted, is_pad, given, counts, chunk: *chunk, dims: *dims, action_dim: *action_dim }
    }
}
