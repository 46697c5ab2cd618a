//! AdamW with decoupled weight decay, in PyTorch's arithmetic, over f32 masters.
//!
//! The optimizer owns f32 moments of every parameter and updates the f32 variables that the network holds, in
//! place: at the rates of fine-tuning an update is smaller than the spacing of bf16 numbers and would round away.
//! One pass over each parameter reads and writes everything once, on the CPU and on a GPU in the same arithmetic.
//!
//! Source of the formula and its order of rounding: `torch.optim.AdamW` (`_single_tensor_adam`); Loshchilov and
//! Hutter, *Decoupled Weight Decay Regularization*.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};

use candle_core::{CpuStorage, DType, Device, InplaceOp2, Layout, Tensor, Var};
use rayon::prelude::*;

use crate::config::train::OptimConfig;
use crate::error::{Explain, Kind};

/// Elements that one task updates.
const BLOCK: usize = 1 << 14;

/// The constants of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    pub betas: [f64; 2],
    pub eps: f64,
    pub weight_decay: f64,
}

impl From<&OptimConfig> for Settings {
    fn from(config: &OptimConfig) -> Self {
        Self { betas: config.betas, eps: config.eps, weight_decay: config.weight_decay }
    }
}

/// Why the optimizer cannot be built, stepped or restored.
#[derive(Debug, thiserror::Error)]
pub enum OptimizerError {
    #[error("the optimizer wants f32 masters, {name} is {dtype:?}")]
    NotF32 { name: String, dtype: DType },
    #[error("the gradient of {name} has shape {found:?}, the parameter has {expected:?}")]
    GradientShape { name: String, found: Vec<usize>, expected: Vec<usize> },
    #[error("a gradient arrived for {name}, which the optimizer does not train")]
    Untrained { name: String },
    #[error(
        "the optimizer state lacks {missing} of {wanted} tensors (first: {first}): it was saved by a run that trained other parameters"
    )]
    MissingState { missing: usize, wanted: usize, first: String },
    #[error("the optimizer state holds {extra} tensors that this run does not train (first: {first})")]
    ExtraState { extra: usize, first: String },
    #[error("the optimizer state {name} is {found}, expected {expected}")]
    StateForm { name: String, found: String, expected: String },
    #[error("the optimizer failed on {name}")]
    Tensor { name: String, source: candle_core::Error },
}

impl Explain for OptimizerError {
    fn kind(&self) -> Kind {
        match self {
            OptimizerError::MissingState { .. }
            | OptimizerError::ExtraState { .. }
            | OptimizerError::StateForm { .. } => Kind::Input,
            _ => Kind::Internal,
        }
    }
    fn hint(&self) -> Option<String> {
        match self.kind() {
            Kind::Input => Some(
                "continue with the configuration that the checkpoint was trained with, or start a new run from its \
                 weights with model.base"
                    .to_string(),
            ),
            _ => None,
        }
    }
}

/// The optimizer: parameters, moments, step counters.
#[derive(Debug)]
pub struct AdamW {
    settings: Settings,
    /// Sorted by name.
    slots: Vec<Slot>,
}

#[derive(Debug)]
struct Slot {
    name: String,
    var: Var,
    moments: Moments,
    /// Updates that this parameter took part in.
    steps: u64,
}

/// First moment (mean of gradients), then second (mean of squared gradients).
#[derive(Debug)]
enum Moments {
    Host(Vec<f32>, Vec<f32>),
    Device(Tensor, Tensor),
}

impl AdamW {
    /// An optimizer over `parameters` (f32 variables, shared with the network) with zero moments.
    pub fn new(
        parameters: impl IntoIterator<Item = (String, Var)>,
        settings: Settings,
    ) -> Result<Self, OptimizerError> {
        let by_name: BTreeMap<String, Var> = parameters.into_iter().collect();
        let slots = by_name.into_iter().map(|(name, var)| Slot::new(name, var)).collect::<Result<_, _>>()?;
        Ok(Self { settings, slots })
    }

    /// The masters that it updates, by name.
    pub fn masters(&self) -> impl Iterator<Item = (&str, &Var)> {
        self.slots.iter().map(|slot| (slot.name.as_str(), &slot.var))
    }

