//! LoRA on any linear by PEFT's rules, extra trainable modules, merging, PEFT's file format.

pub mod plan;
