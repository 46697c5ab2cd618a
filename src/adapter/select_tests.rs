use super::*;
use crate::error::Explain;
use rstest::rstest;
use std::path::Path;

/// Names and shapes of a safetensors file's tensors.
pub(in crate::adapter) fn shapes(path: &str) -> BTreeMap<String, Vec<usize>> {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures")).join(path);
    let bytes = std::fs::read(path).unwrap();
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    file.iter().map(|(name, view)| (name.to_string(), view.shape().to_vec())).collect()
}

/// A network's names: linears and parameters, as the policy room lists them (no output heads).
pub(in crate::adapter) fn network(shapes: &BTreeMap<String, Vec<usize>>) -> (Vec<String>, Vec<String>) {
    let is_table = |name: &str| name.contains("embed_tokens") || name.contains("position_embedding");
    let parameters: Vec<String> = shapes.keys().filter(|name| !name.contains("lm_head")).cloned().collect();
    let linears = parameters.iter().filter(|name| shapes[*name].len() == 2 && !is_table(name));
    (linears.filter_map(|name| name.strip_suffix(".weight")).map(str::to_string).collect(), parameters)
}

pub(in crate::adapter) fn tiny() -> (Vec<String>, Vec<String>) {
    network(&shapes("pi05-tiny/model.safetensors"))
}

/// The full-size π₀.₅ with VLASH's state condition.
fn full_size() -> BTreeMap<String, Vec<usize>> {
    let text = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/pi05-full-keys.txt"));
    let lines = text.lines().filter(|line| line.starts_with("model."));
    let mut shapes: BTreeMap<String, Vec<usize>> = lines
        .map(|line| {
            let (name, rest) = line.strip_prefix("model.").unwrap().split_once('\t').unwrap();
            (name.to_string(), serde_json::from_str(rest.split('\t').next().unwrap()).unwrap())
        })
        .collect();
    for (name, input) in [("state_proj", 32), ("state_mlp_in", 1024), ("state_mlp_out", 1024)] {
        shapes.insert(format!("{name}.weight"), vec![1024, input]);
        shapes.insert(format!("{name}.bias"), vec![1024]);
    }
    shapes
}

pub(in crate::adapter) fn lora(targets: &[&str], also_train: &[&str]) -> AdapterConfig {
    let owned = |names: &[&str]| names.iter().map(|n| n.to_string()).collect();
    AdapterConfig {
        enabled: true,
        rank: 16,
        alpha: 16.0,
        dropout: 0.0,
        rslora: false,
        targets: owned(targets),
        also_train: owned(also_train),
        quantize: None,
    }
}

pub(in crate::adapter) const GEMMA: [&str; 7] =
    ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"];
const VLASH_EXTRAS: [&str; 10] = [
    "action_in_proj",
    "action_out_proj",
    "time_mlp_in",
    "time_mlp_out",
    "state_proj",
    "state_mlp_in",
    "state_mlp_out",
    "embeddings",
    "input_layernorm",
    "post_attention_layernorm",
];

/// The modules that an adapter of the fixtures holds factors for.
fn adapted_in(path: &str) -> BTreeSet<String> {
    let names = shapes(path).into_keys();
    names
        .filter_map(|n| Some(n.strip_prefix("base_model.model.model.")?.split_once(".lora_A")?.0.to_string()))
        .collect()
}

#[rstest]
#[case("adapter-all-linear")]
#[case("adapter-lerobot-default")]
fn the_modules_of_peft_s_own_adapters_are_selected_exactly(#[case] adapter: &str) {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/lora");
    let text = std::fs::read_to_string(format!("{root}/{adapter}/adapter_config.json")).unwrap();
    let config: serde_json::Value = serde_json::from_str(&text).unwrap();
    let targets: Vec<&str> = match &config["target_modules"] {
        serde_json::Value::String(pattern) => vec![pattern],
        list => list.as_array().unwrap().iter().map(|t| t.as_str().unwrap()).collect(),
    };
    let (modules, parameters) = tiny();
    let plan = plan_for(&lora(&targets, &[]), &[], 0, &modules, &parameters).unwrap();
    let found: BTreeSet<String> = plan.adapted().map(str::to_string).collect();
    assert_eq!(found, adapted_in(&format!("lora/{adapter}/adapter_model.safetensors")));
    assert!(found.len() >= 8 && parameters.iter().all(|p| !plan.trains(p)));
}