    /// One update at the learning rate `lr`, with every gradient multiplied by `coefficient` first
    /// ([`Clip::coefficient`](super::clip::Clip)).
    ///
    /// A parameter without a gradient is left alone: no decay, no count. Nothing is changed when a gradient does not
    /// fit.
    pub fn step(
        &mut self,
        gradients: &BTreeMap<String, Tensor>,
        lr: f64,
        coefficient: f64,
    ) -> Result<(), OptimizerError> {
        self.check(gradients)?;
        let settings = self.settings;
        let update = |slot: &mut Slot| match gradients.get(&slot.name) {
            None => Ok(()),
            Some(gradient) => slot
                .step(gradient, &settings, lr, coefficient)
                .map_err(|source| OptimizerError::Tensor { name: slot.name.clone(), source }),
        };
        // A GPU takes launches one after the other anyway.
        match self.slots.first().is_some_and(|slot| slot.var.device().is_cpu()) {
            true => self.slots.par_iter_mut().try_for_each(update),
            false => self.slots.iter_mut().try_for_each(update),
        }
    }

    fn check(&self, gradients: &BTreeMap<String, Tensor>) -> Result<(), OptimizerError> {
        for (name, gradient) in gradients {
            let Ok(index) = self.slots.binary_search_by(|slot| slot.name.cmp(name)) else {
                return Err(OptimizerError::Untrained { name: name.clone() });
            };
            let expected = self.slots.get(index).map(|slot| slot.var.dims()).unwrap_or_default();
            if gradient.dims() != expected {
                return Err(OptimizerError::GradientShape {
                    name: name.clone(),
                    found: gradient.dims().to_vec(),
                    expected: expected.to_vec(),
                });
            }
        }
        Ok(())
    }

    /// The state as named tensors, copied: `exp_avg/<name>`, `exp_avg_sq/<name>` (f32, the parameter's shape) and
    /// `step/<name>` (i64 scalar).
    pub fn state(&self) -> Result<BTreeMap<String, Tensor>, OptimizerError> {
        let mut state = BTreeMap::new();
        for slot in &self.slots {
            let (first, second) =
                slot.export().map_err(|source| OptimizerError::Tensor { name: slot.name.clone(), source })?;
            let steps = Tensor::new(slot.steps as i64, &Device::Cpu)
                .map_err(|source| OptimizerError::Tensor { name: slot.name.clone(), source })?;
            let [first_key, second_key, steps_key] = slot.keys();
            state.extend([(first_key, first), (second_key, second), (steps_key, steps)]);
        }
        Ok(state)
    }

    /// Puts back what [`AdamW::state`] gave. All or nothing: an incomplete or foreign state changes nothing.
    pub fn restore(&mut self, state: &HashMap<String, Tensor>) -> Result<(), OptimizerError> {
        self.check_state(state)?;
        let restored = self.slots.iter().map(|slot| slot.import(state)).collect::<Result<Vec<_>, _>>()?;
        for (slot, (moments, steps)) in self.slots.iter_mut().zip(restored) {
            slot.moments = moments;
            slot.steps = steps;
        }
        Ok(())
    }

    fn check_state(&self, state: &HashMap<String, Tensor>) -> Result<(), OptimizerError> {
        let wanted: Vec<String> = self.slots.iter().flat_map(Slot::keys).collect();
        let missing: Vec<&String> = wanted.iter().filter(|key| !state.contains_key(*key)).collect();
        if let Some(first) = missing.first() {
            return Err(OptimizerError::MissingState {
                missing: missing.len(),
                wanted: wanted.len(),
                first: (*first).clone(),
            });
        }
        let wanted: std::collections::BTreeSet<&String> = wanted.iter().collect();
        let extra: std::collections::BTreeSet<&String> = state.keys().filter(|key| !wanted.contains(key)).collect();
        match extra.first() {
            Some(first) => Err(OptimizerError::ExtraState { extra: extra.len(), first: (*first).clone() }),
            None => Ok(()),
        }
    }
}

