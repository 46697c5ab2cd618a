//! LoRA on any linear by PEFT's rules, extra trainable modules, merging, PEFT's file format.
//!
//! * [`select`]: which parameters of a network train, from the configuration → a [`plan::TrainPlan`];
//! * [`targets`]: PEFT's way of naming modules;
//! * [`peft`] and [`config`]: the adapter's two files;
//! * [`base`]: the identity of the weights that an adapter belongs to;
//! * [`merge`]: `W' = W + scale · B·A`, onto those weights and no others.
//!
//! Everything here speaks canonical names (LeRobot's without the leading `model.`); PEFT's prefixes exist only in
//! the files.

pub mod base;
pub mod config;
pub mod error;
pub mod merge;
pub mod peft;
pub mod plan;
pub mod select;
pub mod targets;
