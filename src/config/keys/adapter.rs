//! `adapter.*`: LoRA. `lora.*` is VLASH's block, `peft.*` LeRobot's.

use super::Default::{Absent, Is};
use super::Kind::{Choice, Count, Real, Switch, Texts};
use super::{BELOW_ONE, Key, POSITIVE, same, switch};

pub(super) static KEYS: &[Key] = &[
    Key::new("adapter.enabled", Switch, Is("false"), "Train low-rank adapters (LoRA) instead of the weights.")
        .yaml(&[same("lora.enable")])
        .also(&["lora", "use_lora", "lora.enabled"]),
    Key::new("adapter.rank", Count { min: 1 }, Is("16"), "Rank r of the adapters.")
        .yaml(&[same("lora.r"), same("peft.r")])
        .also(&["lora_rank", "lora_r"]),
    Key::new("adapter.alpha", Real(POSITIVE), Is("16.0"), "Adapters are scaled by alpha / rank.")
        .yaml(&[same("lora.alpha"), same("peft.lora_alpha")])
        .also(&["lora_alpha"]),
    Key::new("adapter.dropout", Real(BELOW_ONE), Is("0.0"), "Dropout on the input of the adapters.")
        .yaml(&[same("lora.dropout"), same("peft.lora_dropout")])
        .also(&["lora_dropout"]),
    Key::new("adapter.rslora", Switch, Is("false"), "Scale by alpha / √rank (rsLoRA).")
        .yaml(&[same("lora.use_rslora")])
        .also(&["use_rslora"]),
    Key::new(
        "adapter.targets",
        Texts,
        Is("[\"q_proj\", \"k_proj\", \"v_proj\", \"o_proj\", \"up_proj\", \"down_proj\", \"gate_proj\"]"),
        "Linear layers that get an adapter: their last name, or the end of their path.",
    )
    .yaml(&[same("lora.target_modules"), same("peft.target_modules")])
    .also(&["target_modules", "lora_targets"]),
    Key::new(
        "adapter.also_train",
        Texts,
        Is("[]"),
        "Parameters that train in full beside the adapters: every one whose name contains one of these.",
    )
    .yaml(&[same("lora.extra_trainable_modules"), same("peft.full_training_modules")])
    .also(&["modules_to_save", "extra_trainable_modules"]),
    Key::new(
        "adapter.quantize",
        Choice(&["nf4", "fp4"]),
        Absent,
        "Base weights in 4 bits (QLoRA); comes with a later version, any value is refused.",
    )
    .yaml(&[switch("lora.use_qlora", "nf4", "")])
    .also(&["use_qlora", "load_in_4bit"]),
    Key::ignored(
        &[same("lora.qlora_quant_type"), same("lora.qlora_compute_dtype")],
        "4-bit base weights come with a later version",
    ),
    Key::only(&[same("lora.backend")], &["peft"], "adapters follow PEFT's rules"),
    Key::only(&[same("peft.method_type")], &["lora"], "the only adapters are LoRA"),
    Key::only(&[same("peft.init_type")], &["null", "true"], "adapters start as PEFT's do: A random, B zero"),
];
