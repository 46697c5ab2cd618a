//! The language model over the prefix: images and prompt.
//!
//! The prefix never attends to the suffix, so its layers run alone; all that the suffix takes from layer ℓ are its
//! keys and values. They are outputs of their own: a cache at inference, the seam for several suffixes over one
//! observation in training. Of the last layer nothing but keys and values is ever read.

use candle_core::{Result, Tensor, bail};

use super::linear::{Linear, RmsNorm};
use super::weight::{Builder, Precision, Weight};
use crate::ops::attention::{Heads, attention};
use crate::ops::embedding::embedding;
use crate::ops::gated_gelu::gated_gelu;
use crate::ops::rope::{Rotation, rope};
use crate::policy::arch::GemmaArch;
use crate::policy::segment::{Pass, Segment, Trained};

pub(super) const LANGUAGE: &str = "paligemma_with_expert.paligemma.model.language_model";

/// Puts image tokens (by camera) and prompt tokens in one row: `[cameras·B, T, C]` (left out without cameras) and
/// u32 `[B, L]` → `[B, cameras·T + L, C]`.
#[derive(Debug)]
pub struct PrefixEmbedding {
    tokens: Weight,
    width: usize,
    dtype: candle_core::DType,
    trained: Vec<Trained>,
}

impl PrefixEmbedding {
    pub fn build(builder: &mut Builder, vocabulary: usize, width: usize) -> Result<Self> {
        let name = format!("{LANGUAGE}.embed_tokens.weight");
        let dtype = builder.dtype(Precision::Compute);
        let (tokens, trained) = builder.part(|b| b.weight(&name, &[vocabulary, width], Precision::Compute))?;
        Ok(Self { tokens, width, dtype, trained })
    }

    /// Prompt tokens times √width; image tokens enter unscaled.
    pub fn language(&self, tokens: &Tensor, pass: &Pass) -> Result<Tensor> {
        embedding(&self.tokens.tensor(pass, self.dtype)?, tokens, (self.width as f64).sqrt())
    }
}

impl Segment for PrefixEmbedding {
    fn name(&self) -> &str {
        "prefix.embedding"
    }

    fn trained(&self) -> &[Trained] {
        &self.trained
    }

    fn compute(&self, inputs: &[Tensor], pass: &Pass) -> Result<Vec<Tensor>> {
        let (images, tokens) = match inputs {
            [tokens] => (None, tokens),
            [images, tokens] => (Some(images), tokens),
            _ => bail!("{}: images and tokens are wanted", self.name()),
        };
        let language = self.language(tokens, pass)?;
        let Some(images) = images else { return Ok(vec![language]) };
        let ((stacked, length, width), batch) = (images.dims3()?, tokens.dim(0)?);
        let cameras = stacked / batch.max(1);
        let images = images.reshape((cameras, batch, length, width))?.transpose(0, 1)?.reshape((
            batch,
            cameras * length,
            width,
        ))?;
        Ok(vec![Tensor::cat(&[&images, &language], 1)?])
    }
}

/// `down(gelu(gate(x))·up(x))`.
#[derive(Debug)]
pub(super) struct GatedMlp {
    gate: Linear,
    up: Linear,
    down: Linear,
}

impl GatedMlp {
    pub fn build(builder: &mut Builder, module: &str, arch: &GemmaArch) -> Result<Self> {
        let (width, mlp) = (arch.width, arch.mlp);
        Ok(Self {
            gate: builder.linear(&format!("{module}.gate_proj"), [width, mlp], false, Precision::Compute)?,
            up: builder.linear(&format!("{module}.up_proj"), [width, mlp], false, Precision::Compute)?,
            down: builder.linear(&format!("{module}.down_proj"), [mlp, width], false, Precision::Compute)?,
        })
    }

    pub fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        self.down.forward(&gated_gelu(&self.gate.forward(x, pass)?, &self.up.forward(x, pass)?)?, pass)
    }
}

/// One language-model layer. Inputs: hidden `[B, P, C]`, cos, sin `[B, P, D/2]`, key mask u8 `[B, 1, P]`.
/// Outputs: hidden (not of the last layer), keys after RoPE and values, each `[B, P, kv_heads·D]`.
#[derive(Debug)]
pub struct PrefixLayer {
    name: String,
    input_norm: RmsNorm,
    key: Linear,
    value: Linear,
    query: Linear,
    output: Linear,
    post_norm: RmsNorm,
    mlp: GatedMlp,
    heads: Heads,
    last: bool,
    trained: Vec<Trained>,
}

