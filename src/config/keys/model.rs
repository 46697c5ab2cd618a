//! `model.*`.

use super::Default::{Absent, Follows, Is};
use super::Kind::{Choice, Choices, Count, Counts2, Real, Spelled, Switch, Text, Texts};
use super::{Key, NOT_NEGATIVE, POSITIVE, adds, same};

const DTYPES: super::Kind =
    Spelled(&["bfloat16", "float32"], &[("bf16", "bfloat16"), ("f32", "float32"), ("fp32", "float32")]);

const FUSED: &str = "the engine always fuses what can be fused and compiles nothing at run time";
const MEMORY: &str = "visual and proprioceptive memory is not part of this program";
const SIZES: &str = "the sizes of the network follow model.preset";

pub(super) static KEYS: &[Key] = &[
    Key::new("model.kind", Choice(&["pi05", "pi0"]), Is("\"pi05\""), "The policy: pi05 (π₀.₅) or pi0 (π₀).")
        .yaml(&[same("policy.type")])
        .also(&["policy", "policy_type", "model_type"]),
    Key::new(
        "model.preset",
        Choice(&["full", "small", "tiny"]),
        Is("\"full\""),
        "Sizes of the network: full (Gemma-2B, Gemma-300M, SigLIP So400m), small (the simulated task), or tiny for tests and first steps.",
    ),
    Key::new("model.base", Text, Absent, "Checkpoint directory to start from; not set: random weights.")
        .yaml(&[same("policy.pretrained_path"), same("policy.path")])
        .also(&["pretrained", "pretrained_model", "checkpoint", "base_model"]),
    Key::new(
        "model.tokenizer",
        Text,
        Absent,
        "Directory with tokenizer.json; not set: beside model.base (the presets small and tiny have one built in).",
    )
    .also(&["tokenizer_name", "tokenizer_path"]),
    Key::new("model.dtype", DTYPES, Is("\"bfloat16\""), "Type of the frozen weights: bfloat16 or float32.")
        .yaml(&[same("policy.dtype")])
        .also(&["precision", "mixed_precision"]),
    Key::new(
        "model.state_cond",
        Switch,
        Is("false"),
        "Condition the action expert on the state (VLASH) instead of writing the state into the prompt.",
    )
    .yaml(&[same("policy.state_cond")]),
    Key::new("model.chunk_size", Count { min: 1 }, Is("50"), "Actions that are predicted at once.")
        .yaml(&[same("policy.chunk_size")])
        .also(&["horizon", "action_horizon", "action_chunk_size"]),
    Key::new(
        "model.n_action_steps",
        Count { min: 1 },
        Follows("model.chunk_size"),
        "Actions of a chunk that are executed; recorded for inference.",
    )
    .yaml(&[same("policy.n_action_steps")]),
    Key::new("model.max_state_dim", Count { min: 1 }, Is("32"), "Width to which states are padded.")
        .yaml(&[same("policy.max_state_dim")])
        .also(&["state_dim"]),
    Key::new("model.max_action_dim", Count { min: 1 }, Is("32"), "Width to which actions are padded.")
        .yaml(&[same("policy.max_action_dim")])
        .also(&["action_dim"]),
    Key::new("model.num_inference_steps", Count { min: 1 }, Is("10"), "Euler steps of the sampler.")
        .yaml(&[same("policy.num_inference_steps")])
        .also(&["num_steps", "denoising_steps"]),
    Key::new(
        "model.time_sampling_beta_alpha",
        Real(POSITIVE),
        Is("1.5"),
        "Flow times are drawn from Beta(alpha, beta) · scale + offset.",
    )
    .yaml(&[same("policy.time_sampling_beta_alpha")]),
    Key::new("model.time_sampling_beta_beta", Real(POSITIVE), Is("1.0"), "See time_sampling_beta_alpha.")
        .yaml(&[same("policy.time_sampling_beta_beta")]),
    Key::new("model.time_sampling_scale", Real(POSITIVE), Is("0.999"), "See time_sampling_beta_alpha.")
        .yaml(&[same("policy.time_sampling_scale")]),
    Key::new("model.time_sampling_offset", Real(NOT_NEGATIVE), Is("0.001"), "See time_sampling_beta_alpha.")
        .yaml(&[same("policy.time_sampling_offset")]),
    Key::new("model.min_period", Real(POSITIVE), Is("4e-3"), "Shortest period of the time embedding.")
        .yaml(&[same("policy.min_period")]),
    Key::new("model.max_period", Real(POSITIVE), Is("4.0"), "Longest period of the time embedding.")
        .yaml(&[same("policy.max_period")]),
    Key::new(
        "model.image_resolution",
        Counts2,
        Is("[224, 224]"),
        "Height and width in pixels of what the vision tower sees: [224, 224], with the preset small [112, 112], with tiny [56, 56].",
    )
    .yaml(&[same("policy.image_resolution")])
    .also(&["image_size", "resolution"]),
    Key::new(
        "model.empty_cameras",
        Count { min: 0 },
        Is("0"),
        "Cameras of the policy that may be without data; they are masked.",
    )
    .yaml(&[same("policy.empty_cameras")]),
    Key::new(
        "model.tokenizer_max_length",
        Count { min: 1 },
        Is("200"),
        "Prompt length in tokens; shorter ones are padded.",
    )
    .yaml(&[same("policy.tokenizer_max_length")])
    .also(&["max_token_len", "max_length"]),
    Key::new("model.freeze", Choices(&["vision", "vlm"]), Is("[]"), "Parts that do not train: vision, vlm.")
        .yaml(&[adds("policy.freeze_vision_encoder", "vision"), adds("policy.train_expert_only", "vlm")])
        .also(&["freeze_vision", "freeze_vlm"]),
    Key::new(
        "model.allow_new",
        Texts,
        Is("[]"),
        "Tensors that may be missing from model.base and start anew (--allow-new).",
    ),
    Key::ignored(
        &[
            same("policy.compile_model"),
            same("policy.compile_mode"),
            same("policy.fuse_qkv"),
            same("policy.fuse_gate_up"),
        ],
        FUSED,
    ),
    Key::ignored(
        &[same("policy.input_features"), same("policy.output_features"), same("policy.action_feature_names")],
        "features are read from the dataset",
    ),
    Key::ignored(&[same("policy.use_amp")], "precision follows policy.dtype; what trains is always float32"),
    Key::ignored(&[same("policy.use_peft")], "adapters follow lora.* or peft.*"),
    Key::ignored(&[same("policy.rtc_config")], "real-time chunking is a matter of inference"),
    Key::ignored(&[same("policy.relative_exclude_joints")], "it belongs to relative actions, which are refused"),
    Key::ignored(
        &[same("policy.memory_frames"), same("policy.memory_stride"), same("policy.memory_temporal_attention_every")],
        "they belong to the memory, which is refused",
    ),
    Key::only(&[same("policy.n_obs_steps")], &["1"], "π₀.₅ sees one observation at a time"),
    Key::only(&[same("policy.paligemma_variant")], &["gemma_2b"], SIZES),
    Key::only(&[same("policy.action_expert_variant")], &["gemma_300m"], SIZES),
    Key::only(&[same("policy.vlm_config"), same("policy.action_expert_config")], &["null"], SIZES),
    Key::only(
        &[same("policy.use_relative_actions")],
        &["false"],
        "relative actions are not built; the dataset's actions are learned as they are",
    ),
    Key::only(&[same("policy.use_visual_memory"), same("policy.use_proprioceptive_memory")], &["false"], MEMORY),
];
