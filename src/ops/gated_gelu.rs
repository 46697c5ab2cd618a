//! Gemma's gated activation.

#[cfg(feature = "cuda")]
use candle_core::CudaStorage;
use candle_core::{CpuStorage, CustomOp2, Layout, Result, Shape, Tensor, bail};

#[cfg(feature = "cuda")]
use super::cuda;
use super::math;
use super::values;

/// `gelu(gate)·up`, elementwise, with the tanh approximation of GELU.
pub fn gated_gelu(gate: &Tensor, up: &Tensor) -> Result<Tensor> {
    if gate.shape() != up.shape() {
        bail!("gated_gelu: {:?} and {:?} differ", gate.dims(), up.dims())
    }
    gate.contiguous()?.apply_op2(&up.contiguous()?, GatedGelu)
}

struct GatedGelu;

impl CustomOp2 for GatedGelu {
    fn name(&self) -> &'static str {
        "gated_gelu"
    }

    fn cpu_fwd(&self, gate: &CpuStorage, gl: &Layout, up: &CpuStorage, ul: &Layout) -> Result<(CpuStorage, Shape)> {
        let (gate, up) = (values::of(gate, gl, "gated_gelu")?, values::of(up, ul, "gated_gelu")?);
        let y = values::fill(gate.len(), 1, |start, out| {
            let (gate, up) = (&gate[start..start + out.len()], &up[start..start + out.len()]);
            out.iter_mut().zip(gate).zip(up).for_each(|((y, &gate), up)| *y = math::gelu(gate).0 * up);
        });
        values::output(y, gl.shape())
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(&self, gate: &CudaStorage, gl: &Layout, up: &CudaStorage, ul: &Layout) -> Result<(CudaStorage, Shape)> {
        cuda::elementwise::gated_gelu((gate, gl), (up, ul))
    }

    fn bwd(&self, gate: &Tensor, up: &Tensor, _y: &Tensor, g: &Tensor) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let name = "gated_gelu";
        let g = g.contiguous()?;
        #[cfg(feature = "cuda")]
        if gate.device().is_cuda() {
            let (gate, up) = cuda::elementwise::gated_gelu_backward(gate, up, &g)?;
            return Ok((Some(gate), Some(up)));
        }
        let (gates, ups, gs) = (values::read(gate, name)?, values::read(up, name)?, values::read(&g, name)?);
        // Gate and up are projections of one input: either both are tracked or neither is.
        let (gate_gradient, up_gradient) = values::fill_two(gates.len(), 1, |start, gate_out, up_out| {
            let range = start..start + gate_out.len();
            let (gates, ups, gs) = (&gates[range.clone()], &ups[range.clone()], &gs[range]);
            for i in 0..gate_out.len().min(up_out.len()) {
                let (value, slope) = math::gelu(gates[i]);
                gate_out[i] = gs[i] * ups[i] * slope;
                up_out[i] = gs[i] * value;
            }
        });
        Ok((Some(values::tensor_like(gate_gradient, gate)?), Some(values::tensor_like(up_gradient, up)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::gradcheck::{check, difference, numbers};
    use super::*;

    #[test]
    fn equals_the_composite_and_has_the_gradients_of_finite_differences() -> Result<()> {
        let (gate, up) = ((numbers(1, (3, 20))? * 3.0)?, numbers(2, (3, 20))?);
        assert!(difference(&gated_gelu(&gate, &up)?, &(gate.gelu()? * &up)?)? < 1e-6);
        check(&[gate, up], 1e-3, |a| gated_gelu(&a[0], &a[1]))
    }

    #[test]
    fn pieces_shared_among_threads_equal_one_piece() -> Result<()> {
        let (gate, up) = (numbers(1, 50_001)?, numbers(2, 50_001)?);
        assert!(difference(&gated_gelu(&gate, &up)?, &(gate.gelu()? * &up)?)? < 1e-6);
        Ok(())
    }
}
