//! Dropout whose mask can be drawn again.

#[cfg(feature = "cuda")]
use candle_core::CudaStorage;
use candle_core::{CpuStorage, CustomOp1, Layout, Result, Shape, Tensor, bail};
use rand::RngCore;

#[cfg(feature = "cuda")]
use super::cuda;
use super::values;
use crate::random::stream;

/// Zeroes each element with `probability` and scales the others by 1/(1 − probability).
///
/// The mask is a pure function of (`key`, `module`) and the element's index: a segment that is computed again for its
/// backward pass drops the same elements, and so does a resumed run that derives the same key, on any device. Nothing
/// is stored for the backward pass.
pub fn dropout(x: &Tensor, probability: f64, key: u64, module: &str) -> Result<Tensor> {
    if !(0.0..1.0).contains(&probability) {
        bail!("dropout: probability {probability} is not in [0, 1)")
    }
    if probability == 0.0 {
        return Ok(x.clone());
    }
    let mut random = stream(key, &format!("dropout/{module}"), &[]);
    x.contiguous()?.apply_op1(Dropout {
        key: [random.next_u32(), random.next_u32()],
        threshold: (probability * (f64::from(u32::MAX) + 1.0)) as u32,
        scale: (1.0 / (1.0 - probability)) as f32,
    })
}

struct Dropout {
    key: [u32; 2],
    /// Words below it drop their element.
    threshold: u32,
    scale: f32,
}

/// Block `counter` of Philox 4×32-10 (Salmon et al., *Parallel Random Numbers: As Easy as 1, 2, 3*, 2011): any word of
/// the sequence without those before it, which is what makes one mask for every device.
fn philox([mut key0, mut key1]: [u32; 2], counter: u64) -> [u32; 4] {
    const MULTIPLIERS: [u64; 2] = [0xD251_1F53, 0xCD9E_8D57];
    const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
    let mut words = [counter as u32, (counter >> 32) as u32, 0, 0];
    for _ in 0..10 {
        let product0 = MULTIPLIERS[0] * u64::from(words[0]);
        let product1 = MULTIPLIERS[1] * u64::from(words[2]);
        words = [
            (product1 >> 32) as u32 ^ words[1] ^ key0,
            product1 as u32,
            (product0 >> 32) as u32 ^ words[3] ^ key1,
            product0 as u32,
        ];
        key0 = key0.wrapping_add(WEYL[0]);
        key1 = key1.wrapping_add(WEYL[1]);
    }
    words
}

impl Dropout {
    fn apply(&self, x: &[f32]) -> Vec<f32> {
        values::fill(x.len(), 4, |start, out| {
            let (first, count) = (start as u64 / 4, out.len());
            for (block, (out, x)) in out.chunks_mut(4).zip(x[start..start + count].chunks(4)).enumerate() {
                let words = philox(self.key, first + block as u64);
                for ((out, &x), word) in out.iter_mut().zip(x).zip(words) {
                    *out = if word < self.threshold { 0.0 } else { x * self.scale };
                }
            }
        })
    }

    #[cfg(feature = "cuda")]
    fn mask(&self) -> cuda::elementwise::Mask {
        cuda::elementwise::Mask { key: self.key, threshold: self.threshold, scale: self.scale }
    }
}

impl CustomOp1 for Dropout {
    fn name(&self) -> &'static str {
        "dropout"
    }

    fn cpu_fwd(&self, x: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        values::output(self.apply(values::of(x, layout, "dropout")?), layout.shape())
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(&self, x: &CudaStorage, layout: &Layout) -> Result<(CudaStorage, Shape)> {
        cuda::elementwise::dropout((x, layout), self.mask())
    }

    fn bwd(&self, x: &Tensor, _y: &Tensor, gradient: &Tensor) -> Result<Option<Tensor>> {
        let gradient = gradient.contiguous()?;
        #[cfg(feature = "cuda")]
        if x.device().is_cuda() {
            return cuda::elementwise::dropout_backward(x, &gradient, self.mask()).map(Some);
        }
        let out = self.apply(&values::read(&gradient, "dropout")?);
        values::tensor_like(out, x).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::super::gradcheck::{check, difference, numbers};
    use super::*;

    #[test]
    fn the_mask_repeats_for_its_key_and_module_and_differs_otherwise() -> Result<()> {
        let x = numbers(1, (40, 50))?;
        let first = dropout(&x, 0.25, 7, "a.q_proj")?;
        assert_eq!(difference(&first, &dropout(&x, 0.25, 7, "a.q_proj")?)?, 0.0);
        assert!(difference(&first, &dropout(&x, 0.25, 8, "a.q_proj")?)? > 0.0);
        assert!(difference(&first, &dropout(&x, 0.25, 7, "a.v_proj")?)? > 0.0);
        let dropped = first.flatten_all()?.to_vec1::<f32>()?.iter().filter(|v| **v == 0.0).count();
        assert!((400..600).contains(&dropped), "{dropped} of 2000 dropped at 0.25");
        Ok(())
    }

    #[test]
    fn the_gradient_passes_where_the_input_did() -> Result<()> {
        check(&[numbers(1, (3, 8))?], 1e-3, |a| dropout(&a[0], 0.5, 3, "m"))?;
        assert!(dropout(&numbers(1, 3)?, 1.0, 0, "m").is_err());
        Ok(())
    }

    #[test]
    fn philox_answers_as_published() {
        // Known answers of the authors' Random123 library.
        assert_eq!(philox([0, 0], 0), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
    }

    #[test]
    fn the_mask_does_not_depend_on_how_the_work_is_split() -> Result<()> {
        let many = dropout(&Tensor::ones(100_003, candle_core::DType::F32, &candle_core::Device::Cpu)?, 0.5, 1, "m")?;
        let few = dropout(&Tensor::ones(11, candle_core::DType::F32, &candle_core::Device::Cpu)?, 0.5, 1, "m")?;
        assert_eq!(many.narrow(0, 0, 11)?.to_vec1::<f32>()?, few.to_vec1::<f32>()?);
        Ok(())
    }
}
