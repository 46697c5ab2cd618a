//! The global gradient norm, and clipping by it.
//!
//! Clipping is a coefficient, not a pass over the gradients: [`AdamW::step`](super::adamw::AdamW::step) multiplies
//! by it while it reads them.

use std::collections::BTreeMap;

use candle_core::{DType, Storage, Tensor};
use rayon::prelude::*;

use crate::error::{Explain, Kind};

/// Elements that one task sums; fixed, so that the sum does not depend on the number of threads.
const BLOCK: usize = 1 << 14;

/// Names in a message.
const NAMED: usize = 3;

/// The outcome of clipping.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Clip {
    /// 2-norm over all gradients before clipping.
    pub norm: f64,
    /// What every gradient is to be multiplied by, at most 1.
    pub coefficient: f64,
}

/// Why gradients cannot be clipped.
#[derive(Debug, thiserror::Error)]
pub enum ClipError {
    #[error("{} of {total} gradients are not finite (first: {})", names.len(), first(names))]
    NonFinite {
        /// Every parameter whose gradient holds an infinity or a NaN.
        names: Vec<String>,
        total: usize,
    },
    #[error("cannot read the gradient of {name}")]
    Unreadable { name: String, source: candle_core::Error },
}

impl Explain for ClipError {
    fn kind(&self) -> Kind {
        match self {
            ClipError::NonFinite { .. } => Kind::Input,
            ClipError::Unreadable { .. } => Kind::Internal,
        }
    }
    fn hint(&self) -> Option<String> {
        match self {
            ClipError::NonFinite { .. } => {
                Some("look for broken values with `vlash data check`, or lower optim.lr".to_string())
            }
            ClipError::Unreadable { .. } => None,
        }
    }
}

/// Clips to a global norm of `max_norm`, as `torch.nn.utils.clip_grad_norm_` does:
/// coefficient = min(1, max_norm / (norm + 1e-6)). A `max_norm` of 0 only measures.
///
/// The sum runs in f64 in an order that depends on nothing but the names and shapes.
pub fn clip(gradients: &BTreeMap<String, Tensor>, max_norm: f64) -> Result<Clip, ClipError> {
    let mut sum = 0.0;
    let mut broken = Vec::new();
    for (name, squares) in gradients.keys().zip(squared_norms(gradients)?) {
        if !squares.is_finite() {
            broken.push(name.clone());
        }
        sum += squares;
    }
    if !broken.is_empty() {
        return Err(ClipError::NonFinite { names: broken, total: gradients.len() });
    }
    let norm = sum.sqrt();
    let coefficient = if max_norm > 0.0 { (max_norm / (norm + 1e-6)).min(1.0) } else { 1.0 };
    Ok(Clip { norm, coefficient })
}

fn squared_norms(gradients: &BTreeMap<String, Tensor>) -> Result<Vec<f64>, ClipError> {
    let unreadable = |name: &String, source| ClipError::Unreadable { name: name.clone(), source };
    #[cfg(feature = "cuda")]
    if let Some((first, gradient)) = gradients.first_key_value()
        && gradient.device().is_cuda()
    {
        // One copy to the host for all of them.
        return on_device(gradients.values()).map_err(|source| unreadable(first, source));
    }
    gradients.iter().map(|(name, gradient)| squared_norm(gradient).map_err(|e| unreadable(name, e))).collect()
}

#[cfg(feature = "cuda")]
fn on_device<'a>(tensors: impl Iterator<Item = &'a Tensor>) -> candle_core::Result<Vec<f64>> {
    let plain = |tensor: &Tensor| tensor.to_dtype(DType::F32)?.contiguous();
    let tensors = tensors.map(plain).collect::<candle_core::Result<Vec<_>>>()?;
    crate::ops::cuda::optimizer::squared_norms(&tensors.iter().collect::<Vec<_>>())
}

