//! `optim.*`, `schedule.*`. Defaults: the policy's preset (LeRobot, VLASH); see `NO_OPTIM_PRESET` for the others.

use super::Default::{Follows, Is};
use super::Kind::{Choice, Count, Real, Reals2, Spelled};
use super::{BELOW_ONE, Key, NOT_NEGATIVE, POSITIVE, same, switch, with_preset, without_preset};

pub(super) static KEYS: &[Key] = &[
    Key::new(
        "optim.preset",
        Choice(&["policy", "none"]),
        Is("\"policy\""),
        "Where unset optim.* and schedule.* come from: policy (the policy's recipe), none (AdamW 1e-3, constant).",
    )
    .yaml(&[switch("use_policy_training_preset", "policy", "none")]),
    Key::new("optim.lr", Real(POSITIVE), Is("2.5e-5"), "Learning rate.")
        .yaml(&[without_preset("optimizer.lr"), with_preset("policy.optimizer_lr")])
        .also(&["learning_rate", "max_lr", "base_lr"]),
    Key::new("optim.betas", Reals2(BELOW_ONE), Is("[0.9, 0.95]"), "AdamW's β₁ and β₂.")
        .yaml(&[without_preset("optimizer.betas"), with_preset("policy.optimizer_betas")])
        .also(&["adam_betas"]),
    Key::new("optim.eps", Real(POSITIVE), Is("1e-8"), "AdamW's ε, outside of the square root.")
        .yaml(&[without_preset("optimizer.eps"), with_preset("policy.optimizer_eps")])
        .also(&["adam_epsilon", "epsilon"]),
    Key::new("optim.weight_decay", Real(NOT_NEGATIVE), Is("0.01"), "Decoupled weight decay.")
        .yaml(&[without_preset("optimizer.weight_decay"), with_preset("policy.optimizer_weight_decay")])
        .also(&["wd"]),
    Key::new(
        "optim.grad_clip_norm",
        Real(NOT_NEGATIVE),
        Is("1.0"),
        "Limit of the global gradient norm; 0: no clipping.",
    )
    .yaml(&[without_preset("optimizer.grad_clip_norm"), with_preset("policy.optimizer_grad_clip_norm")])
    .also(&["max_grad_norm", "clip_grad_norm", "gradient_clip_val"]),
    Key::new(
        "schedule.kind",
        Spelled(
            &["cosine_decay_with_warmup", "constant_with_warmup", "constant"],
            &[("cosine", "cosine_decay_with_warmup"), ("none", "constant")],
        ),
        Is("\"cosine_decay_with_warmup\""),
        "cosine_decay_with_warmup, constant_with_warmup, constant.",
    )
    .yaml(&[without_preset("scheduler.type")])
    .also(&["lr_scheduler", "lr_scheduler_type", "scheduler"]),
    Key::new("schedule.warmup_steps", Count { min: 0 }, Is("1000"), "Steps over which the learning rate rises.")
        .yaml(&[without_preset("scheduler.num_warmup_steps"), with_preset("policy.scheduler_warmup_steps")])
        .also(&["warmup"]),
    Key::new(
        "schedule.decay_steps",
        Count { min: 1 },
        Is("30000"),
        "Step at which the cosine ends, counted from 0 with the warm-up; a shorter run shrinks both in proportion.",
    )
    .yaml(&[without_preset("scheduler.num_decay_steps"), with_preset("policy.scheduler_decay_steps")]),
    Key::new(
        "schedule.peak_lr",
        Real(POSITIVE),
        Follows("optim.lr"),
        "What decay_lr is a share of; the rate after the warm-up is optim.lr.",
    )
    .yaml(&[without_preset("scheduler.peak_lr")]),
    Key::new("schedule.decay_lr", Real(NOT_NEGATIVE), Is("2.5e-6"), "Learning rate at the end of the cosine.")
        .yaml(&[without_preset("scheduler.decay_lr"), with_preset("policy.scheduler_decay_lr")])
        .also(&["min_lr", "end_lr", "final_lr"]),
    Key::only(&[same("optimizer.type")], &["adamw"], "the optimizer is AdamW"),
];
