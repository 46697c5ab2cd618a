//! From the configuration and a network's names to the plan of what trains.

use std::collections::{BTreeMap, BTreeSet};

use super::error::AdapterError;
use super::plan::{LoraSpec, TrainPlan};
use super::targets::{IN_MEMORY, Targets, owner, parameters_containing};
use crate::config::train::{AdapterConfig, Freeze};

const VISION: &str = "paligemma_with_expert.paligemma.model.vision_tower.";
const VLM: &str = "paligemma_with_expert.paligemma.";

/// What trains in one network, decided once, by name.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Adapter per adapted linear.
    lora: BTreeMap<String, LoraSpec>,
    /// Parameters that train in full.
    full: BTreeSet<String>,
    /// Modules that train in full beside adapters: PEFT's `modules_to_save`.
    saved_modules: BTreeSet<String>,
    seed: u64,
}

impl TrainPlan for Plan {
    fn lora(&self, module: &str) -> Option<LoraSpec> {
        self.lora.get(module).cloned()
    }
    fn trains(&self, parameter: &str) -> bool {
        self.full.contains(parameter)
    }
    fn seed(&self) -> u64 {
        self.seed
    }
}

impl Plan {
    /// A plan that gives each module of `lora` its adapter and trains `full` beside, for adapters read from files.
    pub fn from_parts(lora: BTreeMap<String, LoraSpec>, full: BTreeSet<String>, seed: u64) -> Self {
        let saved_modules = full.iter().map(|parameter| owner(parameter).to_string()).collect();
        Self { lora, full, saved_modules, seed }
    }

    /// The adapted linears, sorted.
    pub fn adapted(&self) -> impl Iterator<Item = &str> {
        self.lora.keys().map(String::as_str)
    }

    /// The modules that train in full beside adapters, sorted; none in full fine-tuning.
    pub fn saved_modules(&self) -> impl Iterator<Item = &str> {
        self.saved_modules.iter().map(String::as_str)
    }

    /// The names of every tensor that trains: both factors of each adapter, and the parameters in full.
    pub fn trained(&self) -> BTreeSet<String> {
        let factors = self.lora.keys().flat_map(|module| [factor_a(module), factor_b(module)]);
        factors.chain(self.full.iter().cloned()).collect()
    }
}

/// The canonical name of a linear's first factor, `[rank, in]`.
pub fn factor_a(module: &str) -> String {
    format!("{module}.lora_A.weight")
}

/// The canonical name of a linear's second factor, `[out, rank]`.
pub fn factor_b(module: &str) -> String {
    format!("{module}.lora_B.weight")
}

/// Decides what trains in a network with the linears `modules` and the tensors `parameters` (canonical names), of
/// which the parts `freeze` (`model.freeze`) stay as they are.
///
/// With adapters: a factor pair on every target that is not frozen, and in full the modules that own a parameter
/// named by `also_train`; those carry no adapter, as in PEFT. Without: everything that is not frozen.
///
/// # Errors
/// A setting out of range, an entry that matches nothing, or a plan in which nothing trains.
pub fn plan_for(
    config: &AdapterConfig,
    freeze: &[Freeze],
    seed: u64,
    modules: &[String],
    parameters: &[String],
) -> Result<Plan, AdapterError> {
    let frozen = |name: &str| is_frozen(freeze, name);
    let plan = if config.enabled {
        adapters(config, seed, modules, parameters, &frozen)?
    } else {
        let full = parameters.iter().filter(|parameter| !frozen(parameter)).cloned().collect();
        Plan { lora: BTreeMap::new(), full, saved_modules: BTreeSet::new(), seed }
    };
    if plan.lora.is_empty() && plan.full.is_empty() {
        let reason = match (config.enabled, freeze.is_empty()) {
            (_, false) => "model.freeze excludes every candidate",
            (true, true) => "adapter.targets and adapter.also_train name nothing of this policy",
            (false, true) => "the network has no parameters",
        };
        return Err(AdapterError::NothingTrains { reason: reason.to_string() });
    }
    Ok(plan)
}

