//! GELU in its tanh approximation.

#[cfg(feature = "cuda")]
use candle_core::CudaStorage;
use candle_core::{CpuStorage, CustomOp1, Layout, Result, Shape, Tensor};

#[cfg(feature = "cuda")]
use super::cuda;
use super::math;
use super::values;

/// `½x(1 + tanh(√(2/π)(x + 0.044715x³)))`, elementwise.
pub fn gelu(x: &Tensor) -> Result<Tensor> {
    x.contiguous()?.apply_op1(Gelu)
}

struct Gelu;

impl CustomOp1 for Gelu {
    fn name(&self) -> &'static str {
        "gelu"
    }

    fn cpu_fwd(&self, x: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let x = values::of(x, layout, "gelu")?;
        let y = values::fill(x.len(), 1, |start, out| {
            let x = &x[start..start + out.len()];
            out.iter_mut().zip(x).for_each(|(y, &x)| *y = math::gelu(x).0);
        });
        values::output(y, layout.shape())
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(&self, x: &CudaStorage, layout: &Layout) -> Result<(CudaStorage, Shape)> {
        cuda::elementwise::gelu((x, layout))
    }

    fn bwd(&self, x: &Tensor, _y: &Tensor, gradient: &Tensor) -> Result<Option<Tensor>> {
        let gradient = gradient.contiguous()?;
        #[cfg(feature = "cuda")]
        if x.device().is_cuda() {
            return cuda::elementwise::gelu_backward(x, &gradient).map(Some);
        }
        let (xs, gs) = (values::read(x, "gelu")?, values::read(&gradient, "gelu")?);
        let out = values::fill(xs.len(), 1, |start, out| {
            let (x, g) = (&xs[start..start + out.len()], &gs[start..start + out.len()]);
            out.iter_mut().zip(x).zip(g).for_each(|((out, &x), g)| *out = math::gelu(x).1 * g);
        });
        values::tensor_like(out, x).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::super::gradcheck::{check, difference, numbers};
    use super::*;

    #[test]
    fn equals_candles_and_has_the_gradients_of_finite_differences() -> Result<()> {
        let x = (numbers(1, (3, 20))? * 4.0)?;
        assert!(difference(&gelu(&x)?, &x.gelu()?)? < 1e-6);
        check(&[x], 1e-3, |a| gelu(&a[0]))
    }
}
