//! Every parameter of a network: canonical name and shape, in one list.
//!
//! The loader accounts for a checkpoint against this list, the writer writes exactly it, and the tests hold it
//! against the reference's own list of keys.

use super::arch::{Arch, GemmaArch};
use crate::config::train::PolicyKind;

/// One tensor of the network. Names are LeRobot's without the leading `model.`; a linear's weight is `[out, in]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParameterSpec {
    pub name: String,
    pub shape: Vec<usize>,
}

impl ParameterSpec {
    /// Number of elements.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }
}

/// Paths of the parts, as they begin the canonical names.
pub mod path {
    /// SigLIP.
    pub const VISION: &str = "paligemma_with_expert.paligemma.model.vision_tower.vision_model";
    /// From the vision tower's width to the language model's.
    pub const PROJECTOR: &str = "paligemma_with_expert.paligemma.model.multi_modal_projector.linear";
    /// The language model.
    pub const VLM: &str = "paligemma_with_expert.paligemma.model.language_model";
    /// The action expert.
    pub const EXPERT: &str = "paligemma_with_expert.gemma_expert.model";
    /// The embedding of prompt tokens.
    pub const EMBED_TOKENS: &str = "paligemma_with_expert.paligemma.model.language_model.embed_tokens.weight";
    /// The language model's output head: tied to the embedding, stored by LeRobot, used by nothing here.
    pub const LM_HEAD: &str = "paligemma_with_expert.paligemma.lm_head.weight";
    /// The action expert's output head: stored by LeRobot, never used by anyone.
    pub const EXPERT_LM_HEAD: &str = "paligemma_with_expert.gemma_expert.lm_head.weight";
    /// The modules that `state_cond` adds.
    pub const STATE_MODULES: [&str; 3] = ["state_proj", "state_mlp_in", "state_mlp_out"];
}

/// All parameters of `arch`, part by part from the images to the actions. Output heads of the Gemmas are not among
/// them: nothing reads them.
pub fn parameters(arch: &Arch) -> Vec<ParameterSpec> {
    let mut list = List(Vec::new());
    vision(&mut list, arch);
    list.linear(path::PROJECTOR, arch.vlm.width, arch.vision.width);
    list.add(path::EMBED_TOKENS.to_owned(), &[arch.vocab_size, arch.vlm.width]);
    gemma(&mut list, path::VLM, &arch.vlm, Norm::Plain);
    let norm = match arch.kind {
        PolicyKind::Pi05 => Norm::Adaptive,
        PolicyKind::Pi0 => Norm::Plain,
    };
    gemma(&mut list, path::EXPERT, &arch.expert, norm);
    heads(&mut list, arch);
    list.0
}

/// The modules of `arch` that are linears, which adapters may go on: every matrix but the two embeddings.
pub fn linears(arch: &Arch) -> Vec<String> {
    let embedding = |module: &str| module.ends_with("embed_tokens") || module.ends_with("position_embedding");
    parameters(arch)
        .iter()
        .filter(|parameter| parameter.shape.len() == 2)
        .filter_map(|parameter| parameter.name.strip_suffix(".weight"))
        .filter(|module| !embedding(module))
        .map(str::to_owned)
        .collect()
}

struct List(Vec<ParameterSpec>);

impl List {
    fn add(&mut self, name: String, shape: &[usize]) {
        self.0.push(ParameterSpec { name, shape: shape.to_vec() });
    }

    /// Weight `[out, in]` and bias `[out]`.
    fn linear(&mut self, module: &str, out: usize, input: usize) {
        self.add(format!("{module}.weight"), &[out, input]);
        self.add(format!("{module}.bias"), &[out]);
    }

    /// Weight and bias of one width.
    fn layer_norm(&mut self, module: &str, width: usize) {
        self.add(format!("{module}.weight"), &[width]);
        self.add(format!("{module}.bias"), &[width]);
    }
}

fn vision(list: &mut List, arch: &Arch) {
    let v = &arch.vision;
    let embeddings = format!("{}.embeddings", path::VISION);
    list.add(format!("{embeddings}.patch_embedding.weight"), &[v.width, 3, v.patch, v.patch]);
    list.add(format!("{embeddings}.patch_embedding.bias"), &[v.width]);
    list.add(format!("{embeddings}.position_embedding.weight"), &[v.tokens(), v.width]);
    for layer in 0..v.depth {
        let layer = format!("{}.encoder.layers.{layer}", path::VISION);
        list.layer_norm(&format!("{layer}.layer_norm1"), v.width);
        for projection in ["q_proj", "k_proj", "v_proj", "out_proj"] {
            list.linear(&format!("{layer}.self_attn.{projection}"), v.width, v.width);
        }
        list.layer_norm(&format!("{layer}.layer_norm2"), v.width);
        list.linear(&format!("{layer}.mlp.fc1"), v.mlp, v.width);
        list.linear(&format!("{layer}.mlp.fc2"), v.width, v.mlp);
    }
    list.layer_norm(&format!("{}.post_layernorm", path::VISION), v.width);
}

#[derive(Clone, Copy)]
enum Norm {
    /// RMSNorm: one weight, stored as the offset from 1.
    Plain,
    /// AdaRMS: a linear from the condition to scale, shift and gate.
    Adaptive,
}

