//! Merging: the adapter's change added to the weights that it was trained on.
//!
//! A merge runs over the tensors of a stored checkpoint, one at a time, so that a policy larger than memory can be
//! merged from file to file. There is no way to start it from weights that were merely initialised: it wants the
//! identity of a checkpoint's weights, compares it with the one the adapter carries, and ends in an error when some
//! part of the adapter found no tensor to go to.

use std::collections::BTreeSet;

use candle_core::{DType, Tensor};

use super::base::{BaseIdentity, shortened};
use super::error::{AdapterError, listed};
use super::peft::{Adapter, Factors};

/// Whether another base than the adapter's own is accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BasePolicy {
    /// Only the weights that the adapter was trained on.
    Same,
    /// Any weights of fitting shapes (`--force-base`).
    Forced,
}

/// A merge under way.
#[derive(Debug)]
pub struct Merge<'a> {
    adapter: &'a Adapter,
    /// Canonical tensor names that the adapter changes and that have not come by.
    pending: BTreeSet<String>,
    verified: bool,
}

impl<'a> Merge<'a> {
    /// Begins merging `adapter` onto the checkpoint with the identity `base`.
    ///
    /// # Errors
    /// [`AdapterError::OtherBase`] when the adapter was trained on other weights and `policy` wants the same.
    pub fn onto(adapter: &'a Adapter, base: &BaseIdentity, policy: BasePolicy) -> Result<Self, AdapterError> {
        let verified = adapter.base.as_ref().is_some_and(|own| own.sha256 == base.sha256);
        if let (Some(own), false, BasePolicy::Same) = (&adapter.base, verified, policy) {
            return Err(AdapterError::OtherBase {
                adapter: adapter.label.clone(),
                trained_on: own.to_string(),
                found: shortened(&base.sha256).to_string(),
            });
        }
        let weights = adapter.factors.keys().map(|module| weight_of(module));
        Ok(Self { adapter, pending: weights.chain(adapter.saved.keys().cloned()).collect(), verified })
    }

    /// Whether the base is known to be the adapter's own. False for a forced merge, and for an adapter that does not
    /// record its base.
    pub fn verified(&self) -> bool {
        self.verified
    }

    /// The merged form of the base's tensor `name` (canonical), in the base's dtype; unchanged when the adapter does
    /// not touch it. W' = W + scale · B·A is computed in f32.
    pub fn tensor(&mut self, name: &str, base: &Tensor) -> Result<Tensor, AdapterError> {
        let fits = |dims: &[usize]| match base.dims() == dims {
            true => Ok(()),
            false => Err(AdapterError::BaseShape {
                name: name.to_string(),
                base: base.dims().to_vec(),
                adapter: dims.to_vec(),
            }),
        };
        let failed = |source| AdapterError::Tensor { name: name.to_string(), source };
        let merged = if let Some(saved) = self.adapter.saved.get(name) {
            fits(saved.dims())?;
            saved.to_dtype(base.dtype()).and_then(|saved| saved.to_device(base.device())).map_err(failed)?
        } else if let Some((module, factors)) = self.factors_of(name) {
            fits(&[factors.b.dim(0).map_err(failed)?, factors.a.dim(1).map_err(failed)?])?;
            added(base, factors, self.adapter.config.spec(module).scale).map_err(failed)?
        } else {
            return Ok(base.clone());
        };
        self.pending.remove(name);
        Ok(merged)
    }

    /// Ends the merge.
    ///
    /// # Errors
    /// [`AdapterError::NotInBase`] when the base had no tensor for a part of the adapter.
    pub fn finish(self) -> Result<(), AdapterError> {
        match self.pending.is_empty() {
            true => Ok(()),
            false => {
                let names: Vec<String> = self.pending.into_iter().collect();
                Err(AdapterError::NotInBase { count: names.len(), first: listed(&names) })
            }
        }
    }

    fn factors_of<'n>(&self, name: &'n str) -> Option<(&'n str, &'a Factors)> {
        let module = name.strip_suffix(".weight")?;
        Some((module, self.adapter.factors.get(module)?))
    }
}

fn weight_of(module: &str) -> String {
    format!("{module}.weight")
}

fn added(base: &Tensor, factors: &Factors, scale: f64) -> candle_core::Result<Tensor> {
    let on = |factor: &Tensor| factor.to_device(base.device());
    let change = (on(&factors.b)?.matmul(&on(&factors.a)?)? * scale)?;
    (base.to_dtype(DType::F32)? + change)?.to_dtype(base.dtype())
}

#[cfg(test)]
#[path = "merge_tests.rs"]
mod tests;
