//! Gemma's root-mean-square normalisation.

#[cfg(feature = "cuda")]
use candle_core::CudaStorage;
use candle_core::{CpuStorage, CustomOp2, D, Layout, Result, Shape, Tensor, bail};

#[cfg(feature = "cuda")]
use super::cuda;
use super::math;
use super::values;

/// `x·rsqrt(mean(x²) + eps)·(1 + weight)` over the last axis of `x` `[…, C]`; `weight` `[C]` is the offset from one.
///
/// f32 inside, the type of `x` outside; the weight is f32.
pub fn rms_norm(x: &Tensor, weight: &Tensor, eps: f64) -> Result<Tensor> {
    let width = x.dim(D::Minus1)?;
    if weight.dims() != [width] || width == 0 {
        bail!("rms_norm: input {:?}, weight {:?}", x.dims(), weight.dims())
    }
    x.contiguous()?.apply_op2(&weight.contiguous()?, RmsNorm { eps: eps as f32 })
}

struct RmsNorm {
    eps: f32,
}

/// Reciprocal root mean square of a row.
#[inline(always)]
pub(super) fn reciprocal(row: &[f32], eps: f32) -> f32 {
    1.0 / (math::dot(row, row) / row.len() as f32 + eps).sqrt()
}

impl CustomOp2 for RmsNorm {
    fn name(&self) -> &'static str {
        "rms_norm"
    }

    fn cpu_fwd(&self, x: &CpuStorage, xl: &Layout, w: &CpuStorage, wl: &Layout) -> Result<(CpuStorage, Shape)> {
        let (x, weight) = (values::of(x, xl, "rms_norm")?, values::of(w, wl, "rms_norm")?);
        let width = weight.len();
        let y = values::fill(x.len(), width, |start, out| {
            for (i, out) in out.chunks_exact_mut(width).enumerate() {
                let x = &x[start + i * width..start + (i + 1) * width];
                let scale = reciprocal(x, self.eps);
                for j in 0..width {
                    out[j] = x[j] * scale * (1.0 + weight[j]);
                }
            }
        });
        values::output(y, xl.shape())
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(&self, x: &CudaStorage, xl: &Layout, w: &CudaStorage, wl: &Layout) -> Result<(CudaStorage, Shape)> {
        cuda::norms::rms_norm((x, xl), (w, wl), self.eps)
    }

    fn bwd(&self, x: &Tensor, weight: &Tensor, _y: &Tensor, g: &Tensor) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let g = g.contiguous()?;
        #[cfg(feature = "cuda")]
        if x.device().is_cuda() {
            return cuda::norms::rms_norm_backward(x, weight, &g, self.eps);
        }
        let width = weight.elem_count();
        let (xs, ws, gs) =
            (values::read(x, "rms_norm")?, values::read(weight, "rms_norm")?, values::read(&g, "rms_norm")?);
        let x_gradient = x.track_op().then(|| {
            values::fill(xs.len(), width, |start, out| {
                for (i, out) in out.chunks_exact_mut(width).enumerate() {
                    let at = start + i * width;
                    let (x, g) = (&xs[at..at + width], &gs[at..at + width]);
                    let scale = reciprocal(x, self.eps);
                    for j in 0..width {
                        out[j] = g[j] * (1.0 + ws[j]);
                    }
                    let along = math::dot(out, x) * scale * scale / width as f32;
                    for j in 0..width {
                        out[j] = scale * (out[j] - x[j] * along);
                    }
                }
            })
        });
        let weight_gradient = weight.track_op().then(|| {
            values::sum_rows(xs.len() / width, width, |row, sum| {
                let (x, g) = (&xs[row * width..(row + 1) * width], &gs[row * width..(row + 1) * width]);
                let scale = reciprocal(x, self.eps);
                for j in 0..width {
                    sum[j] += g[j] * x[j] * scale;
                }
            })
        });
        Ok((
            x_gradient.map(|v| values::tensor_like(v, x)).transpose()?,
            weight_gradient.map(|v| values::tensor_like(v, weight)).transpose()?,
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::super::gradcheck::{check, difference, numbers};
    use super::*;

    #[test]
    fn equals_the_composite_and_has_the_gradients_of_finite_differences() -> Result<()> {
        let (x, w) = (numbers(1, (2, 3, 7))?, numbers(2, 7)?);
        let mean = x.sqr()?.mean_keepdim(D::Minus1)?;
        let wanted = x.broadcast_div(&(mean + 1e-6)?.sqrt()?)?.broadcast_mul(&(&w + 1.0)?)?;
        assert!(difference(&rms_norm(&x, &w, 1e-6)?, &wanted)? < 2e-6);
        check(&[x, w], 2e-3, |a| rms_norm(&a[0], &a[1], 1e-6))
    }
}