fn gemma(list: &mut List, root: &str, g: &GemmaArch, norm: Norm) {
    let add_norm = |list: &mut List, module: String| match norm {
        Norm::Plain => list.add(format!("{module}.weight"), &[g.width]),
        Norm::Adaptive => list.linear(&format!("{module}.dense"), 3 * g.width, g.width),
    };
    let (queries, keys) = (g.heads * g.head_dim, g.kv_heads * g.head_dim);
    for layer in 0..g.depth {
        let layer = format!("{root}.layers.{layer}");
        add_norm(list, format!("{layer}.input_layernorm"));
        list.add(format!("{layer}.self_attn.q_proj.weight"), &[queries, g.width]);
        list.add(format!("{layer}.self_attn.k_proj.weight"), &[keys, g.width]);
        list.add(format!("{layer}.self_attn.v_proj.weight"), &[keys, g.width]);
        list.add(format!("{layer}.self_attn.o_proj.weight"), &[g.width, queries]);
        add_norm(list, format!("{layer}.post_attention_layernorm"));
        list.add(format!("{layer}.mlp.gate_proj.weight"), &[g.mlp, g.width]);
        list.add(format!("{layer}.mlp.up_proj.weight"), &[g.mlp, g.width]);
        list.add(format!("{layer}.mlp.down_proj.weight"), &[g.width, g.mlp]);
    }
    add_norm(list, format!("{root}.norm"));
}

fn heads(list: &mut List, arch: &Arch) {
    let width = arch.expert.width;
    list.linear("action_in_proj", width, arch.max_action_dim);
    list.linear("action_out_proj", arch.max_action_dim, width);
    match arch.kind {
        PolicyKind::Pi05 => {
            list.linear("time_mlp_in", width, width);
            list.linear("time_mlp_out", width, width);
            if arch.state_cond {
                list.linear("state_proj", width, arch.max_state_dim);
                list.linear("state_mlp_in", width, width);
                list.linear("state_mlp_out", width, width);
            }
        }
        PolicyKind::Pi0 => {
            list.linear("state_proj", width, arch.max_state_dim);
            list.linear("action_time_mlp_in", width, 2 * width);
            list.linear("action_time_mlp_out", width, width);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn count(arch: &Arch, belongs: impl Fn(&str) -> bool) -> usize {
        parameters(arch).iter().filter(|p| belongs(&p.name)).map(ParameterSpec::elements).sum()
    }

    fn is_head(name: &str) -> bool {
        !name.starts_with("paligemma_with_expert.")
    }

    /// `name → shape` of a fixture's list of the full-size policy, without prefix and without the unused heads.
    fn reference_keys(text: &str) -> BTreeMap<String, Vec<usize>> {
        text.lines()
            .filter(|line| line.starts_with("model."))
            .map(|line| {
                let mut columns = line.split('\t');
                let name = columns.next().unwrap().trim_start_matches("model.").to_owned();
                let shape = serde_json::from_str(columns.next().unwrap()).unwrap();
                (name, shape)
            })
            .filter(|(name, _)| name != path::LM_HEAD && name != path::EXPERT_LM_HEAD)
            .collect()
    }

    fn ours(arch: &Arch) -> BTreeMap<String, Vec<usize>> {
        let list = parameters(arch);
        let map: BTreeMap<_, _> = list.iter().map(|p| (p.name.clone(), p.shape.clone())).collect();
        assert_eq!(map.len(), list.len(), "a name occurs twice");
        map
    }

    #[test]
    fn full_size_names_and_shapes_are_the_references() {
        let pi05 =
            reference_keys(include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/pi05-full-keys.txt")));
        assert_eq!(pi05.len(), 811);
        assert_eq!(ours(&Arch::full_pi05()), pi05);
        let pi0 =
            reference_keys(include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/pi0-full-keys.txt")));
        assert_eq!(pi0.len(), 776);
        assert_eq!(ours(&Arch { kind: PolicyKind::Pi0, ..Arch::full_pi05() }), pi0);
    }

    #[test]
    fn full_size_counts_are_the_published_ones_block_by_block() {
        let arch = Arch::full_pi05();
        let pi0 = Arch { kind: PolicyKind::Pi0, ..arch.clone() };
        assert_eq!(count(&arch, |n| n.starts_with(path::VISION)), 412_442_352);
        assert_eq!(count(&arch, |n| n.starts_with(path::PROJECTOR)), 2_361_344);
        assert_eq!(count(&arch, |n| n == path::EMBED_TOKENS), 526_647_296);
        assert_eq!(count(&arch, |n| n.starts_with(path::VLM) && n != path::EMBED_TOKENS), 1_981_884_416);
        assert_eq!(count(&arch, |n| n.starts_with(path::EXPERT)), 427_932_672);
        assert_eq!(count(&pi0, |n| n.starts_with(path::EXPERT)), 311_464_960);
        assert_eq!(count(&arch, is_head), 2_165_792);
        assert_eq!(count(&pi0, is_head), 3_248_160);
        assert_eq!(count(&arch, |_| true), 3_353_433_872);
        assert_eq!(count(&pi0, |_| true), 3_238_048_528);
    }

    #[test]
    fn state_conditioning_adds_its_published_number() {
        let plain = Arch::full_pi05();
        let conditioned = Arch { state_cond: true, ..plain.clone() };
        assert_eq!(count(&conditioned, |_| true) - count(&plain, |_| true), 2_132_992);
        let added: Vec<_> = parameters(&conditioned).into_iter().filter(|p| p.name.starts_with("state_")).collect();
        assert_eq!(added.len(), 2 * path::STATE_MODULES.len());
    }
}
