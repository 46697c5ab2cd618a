//! RMS normalisation whose scale and shift come from a condition (π₀.₅'s action expert).

#[cfg(feature = "cuda")]
use candle_core::CudaStorage;
use candle_core::{CpuStorage, CustomOp2, D, Layout, Result, Shape, Tensor, bail};

#[cfg(feature = "cuda")]
use super::cuda;
use super::math;
use super::rms_norm::reciprocal;
use super::values;

/// `x̂·(1 + scale) + shift` with `x̂ = x·rsqrt(mean(x²) + eps)` over the last axis of `x` `[…, C]`.
///
/// `modulation` `[…, 3C]` holds scale, shift and gate (in this order; the gate is for [`super::gated_residual`]).
/// f32 inside, the type of `x` outside; the modulation is f32. Its rows spread evenly over the rows of `x`: `[B, 3C]`
/// serves all tokens of a sample, `[B, T, 3C]` each token.
pub fn ada_rms(x: &Tensor, modulation: &Tensor, eps: f64) -> Result<Tensor> {
    rows_each(x, modulation)?;
    x.contiguous()?.apply_op2(&modulation.contiguous()?, AdaRms { eps: eps as f32 })
}

/// How many rows of `x` `[…, C]` share one row of the modulation `[…, 3C]`.
pub(super) fn rows_each(x: &Tensor, modulation: &Tensor) -> Result<usize> {
    let width = x.dim(D::Minus1)?;
    if width == 0 || modulation.dim(D::Minus1)? != 3 * width {
        bail!("modulation {:?} does not fit the input {:?}", modulation.dims(), x.dims())
    }
    let (rows, conditions) = (x.elem_count() / width, modulation.elem_count() / (3 * width));
    if conditions == 0 || rows % conditions != 0 {
        bail!("modulation {:?} does not spread evenly over the input {:?}", modulation.dims(), x.dims())
    }
    Ok(rows / conditions)
}

struct AdaRms {
    eps: f32,
}

impl CustomOp2 for AdaRms {
    fn name(&self) -> &'static str {
        "ada_rms"
    }

    fn cpu_fwd(&self, x: &CpuStorage, xl: &Layout, m: &CpuStorage, ml: &Layout) -> Result<(CpuStorage, Shape)> {
        let (x, modulation) = (values::of(x, xl, "ada_rms")?, values::of(m, ml, "ada_rms")?);
        let width = xl.dims().last().copied().unwrap_or(1);
        let each = (x.len() / width) / (modulation.len() / (3 * width));
        let y = values::fill(x.len(), width, |start, out| {
            for (i, out) in out.chunks_exact_mut(width).enumerate() {
                let row = start / width + i;
                let x = &x[row * width..(row + 1) * width];
                let modulation = &modulation[row / each * 3 * width..][..2 * width];
                let (scale, shift) = modulation.split_at(width);
                let r = reciprocal(x, self.eps);
                for j in 0..width {
                    out[j] = x[j] * r * (1.0 + scale[j]) + shift[j];
                }
            }
        });
        values::output(y, xl.shape())
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(&self, x: &CudaStorage, xl: &Layout, m: &CudaStorage, ml: &Layout) -> Result<(CudaStorage, Shape)> {
        cuda::norms::ada_rms((x, xl), (m, ml), self.eps)
    }

    fn bwd(
        &self,
        x: &Tensor,
        modulation: &Tensor,
        _y: &Tensor,
        g: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let g = g.contiguous()?;
        let each = rows_each(x, modulation)?;
        #[cfg(feature = "cuda")]
        if x.device().is_cuda() {
            return cuda::norms::ada_rms_backward(x, modulation, &g, each, self.eps);
        }
        let width = x.dim(D::Minus1)?;
        let (xs, ms, gs) =
            (values::read(x, "ada_rms")?, values::read(modulation, "ada_rms")?, values::read(&g, "ada_rms")?);
        let x_gradient = x.track_op().then(|| {
            values::fill(xs.len(), width, |start, out| {
                for (i, out) in out.chunks_exact_mut(width).enumerate() {
                    let row = start / width + i;
                    let (x, g) = (&xs[row * width..(row + 1) * width], &gs[row * width..(row + 1) * width]);
                    let scale = &ms[row / each * 3 * width..][..width];
                    let r = reciprocal(x, self.eps);
                    for j in 0..width {
                        out[j] = g[j] * (1.0 + scale[j]);
                    }
                    let along = math::dot(out, x) * r * r / width as f32;
                    for j in 0..width {
                        out[j] = r * (out[j] - x[j] * along);
                    }
                }
            })
        });
        let modulation_gradient = modulation.track_op().then(|| {
            values::fill(ms.len(), 3 * width, |start, out| {
                for (i, out) in out.chunks_exact_mut(3 * width).enumerate() {
                    let condition = start / (3 * width) + i;
                    let (scale, rest) = out.split_at_mut(width);
                    let shift = &mut rest[..width];
                    for row in condition * each..(condition + 1) * each {
                        let (x, g) = (&xs[row * width..(row + 1) * width], &gs[row * width..(row + 1) * width]);
                        let r = reciprocal(x, self.eps);
                        for j in 0..width {
                            scale[j] += g[j] * x[j] * r;
                            shift[j] += g[j];
                        }
                    }
                }
            })
        });
        Ok((
            x_gradient.map(|v| values::tensor_like(v, x)).transpose()?,
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
        let (x, m) = (numbers(1, (2, 3, 4))?, numbers(2, (2, 12))?);
        let normal = x.broadcast_div(&(x.sqr()?.mean_keepdim(D::Minus1)? + 1e-6)?.sqrt()?)?;
        let (scale, shift) = (m.narrow(1, 0, 4)?.unsqueeze(1)?, m.narrow(1, 4, 4)?.unsqueeze(1)?);
        let wanted = normal.broadcast_mul(&(scale + 1.0)?)?.broadcast_add(&shift)?;
        assert!(difference(&ada_rms(&x, &m, 1e-6)?, &wanted)? < 2e-6);
        check(&[x, m], 2e-3, |a| ada_rms(&a[0], &a[1], 1e-6))
    }

    #[test]
    fn a_modulation_per_token_equals_the_samples_own_when_it_repeats() -> Result<()> {
        let (x, m) = (numbers(1, (2, 3, 4))?, numbers(2, (2, 12))?);
        let repeated = m.unsqueeze(1)?.broadcast_as((2, 3, 12))?;
        assert_eq!(difference(&ada_rms(&x, &m, 1e-6)?, &ada_rms(&x, &repeated, 1e-6)?)?, 0.0);
        assert!(ada_rms(&x, &numbers(3, (4, 12))?, 1e-6).is_err());
        Ok(())
    }
}