fn adapters(
    config: &AdapterConfig,
    seed: u64,
    modules: &[String],
    parameters: &[String],
    frozen: &dyn Fn(&str) -> bool,
) -> Result<Plan, AdapterError> {
    let spec = spec(config)?;
    let saved_modules = saved_modules(config, parameters, frozen)?;
    let targets = Targets::from_config(&config.targets)?;
    let lora = targets
        .select(modules)?
        .into_iter()
        .filter(|module| !frozen(module) && !is_saved(&saved_modules, module))
        .map(|module| (module.to_string(), spec.clone()))
        .collect();
    let full = parameters.iter().filter(|parameter| saved_modules.contains(owner(parameter))).cloned().collect();
    Ok(Plan { lora, full, saved_modules, seed })
}

/// The adapter that the settings describe. Scale: α/r, or α/√r (Kalajdzievski, *rsLoRA*).
fn spec(config: &AdapterConfig) -> Result<LoraSpec, AdapterError> {
    let refuse = |key, problem: String| Err(AdapterError::Setting { key, problem });
    if config.rank == 0 {
        return refuse("rank", "is 0; it must be at least 1".to_string());
    }
    if !(config.alpha.is_finite() && config.alpha > 0.0) {
        return refuse("alpha", format!("is {}; it must be a number above 0", config.alpha));
    }
    if !(0.0..1.0).contains(&config.dropout) {
        return refuse("dropout", format!("is {}; it must be at least 0 and below 1", config.dropout));
    }
    Ok(LoraSpec { rank: config.rank, scale: scale(config.alpha, config.rank, config.rslora), dropout: config.dropout })
}

/// What `B·A` is multiplied by.
pub fn scale(alpha: f64, rank: usize, rslora: bool) -> f64 {
    let rank = rank as f64;
    alpha / if rslora { rank.sqrt() } else { rank }
}

fn saved_modules(
    config: &AdapterConfig,
    parameters: &[String],
    frozen: &dyn Fn(&str) -> bool,
) -> Result<BTreeSet<String>, AdapterError> {
    let mut saved = BTreeSet::new();
    for entry in &config.also_train {
        if entry.trim().is_empty() {
            let problem = "holds an empty entry, which would match every parameter".to_string();
            return Err(AdapterError::Setting { key: "also_train", problem });
        }
        let found = parameters_containing(entry, parameters)?;
        let free: Vec<&str> = found.iter().copied().filter(|parameter| !frozen(parameter)).collect();
        if let (Some(first), true) = (found.first(), free.is_empty()) {
            let first = first.to_string();
            return Err(AdapterError::Frozen { key: "also_train", entry: entry.clone(), first });
        }
        saved.extend(free.into_iter().map(|parameter| owner(parameter).to_string()));
    }
    Ok(saved)
}

/// Whether `module` is one of `saved` or lies inside one.
fn is_saved(saved: &BTreeSet<String>, module: &str) -> bool {
    let mut path = Some(module);
    while let Some(here) = path {
        if saved.contains(here) {
            return true;
        }
        path = here.rsplit_once('.').map(|(outer, _)| outer);
    }
    false
}

/// Whether `model.freeze` excludes a module or parameter: `vision` is the vision tower, `vlm` all of PaliGemma with
/// the tower and the projector (LeRobot's `freeze_vision_encoder` and `train_expert_only`).
fn is_frozen(freeze: &[Freeze], name: &str) -> bool {
    freeze.iter().any(|part| {
        name.starts_with(match part {
            Freeze::Vision => VISION,
            Freeze::Vlm => VLM,
        })
    })
}

/// The name that PEFT and LeRobot give a canonical module or parameter.
pub fn in_memory(name: &str) -> String {
    format!("{IN_MEMORY}{name}")
}

#[cfg(test)]
#[path = "select_tests.rs"]
pub(super) mod tests;
