//! The action expert over the suffix: noisy actions in, velocity out, time (and state) as the condition.
//!
//! Several suffixes may stand over one observation (VLASH's shared observation, arXiv 2512.01031): its branches. They
//! are rows of a batch of B·K, to which the prefix's keys and values are repeated inside of each layer. So what is kept
//! for the backward pass is the prefix as it is, once, and the gradients of its branches add up there.

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

/// Inputs: x_t f32 `[R, H, A]`, time sinusoid f32 `[R, C]` and, with `state_cond`, the state f32 `[R, max_state_dim]`,
/// in R = B·K rows. Outputs: suffix tokens `[R, H, C]`, condition f32 `[R, C]`. With a time of each token the sinusoid
/// and the condition are `[R, H, C]`, in the layers behind it, too.
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
            (Some((project, mlp)), [state]) => {
                let state = mlp.forward(&project.forward(state, pass)?, pass)?;
                if time.rank() == state.rank() { (time + state)? } else { time.broadcast_add(&state.unsqueeze(1)?)? }
            }
            (None, []) => time,
            _ => bail!("{}: the state is an input exactly when the network is conditioned on it", self.name()),
        };
        Ok(vec![tokens, condition])
    }
}

/// One expert layer. Inputs: hidden `[R, H, C]`, condition `[R, C]`, the prefix's keys and values
/// `[B, P, kv_heads·D]`, cos, sin `[R, H, D/2]`, key mask u8 `[R, 1, P + H]`, with R = B·K. Output: hidden.
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
        let rows = x.dim(0)?;
        let k = Tensor::cat(&[&repeated(prefix_k, rows)?, &rope(&self.key.forward(&h, pass)?, &rotation)?], 1)?;
        let v = Tensor::cat(&[&repeated(prefix_v, rows)?, &self.value.forward(&h, pass)?], 1)?;
        let h = self.output.forward(&attention(&q, &k, &v, Some(mask), self.heads)?, pass)?;
        let x = gated_residual(x, &h, &modulation)?;
        let (h, modulation) = self.post_norm.forward(&x, condition, pass)?;
        Ok(vec![gated_residual(&x, &self.mlp.forward(&h, pass)?, &modulation)?])
    }
}

/// Each of the B rows of `[B, P, W]` for all its branches: `[rows, P, W]`, row `b·K + k` from row b.
///
/// The backward sums over the branches, in f32 whatever the dtype: the cast stands before the expansion, so that forward
/// no wide tensor larger than the input is made.
fn repeated(prefix: &Tensor, rows: usize) -> Result<Tensor> {
    let (batch, length, width) = prefix.dims3()?;
    if rows == batch {
        return Ok(prefix.clone());
    }
    if batch == 0 || !rows.is_multiple_of(batch) {
        bail!("{rows} suffixes over {batch} observations")
    }
    let wide = prefix.to_dtype(DType::F32)?.unsqueeze(1)?;
    let expanded = wide.broadcast_as((batch, rows / batch, length, width))?.to_dtype(prefix.dtype())?;
    expanded.reshape((rows, length, width))
}

/// Inputs: hidden `[R, H, C]`, condition `[R, C]`. Output: velocity f32 `[R, H, A]`.
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

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::{Device, Var};

    #[test]
    fn a_prefix_row_stands_before_each_of_its_branches_and_gathers_their_gradients_in_f32() -> Result<()> {
        let device = &Device::Cpu;
        let rows = Tensor::arange(0f32, 12f32, device)?.reshape((2, 3, 2))?;
        for dtype in [DType::F32, DType::BF16] {
            let prefix = Var::from_tensor(&rows.to_dtype(dtype)?)?;
            let branches = repeated(&prefix, 8)?;
            let found = branches.to_dtype(DType::F32)?.to_vec3::<f32>()?;
            let wanted = rows.to_vec3::<f32>()?;
            assert!((0..8).all(|row| found[row] == wanted[row / 4]), "{found:?}");
            // In bf16 256 + 1 is 256: four branches of 256, 1, 1 and 2 sum to 260 in f32 only.
            let weights = Tensor::new(&[256f32, 1., 1., 2., 256., 1., 1., 2.], device)?.reshape((8, 1, 1))?;
            let sum = branches.broadcast_mul(&weights.to_dtype(dtype)?)?.to_dtype(DType::F32)?.sum_all()?;
            let gradients = sum.backward()?;
            let gradient = gradients.get(&prefix).expect("the prefix has a gradient").to_dtype(DType::F32)?;
            assert!(gradient.flatten_all()?.to_vec1::<f32>()?.iter().all(|&g| g == 260.0), "{dtype:?}: {gradient}");
        }
        assert!(repeated(&rows, 3).is_err());
        assert_eq!(repeated(&rows, 2)?.id(), rows.id(), "one branch costs nothing");
        Ok(())
    }
}
