//! Denoising a chunk that has to fit the one before it: real-time chunking (guided inpainting, arXiv 2506.07339) and
//! its form that is trained for (leading actions given, arXiv 2512.05964).
//!
//! Flow time runs from 1 (noise) to 0 (actions), as everywhere here; τ = 1 − t is the papers' time. With the predicted
//! chunk `x̂ = x_t − t·v`, what is left of the old chunk `y` and weights `W`, guidance replaces the velocity by
//! `v − g·Jᵀ(W ⊙ (y − x̂))` with `J = ∂x̂/∂x_t`.

use candle_core::{D, DType, Result, Tensor, bail};

use super::model::{Observed, Policy};
use super::network::trace::Trace;
use super::network::{SuffixInputs, flow};
use super::segment::{Tape, Value, Walk};

/// What guides a chunk towards the rest of the old one.
#[derive(Debug, Clone)]
pub struct Guided {
    /// f32 `[H, A]`, normalised and zero-padded: row i is the old chunk's action for step i of the new one. Rows of
    /// weight 0 are not looked at.
    pub leftover: Tensor,
    /// f32 `[H]` in 0…1.
    pub weights: Tensor,
    /// Limit of the guidance factor.
    pub max_weight: f64,
    /// Use the true Jacobian, by a backward pass through the expert at every step. Else it counts as the identity, as in
    /// LeRobot's released code.
    pub full_jacobian: bool,
}

/// The guidance factor `min(((1 − τ)/τ)·((1 − τ)² + τ²)/(1 − τ)², limit)` at flow time `time` = 1 − τ; at τ = 0 it is the
/// limit.
pub fn guidance_factor(time: f64, limit: f64) -> f64 {
    let tau = 1.0 - time;
    let factor = time / tau * (time * time + tau * tau) / (time * time);
    // 1/0 at τ = 0 is a limit; 0/0 (both ends at once) cannot be.
    if factor.is_nan() { limit } else { factor.min(limit) }
}

impl Guided {
    fn check(&self, chunk: usize, dims: usize) -> Result<()> {
        if self.leftover.dims() != [chunk, dims] || self.weights.dims() != [chunk] {
            let (leftover, weights) = (self.leftover.dims(), self.weights.dims());
            bail!("guidance towards {leftover:?} with weights {weights:?} for a chunk of [{chunk}, {dims}]")
        }
        Ok(())
    }

    /// `W ⊙ (y − x̂)` for x_t and v f32 `[B, H, A]`.
    pub(super) fn error(&self, x_t: &Tensor, velocity: &Tensor, time: f64) -> Result<Tensor> {
        let predicted = (x_t - (velocity * time)?)?;
        let missing = predicted.neg()?.broadcast_add(&self.leftover)?;
        missing.broadcast_mul(&self.weights.unsqueeze(D::Minus1)?)
    }

    /// `v − g·correction`.
    pub(super) fn corrected(&self, velocity: &Tensor, correction: &Tensor, time: f64) -> Result<Tensor> {
        velocity - (correction * guidance_factor(time, self.max_weight))?
    }
}

impl Policy {
    /// [`Policy::denoise`] guided towards the rest of the old chunk. The result is normalised, f32 `[B, H, A]`.
    ///
    /// # Errors
    /// Shapes that do not fit; no step.
    pub fn denoise_guided(&self, observed: &Observed, noise: &Tensor, steps: usize, guided: &Guided) -> Result<Tensor> {
        let mut x_t = self.begin(observed, noise, steps)?;
        guided.check(self.arch().chunk_size, self.arch().max_action_dim)?;
        for time in flow::times(steps) {
            let (velocity, correction) = self.guidance(observed, &x_t, time, guided)?;
            let velocity = guided.corrected(&velocity, &correction, f64::from(time))?;
            x_t = (x_t + (velocity * (-1.0 / steps as f64))?)?;
        }
        Ok(x_t)
    }

    /// Velocity at x_t, and Jᵀ of the guidance error: `r − t·(∂v/∂x_t)ᵀ r`.
    pub(super) fn guidance(
        &self,
        observed: &Observed,
        x_t: &Tensor,
        time: f32,
        guided: &Guided,
    ) -> Result<(Tensor, Tensor)> {
        let t = f64::from(time);
        let times = vec![time; observed.samples];
        if !guided.full_jacobian {
            let mut tape = Tape::new(Walk::EVALUATE);
            let velocity = self.velocity(&mut tape, observed, &Value::constant(x_t.clone()), &times)?.tensor;
            let error = guided.error(x_t, &velocity, t)?;
            return Ok((velocity, error));
        }
        let mut tape = Tape::new(Walk { record: true, recompute: false, dropout_key: None });
        let x = tape.input(x_t.clone());
        let velocity = self.velocity(&mut tape, observed, &x, &times)?;
        let error = guided.error(x_t, &velocity.tensor, t)?;
        let pulled = tape.pull(&velocity, error.clone(), &x)?;
        let correction = match pulled {
            Some(pulled) => (&error - (pulled * t)?)?,
            None => error,
        };
        Ok((velocity.tensor, correction))
    }

    /// [`Policy::denoise`] with the first actions given, for a policy that was trained so (`train.rtc_max_delay`).
    ///
    /// `given`: f32 `[d, A]`, normalised and zero-padded, d < H. They stand in the chunk at every step, with flow time
    /// 0, and in the result as they are.
    ///
    /// # Errors
    /// Shapes that do not fit; no step.
    pub fn denoise_given(&self, observed: &Observed, noise: &Tensor, steps: usize, given: &Tensor) -> Result<Tensor> {
        let mut x_t = self.begin(observed, noise, steps)?;
        let (rows, chunk, dims) = x_t.dims3()?;
        let delay = given.dim(0)?;
        if given.dims() != [delay, dims] || delay >= chunk {
            bail!("{:?} actions given for a chunk of [{chunk}, {dims}]", given.dims())
        }
        if delay == 0 {
            return self.denoise(observed, noise, steps);
        }
        let given = given.unsqueeze(0)?.broadcast_as((rows, delay, dims))?.contiguous()?;
        let put = |x: &Tensor| Tensor::cat(&[&given, &x.narrow(1, delay, chunk - delay)?], 1);
        x_t = put(&x_t)?;
        for time in flow::times(steps) {
            let times: Vec<f32> =
                (0..rows * chunk).map(|token| if token % chunk < delay { 0.0 } else { time }).collect();
            let mut tape = Tape::new(Walk::EVALUATE);
            let velocity = self.velocity(&mut tape, observed, &Value::constant(x_t.clone()), &times)?.tensor;
            x_t = put(&(x_t + (velocity * (-1.0 / steps as f64))?)?)?;
        }
        Ok(x_t)
    }

    fn begin(&self, observed: &Observed, noise: &Tensor, steps: usize) -> Result<Tensor> {
        if steps == 0 {
            bail!("sampling takes at least one step")
        }
        self.expect_chunk("noise", noise, observed.samples)?;
        noise.to_dtype(DType::F32)
    }

    pub(super) fn velocity<'p>(
        &'p self,
        tape: &mut Tape<'p>,
        observed: &Observed,
        x_t: &Value,
        time: &[f32],
    ) -> Result<Value> {
        let inputs = SuffixInputs { x_t, time, state: &observed.state };
        self.network.velocity(tape, &observed.cache, &inputs, &observed.geometry, &mut Trace::off())
    }
}
