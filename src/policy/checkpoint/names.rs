//! Stored names to canonical ones, by one table.
//!
//! Canonical names are LeRobot's without the leading `model.` (see [`crate::policy::parameters`]). What differs
//! between writers: wrapper prefixes (`model.`, `module.`, `_orig_mod.`), the nesting of older and newer
//! transformers releases, and whole layouts of other projects.

use std::collections::BTreeMap;

use crate::config::train::PolicyKind;
use crate::policy::arch::Arch;
use crate::policy::parameters::path;

/// How one project names the tensors of a policy.
#[derive(Debug)]
pub struct Layout {
    pub name: &'static str,
    /// A path component that only this layout has; what stands before it is a wrapper's prefix.
    anchor: &'static str,
    /// Beginnings of un-prefixed names, rewritten in turn; none: recognised, but not read by this version.
    renames: Option<&'static [(&'static str, &'static str)]>,
}

/// The layouts that are told apart, most telling first.
static LAYOUTS: [Layout; 2] = [
    Layout {
        name: "LeRobot",
        anchor: "paligemma_with_expert.",
        renames: Some(&[
            // transformers before 4.52 nested the parts without an inner `model.`.
            ("paligemma_with_expert.paligemma.language_model.lm_head.", "paligemma_with_expert.paligemma.lm_head."),
            (
                "paligemma_with_expert.paligemma.language_model.model.",
                "paligemma_with_expert.paligemma.model.language_model.",
            ),
            ("paligemma_with_expert.paligemma.vision_tower.", "paligemma_with_expert.paligemma.model.vision_tower."),
            (
                "paligemma_with_expert.paligemma.multi_modal_projector.",
                "paligemma_with_expert.paligemma.model.multi_modal_projector.",
            ),
            // Releases that dropped the `vision_model.` level.
            (
                "paligemma_with_expert.paligemma.model.vision_tower.embeddings.",
                "paligemma_with_expert.paligemma.model.vision_tower.vision_model.embeddings.",
            ),
            (
                "paligemma_with_expert.paligemma.model.vision_tower.encoder.",
                "paligemma_with_expert.paligemma.model.vision_tower.vision_model.encoder.",
            ),
            (
                "paligemma_with_expert.paligemma.model.vision_tower.post_layernorm.",
                "paligemma_with_expert.paligemma.model.vision_tower.vision_model.post_layernorm.",
            ),
        ]),
    },
    Layout { name: "VLASH", anchor: "suffix_embedder.", renames: None },
];

/// Names of π₀ that π₀.₅ files of early converters kept.
const PI05_RENAMES: [(&str, &str); 2] =
    [("action_time_mlp_in.", "time_mlp_in."), ("action_time_mlp_out.", "time_mlp_out.")];

/// What was recognised in the names of a checkpoint.
#[derive(Debug)]
pub struct Recognised {
    pub layout: &'static Layout,
    /// The wrapper's prefix; may be empty.
    pub prefix: String,
    /// How many names had it.
    pub prefixed: usize,
    /// Canonical name → stored names that mean it (more than one when a tensor is stored twice).
    pub names: BTreeMap<String, Vec<String>>,
}

/// torch.compile's wrapper, which may stand anywhere in a path.
const COMPILED: &str = "_orig_mod.";

/// Recognises the layout of `stored` names and translates them; none when no layout fits.
pub fn recognise<'a>(stored: impl Iterator<Item = &'a String> + Clone, kind: PolicyKind) -> Option<Recognised> {
    let layout =
        LAYOUTS.iter().find(|layout| stored.clone().any(|name| at_component(name, layout.anchor).is_some()))?;
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for name in stored.clone() {
        let plain = name.replace(COMPILED, "");
        if let Some(at) = at_component(&plain, layout.anchor) {
            *counts.entry(plain[..at].to_owned()).or_default() += 1;
        }
    }
    let prefix = counts.into_iter().max_by_key(|(_, count)| *count).map(|(prefix, _)| prefix).unwrap_or_default();
    let mut recognised = Recognised { layout, prefix, prefixed: 0, names: BTreeMap::new() };
    for name in stored {
        let plain = name.replace(COMPILED, "");
        let bare = match plain.strip_prefix(&recognised.prefix) {
            Some(bare) if !recognised.prefix.is_empty() => {
                recognised.prefixed += 1;
                bare
            }
            _ => &plain,
        };
        recognised.names.entry(canonical(bare, layout, kind)).or_default().push(name.clone());
    }
    Some(recognised)
}

impl Layout {
    /// This version reads checkpoints of the layout.
    pub fn is_read(&self) -> bool {
        self.renames.is_some()
    }
}