/// The sum of squares of a tensor of any float type, in f64: zero exactly when every element is zero, and finite
/// exactly when every element is (no square of an f32 leaves the range of f64).
pub(super) fn squared_norm(tensor: &Tensor) -> candle_core::Result<f64> {
    #[cfg(feature = "cuda")]
    if tensor.device().is_cuda() {
        return Ok(on_device(std::iter::once(tensor))?.into_iter().sum());
    }
    let tensor = tensor.to_dtype(DType::F32)?.contiguous()?;
    {
        let (storage, layout) = tensor.storage_and_layout();
        if let (Storage::Cpu(storage), Some((start, end))) = (&*storage, layout.contiguous_offsets()) {
            let values = storage.as_slice::<f32>()?;
            let values = values.get(start..end).unwrap_or_default();
            return Ok(sum_of_squares(values));
        }
    }
    candle_core::bail!("gradients on {:?} cannot be measured by this build", tensor.device().location())
}

fn sum_of_squares(values: &[f32]) -> f64 {
    let block = |values: &[f32]| values.iter().map(|&v| f64::from(v) * f64::from(v)).sum::<f64>();
    if values.len() <= BLOCK {
        return block(values);
    }
    let blocks: Vec<f64> = values.par_chunks(BLOCK).map(block).collect();
    blocks.iter().sum()
}

/// The first few names for a message.
pub(super) fn first(names: &[String]) -> String {
    let mut text = names.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    if names.len() > NAMED {
        text.push_str(", …");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::Device;

    fn gradients(values: &[(&str, Vec<f32>)]) -> BTreeMap<String, Tensor> {
        values.iter().map(|(n, v)| (n.to_string(), Tensor::new(v.as_slice(), &Device::Cpu).unwrap())).collect()
    }

    #[test]
    fn the_norm_runs_over_all_gradients_and_only_long_ones_are_cut() {
        let long = gradients(&[("a", vec![3.0]), ("b", vec![0.0, 4.0])]);
        let clipped = clip(&long, 1.0).unwrap();
        assert_eq!(clipped, Clip { norm: 5.0, coefficient: 1.0 / 5.000001 });
        assert_eq!(clip(&long, 10.0).unwrap().coefficient, 1.0);
        assert_eq!(clip(&long, 0.0).unwrap(), Clip { norm: 5.0, coefficient: 1.0 });
        assert_eq!(clip(&gradients(&[("a", vec![0.0])]), 1.0).unwrap(), Clip { norm: 0.0, coefficient: 1.0 });
    }

    #[test]
    fn the_sum_does_not_depend_on_the_number_of_threads() {
        let values: Vec<f32> = (0..100_000).map(|i| ((i * 7919) % 1013) as f32 * 1e-3).collect();
        let many = gradients(&[("a", values)]);
        let norms: Vec<f64> = [1, 2, 5]
            .iter()
            .map(|&threads| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                pool.install(|| clip(&many, 1.0).unwrap().norm)
            })
            .collect();
        assert!(norms.iter().all(|n| n.to_bits() == norms[0].to_bits()), "{norms:?}");
    }

    #[test]
    fn very_large_and_very_small_gradients_neither_overflow_nor_vanish() {
        assert_eq!(clip(&gradients(&[("a", vec![3e38, 0.0])]), 1.0).unwrap().norm, f64::from(3e38f32));
        let tiny = f32::from_bits(1);
        assert_eq!(clip(&gradients(&[("a", vec![tiny])]), 1.0).unwrap().norm, f64::from(tiny));
    }

    #[test]
    fn a_transposed_gradient_counts_once() {
        let whole = Tensor::arange(0f32, 6.0, &Device::Cpu).unwrap().reshape((2, 3)).unwrap();
        let narrow = whole.t().unwrap().narrow(0, 1, 1).unwrap();
        assert_eq!(squared_norm(&narrow).unwrap(), 1.0 + 16.0);
    }

    #[test]
    fn gradients_that_are_not_finite_are_named() {
        let error = clip(&gradients(&[("a", vec![1.0]), ("b", vec![f32::NAN]), ("c", vec![1.0, f32::INFINITY])]), 1.0)
            .unwrap_err();
        assert_eq!(error.to_string(), "2 of 3 gradients are not finite (first: b, c)");
        assert_eq!(error.kind(), Kind::Input);
    }
}