/// The counts of the full-size policy at rank 16: adapters, then adapters and parameters in full.
#[rstest]
#[case(&[], &[Freeze::Vision], 26_542_080)]
#[case(&[], &[], 35_237_376)]
#[case(&VLASH_EXTRAS, &[], 153_940_128)]
fn as_many_parameters_train_as_documented(#[case] extras: &[&str], #[case] freeze: &[Freeze], #[case] expected: usize) {
    let shapes = full_size();
    let (modules, parameters) = network(&shapes);
    let targets = [GEMMA.as_slice(), &["out_proj", "fc1", "fc2"]].concat();
    let plan = plan_for(&lora(&targets, extras), freeze, 0, &modules, &parameters).unwrap();
    let factors = plan.adapted().map(|module| 16 * shapes[&format!("{module}.weight")].iter().sum::<usize>());
    let full = plan.full.iter().map(|parameter| shapes[parameter].iter().product::<usize>());
    assert_eq!(factors.chain(full).sum::<usize>(), expected);
}

#[test]
fn a_target_is_a_whole_name_or_the_end_of_one_from_a_dot_on() {
    let (modules, parameters) = tiny();
    let adapted = |target: &str| -> Vec<String> {
        let plan = plan_for(&lora(&[target], &[]), &[], 0, &modules, &parameters).unwrap();
        plan.adapted().map(str::to_string).collect()
    };
    // SigLIP's attention output, not the action head.
    assert!(adapted("out_proj").iter().all(|m| m.ends_with("self_attn.out_proj")));
    assert_eq!(adapted("action_out_proj"), ["action_out_proj"]);
    assert_eq!(adapted("model.action_out_proj"), ["action_out_proj"]);
    assert_eq!(adapted("gemma_expert.model.layers.1.mlp.up_proj").len(), 1);
    assert_eq!(adapted("all-linear"), {
        let mut all = modules.clone();
        all.sort();
        all
    });
}

#[test]
fn modules_trained_in_full_bring_all_their_parameters_and_carry_no_adapter() {
    let (modules, parameters) = tiny();
    let config = lora(&["q_proj", "action_in_proj"], &["ACTION_IN_PROJ.weight", "embeddings", "input_layernorm"]);
    let plan = plan_for(&config, &[], 7, &modules, &parameters).unwrap();
    assert!(plan.trains("action_in_proj.weight") && plan.trains("action_in_proj.bias"));
    assert_eq!(plan.lora("action_in_proj"), None);
    assert_eq!(plan.seed(), 7);
    let saved: Vec<&str> = plan.saved_modules().collect();
    let embeddings = "paligemma_with_expert.paligemma.model.vision_tower.vision_model.embeddings";
    assert!(saved.contains(&format!("{embeddings}.patch_embedding").as_str()));
    assert!(saved.contains(&"paligemma_with_expert.gemma_expert.model.layers.0.input_layernorm.dense"));
    assert!(!plan.trains("paligemma_with_expert.paligemma.model.language_model.embed_tokens.weight"));
    assert!(plan.trained().contains(&factor_b("paligemma_with_expert.gemma_expert.model.layers.0.self_attn.q_proj")));
}

