//! Dropout whose mask can be drawn again.

use candle_core::{CpuStorage, CustomOp1, Layout, Result, Shape, Tensor, bail};
use rand::RngCore;

use super::values;
use crate::random::stream;

/// Zeroes each element with `probability` and scales the others by 1/(1 − probability).
///
/// The mask is a pure function of (`key`, `module`): a segment that is computed again for its backward pass drops
/// the same elements, and so does a resumed run that derives the same key. Nothing is stored for the backward pass.
pub fn dropout(x: &Tensor, probability: f64, key: u64, module: &str) -> Result<Tensor> {
    if !(0.0..1.0).contains(&probability) {
        bail!("dropout: probability {probability} is not in [0, 1)")
    }
    if probability == 0.0 {
        return Ok(x.clone());
    }
    x.contiguous()?.apply_op1(Dropout { probability, key, module: module.to_owned() })
}

struct Dropout {
    probability: f64,
    key: u64,
    module: String,
}

impl Dropout {
    fn apply(&self, x: &[f32]) -> Vec<f32> {
        let mut random = stream(self.key, &format!("dropout/{}", self.module), &[]);
        let threshold = (self.probability * (f64::from(u32::MAX) + 1.0)) as u32;
        let scale = (1.0 / (1.0 - self.probability)) as f32;
        x.iter().map(|x| if random.next_u32() < threshold { 0.0 } else { x * scale }).collect()
    }
}

impl CustomOp1 for Dropout {
    fn name(&self) -> &'static str {
        "dropout"
    }

    fn cpu_fwd(&self, x: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        values::output(self.apply(values::of(x, layout, "dropout")?), layout.shape())
    }

    fn bwd(&self, x: &Tensor, _y: &Tensor, gradient: &Tensor) -> Result<Option<Tensor>> {
        let gradient = gradient.contiguous()?;
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
}