impl Slot {
    fn new(name: String, var: Var) -> Result<Self, OptimizerError> {
        if var.dtype() != DType::F32 {
            return Err(OptimizerError::NotF32 { name, dtype: var.dtype() });
        }
        let moments = if var.device().is_cpu() {
            Moments::Host(vec![0.0; var.elem_count()], vec![0.0; var.elem_count()])
        } else {
            let zeros = || Tensor::zeros(var.shape(), DType::F32, var.device());
            match (zeros(), zeros()) {
                (Ok(first), Ok(second)) => Moments::Device(first, second),
                (Err(source), _) | (_, Err(source)) => return Err(OptimizerError::Tensor { name, source }),
            }
        };
        Ok(Self { name, var, moments, steps: 0 })
    }

    fn keys(&self) -> [String; 3] {
        ["exp_avg", "exp_avg_sq", "step"].map(|part| format!("{part}/{}", self.name))
    }

    fn step(&mut self, gradient: &Tensor, settings: &Settings, lr: f64, coefficient: f64) -> candle_core::Result<()> {
        let gradient = gradient.to_dtype(DType::F32)?;
        let update = Update::new(settings, lr, coefficient, self.steps + 1);
        match &mut self.moments {
            Moments::Host(first, second) => {
                let pass = HostPass { update, moments: RefCell::new((first, second)) };
                self.var.inplace_op2(&gradient.contiguous()?, &pass)?;
            }
            Moments::Device(first, second) => {
                update.on_device(&self.var, first, second, &gradient)?;
            }
        }
        self.steps += 1;
        Ok(())
    }

    fn export(&self) -> candle_core::Result<(Tensor, Tensor)> {
        match &self.moments {
            Moments::Host(first, second) => {
                let tensor = |values: &[f32]| Tensor::from_slice(values, self.var.shape(), &Device::Cpu);
                Ok((tensor(first)?, tensor(second)?))
            }
            Moments::Device(first, second) => Ok((first.to_device(&Device::Cpu)?, second.to_device(&Device::Cpu)?)),
        }
    }

    fn import(&self, state: &HashMap<String, Tensor>) -> Result<(Moments, u64), OptimizerError> {
        let [first_key, second_key, steps_key] = self.keys();
        let first = self.moment(&first_key, state)?;
        let second = self.moment(&second_key, state)?;
        let steps = state.get(&steps_key).and_then(|steps| steps.to_scalar::<i64>().ok());
        let Some(steps) = steps.and_then(|steps| u64::try_from(steps).ok()) else {
            return Err(OptimizerError::StateForm {
                name: steps_key.clone(),
                found: state.get(&steps_key).map(describe).unwrap_or_default(),
                expected: "a count: one i64, zero or more".to_string(),
            });
        };
        let wrap = |source| OptimizerError::Tensor { name: self.name.clone(), source };
        let moments = match self.moments {
            Moments::Host(..) => {
                let values = |tensor: &Tensor| tensor.flatten_all()?.to_vec1::<f32>();
                Moments::Host(values(&first).map_err(wrap)?, values(&second).map_err(wrap)?)
            }
            Moments::Device(..) => {
                let there = |tensor: &Tensor| tensor.to_device(self.var.device());
                Moments::Device(there(&first).map_err(wrap)?, there(&second).map_err(wrap)?)
            }
        };
        Ok((moments, steps))
    }

    fn moment(&self, key: &str, state: &HashMap<String, Tensor>) -> Result<Tensor, OptimizerError> {
        match state.get(key) {
            Some(tensor) if tensor.dtype() == DType::F32 && tensor.dims() == self.var.dims() => Ok(tensor.clone()),
            other => Err(OptimizerError::StateForm {
                name: key.to_string(),
                found: other.map(describe).unwrap_or_default(),
                expected: format!("F32 {:?}", self.var.dims()),
            }),
        }
    }
}

fn describe(tensor: &Tensor) -> String {
    format!("{:?} {:?}", tensor.dtype(), tensor.dims())
}

/// The constants of one parameter's update. Computed in f64, rounded to f32 where PyTorch's kernels do.
#[derive(Debug, Clone, Copy)]
struct Update {
    coefficient: f64,
    /// 1 − lr · weight decay.
    keep: f64,
    beta2: f64,
    /// 1 − β₁ and 1 − β₂.
    fresh: [f64; 2],
    /// lr / (1 − β₁ᵗ).
    step_size: f64,
    /// √(1 − β₂ᵗ).
    correction: f64,
    eps: f64,
}

