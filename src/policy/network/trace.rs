//! Recording of intermediate tensors, for comparison with a reference.

use std::collections::BTreeMap;
use std::fmt::Display;

use candle_core::{Result, Tensor};

/// Named tensors of one pass, or nothing at all.
#[derive(Debug, Default)]
pub struct Trace(Option<BTreeMap<String, Tensor>>);

impl Trace {
    /// Records nothing.
    pub fn off() -> Self {
        Self(None)
    }

    /// Records everything.
    pub fn on() -> Self {
        Self(Some(BTreeMap::new()))
    }

    /// Whether anything is recorded.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Records a tensor, if anything is recorded.
    pub fn record(&mut self, name: impl Display, tensor: &Tensor) {
        if let Some(tensors) = &mut self.0 {
            tensors.insert(name.to_string(), tensor.detach());
        }
    }

    /// Records what runs stacked by camera, `[cameras·B, …]`, as `image.N.{name}`.
    pub fn record_cameras(&mut self, name: impl Display, tensor: &Tensor, cameras: usize) -> Result<()> {
        if self.is_on() {
            for (camera, tensor) in tensor.chunk(cameras.max(1), 0)?.iter().enumerate() {
                self.record(format_args!("image.{camera}.{name}"), tensor);
            }
        }
        Ok(())
    }

    /// What was recorded, by name.
    pub fn into_tensors(self) -> BTreeMap<String, Tensor> {
        self.0.unwrap_or_default()
    }
}
