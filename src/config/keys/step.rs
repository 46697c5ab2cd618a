//! `train.*`, `loss.*`.

use super::Default::Is;
use super::Key;
use super::Kind::{Choice, Count, Switch};
use super::same;

pub(super) static KEYS: &[Key] = &[
    Key::new("train.steps", Count { min: 1 }, Is("30000"), "Optimizer steps.")
        .yaml(&[same("steps")])
        .yaml_default(Is("100000"))
        .also(&["epochs", "max_steps", "num_train_steps", "num_steps", "total_steps", "iterations"]),
    Key::new("train.batch_size", Count { min: 1 }, Is("8"), "Samples (frames) per micro-step and GPU.")
        .yaml(&[same("batch_size")])
        .also(&["per_device_train_batch_size", "batch", "micro_batch_size"]),
    Key::new("train.grad_accum", Count { min: 1 }, Is("1"), "Micro-steps per optimizer step.")
        .yaml(&[same("grad_accum_steps")])
        .also(&["gradient_accumulation_steps", "accumulation_steps", "accumulate_grad_batches"]),
    Key::new(
        "train.activation_checkpointing",
        Switch,
        Is("false"),
        "Keep only the inputs of every segment and recompute the rest in the backward pass: less memory, more time.",
    )
    .yaml(&[same("policy.gradient_checkpointing")])
    .also(&["gradient_checkpointing"]),
    Key::new(
        "train.rtc_max_delay",
        Count { min: 0 },
        Is("0"),
        "Most leading actions of a chunk that are given in training, for a hard prefix at inference (training-time RTC); 0: off.",
    )
    .yaml(&[same("policy.rtc_training_max_delay")])
    .also(&["rtc_training_max_delay"]),
    Key::new(
        "train.delay.max",
        Count { min: 0 },
        Is("0"),
        "Largest delay in frames of the temporal delay augmentation (VLASH); 0: off.",
    )
    .yaml(&[same("max_delay_steps")])
    .also(&["max_delay", "delay"]),
    Key::new(
        "train.delay.shared",
        Switch,
        Is("false"),
        "Train all delays of a frame over one prefix instead of a drawn one: train.delay.max + 1 chunks a sample; needs model.state_cond.",
    )
    .yaml(&[same("shared_observation")]),
    Key::new(
        "train.delay.ground_truth",
        Switch,
        Is("false"),
        "Give a delayed sample the recorded state instead of the action that precedes it.",
    )
    .yaml(&[same("use_state_ground_truth")]),
    Key::new(
        "loss.parity",
        Choice(&["valid", "openpi", "lerobot", "vlash"]),
        Is("\"valid\""),
        "Elements that the mean runs over: valid (real dimensions, steps inside of the episode), or as openpi, lerobot, vlash.",
    ),
];