impl Update {
    /// For the parameter's update number `step`, from 1.
    fn new(settings: &Settings, lr: f64, coefficient: f64, step: u64) -> Self {
        let [beta1, beta2] = settings.betas;
        Self {
            coefficient,
            keep: 1.0 - lr * settings.weight_decay,
            beta2,
            fresh: [1.0 - beta1, 1.0 - beta2],
            step_size: lr / (1.0 - beta1.powf(step as f64)),
            correction: (1.0 - beta2.powf(step as f64)).sqrt(),
            eps: settings.eps,
        }
    }

    /// Updates equally long slices in place.
    fn slices(&self, value: &mut [f32], first: &mut [f32], second: &mut [f32], gradient: &[f32]) {
        let (coefficient, keep, beta2) = (self.coefficient as f32, self.keep as f32, self.beta2 as f32);
        let [fresh1, fresh2] = self.fresh.map(|f| f as f32);
        let (step, correction, eps) = (-self.step_size as f32, self.correction as f32, self.eps as f32);
        for (((p, m), v), &g) in value.iter_mut().zip(first).zip(second).zip(gradient) {
            let g = g * coefficient;
            *m += fresh1 * (g - *m);
            *v = *v * beta2 + fresh2 * g * g;
            let denominator = v.sqrt() / correction + eps;
            *p = *p * keep + step * *m / denominator;
        }
    }

    /// The fused pass over one parameter on a GPU.
    #[cfg(feature = "cuda")]
    fn on_device(&self, var: &Var, first: &Tensor, second: &Tensor, gradient: &Tensor) -> candle_core::Result<()> {
        use crate::ops::cuda::optimizer::{AdamWConstants, adamw};
        let constants = AdamWConstants {
            coefficient: self.coefficient as f32,
            keep: self.keep as f32,
            beta2: self.beta2 as f32,
            fresh: self.fresh.map(|f| f as f32),
            step: -self.step_size as f32,
            correction: self.correction as f32,
            eps: self.eps as f32,
        };
        adamw(var, first, second, gradient, constants)
    }

    #[cfg(not(feature = "cuda"))]
    fn on_device(&self, var: &Var, _: &Tensor, _: &Tensor, _: &Tensor) -> candle_core::Result<()> {
        candle_core::bail!("this build updates parameters on the CPU only, not on {:?}", var.device().location())
    }
}

/// The fused pass over one parameter on the CPU.
struct HostPass<'a> {
    update: Update,
    /// In a cell since candle hands the operation out by shared reference.
    moments: RefCell<(&'a mut Vec<f32>, &'a mut Vec<f32>)>,
}

impl InplaceOp2 for HostPass<'_> {
    fn name(&self) -> &'static str {
        "adamw"
    }

    fn cpu_fwd(
        &self,
        value: &mut CpuStorage,
        value_layout: &Layout,
        gradient: &CpuStorage,
        gradient_layout: &Layout,
    ) -> candle_core::Result<()> {
        let (CpuStorage::F32(value), CpuStorage::F32(gradient)) = (value, gradient) else {
            candle_core::bail!("adamw wants f32 parameters and gradients")
        };
        let range = |layout: &Layout| layout.contiguous_offsets().map(|(start, end)| start..end);
        let value = range(value_layout).and_then(|range| value.get_mut(range));
        let gradient = range(gradient_layout).and_then(|range| gradient.get(range));
        let (Some(value), Some(gradient)) = (value, gradient) else {
            candle_core::bail!("adamw wants contiguous parameters and gradients")
        };
        let (first, second) = &mut *self.moments.borrow_mut();
        let update = self.update;
        value
            .par_chunks_mut(BLOCK)
            .zip(first.par_chunks_mut(BLOCK))
            .zip(second.par_chunks_mut(BLOCK))
            .zip(gradient.par_chunks(BLOCK))
            .for_each(|(((value, first), second), gradient)| update.slices(value, first, second, gradient));
        Ok(())
    }
}

#[cfg(test)]
#[path = "adamw_tests.rs"]
mod tests;