impl PrefixLayer {
    pub fn build(builder: &mut Builder, arch: &GemmaArch, index: usize) -> Result<Self> {
        let (module, width, eps) = (format!("{LANGUAGE}.layers.{index}"), arch.width, arch.rms_norm_eps);
        let (queries, keys) = (arch.heads * arch.head_dim, arch.kv_heads * arch.head_dim);
        let last = index + 1 == arch.depth;
        let attention = |name: &str| format!("{module}.self_attn.{name}");
        let ((input_norm, key, value), mut trained) = builder.part(|b| {
            Ok((
                RmsNorm::build(b, &format!("{module}.input_layernorm"), width, eps)?,
                b.linear(&attention("k_proj"), [width, keys], false, Precision::Compute)?,
                b.linear(&attention("v_proj"), [width, keys], false, Precision::Compute)?,
            ))
        })?;
        let ((query, output, post_norm, mlp), rest) = builder.part(|b| {
            Ok((
                b.linear(&attention("q_proj"), [width, queries], false, Precision::Compute)?,
                b.linear(&attention("o_proj"), [queries, width], false, Precision::Compute)?,
                RmsNorm::build(b, &format!("{module}.post_attention_layernorm"), width, eps)?,
                GatedMlp::build(b, &format!("{module}.mlp"), arch)?,
            ))
        })?;
        if !last {
            trained.extend(rest);
        }
        let heads = Heads { query: arch.heads, key_value: arch.kv_heads };
        let name = format!("prefix.layer.{index}");
        Ok(Self { name, input_norm, key, value, query, output, post_norm, mlp, heads, last, trained })
    }

    /// The hidden state behind the layer, also of the last one, whose result only a trace reads.
    pub fn hidden(&self, inputs: &[Tensor], pass: &Pass) -> Result<Tensor> {
        let (x, rotation, mask) = self.take(inputs)?;
        let h = self.input_norm.forward(x, pass)?;
        let (k, v) = self.keys_values(&h, &rotation, pass)?;
        self.finish(x, &h, (&k, &v), &rotation, mask, pass)
    }

    fn take<'t>(&self, inputs: &'t [Tensor]) -> Result<(&'t Tensor, Rotation, &'t Tensor)> {
        let [x, cos, sin, mask] = inputs else { bail!("{}: hidden, cos, sin and mask are wanted", self.name) };
        Ok((x, Rotation { cos: cos.clone(), sin: sin.clone() }, mask))
    }

    fn keys_values(&self, h: &Tensor, rotation: &Rotation, pass: &Pass) -> Result<(Tensor, Tensor)> {
        Ok((rope(&self.key.forward(h, pass)?, rotation)?, self.value.forward(h, pass)?))
    }

    fn finish(
        &self,
        x: &Tensor,
        h: &Tensor,
        (k, v): (&Tensor, &Tensor),
        rotation: &Rotation,
        mask: &Tensor,
        pass: &Pass,
    ) -> Result<Tensor> {
        let q = rope(&self.query.forward(h, pass)?, rotation)?;
        let x = (x + self.output.forward(&attention(&q, k, v, Some(mask), self.heads)?, pass)?)?;
        &x + self.mlp.forward(&self.post_norm.forward(&x, pass)?, pass)?
    }
}

impl Segment for PrefixLayer {
    fn name(&self) -> &str {
        &self.name
    }

    fn trained(&self) -> &[Trained] {
        &self.trained
    }

    fn compute(&self, inputs: &[Tensor], pass: &Pass) -> Result<Vec<Tensor>> {
        let (x, rotation, mask) = self.take(inputs)?;
        let h = self.input_norm.forward(x, pass)?;
        let (k, v) = self.keys_values(&h, &rotation, pass)?;
        if self.last {
            return Ok(vec![k, v]);
        }
        let x = self.finish(x, &h, (&k, &v), &rotation, mask, pass)?;
        Ok(vec![x, k, v])
    }
}
