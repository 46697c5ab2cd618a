//! `run.*`, `runtime.*`; and, behind the recipe, `checkpoint.*`, `validation.*`, `log.*`, `hub.*`.

use super::Default::{Absent, Follows, Is};
use super::Kind::{Choice, Count, Device, Episodes, Real, Switch, Text};
use super::{BELOW_ONE, Key, same, switch};

pub(super) static KEYS: &[Key] = &[
    Key::new("run.name", Text, Follows("model.kind"), "Name of the run.")
        .yaml(&[same("job_name")])
        .also(&["name", "run_name", "exp_name", "experiment"]),
    Key::new("run.dir", Text, Absent, "Run directory; not set: $SCRATCH/outputs/<name>, without $SCRATCH outputs/<name>.")
        .yaml(&[same("output_dir")])
        .also(&["output", "out_dir", "save_dir", "checkpoint_dir"]),
    Key::new("run.seed", Count { min: 0 }, Is("1000"), "Seed of every random number of the run.")
        .yaml(&[same("seed")])
        .also(&["random_seed"]),
    Key::new(
        "run.resume",
        Choice(&["auto", "always", "never"]),
        Is("\"auto\""),
        "auto: continue where the run directory has a checkpoint, else start; always: it must have one; never: it must be empty.",
    )
    .yaml(&[switch("resume", "always", "never"), switch("auto_resume", "auto", "never")]),
    Key::new("runtime.device", Device, Is("\"auto\""), "auto: a GPU where there is one; cpu; cuda, cuda:1: that GPU or an error.")
        .yaml(&[same("policy.device")])
        .also(&["device"]),
];

const TRACKING: &str =
    "tracking to Weights & Biases comes with a later version; the run directory records every metric";
const UPLOAD: &str = "it belongs to the upload, which comes with a later version";
const SIMULATION: &str = "there is no evaluation in simulation; validation.* holds episodes out";

pub(super) static OUTPUT: &[Key] = &[
    Key::new("checkpoint.enabled", Switch, Is("true"), "Write checkpoints.").yaml(&[same("save_checkpoint")]),
    Key::new(
        "checkpoint.every",
        Count { min: 1 },
        Is("1000"),
        "Optimizer steps between checkpoints; the last step has one, too.",
    )
    .yaml(&[same("save_freq")])
    .yaml_default(Is("20000"))
    .also(&["save_every", "save_interval", "save_steps"]),
    Key::new("checkpoint.keep_last", Count { min: 0 }, Is("3"), "How many of the newest stay; 0: all.")
        .yaml_default(Is("0"))
        .also(&["save_total_limit"]),
    Key::new(
        "checkpoint.keep_every",
        Count { min: 0 },
        Is("0"),
        "Checkpoints at multiples of this step always stay; 0: none.",
    ),
    Key::new("validation.fraction", Real(BELOW_ONE), Is("0.05"), "Share of the episodes that is held out; 0: none.")
        .yaml_default(Is("0.0"))
        .also(&["val_split", "val_fraction", "validation_split"]),
    Key::new("validation.episodes", Episodes, Absent, "Held-out episodes by number, in place of validation.fraction."),
    Key::new(
        "validation.every",
        Count { min: 0 },
        Is("500"),
        "Optimizer steps between validations; 0: only first and last.",
    )
    .also(&["eval_every", "val_freq"]),
    Key::new("validation.batches", Count { min: 1 }, Is("8"), "Batches per validation."),
    Key::new("log.every", Count { min: 1 }, Is("20"), "Optimizer steps between log lines.")
        .yaml(&[same("log_freq")])
        .yaml_default(Is("200"))
        .also(&["log_every", "log_interval", "logging_steps"]),
    Key::new(
        "hub.push",
        Switch,
        Is("false"),
        "Upload the trained policy; comes with a later version, true is refused.",
    )
    .yaml(&[same("policy.push_to_hub")])
    .also(&["push_to_hub"]),
    Key::new("hub.repo", Text, Absent, "owner/name to upload to.").yaml(&[same("policy.repo_id")]),
    Key::ignored(&[same("policy.private"), same("policy.tags"), same("policy.license")], UPLOAD),
    Key::ignored(
        &[
            same("wandb.enable"),
            same("wandb.disable_artifact"),
            same("wandb.project"),
            same("wandb.entity"),
            same("wandb.notes"),
            same("wandb.run_id"),
            same("wandb.mode"),
            same("wandb.add_tags"),
        ],
        TRACKING,
    ),
    Key::ignored(&[same("eval_freq"), same("env"), same("eval")], SIMULATION),
    Key::ignored(&[same("cudnn_deterministic")], "cuDNN is not used"),
    Key::ignored(&[same("checkpoint_path")], "the run directory says where its checkpoints are"),
    Key::only(&[same("use_rabc"), same("sample_weighting")], &["false", "null"], "sample weighting is not built"),
];
