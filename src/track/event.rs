//! What a run reports, one JSON object a line in `events.jsonl`.

use serde::{Deserialize, Serialize};

/// One line of `events.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Seconds since the Unix epoch.
    pub time: f64,
    #[serde(flatten)]
    pub body: Body,
}

/// The content of an event. Readers skip kinds that they do not know.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Body {
    /// A process began (or resumed at `step` > 0) this run.
    Started { step: u64, steps: u64, pid: u32, host: String, version: String, resumed_from: Option<String> },
    /// The account of loaded weights (one sentence) and the trained share.
    Weights { account: String, parameters: u64, trained: u64 },
    /// An optimizer step, averaged over the logging window that ends with it.
    Step(StepMetrics),
    /// Held-out losses after `step` optimizer steps.
    Validation(ValidationMetrics),
    /// A checkpoint is complete.
    Checkpoint { step: u64, path: String, bytes: u64, seconds: f64 },
    /// A checkpoint could not be written; training goes on.
    CheckpointFailed { step: u64, reason: String, last_good: Option<String>, next_step: u64 },
    /// A control request was read.
    CommandSeen { id: String, command: String, step: u64 },
    /// A control request was carried out.
    CommandDone { id: String, command: String, step: u64, detail: String },
    /// A control request was refused.
    CommandRefused { id: String, command: String, step: u64, reason: String },
    /// Anything a person should read.
    Notice { level: Level, text: String },
    /// The process left this run.
    Ended { step: u64, outcome: Outcome, detail: String, checkpoint: Option<String> },
}

/// Losses and rates of a training step. Losses without unit; gradient norm before clipping.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StepMetrics {
    /// Optimizer steps done (the first step reports 1).
    pub step: u64,
    /// By the configured definition (`loss.parity`).
    #[serde(deserialize_with = "nan_if_null")]
    pub loss: f64,
    /// Mean over valid elements, comparable between datasets.
    #[serde(deserialize_with = "nan_if_null")]
    pub loss_valid: f64,
    #[serde(deserialize_with = "nan_if_null")]
    pub grad_norm: f64,
    pub lr: f64,
    pub epoch: f64,
    /// Samples seen since the run began: frames, each once however many delays of it are trained.
    pub samples: u64,
    pub samples_per_s: f64,
    /// Chunks trained a second where a sample has several, one for each delay (`train.delay.shared`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunks_per_s: Option<f64>,
    /// `loss_valid` by delay offset 0, 1, …, of a run that trains delays; none where no valid step of the delay was seen.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub loss_by_delay: Vec<Option<f64>>,
    /// Wall seconds of one optimizer step and of its parts.
    pub step_s: f64,
    pub data_s: f64,
    pub forward_s: f64,
    pub backward_s: f64,
    pub optimizer_s: f64,
    /// Peak resident memory of the process in bytes.
    pub memory_bytes: u64,
    /// Of the GPU that computes; none on the CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_memory: Option<GpuMemory>,
}

/// Bytes of a GPU's memory, as its driver counts them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuMemory {
    /// In use by whoever.
    pub used: u64,
    /// The most of it that was in use while this run went on: by the run, and by others beside it.
    pub peak: u64,
    pub total: u64,
}

/// Held-out losses. All by the valid-element definition.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ValidationMetrics {
    pub step: u64,
    #[serde(deserialize_with = "nan_if_null")]
    pub loss: f64,
    /// What predicting zero velocity gives on the same batches.
    pub zero_velocity: f64,
    /// The loss when observations are shuffled between samples.
    pub shuffled: Option<f64>,
    /// By delay offset 0, 1, …, of a run that trains delays; none where no valid step of the delay is held out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub loss_by_delay: Vec<Option<f64>>,
    /// Frames.
    pub samples: u64,
    pub seconds: f64,
}

/// How much a notice matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    Info,
    Warn,
    Error,
}

/// How a process left its run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// All steps done.
    Finished,
    /// Stopped on request or by a signal, with a checkpoint: resumable.
    Stopped,
    Failed,
}

/// JSON has no NaN: `serde_json` writes a non-finite number as `null`, which is read back as NaN.
fn nan_if_null<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::<f64>::deserialize(deserializer)?.unwrap_or(f64::NAN))
}
