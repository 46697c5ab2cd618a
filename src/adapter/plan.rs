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

/// What the first backward pass of a run must give a trained parameter.
///
/// Several tensor operations drop gradients without an error, so every trained tensor is held to its expectation
/// once ([`crate::train::first_step`]); what the mathematics makes zero is declared with its reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirstGradient {
    /// Finite, and not zero everywhere.
    NonZero,
    /// Present and finite, but zero while the run is fresh: a factor behind a zero-initialised one.
    ZeroAtFirst(&'static str),
    /// Nothing reads what the parameter computes: absent, or zero everywhere.
    Never(&'static str),
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
