//! A policy as the inference worker calls it: observation in, a chunk of commands out.

use std::sync::Arc;
use std::time::Duration;

use crate::error::{Explain, Kind};
use crate::robot::Frame;

/// What a policy was made for.
#[derive(Debug, Clone, PartialEq)]
pub struct PolicyFacts {
    /// Actions a chunk, H.
    pub horizon: usize,
    /// Values of an action, and of a state.
    pub action_dim: usize,
    pub state_dim: usize,
    /// Motors in order, where the policy's features name them.
    pub joints: Option<Vec<String>>,
    /// Cameras by name, without `observation.images.`, in the policy's order.
    pub cameras: Vec<String>,
    /// Largest delay in steps that it was trained with; 0: none.
    pub trained_delay: usize,
    /// Largest number of leading actions that it was trained to take as given (training-time RTC); 0: none.
    pub rtc_trained_delay: usize,
    /// Lowest and highest action of the training data by joint, where known: tells wrong units.
    pub action_range: Option<Vec<[f32; 2]>>,
}

/// How a chunk is tied to the one before it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Continuity {
    /// Not at all.
    Free,
    /// Real-time chunking: denoising is guided towards what is left of the old chunk (arXiv 2506.07339).
    Rtc(Guidance),
    /// The leading actions are given, as in training (training-time RTC, arXiv 2512.05964).
    Prefix,
}

/// Settings of real-time chunking.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Guidance {
    /// Steps over which the old chunk has influence.
    pub execution_horizon: usize,
    pub max_weight: f64,
    pub schedule: GuidanceSchedule,
    /// Whether the true Jacobian of the predicted chunk is used; else it counts as the identity, which needs no backward
    /// pass (what LeRobot's released code computes).
    pub full_jacobian: bool,
}

/// How guidance falls between the delay and the execution horizon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuidanceSchedule {
    Zeros,
    Ones,
    Linear,
    Exponential,
}

/// What is left of the old chunk, aligned so that its row 0 is for step 0 of the new one.
#[derive(Debug, Clone, PartialEq)]
pub struct Leftover {
    /// `[rows, action_dim]`, raw units.
    pub actions: Vec<f32>,
    /// Steps of the new chunk that will have passed when it arrives.
    pub delay: usize,
}

/// One observation, and what the new chunk has to fit.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// By camera, in the order of [`PolicyFacts::cameras`].
    pub images: Vec<Frame>,
    /// The state that the policy is told, raw units: measured, or that of the future.
    pub state: Vec<f32>,
    pub task: Arc<str>,
    /// Denoising begins from noise that is a function of this.
    pub noise_seed: u64,
    pub continuity: Continuity,
    pub leftover: Option<Leftover>,
}

/// A chunk.
#[derive(Debug, Clone, PartialEq)]
pub struct Inferred {
    /// `[H, action_dim]`, raw units.
    pub actions: Vec<f32>,
    pub timing: Timing,
}

/// Where the time of an inference went.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Timing {
    pub preprocess: Duration,
    /// Vision tower and prefix.
    pub prefix: Duration,
    pub denoise: Duration,
    /// To the host.
    pub copy: Duration,
}

impl Timing {
    /// Of the whole call.
    pub fn total(&self) -> Duration {
        self.preprocess + self.prefix + self.denoise + self.copy
    }
}

/// An inference that gave no chunk.
#[derive(Debug, thiserror::Error)]
#[error("inference failed: {reason}")]
pub struct InferError {
    pub reason: String,
    pub kind: Kind,
}

impl Explain for InferError {
    fn kind(&self) -> Kind {
        self.kind
    }
}

/// What turns observations into chunks. Called by one thread at a time.
pub trait ChunkPolicy: Send {
    fn facts(&self) -> &PolicyFacts;

    /// # Errors
    /// [`InferError`]; the policy stays usable.
    fn infer(&mut self, request: &Request) -> Result<Inferred, InferError>;
}
