//! Bytes of the parameters at rest.

use super::network::F32;
use crate::adapter::plan::TrainPlan;
use crate::policy::arch::Arch;
use crate::policy::parameters::{ParameterSpec, linears, parameters, path};

/// The parameters of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counts {
    /// Of the network, without adapters.
    pub network: u64,
    /// That train: parameters in full and adapter factors.
    pub trained: u64,
    /// Of these, in adapter factors.
    pub factors: u64,
    /// Bytes of the frozen weights.
    pub frozen_bytes: u64,
    /// Tensors that train.
    pub tensors: u64,
}

/// Counts the parameters of `arch` under `plan`, frozen ones in `each` bytes a number where they may be.
pub(super) fn count(arch: &Arch, plan: &dyn TrainPlan, each: u64) -> Counts {
    let list = parameters(arch);
    let mut counts = Counts { network: 0, trained: 0, factors: 0, frozen_bytes: 0, tensors: 0 };
    for parameter in &list {
        let elements = parameter.elements() as u64;
        counts.network += elements;
        if plan.trains(&parameter.name) {
            counts.trained += elements;
            counts.tensors += 1;
        } else {
            counts.frozen_bytes += elements * if is_full_precision(&parameter.name) { F32 } else { each };
        }
    }
    let shape = |module: &str| list.iter().find(|p| p.name.strip_suffix(".weight") == Some(module));
    for module in linears(arch) {
        if let (Some(spec), Some(ParameterSpec { shape, .. })) = (plan.lora(&module), shape(&module)) {
            counts.factors += (spec.rank * shape.iter().sum::<usize>()) as u64;
            counts.tensors += 2;
        }
    }
    Counts { trained: counts.trained + counts.factors, ..counts }
}

/// What stays f32 whatever `model.dtype` says: everything but the linears of the three transformers, the projector
/// and the token embedding.
fn is_full_precision(name: &str) -> bool {
    let in_layer = name.contains(".self_attn.") || name.contains(".mlp.");
    !(in_layer || name.starts_with(path::PROJECTOR) || name == path::EMBED_TOKENS)
}
