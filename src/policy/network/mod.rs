//! The π₀.₅ network: SigLIP, the language model over the prefix, the action expert over the suffix.

pub mod flow;
pub mod geometry;
pub mod init;
mod linear;
pub mod loss;
mod prefix;
mod suffix;
pub mod trace;
mod vision;
mod weight;

use candle_core::{DType, Device, Result, Tensor, bail};

use crate::config::train::PolicyKind;
use crate::policy::arch::Arch;
use crate::policy::segment::{Pass, Segment, Tape, Value};
use linear::RmsNorm;
use prefix::{LANGUAGE, PrefixEmbedding, PrefixLayer};
use suffix::{SuffixEmbedding, SuffixHead, SuffixLayer};
use trace::Trace;
use vision::{Patches, VisionHead, VisionLayer};

use geometry::Geometry;
pub use weight::{Builder, Weight};

#[cfg(test)]
pub(in crate::policy) mod fixture;
#[cfg(test)]
mod tests;

/// All segments, in the order of computation.
#[derive(Debug)]
pub struct Network {
    arch: Arch,
    patches: Patches,
    vision: Vec<VisionLayer>,
    vision_head: VisionHead,
    prefix_embedding: PrefixEmbedding,
    prefix: Vec<PrefixLayer>,
    /// The language model's final norm: part of the checkpoint, read by traces only.
    prefix_norm: RmsNorm,
    suffix_embedding: SuffixEmbedding,
    suffix: Vec<SuffixLayer>,
    suffix_head: SuffixHead,
}

/// Keys and values of every prefix layer.
pub type PrefixCache = Vec<[Value; 2]>;

/// What the action expert computes velocities from, in rows of K branches for each observation of the cache.
pub struct SuffixInputs<'a> {
    /// f32 `[B·K, H, A]`.
    pub x_t: &'a Value,
    /// Of each row, or of each step of each row (row-major `[B·K, H]`).
    pub time: &'a [f32],
    /// f32 `[B·K, max_state_dim]`, read with `state_cond`.
    pub state: &'a Tensor,
}

impl Network {
    /// Builds every segment from what `builder` gives.
    pub fn build(arch: &Arch, builder: &mut Builder) -> Result<Self> {
        check(arch)?;
        Ok(Self {
            patches: Patches::build(builder, &arch.vision)?,
            vision: (0..arch.vision.depth)
                .map(|i| VisionLayer::build(builder, &arch.vision, i))
                .collect::<Result<_>>()?,
            vision_head: VisionHead::build(builder, &arch.vision, arch.vlm.width)?,
            prefix_embedding: PrefixEmbedding::build(builder, arch.vocab_size, arch.vlm.width)?,
            prefix: (0..arch.vlm.depth).map(|i| PrefixLayer::build(builder, &arch.vlm, i)).collect::<Result<_>>()?,
            prefix_norm: RmsNorm::build(builder, &format!("{LANGUAGE}.norm"), arch.vlm.width, arch.vlm.rms_norm_eps)?,
            suffix_embedding: SuffixEmbedding::build(builder, arch)?,
            suffix: (0..arch.expert.depth)
                .map(|i| SuffixLayer::build(builder, &arch.expert, i))
                .collect::<Result<_>>()?,
            suffix_head: SuffixHead::build(builder, arch)?,
            arch: arch.clone(),
        })
    }

