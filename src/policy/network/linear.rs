//! A linear with an optional low-rank adapter, and the norms.

use candle_core::{DType, Result, Tensor, Var};

use super::weight::{Builder, Precision, Weight};
use crate::ops::{ada_rms::ada_rms, dropout::dropout, layer_norm::layer_norm, linear::linear, rms_norm::rms_norm};
use crate::policy::segment::Pass;

/// `y = x·Wᵀ + b + scale·B(A(dropout(x)))`.
#[derive(Debug)]
pub struct Linear {
    pub(super) weight: Weight,
    pub(super) bias: Option<Weight>,
    pub(super) adapter: Option<Adapter>,
    pub(super) dtype: DType,
}

/// LoRA's factors: A `[rank, in]`, B `[out, rank]`, f32.
#[derive(Debug)]
pub struct Adapter {
    pub(super) module: String,
    pub(super) down: Var,
    pub(super) up: Var,
    pub(super) scale: f64,
    pub(super) dropout: f64,
}

impl Linear {
    /// `[…, in]` → `[…, out]` in the linear's dtype.
    pub fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let x = x.to_dtype(self.dtype)?;
        let bias = self.bias.as_ref().map(|bias| bias.tensor(pass, self.dtype)).transpose()?;
        let y = linear(&x, &self.weight.tensor(pass, self.dtype)?, bias.as_ref())?;
        match &self.adapter {
            Some(adapter) => y + adapter.forward(&x, pass, self.dtype)?,
            None => Ok(y),
        }
    }
}

impl Adapter {
    fn forward(&self, x: &Tensor, pass: &Pass, dtype: DType) -> Result<Tensor> {
        let factor = |var: &Var| Weight::Trained(var.clone()).tensor(pass, dtype);
        let x = match pass.dropout_key {
            Some(key) => dropout(x, self.dropout, key, &self.module)?,
            None => x.clone(),
        };
        // The scale goes to the narrow tensor between the factors.
        let low = (linear(&x, &factor(&self.down)?, None)? * self.scale)?;
        linear(&low, &factor(&self.up)?, None)
    }
}

/// Gemma's RMS norm with its own weight.
#[derive(Debug)]
pub struct RmsNorm {
    weight: Weight,
    eps: f64,
}

impl RmsNorm {
    pub fn build(builder: &mut Builder, module: &str, width: usize, eps: f64) -> Result<Self> {
        Ok(Self { weight: builder.weight(&format!("{module}.weight"), &[width], Precision::Full)?, eps })
    }

    /// f32 inside, the input's dtype outside.
    pub fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        rms_norm(x, &self.weight.tensor(pass, DType::F32)?, self.eps)
    }
}

/// The expert's RMS norm, modulated by the condition through a linear of its own.
#[derive(Debug)]
pub struct AdaRmsNorm {
    dense: Linear,
    eps: f64,
}

impl AdaRmsNorm {
    pub fn build(builder: &mut Builder, module: &str, width: usize, eps: f64) -> Result<Self> {
        Ok(Self { dense: builder.linear(&format!("{module}.dense"), [width, 3 * width], true, Precision::Full)?, eps })
    }

    /// The normalised x, and the modulation `[B, 3C]` (with a condition of each token `[B, T, 3C]`) whose last third gates the residual.
    pub fn forward(&self, x: &Tensor, condition: &Tensor, pass: &Pass) -> Result<(Tensor, Tensor)> {
        let modulation = self.dense.forward(condition, pass)?;
        Ok((ada_rms(x, &modulation, self.eps)?, modulation))
    }
}

/// SigLIP's layer norm.
#[derive(Debug)]
pub struct LayerNorm {
    weight: Weight,
    bias: Weight,
    eps: f64,
}

impl LayerNorm {
    pub fn build(builder: &mut Builder, module: &str, width: usize, eps: f64) -> Result<Self> {
        Ok(Self {
            weight: builder.weight(&format!("{module}.weight"), &[width], Precision::Full)?,
            bias: builder.weight(&format!("{module}.bias"), &[width], Precision::Full)?,
            eps,
        })
    }

    pub fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let (weight, bias) = (self.weight.tensor(pass, DType::F32)?, self.bias.tensor(pass, DType::F32)?);
        layer_norm(x, &weight, &bias, self.eps)
    }
}
