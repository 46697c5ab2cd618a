//! The action expert over the suffix: noisy actions in, velocity out, time (and state) as the condition.

use candle_core::{DType, Result, Tensor, bail};

use super::linear::{AdaRmsNorm, Linear};
use super::prefix::GatedMlp;
use super::weight::{Builder, Precision};
use crate::ops::attention::{Heads, attention};
use crate::ops::gated_residual::gated_residual;
use crate::ops::rope::{Rotation, rope};
use crate::policy::arch::{Arch, GemmaArch};
use crate::policy::segment::{Pass, Segment, Trained};

const EXPERT: &str = "paligemma_with_expert.gemma_expert.model";

/// Two linears with SiLU behind each.
#[derive(Debug)]
struct ConditionMlp {
    input: Linear,
    output: Linear,
}

impl ConditionMlp {
    fn build(builder: &mut Builder, name: &str, width: usize) -> Result<Self> {
        Ok(Self {
            input: builder.linear(&format!("{name}_in"), [width, width], true, Precision::Full)?,
            output: builder.linear(&format!("{name}_out"), [width, width], true, Precision::Full)?,
        })
    }

    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        self.output.forward(&self.input.forward(x, pass)?.silu()?, pass)?.silu()
    }
}

/// Inputs: x_t f32 `[B, H, A]`, time sinusoid f32 `[B, C]` and, with `state_cond`, the state f32 `[B, max_state_dim]`.
/// Outputs: suffix tokens `[B, H, C]`, condition f32 `[B, C]`.
#[derive(Debug)]
pub struct SuffixEmbedding {
    action: Linear,
    time: ConditionMlp,
    /// VLASH's addition to π₀.₅: `silu(out(silu(in(proj(state)))))` joins the condition.
    state: Option<(Linear, ConditionMlp)>,
    dtype: DType,
    trained: Vec<Trained>,
}

impl SuffixEmbedding {
    pub fn build(builder: &mut Builder, arch: &Arch) -> Result<Self> {
        let (width, dtype) = (arch.expert.width, builder.dtype(Precision::Compute));
        let ((action, time, state), trained) = builder.part(|b| {
            let action = b.linear("action_in_proj", [arch.max_action_dim, width], true, Precision::Full)?;
            let time = ConditionMlp::build(b, "time_mlp", width)?;
            let state = if arch.state_cond {
                let project = b.linear("state_proj", [arch.max_state_dim, width], true, Precision::Full)?;
                Some((project, ConditionMlp::build(b, "state_mlp", width)?))
            } else {
                None
            };
            Ok((action, time, state))
        })?;
        Ok(Self { action, time, state, dtype, trained })
    }
}

impl Segment for SuffixEmbedding {
    fn name(&self) -> &str {
        "suffix.embedding"
    }

    fn trained(&self) -> &[Trained] {
        &self.trained
    }

    fn compute(&self, inputs: &[Tensor], pass: &Pass) -> Result<Vec<Tensor>> {
        let [x_t, sinusoid, rest @ ..] = inputs else { bail!("{}: x_t and time are wanted", self.name()) };
        let tokens = self.action.forward(x_t, pass)?.to_dtype(self.dtype)?;
        let time = self.time.forward(sinusoid, pass)?;
        let condition = match (&self.state, rest) {
            (Some((project, mlp)), [state]) => (time + mlp.forward(&project.forward(state, pass)?, pass)?)?,
            (None, []) => time,
            _ => bail!("{}: the state is an input exactly when the network is conditioned on it", self.name()),
        };
        Ok(vec![tokens, condition])
    }
}

/// One expert layer. Inputs: hidden `[B, H, C]`, condition `[B, C]`, the prefix's keys and values
/// `[B, P, kv_heads·D]`, cos, sin `[B, H, D/2]`, key mask u8 `[B, 1, P + H]`. Output: hidden.
#[derive(Debug)]
pub struct SuffixLayer {
    name: String,
    input_norm: AdaRmsNorm,
    query: Linear,
    key: Linear,
    value: Linear,
    output: Linear,
    post_norm: AdaRmsNorm,
    mlp: GatedMlp,
    heads: Heads,
    trained: Vec<Trained>,
}

