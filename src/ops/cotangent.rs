//! Starting a backward pass from a given output gradient.

use candle_core::{CpuStorage, CustomOp1, Layout, Result, Shape, Tensor, bail};
#[cfg(feature = "cuda")]
use candle_core::{CudaStorage, DType};

struct Cotangent {
    gradient: Tensor,
}

/// A scalar whose gradient with respect to `output` is `gradient`: `Σ output·gradient`, of which only the
/// derivative is wanted, so the sum itself is not computed and its value is zero.
///
/// Adding several such scalars and calling `backward` pulls the gradients of all outputs of a piece of network
/// back to its inputs in one walk.
pub fn cotangent(output: &Tensor, gradient: &Tensor) -> Result<Tensor> {
    if output.shape() != gradient.shape() {
        bail!("the gradient {:?} does not fit the output {:?}", gradient.shape(), output.shape())
    }
    output.apply_op1(Cotangent { gradient: gradient.detach() })
}

impl CustomOp1 for Cotangent {
    fn name(&self) -> &'static str {
        "cotangent"
    }

    fn cpu_fwd(&self, storage: &CpuStorage, _layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let zero = match storage {
            CpuStorage::F32(_) => CpuStorage::F32(vec![0.0]),
            CpuStorage::F64(_) => CpuStorage::F64(vec![0.0]),
            _ => bail!("cotangent: f32 or f64 is wanted"),
        };
        Ok((zero, Shape::from(())))
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(&self, storage: &CudaStorage, _layout: &Layout) -> Result<(CudaStorage, Shape)> {
        use candle_core::backend::{BackendDevice, BackendStorage};
        let scalar = Shape::from(());
        // f32 whatever the output is, so that the scalars of several outputs can be added.
        Ok((storage.device().zeros_impl(&scalar, DType::F32)?, scalar))
    }

    fn bwd(&self, _output: &Tensor, _result: &Tensor, _gradient: &Tensor) -> Result<Option<Tensor>> {
        Ok(Some(self.gradient.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::{Device, Var};

    #[test]
    fn pulls_the_gradients_of_two_outputs_back_together() -> Result<()> {
        let x = Var::new(&[1f32, 2., 3.], &Device::Cpu)?;
        let (double, square) = ((x.as_tensor() * 2.0)?, x.sqr()?);
        let seeds = (cotangent(&double, &Tensor::new(&[1f32, 10., 100.], &Device::Cpu)?)?
            + cotangent(&square, &Tensor::new(&[1f32, 1., 1.], &Device::Cpu)?)?)?;
        let gradients = seeds.backward()?;
        let gradient = gradients.get(&x).map(Tensor::to_vec1::<f32>).transpose()?;
        assert_eq!(gradient, Some(vec![4., 24., 206.]));
        Ok(())
    }

    #[test]
    fn a_gradient_of_another_shape_is_refused() -> Result<()> {
        let x = Tensor::zeros(3, candle_core::DType::F32, &Device::Cpu)?;
        assert!(cotangent(&x, &x.unsqueeze(0)?).is_err());
        Ok(())
    }
}
