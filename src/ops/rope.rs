//! Rotary position embedding, half-split layout.

#[cfg(feature = "cuda")]
use candle_core::CudaStorage;
use candle_core::{CpuStorage, CustomOp3, DType, Device, Layout, Result, Shape, Tensor, bail};

#[cfg(feature = "cuda")]
use super::cuda;
use super::values;

/// Cosines and sines of every position, each f32 `[B, S, D/2]`.
#[derive(Debug, Clone)]
pub struct Rotation {
    pub cos: Tensor,
    pub sin: Tensor,
}

impl Rotation {
    /// The angles `position·theta^(−2i/D)`, i = 0…D/2−1, in f32 as the reference computes them.
    ///
    /// `positions` holds `batch` rows of `B·S/batch` positions.
    pub fn new(positions: &[i64], batch: usize, head_dim: usize, theta: f64, device: &Device) -> Result<Self> {
        let half = head_dim / 2;
        if batch == 0 || half == 0 || !positions.len().is_multiple_of(batch) {
            bail!("rope: {} positions in {batch} rows for heads of {head_dim}", positions.len())
        }
        let frequency: Vec<f32> =
            (0..half).map(|i| 1.0 / theta.powf(2.0 * i as f64 / head_dim as f64) as f32).collect();
        let angles = positions.iter().flat_map(|&p| frequency.iter().map(move |f| p as f32 * f));
        let (cos, sin): (Vec<f32>, Vec<f32>) = angles.map(|a| (a.cos(), a.sin())).unzip();
        let shape = (batch, positions.len() / batch, half);
        Ok(Self { cos: Tensor::from_vec(cos, shape, device)?, sin: Tensor::from_vec(sin, shape, device)? })
    }
}

/// Rotates every head of `x` `[B, S, heads·D]`: with a head split in halves (x₁ ‖ x₂) the result is
/// `(x₁cos − x₂sin ‖ x₂cos + x₁sin)`. The angles get no gradient.
pub fn rope(x: &Tensor, rotation: &Rotation) -> Result<Tensor> {
    let (batch, tokens, width) = x.dims3()?;
    let (rows, positions, half) = rotation.cos.dims3()?;
    if (batch, tokens) != (rows, positions) || rotation.sin.dims() != rotation.cos.dims() || width % (2 * half) != 0 {
        bail!("rope: input {:?}, angles {:?}", x.dims(), rotation.cos.dims())
    }
    if rotation.cos.dtype() != DType::F32 {
        bail!("rope: the angles must be f32")
    }
    x.contiguous()?.apply_op3(&rotation.cos, &rotation.sin, Rope)
}

struct Rope;

/// Rotates by the angle, or back by it (`sign` −1): the backward pass of a rotation is its inverse.
fn rotate(x: &[f32], cos: &[f32], sin: &[f32], width: usize, half: usize, sign: f32) -> Vec<f32> {
    values::fill(x.len(), width, |start, out| {
        for (i, out) in out.chunks_exact_mut(width).enumerate() {
            let token = start / width + i;
            let x = &x[token * width..(token + 1) * width];
            let (cos, sin) = (&cos[token * half..(token + 1) * half], &sin[token * half..(token + 1) * half]);
            for (out, x) in out.chunks_exact_mut(2 * half).zip(x.chunks_exact(2 * half)) {
                let ((out_1, out_2), (x_1, x_2)) = (out.split_at_mut(half), x.split_at(half));
                for j in 0..half {
                    let s = sign * sin[j];
                    out_1[j] = x_1[j] * cos[j] - x_2[j] * s;
                    out_2[j] = x_2[j] * cos[j] + x_1[j] * s;
                }
            }
        }
    })
}

impl CustomOp3 for Rope {
    fn name(&self) -> &'static str {
        "rope"
    }

    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        xl: &Layout,
        cos: &CpuStorage,
        cl: &Layout,
        sin: &CpuStorage,
        sl: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let (_, _, width) = xl.shape().dims3()?;
        let (_, _, half) = cl.shape().dims3()?;
        let (x, cos, sin) = (values::of(x, xl, "rope")?, values::of(cos, cl, "rope")?, values::of(sin, sl, "rope")?);
        values::output(rotate(x, cos, sin, width, half, 1.0), xl.shape())
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(
        &self,
        x: &CudaStorage,
        xl: &Layout,
        cos: &CudaStorage,
        cl: &Layout,
        sin: &CudaStorage,
        sl: &Layout,
    ) -> Result<(CudaStorage, Shape)> {
        cuda::elementwise::rope((x, xl), (cos, cl), (sin, sl))
    }

    fn bwd(
        &self,
        x: &Tensor,
        cos: &Tensor,
        sin: &Tensor,
        _y: &Tensor,
        gradient: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let gradient = gradient.contiguous()?;
        #[cfg(feature = "cuda")]
        if x.device().is_cuda() {
            return Ok((Some(cuda::elementwise::rope_backward(x, cos, sin, &gradient)?), None, None));
        }
        let ((_, _, width), (_, _, half)) = (x.dims3()?, cos.dims3()?);
        let (gs, cos, sin) = (values::read(&gradient, "rope")?, values::read(cos, "rope")?, values::read(sin, "rope")?);
        let out = rotate(&gs, &cos, &sin, width, half, -1.0);
        Ok((Some(values::tensor_like(out, x)?), None, None))
    }
}

#[cfg(test)]
mod tests {
    use super::super::gradcheck::{check, difference, numbers};
    use super::*;

    #[test]
    fn equals_candles_composite_and_has_the_gradients_of_finite_differences() -> Result<()> {
        // Two heads of 6 at the same positions in both samples, which is what candle's form takes.
        let (x, positions) = (numbers(1, (2, 4, 12))?, [0i64, 1, 2, 7, 0, 1, 2, 7]);
        let rotation = Rotation::new(&positions, 2, 6, 10000.0, &Device::Cpu)?;
        let heads = x.reshape((2, 4, 2, 6))?.transpose(1, 2)?.contiguous()?;
        let (cos, sin) = (rotation.cos.get(0)?, rotation.sin.get(0)?);
        let wanted = candle_nn::rotary_emb::rope_slow(&heads, &cos, &sin)?.transpose(1, 2)?.reshape((2, 4, 12))?;
        assert!(difference(&rope(&x, &rotation)?, &wanted)? < 1e-6);
        check(&[x], 1e-3, |a| rope(&a[0], &rotation))
    }

    #[test]
    fn samples_turn_by_their_own_positions() -> Result<()> {
        let x = numbers(1, (1, 1, 4))?;
        let both = Tensor::cat(&[&x, &x], 0)?;
        let turned = rope(&both, &Rotation::new(&[0, 3], 2, 4, 10000.0, &Device::Cpu)?)?;
        assert_eq!(difference(&turned.narrow(0, 0, 1)?, &x)?, 0.0);
        assert!(difference(&turned.narrow(0, 1, 1)?, &x)? > 0.1);
        assert!(rope(&x, &Rotation::new(&[0, 3], 2, 4, 10000.0, &Device::Cpu)?).is_err());
        Ok(())
    }
}