/// Where `anchor` begins in `name`, as whole path components.
fn at_component(name: &str, anchor: &str) -> Option<usize> {
    name.match_indices(anchor).map(|(at, _)| at).find(|&at| at == 0 || name.as_bytes().get(at - 1) == Some(&b'.'))
}

fn canonical(bare: &str, layout: &Layout, kind: PolicyKind) -> String {
    let mut name = bare.to_owned();
    let early = if kind == PolicyKind::Pi05 { PI05_RENAMES.as_slice() } else { &[] };
    for (from, to) in layout.renames.unwrap_or_default().iter().chain(early) {
        if let Some(rest) = name.strip_prefix(from) {
            name = format!("{to}{rest}");
        }
    }
    name
}

/// Why a tensor that the policy has no place for may be left alone; none: it may not.
pub fn ignorable(canonical: &str, arch: &Arch) -> Option<&'static str> {
    const STATISTICS: [&str; 7] = [
        "normalize_inputs.",
        "normalize_targets.",
        "unnormalize_outputs.",
        "normalize.",
        "unnormalize.",
        "input_normalizer.",
        "output_normalizer.",
    ];
    if canonical == path::LM_HEAD {
        return Some("the embedding is used");
    }
    if canonical == path::EXPERT_LM_HEAD || canonical.strip_prefix(path::EXPERT) == Some(".embed_tokens.weight") {
        return Some("the action expert reads and writes no text");
    }
    if canonical.ends_with(".position_ids") || canonical.ends_with(".inv_freq") {
        return Some("a computed constant");
    }
    if STATISTICS.iter().any(|prefix| canonical.starts_with(prefix)) {
        return Some("normalisation statistics");
    }
    // With `state_cond` a lone state_proj is a leftover too: the branch is only whole with its two further layers.
    if canonical.starts_with("state_proj.") && arch.kind == PolicyKind::Pi05 {
        return Some("π₀'s state projection");
    }
    None
}

/// The fused tensor that may hold `canonical`, with the parts stacked in it in order.
///
/// Rows are stacked q, k, v and gate, up (VLASH's `fuse_qkv`, `fuse_gate_up`; vLLM's names).
pub fn fused(canonical: &str) -> Option<(String, Vec<String>)> {
    const GROUPS: [(&str, &[&str]); 2] =
        [("qkv_proj", &["q_proj", "k_proj", "v_proj"]), ("gate_up_proj", &["gate_proj", "up_proj"])];
    let (module, leaf) = canonical.rsplit_once('.')?;
    let (owner, part) = module.rsplit_once('.')?;
    let (whole, parts) = GROUPS.iter().find(|(_, parts)| parts.contains(&part))?;
    let name = |part: &str| format!("{owner}.{part}.{leaf}");
    Some((name(whole), parts.iter().map(|part| name(part)).collect()))
}

/// What the names and the missing of a checkpoint that does not fit look like.
pub fn likely_cause<'a>(stored: impl Iterator<Item = &'a String> + Clone, arch: &Arch) -> Option<String> {
    let any = |part: &str| stored.clone().any(|name| name.contains(part));
    if any(".lora_A.") || any(".lora_B.") || any(".base_layer.") {
        return Some("these are LoRA weights, not a full policy: load their base, and them as its adapter".into());
    }
    let expert_norm = |leaf: &str| {
        stored
            .clone()
            .any(|name| name.contains("gemma_expert.model.") && name.contains("norm.") && name.ends_with(leaf))
    };
    let plain = stored.clone().any(|name| {
        name.contains("gemma_expert.model.")
            && (name.ends_with("layernorm.weight") || name.ends_with("model.norm.weight"))
    });
    match arch.kind {
        PolicyKind::Pi05 if plain && !expert_norm(".dense.weight") => {
            Some("this checkpoint is π₀, the config says π₀.₅: model.kind=pi0".into())
        }
        PolicyKind::Pi0 if expert_norm(".dense.weight") => {
            Some("this checkpoint is π₀.₅, the config says π₀: model.kind=pi05".into())
        }
        _ => None,
    }
}

/// The kind of policy that the names show, and whether they have a state-conditioning branch.
pub fn derive<'a>(stored: impl Iterator<Item = &'a String> + Clone) -> (Option<PolicyKind>, bool) {
    let any = |test: &dyn Fn(&str) -> bool| stored.clone().any(|name| test(name));
    let expert = |name: &str, ending: &str| name.contains("gemma_expert.model.layers.") && name.ends_with(ending);
    let kind = if any(&|name| expert(name, "input_layernorm.dense.weight")) {
        Some(PolicyKind::Pi05)
    } else if any(&|name| expert(name, "input_layernorm.weight")) {
        Some(PolicyKind::Pi0)
    } else {
        None
    };
    (kind, any(&|name| name.ends_with("state_mlp_in.weight")))
}