    /// Images (f32 `[B, 3, R, R]` each) and prompt (u32 `[B, L]`) to the keys and values that the expert attends to.
    pub fn prefix<'n>(
        &'n self,
        tape: &mut Tape<'n>,
        images: &[Tensor],
        tokens: &Tensor,
        geometry: &Geometry,
        trace: &mut Trace,
    ) -> Result<PrefixCache> {
        let mut x = self.embed_prefix(tape, images, tokens, trace)?;
        trace.record("prefix_embedding", &x.tensor);
        let [cos, sin] = rotation(&geometry.prefix_rotation);
        let mask = Value::constant(geometry.prefix_mask.clone());
        let mut cache = Vec::with_capacity(self.prefix.len());
        for (index, layer) in self.prefix.iter().enumerate() {
            if trace.is_on() {
                let inputs = [&x, &cos, &sin, &mask].map(|value| value.tensor.clone());
                let hidden = layer.hidden(&inputs, &Pass::default())?;
                trace.record(format_args!("layer.{index}.prefix_hidden"), &hidden);
                if index + 1 == self.prefix.len() {
                    trace.record("prefix_final_norm", &self.prefix_norm.forward(&hidden, &Pass::default())?);
                }
            }
            let mut outputs = tape.run(layer, &[&x, &cos, &sin, &mask])?;
            let (Some(v), Some(k)) = (outputs.pop(), outputs.pop()) else {
                bail!("{}: keys and values are missing", layer.name())
            };
            trace.record(format_args!("prefix_kv.{index}.key"), &k.tensor);
            trace.record(format_args!("prefix_kv.{index}.value"), &v.tensor);
            cache.push([k, v]);
            if let Some(hidden) = outputs.pop() {
                x = hidden;
            }
        }
        Ok(cache)
    }

    fn embed_prefix<'n>(
        &'n self,
        tape: &mut Tape<'n>,
        images: &[Tensor],
        tokens: &Tensor,
        trace: &mut Trace,
    ) -> Result<Value> {
        if trace.is_on() {
            trace.record("language_embedding", &self.prefix_embedding.language(tokens, &Pass::default())?);
        }
        let tokens = Value::constant(tokens.clone());
        if images.is_empty() {
            return one(tape.run(&self.prefix_embedding, &[&tokens])?);
        }
        let cameras = images.len();
        let mut x = one(tape.run(&self.patches, &[&Value::constant(Tensor::cat(images, 0)?)])?)?;
        trace.record_cameras("siglip_embeddings", &x.tensor, cameras)?;
        for (index, layer) in self.vision.iter().enumerate() {
            x = one(tape.run(layer, &[&x])?)?;
            trace.record_cameras(format_args!("siglip_layer.{index}"), &x.tensor, cameras)?;
        }
        if trace.is_on() {
            let normal = self.vision_head.normalise(&x.tensor, &Pass::default())?;
            trace.record_cameras("siglip_post_layernorm", &normal, cameras)?;
        }
        let x = one(tape.run(&self.vision_head, &[&x])?)?;
        trace.record_cameras("embedding", &x.tensor, cameras)?;
        one(tape.run(&self.prefix_embedding, &[&x, &tokens])?)
    }

    /// The velocity f32 `[B·K, H, A]` at x_t and time.
    pub fn velocity<'n>(
        &'n self,
        tape: &mut Tape<'n>,
        cache: &PrefixCache,
        inputs: &SuffixInputs,
        geometry: &Geometry,
        trace: &mut Trace,
    ) -> Result<Value> {
        let (arch, x_t) = (&self.arch, inputs.x_t);
        let (device, rows) = (x_t.tensor.device(), x_t.tensor.dim(0)?);
        let width = arch.expert.width;
        let sinusoid = flow::sinusoid(inputs.time, width, arch.min_period, arch.max_period);
        let shape = match inputs.time.len() {
            one_each if one_each == rows => vec![rows, width],
            _ => vec![rows, arch.chunk_size, width],
        };
        let sinusoid = Tensor::from_vec(sinusoid, shape, &Device::Cpu)?;
        trace.record("time_sinusoidal_f64", &sinusoid);
        let sinusoid = Value::constant(sinusoid.to_dtype(DType::F32)?.to_device(device)?);
        let state = Value::constant(inputs.state.clone());
        let mut embedded = vec![x_t, &sinusoid];
        if arch.state_cond {
            embedded.push(&state);
        }
        let [mut x, condition] = tape.run(&self.suffix_embedding, &embedded)?.try_into().map_err(count)?;
        trace.record("suffix_embedding", &x.tensor);
        trace.record("adarms_cond", &condition.tensor);
        let [cos, sin] = rotation(&geometry.suffix_rotation);
        let mask = Value::constant(geometry.suffix_mask.clone());
        for (index, (layer, [k, v])) in self.suffix.iter().zip(cache).enumerate() {
            x = one(tape.run(layer, &[&x, &condition, k, v, &cos, &sin, &mask])?)?;
            trace.record(format_args!("layer.{index}.suffix_hidden"), &x.tensor);
        }
        if trace.is_on() {
            let normal = self.suffix_head.normalise(&x.tensor, &condition.tensor, &Pass::default())?;
            trace.record("suffix_final_norm", &normal);
        }
        let velocity = one(tape.run(&self.suffix_head, &[&x, &condition])?)?;
        trace.record("v_t", &velocity.tensor);
        Ok(velocity)
    }
}

/// Refuses sizes that the network cannot be built with.
fn check(arch: &Arch) -> Result<()> {
    let (vlm, expert, vision) = (&arch.vlm, &arch.expert, &arch.vision);
    if arch.kind != PolicyKind::Pi05 {
        bail!("this network is π₀.₅; π₀ is not available yet")
    }
    if vlm.depth != expert.depth || vlm.head_dim != expert.head_dim || vlm.kv_heads != expert.kv_heads {
        bail!("the two Gemmas attend jointly: depth, head_dim and kv_heads must agree: {vlm:?}, {expert:?}")
    }
    if vision.patch == 0
        || !vision.image.is_multiple_of(vision.patch)
        || vision.heads == 0
        || vision.width % vision.heads != 0
    {
        bail!("the vision tower's sizes do not fit each other: {vision:?}")
    }
    if !expert.width.is_multiple_of(2) || !vlm.head_dim.is_multiple_of(2) {
        bail!("the expert's width and head_dim must be even")
    }
    Ok(())
}

fn rotation(rotation: &crate::ops::rope::Rotation) -> [Value; 2] {
    [Value::constant(rotation.cos.clone()), Value::constant(rotation.sin.clone())]
}

/// The only output.
fn one(outputs: Vec<Value>) -> Result<Value> {
    let [value] = outputs.try_into().map_err(count)?;
    Ok(value)
}

fn count(outputs: Vec<Value>) -> candle_core::Error {
    candle_core::Error::Msg(format!("a segment gave {} outputs, which is not what it declares", outputs.len()))
}
