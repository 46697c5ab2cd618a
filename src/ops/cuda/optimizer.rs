//! The optimizer's passes over parameters and gradients on a GPU.

use candle_core::backend::BackendStorage;
use candle_core::{CpuStorage, CudaStorage, DType, Device, InplaceOp2, Layout, Result, Tensor, Var, bail};

use super::{Arg, Grid, View, filled, hold, launch};

/// Blocks that share the sum over one tensor.
const PARTS: usize = 512;

/// The constants of an AdamW update, rounded to f32 as the arithmetic is.
#[derive(Debug, Clone, Copy)]
pub struct AdamWConstants {
    /// Factor on the gradient.
    pub coefficient: f32,
    /// 1 − lr · weight decay.
    pub keep: f32,
    pub beta2: f32,
    /// 1 − β₁ and 1 − β₂.
    pub fresh: [f32; 2],
    /// −lr / (1 − β₁ᵗ).
    pub step: f32,
    /// √(1 − β₂ᵗ).
    pub correction: f32,
    pub eps: f32,
}

/// Updates `value` and its moments (f32, one shape, contiguous, on the GPU) in place, in one pass.
///
/// The moments belong to the optimizer alone: nobody may hold views of them across a step.
pub fn adamw(value: &Var, first: &Tensor, second: &Tensor, gradient: &Tensor, constants: AdamWConstants) -> Result<()> {
    if [first, second, gradient].iter().any(|t| t.shape() != value.shape() || t.dtype() != DType::F32) {
        bail!("adamw: parameter, moments and gradient must be f32 of one shape")
    }
    value.inplace_op2(&gradient.contiguous()?, &Update { first, second, constants })
}

struct Update<'a> {
    first: &'a Tensor,
    second: &'a Tensor,
    constants: AdamWConstants,
}

impl InplaceOp2 for Update<'_> {
    fn name(&self) -> &'static str {
        "adamw"
    }

    fn cpu_fwd(&self, _: &mut CpuStorage, _: &Layout, _: &CpuStorage, _: &Layout) -> Result<()> {
        bail!("adamw: this form runs on GPUs only")
    }

    fn cuda_fwd(&self, value: &mut CudaStorage, vl: &Layout, gradient: &CudaStorage, gl: &Layout) -> Result<()> {
        let op = "adamw";
        let device = value.device().clone();
        let (value, gradient) = (View::of(value, vl, op)?.f32(op)?, View::of(gradient, gl, op)?.f32(op)?);
        let (first, second) = (hold(self.first, op)?, hold(self.second, op)?);
        let AdamWConstants { coefficient, keep, beta2, fresh: [fresh1, fresh2], step, correction, eps } =
            self.constants;
        let mut arguments = vec![
            value.into(),
            first.view.into(),
            second.view.into(),
            gradient.into(),
            Arg::Size(value.elements as u64),
        ];
        arguments.extend([coefficient, keep, beta2, fresh1, fresh2, step, correction, eps].map(Arg::Float));
        launch(&device, op, DType::F32, Grid::elements(value.elements)?, &arguments)
    }
}

/// The sum of squares of each tensor (f32, contiguous, on one GPU) in f64, with one copy to the host for all.
pub fn squared_norms(tensors: &[&Tensor]) -> Result<Vec<f64>> {
    let Some(near) = tensors.first() else { return Ok(Vec::new()) };
    let held = tensors.iter().map(|tensor| hold(tensor, "squared_norm")).collect::<Result<Vec<_>>>()?;
    let parts = filled(near, DType::F64, (tensors.len(), PARTS), |device, out| {
        for (index, held) in held.iter().enumerate() {
            let view = held.view.f32("squared_norm")?;
            let to = out.pointer + (index * PARTS * DType::F64.size_in_bytes()) as u64;
            let arguments = [view.into(), Arg::Pointer(to), Arg::Size(view.elements as u64)];
            launch(device, "sum_of_squares", DType::F32, Grid::blocks(PARTS as u32), &arguments)?;
        }
        Ok(())
    })?;
    let parts = parts.to_device(&Device::Cpu)?.to_vec2::<f64>()?;
    Ok(parts.iter().map(|parts| parts.iter().sum()).collect())
}