#[test]
fn freezing_leaves_parts_out_with_and_without_adapters() {
    let (modules, parameters) = tiny();
    let off = AdapterConfig { enabled: false, ..lora(&[], &[]) };
    let trained = |config: &AdapterConfig, freeze: &[Freeze]| {
        plan_for(config, freeze, 0, &modules, &parameters).unwrap().trained()
    };
    assert_eq!(trained(&off, &[]).len(), parameters.len());
    let no_vision = trained(&off, &[Freeze::Vision]);
    assert!(no_vision.iter().any(|n| n.contains("multi_modal_projector")));
    assert!(no_vision.len() < parameters.len() && !no_vision.iter().any(|n| n.contains("vision_tower")));
    let expert = trained(&off, &[Freeze::Vlm]);
    assert!(
        expert.iter().all(|n| !n.contains("paligemma_with_expert.paligemma.")) && expert.contains("time_mlp_in.bias")
    );
    let adapters = trained(&lora(&["q_proj", "fc1"], &[]), &[Freeze::Vision]);
    assert!(adapters.iter().all(|n| !n.contains("vision_tower")) && !adapters.is_empty());
}

#[test]
fn entries_that_match_nothing_are_errors_with_the_nearest_names() {
    let (modules, parameters) = tiny();
    let error =
        |config: AdapterConfig, freeze: &[Freeze]| plan_for(&config, freeze, 0, &modules, &parameters).unwrap_err();
    let typo = error(lora(&["q_proj", "gate_porj"], &[]), &[]);
    assert_eq!(
        typo.to_string(),
        "adapter.targets: `gate_porj` matches no linear layer; nearest: gate_proj, out_proj, action_in_proj"
    );
    assert_eq!(typo.hint().unwrap(), "adapter.targets = [\"gate_proj\"]");
    let extra = error(lora(&["q_proj"], &["input_layer_norm"]), &[]).to_string();
    assert!(
        extra.contains("adapter.also_train: `input_layer_norm` matches no parameter; nearest: input_layernorm"),
        "{extra}"
    );
    assert!(matches!(error(lora(&[".*_porj"], &[]), &[]), AdapterError::NoMatch { .. }));
    assert!(matches!(error(lora(&["(?=q)_proj"], &[]), &[]), AdapterError::Pattern { .. }));
    assert!(matches!(error(lora(&["q_proj"], &[" "]), &[]), AdapterError::Setting { key: "also_train", .. }));
    assert!(matches!(error(lora(&["q_proj"], &["embeddings"]), &[Freeze::Vision]), AdapterError::Frozen { .. }));
    assert!(matches!(error(lora(&["fc1"], &[]), &[Freeze::Vision]), AdapterError::NothingTrains { .. }));
    assert!(matches!(error(lora(&[], &[]), &[]), AdapterError::NothingTrains { .. }));
}

#[test]
fn heads_of_other_variants_may_be_named_without_effect() {
    let (modules, parameters) = tiny();
    let plan = plan_for(&lora(&GEMMA, &VLASH_EXTRAS), &[], 0, &modules, &parameters).unwrap();
    assert!(plan.trains("time_mlp_in.weight") && !plan.trains("state_proj.weight"));
}

#[rstest]
#[case(AdapterConfig { rank: 0, ..lora(&["q_proj"], &[]) }, "rank")]
#[case(AdapterConfig { alpha: 0.0, ..lora(&["q_proj"], &[]) }, "alpha")]
#[case(AdapterConfig { alpha: f64::NAN, ..lora(&["q_proj"], &[]) }, "alpha")]
#[case(AdapterConfig { dropout: 1.0, ..lora(&["q_proj"], &[]) }, "dropout")]
fn settings_out_of_range_are_refused(#[case] config: AdapterConfig, #[case] expected: &str) {
    let (modules, parameters) = tiny();
    let error = plan_for(&config, &[], 0, &modules, &parameters).unwrap_err();
    assert!(matches!(error, AdapterError::Setting { key, .. } if key == expected), "{error}");
}

#[test]
fn the_scale_follows_rank_and_rslora() {
    assert_eq!((scale(16.0, 8, false), scale(16.0, 4, true)), (2.0, 8.0));
}