impl SuffixLayer {
    pub fn build(builder: &mut Builder, arch: &GemmaArch, index: usize) -> Result<Self> {
        let (module, width, eps) = (format!("{EXPERT}.layers.{index}"), arch.width, arch.rms_norm_eps);
        let (queries, keys) = (arch.heads * arch.head_dim, arch.kv_heads * arch.head_dim);
        let attention = |name: &str| format!("{module}.self_attn.{name}");
        let (layer, trained) = builder.part(|b| {
            Ok(Self {
                name: format!("suffix.layer.{index}"),
                input_norm: AdaRmsNorm::build(b, &format!("{module}.input_layernorm"), width, eps)?,
                query: b.linear(&attention("q_proj"), [width, queries], false, Precision::Compute)?,
                key: b.linear(&attention("k_proj"), [width, keys], false, Precision::Compute)?,
                value: b.linear(&attention("v_proj"), [width, keys], false, Precision::Compute)?,
                output: b.linear(&attention("o_proj"), [queries, width], false, Precision::Compute)?,
                post_norm: AdaRmsNorm::build(b, &format!("{module}.post_attention_layernorm"), width, eps)?,
                mlp: GatedMlp::build(b, &format!("{module}.mlp"), arch)?,
                heads: Heads { query: arch.heads, key_value: arch.kv_heads },
                trained: Vec::new(),
            })
        })?;
        Ok(Self { trained, ..layer })
    }
}

impl Segment for SuffixLayer {
    fn name(&self) -> &str {
        &self.name
    }

    fn trained(&self) -> &[Trained] {
        &self.trained
    }

    fn compute(&self, inputs: &[Tensor], pass: &Pass) -> Result<Vec<Tensor>> {
        let [x, condition, prefix_k, prefix_v, cos, sin, mask] = inputs else {
            bail!("{}: hidden, condition, keys, values, cos, sin and mask are wanted", self.name)
        };
        let rotation = Rotation { cos: cos.clone(), sin: sin.clone() };
        let (h, modulation) = self.input_norm.forward(x, condition, pass)?;
        let q = rope(&self.query.forward(&h, pass)?, &rotation)?;
        let k = Tensor::cat(&[prefix_k, &rope(&self.key.forward(&h, pass)?, &rotation)?], 1)?;
        let v = Tensor::cat(&[prefix_v, &self.value.forward(&h, pass)?], 1)?;
        let h = self.output.forward(&attention(&q, &k, &v, Some(mask), self.heads)?, pass)?;
        let x = gated_residual(x, &h, &modulation)?;
        let (h, modulation) = self.post_norm.forward(&x, condition, pass)?;
        Ok(vec![gated_residual(&x, &self.mlp.forward(&h, pass)?, &modulation)?])
    }
}

/// Inputs: hidden `[B, H, C]`, condition `[B, C]`. Output: velocity f32 `[B, H, A]`.
#[derive(Debug)]
pub struct SuffixHead {
    norm: AdaRmsNorm,
    action: Linear,
    trained: Vec<Trained>,
}

impl SuffixHead {
    pub fn build(builder: &mut Builder, arch: &Arch) -> Result<Self> {
        let GemmaArch { width, rms_norm_eps, .. } = arch.expert;
        let ((norm, action), trained) = builder.part(|b| {
            let norm = AdaRmsNorm::build(b, &format!("{EXPERT}.norm"), width, rms_norm_eps)?;
            Ok((norm, b.linear("action_out_proj", [width, arch.max_action_dim], true, Precision::Full)?))
        })?;
        Ok(Self { norm, action, trained })
    }

    /// The expert's last norm; its gate has nothing to gate.
    pub fn normalise(&self, x: &Tensor, condition: &Tensor, pass: &Pass) -> Result<Tensor> {
        Ok(self.norm.forward(x, condition, pass)?.0)
    }
}

impl Segment for SuffixHead {
    fn name(&self) -> &str {
        "suffix.head"
    }

    fn trained(&self) -> &[Trained] {
        &self.trained
    }

    fn compute(&self, inputs: &[Tensor], pass: &Pass) -> Result<Vec<Tensor>> {
        let [x, condition] = inputs else { bail!("{}: hidden and condition are wanted", self.name()) };
        Ok(vec![self.action.forward(&self.normalise(x, condition, pass)?, pass)?])
    }
}
