//! The residual connection of an AdaRMS layer.

#[cfg(feature = "cuda")]
use candle_core::CudaStorage;
use candle_core::{CpuStorage, CustomOp3, D, Layout, Result, Shape, Tensor, bail};

use super::ada_rms::rows_each;
#[cfg(feature = "cuda")]
use super::cuda;
use super::values;

/// `x + gate·branch` for `x`, `branch` `[…, C]`; the gate is the last third of `modulation` `[…, 3C]`, spread over
/// the rows as in [`super::ada_rms`]. The sum is f32 inside, of the type of `x` outside; the modulation is f32.
pub fn gated_residual(x: &Tensor, branch: &Tensor, modulation: &Tensor) -> Result<Tensor> {
    rows_each(x, modulation)?;
    if x.shape() != branch.shape() {
        bail!("gated_residual: {:?} and {:?} differ", x.dims(), branch.dims())
    }
    x.contiguous()?.apply_op3(&branch.contiguous()?, &modulation.contiguous()?, GatedResidual)
}

struct GatedResidual;

impl CustomOp3 for GatedResidual {
    fn name(&self) -> &'static str {
        "gated_residual"
    }

    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        xl: &Layout,
        branch: &CpuStorage,
        bl: &Layout,
        modulation: &CpuStorage,
        ml: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let name = "gated_residual";
        let (x, branch) = (values::of(x, xl, name)?, values::of(branch, bl, name)?);
        let modulation = values::of(modulation, ml, name)?;
        let width = xl.dims().last().copied().unwrap_or(1);
        let each = (x.len() / width) / (modulation.len() / (3 * width));
        let y = values::fill(x.len(), width, |start, out| {
            for (i, out) in out.chunks_exact_mut(width).enumerate() {
                let row = start / width + i;
                let (x, branch) = (&x[row * width..(row + 1) * width], &branch[row * width..(row + 1) * width]);
                let gate = &modulation[(row / each * 3 + 2) * width..][..width];
                for j in 0..width {
                    out[j] = x[j] + gate[j] * branch[j];
                }
            }
        });
        values::output(y, xl.shape())
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(
        &self,
        x: &CudaStorage,
        xl: &Layout,
        branch: &CudaStorage,
        bl: &Layout,
        modulation: &CudaStorage,
        ml: &Layout,
    ) -> Result<(CudaStorage, Shape)> {
        cuda::elementwise::gated_residual((x, xl), (branch, bl), (modulation, ml))
    }

    fn bwd(
        &self,
        x: &Tensor,
        branch: &Tensor,
        modulation: &Tensor,
        _y: &Tensor,
        gradient: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let name = "gated_residual";
        let gradient = gradient.contiguous()?;
        let each = rows_each(x, modulation)?;
        #[cfg(feature = "cuda")]
        if x.device().is_cuda() {
            return cuda::elementwise::gated_residual_backward(x, branch, modulation, &gradient, each);
        }
        let width = x.dim(D::Minus1)?;
        let (bs, ms, gs) =
            (values::read(branch, name)?, values::read(modulation, name)?, values::read(&gradient, name)?);
        let branch_gradient = branch.track_op().then(|| {
            values::fill(gs.len(), width, |start, out| {
                for (i, out) in out.chunks_exact_mut(width).enumerate() {
                    let row = start / width + i;
                    let gate = &ms[(row / each * 3 + 2) * width..][..width];
                    let g = &gs[row * width..(row + 1) * width];
                    for j in 0..width {
                        out[j] = g[j] * gate[j];
                    }
                }
            })
        });
        let modulation_gradient = modulation.track_op().then(|| {
            values::fill(ms.len(), 3 * width, |start, out| {
                for (i, out) in out.chunks_exact_mut(3 * width).enumerate() {
                    let condition = start / (3 * width) + i;
                    let gate = &mut out[2 * width..];
                    for row in condition * each..(condition + 1) * each {
                        let (b, g) = (&bs[row * width..(row + 1) * width], &gs[row * width..(row + 1) * width]);
                        for j in 0..width {
                            gate[j] += g[j] * b[j];
                        }
                    }
                }
            })
        });
        Ok((
            x.track_op().then(|| gradient.clone()),
            branch_gradient.map(|v| values::tensor_like(v, branch)).transpose()?,
            modulation_gradient.map(|v| values::tensor_like(v, modulation)).transpose()?,
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::super::gradcheck::{check, difference, numbers};
    use super::*;

    #[test]
    fn equals_the_composite_and_has_the_gradients_of_finite_differences() -> Result<()> {
        let (x, b, m) = (numbers(1, (2, 3, 4))?, numbers(2, (2, 3, 4))?, numbers(3, (2, 12))?);
        let wanted = (&x + b.broadcast_mul(&m.narrow(1, 8, 4)?.unsqueeze(1)?)?)?;
        assert!(difference(&gated_residual(&x, &b, &m)?, &wanted)? < 1e-6);
        check(&[x, b, m], 1e-3, |a| gated_residual(&a[0], &a[1], &a[2]))
    }
}
