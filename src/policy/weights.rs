//! Where the network takes its weights from when it is built.

use candle_core::{Device, Result, Tensor};

/// A source of tensors under canonical names: LeRobot's, without the leading `model.`
/// (`paligemma_with_expert.…`, `action_in_proj.weight`), with `embed_tokens.weight` and no `lm_head`.
pub trait WeightSource {
    /// The tensor `name` of exactly `shape`, in the stored dtype (f32, bf16 or f16), on `device`; an error when it is missing or differs.
    fn tensor(&self, name: &str, shape: &[usize], device: &Device) -> Result<Tensor>;
}

/// Tensors in memory, for tests and small models.
impl WeightSource for std::collections::HashMap<String, Tensor> {
    fn tensor(&self, name: &str, shape: &[usize], device: &Device) -> Result<Tensor> {
        match self.get(name) {
            Some(tensor) if tensor.dims() == shape => tensor.to_device(device),
            Some(tensor) => candle_core::bail!("{name}: wanted shape {shape:?}, found {:?}", tensor.dims()),
            None => candle_core::bail!("{name} {shape:?} is missing"),
        }
    }
}
