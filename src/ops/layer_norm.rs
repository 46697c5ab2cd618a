//! Layer normalisation over the last axis.

#[cfg(feature = "cuda")]
use candle_core::CudaStorage;
use candle_core::{CpuStorage, CustomOp3, D, Layout, Result, Shape, Tensor, bail};

#[cfg(feature = "cuda")]
use super::cuda;
use super::math;
use super::values;

/// `(x − mean)·rsqrt(variance + eps)·weight + bias` over the last axis of `x` `[…, C]`; `weight`, `bias` `[C]`.
///
/// f32 inside, the type of `x` outside; weight and bias are f32.
pub fn layer_norm(x: &Tensor, weight: &Tensor, bias: &Tensor, eps: f64) -> Result<Tensor> {
    let width = x.dim(D::Minus1)?;
    if weight.dims() != [width] || bias.dims() != [width] || width == 0 {
        bail!("layer_norm: input {:?}, weight {:?}, bias {:?}", x.dims(), weight.dims(), bias.dims())
    }
    x.contiguous()?.apply_op3(&weight.contiguous()?, &bias.contiguous()?, LayerNorm { eps: eps as f32 })
}

struct LayerNorm {
    eps: f32,
}

impl LayerNorm {
    /// Mean and reciprocal deviation of a row.
    fn statistics(&self, row: &[f32]) -> (f32, f32) {
        let width = row.len() as f32;
        let mean = math::sum(row) / width;
        let mut squares = [0.0f32; 4];
        for (i, x) in row.iter().enumerate() {
            squares[i % 4] += (x - mean) * (x - mean);
        }
        (mean, 1.0 / (squares.iter().sum::<f32>() / width + self.eps).sqrt())
    }

    fn input_gradient(&self, x: &[f32], weight: &[f32], gradient: &[f32]) -> Vec<f32> {
        let width = weight.len();
        values::fill(x.len(), width, |start, out| {
            for (i, out) in out.chunks_exact_mut(width).enumerate() {
                let at = start + i * width;
                let (x, g) = (&x[at..at + width], &gradient[at..at + width]);
                let (mean, scale) = self.statistics(x);
                let (mut sum, mut along) = (0.0, 0.0);
                for j in 0..width {
                    let weighted = g[j] * weight[j];
                    sum += weighted;
                    along += weighted * (x[j] - mean) * scale;
                }
                let (sum, along) = (sum / width as f32, along / width as f32);
                for j in 0..width {
                    out[j] = scale * (g[j] * weight[j] - sum - (x[j] - mean) * scale * along);
                }
            }
        })
    }

    /// Gradients of weight and bias, one behind the other.
    fn parameter_gradients(&self, x: &[f32], gradient: &[f32], width: usize) -> Vec<f32> {
        values::sum_rows(x.len() / width, 2 * width, |row, sum| {
            let (x, g) = (&x[row * width..(row + 1) * width], &gradient[row * width..(row + 1) * width]);
            let (mean, scale) = self.statistics(x);
            let (weight, bias) = sum.split_at_mut(width);
            for j in 0..width {
                weight[j] += g[j] * (x[j] - mean) * scale;
                bias[j] += g[j];
            }
        })
    }
}

impl CustomOp3 for LayerNorm {
    fn name(&self) -> &'static str {
        "layer_norm"
    }

    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        xl: &Layout,
        w: &CpuStorage,
        wl: &Layout,
        b: &CpuStorage,
        bl: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let name = "layer_norm";
        let (x, weight, bias) = (values::of(x, xl, name)?, values::of(w, wl, name)?, values::of(b, bl, name)?);
        let width = weight.len();
        let y = values::fill(x.len(), width, |start, out| {
            for (i, out) in out.chunks_exact_mut(width).enumerate() {
                let x = &x[start + i * width..start + (i + 1) * width];
                let (mean, scale) = self.statistics(x);
                for j in 0..width {
                    out[j] = (x[j] - mean) * scale * weight[j] + bias[j];
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
        w: &CudaStorage,
        wl: &Layout,
        b: &CudaStorage,
        bl: &Layout,
    ) -> Result<(CudaStorage, Shape)> {
        cuda::norms::layer_norm((x, xl), (w, wl), (b, bl), self.eps)
    }

    fn bwd(
        &self,
        x: &Tensor,
        weight: &Tensor,
        bias: &Tensor,
        _y: &Tensor,
        gradient: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let gradient = gradient.contiguous()?;
        #[cfg(feature = "cuda")]
        if x.device().is_cuda() {
            return cuda::norms::layer_norm_backward(x, weight, bias, &gradient, self.eps);
        }
        let width = weight.elem_count();
        let (xs, ws, gs) = (
            values::read(x, "layer_norm")?,
            values::read(weight, "layer_norm")?,
            values::read(&gradient, "layer_norm")?,
        );
        let x_gradient =
            x.track_op().then(|| values::tensor_like(self.input_gradient(&xs, &ws, &gs), x)).transpose()?;
        if !weight.track_op() && !bias.track_op() {
            return Ok((x_gradient, None, None));
        }
        let mut weight_gradient = self.parameter_gradients(&xs, &gs, width);
        let bias_gradient = weight_gradient.split_off(width);
        Ok((
            x_gradient,
            weight.track_op().then(|| values::tensor_like(weight_gradient, weight)).transpose()?,
            bias.track_op().then(|| values::tensor_like(bias_gradient, bias)).transpose()?,
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::super::gradcheck::{check, difference, numbers};
    use super::*;

    #[test]
    fn equals_candles_composite_and_has_the_gradients_of_finite_differences() -> Result<()> {
        let (x, w, b) = (numbers(1, (2, 3, 7))?, numbers(2, 7)?, numbers(3, 7)?);
        let wanted = candle_nn::ops::layer_norm_slow(&x, &w, &b, 1e-6)?;
        assert!(difference(&layer_norm(&x, &w, &b, 1e-6)?, &wanted)? < 2e-6);
        check(&[x, w, b], 2e-3, |a| layer_norm(&a[0], &a[1], &a[2], 1e-6))
    }
}
