//! Parameters: where they come from, in what precision, and which of them train.

use candle_core::{DType, Device, Result, Tensor, Var, bail};
use rand::Rng;

use super::linear::{Adapter, Linear};
use crate::adapter::plan::TrainPlan;
use crate::policy::segment::{Pass, Trained};
use crate::policy::weights::WeightSource;
use crate::random::stream;

/// A parameter's storage.
#[derive(Debug, Clone)]
pub enum Weight {
    /// In the dtype it computes in.
    Frozen(Tensor),
    /// The f32 master copy.
    Trained(Var),
}

impl Weight {
    /// The tensor to compute with in `dtype`; part of the graph when it trains and the pass wants one.
    pub fn tensor(&self, pass: &Pass, dtype: DType) -> Result<Tensor> {
        match self {
            Weight::Frozen(tensor) => tensor.to_dtype(dtype),
            Weight::Trained(var) if pass.graph => var.as_tensor().to_dtype(dtype),
            Weight::Trained(var) => var.as_detached_tensor().to_dtype(dtype),
        }
    }

    /// The current value, detached: f32 when trained, as computed with otherwise.
    pub fn value(&self) -> Tensor {
        match self {
            Weight::Frozen(tensor) => tensor.clone(),
            Weight::Trained(var) => var.as_detached_tensor(),
        }
    }
}

/// Which precision a frozen parameter is held and computed in (trained ones have an f32 master besides).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precision {
    /// Always f32: norms, patch and position embedding, action, time and state projections.
    Full,
    /// The policy's dtype: the linears of the three transformers, the token embedding.
    Compute,
}

/// Collects the parameters while the network is put together.
pub struct Builder<'a> {
    source: &'a dyn WeightSource,
    plan: &'a dyn TrainPlan,
    device: Device,
    dtype: DType,
    /// Every base parameter under its canonical name, in the order of building.
    pub parameters: Vec<(String, Weight)>,
    /// Every trained tensor, base parameters and adapter factors.
    pub trained: Vec<Trained>,
}

impl<'a> Builder<'a> {
    /// `dtype` is that of frozen weights.
    pub fn new(source: &'a dyn WeightSource, plan: &'a dyn TrainPlan, device: &Device, dtype: DType) -> Self {
        Self { source, plan, device: device.clone(), dtype, parameters: Vec::new(), trained: Vec::new() }
    }

    /// The dtype that a precision stands for.
    pub fn dtype(&self, precision: Precision) -> DType {
        match precision {
            Precision::Full => DType::F32,
            Precision::Compute => self.dtype,
        }
    }

    /// Builds a part and tells which trained tensors it holds.
    pub fn part<T>(&mut self, build: impl FnOnce(&mut Self) -> Result<T>) -> Result<(T, Vec<Trained>)> {
        let before = self.trained.len();
        let part = build(self)?;
        Ok((part, self.trained[before..].to_vec()))
    }

    /// The parameter `name`. It is converted before it moves, so that the device receives the bytes that it keeps and
    /// never holds another form of them.
    pub fn weight(&mut self, name: &str, shape: &[usize], precision: Precision) -> Result<Weight> {
        let tensor = self.source.tensor(name, shape, &Device::Cpu)?;
        if tensor.dims() != shape {
            bail!("{name}: wanted shape {shape:?}, found {:?}", tensor.dims())
        }
        let weight = if self.plan.trains(name) {
            let master = tensor.to_dtype(DType::F32)?.contiguous()?.to_device(&self.device)?;
            let var = Var::from_tensor(&master)?;
            self.trained.push(Trained { name: name.to_owned(), var: var.clone() });
            Weight::Trained(var)
        } else {
            Weight::Frozen(tensor.to_dtype(self.dtype(precision))?.contiguous()?.to_device(&self.device)?)
        };
        self.parameters.push((name.to_owned(), weight.clone()));
        Ok(weight)
    }

    /// The linear at `module`, with its adapter when the plan gives it one.
    pub fn linear(
        &mut self,
        module: &str,
        [inner, out]: [usize; 2],
        bias: bool,
        precision: Precision,
    ) -> Result<Linear> {
        let weight = self.weight(&format!("{module}.weight"), &[out, inner], precision)?;
        let bias = bias.then(|| self.weight(&format!("{module}.bias"), &[out], precision)).transpose()?;
        let adapter = self.adapter(module, inner, out)?;
        Ok(Linear { weight, bias, adapter, dtype: self.dtype(precision) })
    }

    /// New LoRA factors: A Kaiming-uniform with a = √5, that is U(±1/√in), keyed by the module's name so that
    /// neither order nor sharding changes it; B zero, so that training starts from the base network.
    fn adapter(&mut self, module: &str, inner: usize, out: usize) -> Result<Option<Adapter>> {
        let Some(spec) = self.plan.lora(module) else { return Ok(None) };
        if spec.rank == 0 {
            bail!("{module}: an adapter of rank 0")
        }
        let bound = 1.0 / (inner as f32).sqrt();
        let mut random = stream(self.plan.seed(), &format!("lora-init/{module}"), &[]);
        let values: Vec<f32> = (0..spec.rank * inner).map(|_| random.random_range(-bound..bound)).collect();
        let down = Var::from_tensor(&Tensor::from_vec(values, (spec.rank, inner), &self.device)?)?;
        let up = Var::zeros((out, spec.rank), DType::F32, &self.device)?;
        self.trained.push(Trained { name: format!("{module}.lora_A.weight"), var: down.clone() });
        self.trained.push(Trained { name: format!("{module}.lora_B.weight"), var: up.clone() });
        Ok(Some(Adapter { module: module.to_owned(), down, up, scale: spec.scale, dropout: spec.dropout }))
    }
}
