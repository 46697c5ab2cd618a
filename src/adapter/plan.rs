//! Which parameters train, and how.

/// How the adapter of one linear looks. `W' = W + scale · B·A`, A `[rank, in]`, B `[out, rank]`, both f32.
#[derive(Debug, Clone, PartialEq)]
pub struct LoraSpec {
    pub rank: usize,
    /// α/r, or α/√r with rsLoRA.
    pub scale: f64,
    /// Dropout probability on the input of A while training.
    pub dropout: f64,
}

/// Decides, by name, what trains. The network asks it while it is built.
///
/// Names are canonical (LeRobot's without `model.`): `module` is a linear's path without `.weight`,
/// `parameter` a whole tensor name.
pub trait TrainPlan {
    /// The adapter for the linear at `module`; none: no adapter.
    fn lora(&self, module: &str) -> Option<LoraSpec>;
    /// Whether the plain parameter trains (f32 master, f32 gradient).
    fn trains(&self, parameter: &str) -> bool;
    /// Seed of the run, for initial adapter weights.
    fn seed(&self) -> u64;
}

/// Nothing trains: inference.
pub struct Frozen;

impl TrainPlan for Frozen {
    fn lora(&self, _module: &str) -> Option<LoraSpec> {
        None
    }
    fn trains(&self, _parameter: &str) -> bool {
        false
    }
    fn seed(&self) -> u64 {
        0
    }
}

/// Every parameter trains: full fine-tuning, and gradient parity tests.
pub struct Everything;

impl TrainPlan for Everything {
    fn lora(&self, _module: &str) -> Option<LoraSpec> {
        None
    }
    fn trains(&self, _parameter: &str) -> bool {
        true
    }
    fn seed(&self) -> u64 {
        0
    }
}
