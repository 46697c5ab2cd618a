//! Reading what LeRobot writes, in every dress that we claim to know, and writing what it reads.

use std::collections::{BTreeMap, HashMap};

use candle_core::{DType, Device, Tensor};
use rstest::rstest;

use super::*;
use crate::error::Failure;
use crate::policy::parameters::{parameters, path};

type Tensors = HashMap<String, Tensor>;

fn fixture(name: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures")).join(name)
}

fn base_tensors() -> Tensors {
    candle_core::safetensors::load(fixture("pi05-tiny/model.safetensors"), &Device::Cpu).unwrap()
}

/// A checkpoint directory with the tiny configuration and these tensors.
fn checkpoint(tensors: &Tensors) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    std::fs::copy(fixture("pi05-tiny/config_with_tiny_dims.json"), directory.path().join("config.json")).unwrap();
    candle_core::safetensors::save(tensors, directory.path().join("model.safetensors")).unwrap();
    directory
}

/// Stands in for the network's initial values.
struct Ones;

impl WeightSource for Ones {
    fn tensor(&self, _name: &str, shape: &[usize], device: &Device) -> candle_core::Result<Tensor> {
        Tensor::ones(shape, DType::F32, device)
    }
}

fn load_as(directory: &Path, arch: &Arch, allow_new: &[&str]) -> Result<Weights, CheckpointError> {
    let allow_new: Vec<String> = allow_new.iter().map(|name| (*name).to_owned()).collect();
    Checkpoint::open(directory)?.weights(arch, &allow_new, Box::new(Ones))
}

fn load(tensors: &Tensors) -> Result<Weights, CheckpointError> {
    load_as(checkpoint(tensors).path(), &Arch::tiny(32), &[])
}

fn unfit(tensors: &Tensors) -> Unfit {
    match load(tensors).unwrap_err() {
        CheckpointError::Unfit(unfit) => *unfit,
        other => panic!("{other}"),
    }
}

fn flat(tensor: &Tensor) -> Vec<f32> {
    tensor.to_dtype(DType::F32).unwrap().flatten_all().unwrap().to_vec1().unwrap()
}

/// Every parameter of the network equals the base fixture's.
fn same_as_base(weights: &Weights) {
    let base = base_tensors();
    for parameter in parameters(&Arch::tiny(32)) {
        let ours = weights.tensor(&parameter.name, &parameter.shape, &Device::Cpu).unwrap();
        let stored = if parameter.name == path::EMBED_TOKENS { path::LM_HEAD } else { &parameter.name };
        assert_eq!(flat(&ours), flat(&base[stored]), "{}", parameter.name);
    }
}

fn renamed(rename: impl Fn(&str) -> String) -> Tensors {
    base_tensors().into_iter().map(|(name, tensor)| (rename(&name), tensor)).collect()
}

#[test]
fn the_published_form_is_loaded_with_its_tie() {
    let weights = load(&base_tensors()).unwrap();
    same_as_base(&weights);
    let account = weights.account();
    assert_eq!((account.stored, account.loaded, account.ignored.len(), account.fresh.len()), (112, 111, 1, 0));
    let line = account.to_string();
    let end = ": recognised LeRobot layout; 111 loaded, 1 ignored, 0 new. \
               embed_tokens.weight absent, taken from lm_head.weight (tied)";
    assert!(line.starts_with("checkpoint ") && line.ends_with(end), "{line}");
}

#[test]
fn what_lerobot_saves_is_loaded() {
    let weights = load_as(&fixture("pi05-tiny/lerobot-saved"), &Arch::tiny(32), &[]);
    // Its config.json has no sizes: LeRobot knows the published ones only.
    assert!(matches!(weights, Err(CheckpointError::Arch { .. })));
    let saved =
        candle_core::safetensors::load(fixture("pi05-tiny/lerobot-saved/model.safetensors"), &Device::Cpu).unwrap();
    let weights = load(&saved).unwrap();
    same_as_base(&weights);
    let account = weights.account();
    assert_eq!((account.prefix.as_str(), account.prefixed, account.stored), ("model.", 113, 113));
    assert!(account.tied.is_empty() && account.notes.is_empty());
    assert!(account.to_string().contains("(prefix \"model.\" on 113 of 113 keys)"), "{account}");
}

#[rstest]
#[case::module("module.", |n: &str| format!("module.{n}"))]
#[case::stray("policy.wrapped.", |n: &str| format!("policy.wrapped.{n}"))]
#[case::compiled("model.", |n: &str| format!("model._orig_mod.{}", n.replace(".encoder.", "._orig_mod.encoder.")))]
#[case::older_nesting("", |n: &str| n
    .replace("paligemma.lm_head", "paligemma.language_model.lm_head")
    .replace("paligemma.model.language_model.", "paligemma.language_model.model.")
    .replace("paligemma.model.", "paligemma."))]
#[case::newer_vision("model.", |n: &str| format!("model.{}", n.replace("vision_model.", "")))]
#[case::early_converter("", |n: &str| n.replace("time_mlp_", "action_time_mlp_"))]
fn names_of_every_known_writer_are_canonicalised(#[case] prefix: &str, #[case] rename: fn(&str) -> String) {
    let weights = load(&renamed(rename)).unwrap();
    same_as_base(&weights);
    assert_eq!(weights.account().prefix, prefix);
}

#[test]
fn fused_projections_are_split() {
    let mut tensors = base_tensors();
    for root in ["paligemma_with_expert.paligemma.model.language_model", "paligemma_with_expert.gemma_expert.model"] {
        for layer in 0..3 {
            for (module, whole, parts) in [
                ("self_attn", "qkv_proj", &["q_proj", "k_proj", "v_proj"][..]),
                ("mlp", "gate_up_proj", &["gate_proj", "up_proj"]),
            ] {
                let name = |part: &str| format!("{root}.layers.{layer}.{module}.{part}.weight");
                let rows: Vec<Tensor> = parts.iter().map(|part| tensors.remove(&name(part)).unwrap()).collect();
                tensors.insert(name(whole), Tensor::cat(&rows, 0).unwrap());
            }
        }
    }
    let weights = load(&tensors).unwrap();
    same_as_base(&weights);
    assert_eq!((weights.account().loaded, weights.account().split), (111, 2 * 3 * 5));
}

#[test]
fn both_embeddings_are_fine_and_a_difference_is_a_note() {
    let mut tensors = base_tensors();
    tensors.insert(path::EMBED_TOKENS.into(), tensors[path::LM_HEAD].clone());
    assert_eq!(load(&tensors).unwrap().account().notes, Vec::<String>::new());
    let shifted = (&tensors[path::LM_HEAD] + 1.0).unwrap();
    tensors.insert(path::EMBED_TOKENS.into(), shifted.clone());
    let weights = load(&tensors).unwrap();
    assert!(weights.account().notes[0].contains("lm_head.weight differ"));
    let used = weights.tensor(path::EMBED_TOKENS, &[1024, 64], &Device::Cpu).unwrap();
    assert_eq!(flat(&used), flat(&shifted));
    tensors.remove(path::LM_HEAD);
    load(&tensors).unwrap();
}

const DOWN: &str = "paligemma_with_expert.gemma_expert.model.layers.2.mlp.down_proj.weight";

#[test]
fn one_missing_tensor_is_an_error_with_its_shape_and_the_way_out() {
    let mut tensors = base_tensors();
    tensors.remove(DOWN);
    let directory = checkpoint(&tensors);
    let failure = Failure::from(load_as(directory.path(), &Arch::tiny(32), &[]).unwrap_err()).message();
    assert!(failure.contains(&format!("110 loaded, 1 missing: {DOWN} [32, 64]")), "{failure}");
    assert!(failure.contains("random weights"), "{failure}");
    assert!(failure.ends_with(&format!("model.allow_new=[\"{DOWN}\"]")), "{failure}");

    let weights = load_as(directory.path(), &Arch::tiny(32), &[DOWN]).unwrap();
    assert_eq!(weights.account().fresh, [(DOWN.to_owned(), "allowed by model.allow_new")]);
    assert_eq!(flat(&weights.tensor(DOWN, &[32, 64], &Device::Cpu).unwrap()), vec![1.0; 32 * 64]);
    let error = load_as(directory.path(), &Arch::tiny(32), &["mlp.down_proj.wieght"]).unwrap_err();
    assert!(matches!(error, CheckpointError::AllowNew { .. }), "{error}");
}

#[test]
fn another_shape_is_never_dropped_and_a_foreign_tensor_never_passed_over() {
    let mut tensors = base_tensors();
    let narrow = tensors["action_in_proj.weight"].narrow(1, 0, 14).unwrap().contiguous().unwrap();
    tensors.insert("action_in_proj.weight".into(), narrow);
    tensors.insert("critic.weight".into(), Tensor::zeros(3, DType::F32, &Device::Cpu).unwrap());
    let unfit = unfit(&tensors);
    let reshaped = &unfit.reshaped[0];
    assert_eq!((reshaped.found.as_slice(), reshaped.expected.as_slice()), (&[32, 14][..], &[32, 32][..]));
    assert_eq!(unfit.unexpected, [("critic.weight".to_owned(), vec![3])]);
    assert!(unfit.to_string().contains("action_in_proj.weight is [32, 14], the policy has [32, 32]"), "{unfit}");
}

#[test]
fn many_problems_are_counted_and_five_named() {
    let tensors =
        base_tensors().into_iter().filter(|(name, _)| !name.contains("gemma_expert.model.layers.1")).collect();
    let text = unfit(&tensors).to_string();
    assert!(text.contains("11 missing: ") && text.contains("; and 6 more"), "{text}");
    assert_eq!(text.matches("gemma_expert.model.layers.1").count(), 5);
}

#[rstest]
#[case(DType::F16, DType::F16)]
#[case(DType::BF16, DType::BF16)]
#[case(DType::F64, DType::F32)]
fn other_float_types_are_taken(#[case] stored: DType, #[case] read: DType) {
    let mut tensors = base_tensors();
    let converted = tensors["time_mlp_in.weight"].to_dtype(stored).unwrap();
    tensors.insert("time_mlp_in.weight".into(), converted.clone());
    let ours = load(&tensors).unwrap().tensor("time_mlp_in.weight", &[32, 32], &Device::Cpu).unwrap();
    assert_eq!(ours.dtype(), read);
    assert_eq!(flat(&ours), flat(&converted));
}

#[test]
fn whole_numbers_are_no_weights_and_twice_is_only_fine_when_equal() {
    let mut tensors = base_tensors();
    tensors.insert("time_mlp_in.bias".into(), Tensor::zeros(32, DType::I64, &Device::Cpu).unwrap());
    assert_eq!(unfit(&tensors).unreadable, [("time_mlp_in.bias".to_owned(), "I64".to_owned())]);

    let mut tensors = base_tensors();
    tensors.insert("action_time_mlp_in.bias".into(), tensors["time_mlp_in.bias"].clone());
    let weights = load(&tensors).unwrap();
    assert!(weights.account().ignored.iter().any(|(_, reason)| *reason == "stored twice, equal"));
    tensors.insert("action_time_mlp_in.bias".into(), Tensor::zeros(32, DType::F32, &Device::Cpu).unwrap());
    assert_eq!(unfit(&tensors).conflicting.len(), 1);
}

#[test]
fn a_truncated_file_is_refused() {
    let directory = checkpoint(&base_tensors());
    let path = directory.path().join("model.safetensors");
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
    let error = Checkpoint::open(directory.path()).unwrap_err();
    assert!(error.to_string().contains("1 fewer than its header declares"), "{error}");
    std::fs::write(&path, []).unwrap();
    assert!(Checkpoint::open(directory.path()).is_err());
}

#[test]
fn pi0_and_adapters_are_recognised_as_what_they_are() {
    let pi0 = candle_core::safetensors::load(fixture("pi0-tiny/model.safetensors"), &Device::Cpu).unwrap();
    let directory = checkpoint(&pi0);
    assert_eq!(Checkpoint::open(directory.path()).unwrap().findings[0].code, "config-contradiction");
    assert_eq!(unfit(&pi0).cause.unwrap(), "this checkpoint is π₀, the config says π₀.₅: model.kind=pi0");
    let pi0_arch = Arch { kind: crate::config::train::PolicyKind::Pi0, ..Arch::tiny(32) };
    let error = load_as(checkpoint(&base_tensors()).path(), &pi0_arch, &[]).unwrap_err();
    assert!(Failure::from(error).message().contains("this checkpoint is π₀.₅"));
    std::fs::copy(fixture("pi0-tiny/config_with_tiny_dims.json"), directory.path().join("config.json")).unwrap();
    let weights = load_as(directory.path(), &pi0_arch, &[]).unwrap();
    assert_eq!(weights.account().loaded, parameters(&pi0_arch).len());

    let lora = renamed(|n| format!("base_model.model.{}", n.replace(".weight", ".lora_A.weight")));
    assert!(unfit(&lora).cause.unwrap().starts_with("these are LoRA weights"));
    let vlash = renamed(|n| {
        n.replace("paligemma_with_expert.paligemma", "model.vlm")
            .replace("time_mlp", "model.suffix_embedder.time_mlp")
            .replace("paligemma_with_expert.gemma_expert", "model.action_expert")
    });
    assert!(unfit(&vlash).cause.unwrap().contains("VLASH's own layout"));
    assert!(
        unfit(&HashMap::from([("a".to_owned(), Tensor::zeros(1, DType::F32, &Device::Cpu).unwrap())])).cause.is_some()
    );
}

#[test]
fn another_variant_is_named() {
    let directory = checkpoint(&base_tensors());
    let error = load_as(directory.path(), &Arch::tiny(64), &[]).unwrap_err();
    assert!(Failure::from(error).message().contains("another variant"));
}

#[test]
fn state_conditioning_switched_on_starts_its_branch_anew() {
    let arch = Arch { state_cond: true, ..Arch::tiny(32) };
    let mut tensors = base_tensors();
    let weights = load_as(checkpoint(&tensors).path(), &arch, &[]).unwrap();
    assert_eq!((weights.account().loaded, weights.account().fresh.len()), (111, 6));
    assert!(weights.account().fresh.iter().all(|(name, _)| name.starts_with("state_")));
    // A branch that is there must be whole, and is then no surprise to a policy without one either.
    tensors.insert("state_mlp_in.weight".into(), Tensor::zeros((32, 32), DType::F32, &Device::Cpu).unwrap());
    let directory = checkpoint(&tensors);
    let error = load_as(directory.path(), &arch, &[]).unwrap_err();
    assert!(error.to_string().contains("5 missing"), "{error}");
    assert!(Checkpoint::open(directory.path()).unwrap().findings[0].message.contains("state-conditioning"));
    assert_eq!(unfit(&tensors).unexpected.len(), 1);
    // π₀'s state projection in a stock π₀.₅ file is a leftover.
    let mut tensors = base_tensors();
    tensors.insert("state_proj.weight".into(), Tensor::zeros((32, 32), DType::F32, &Device::Cpu).unwrap());
    assert_eq!(load(&tensors).unwrap().account().ignored.len(), 2);
}

#[test]
fn shards_are_read_and_an_absent_one_is_named_with_its_size() {
    let tensors = base_tensors();
    let directory = checkpoint(&tensors);
    std::fs::remove_file(directory.path().join("model.safetensors")).unwrap();
    let shard = |expert: bool| -> Tensors {
        tensors
            .iter()
            .filter(|(n, _)| n.contains("gemma_expert") == expert)
            .map(|(n, t)| (n.clone(), t.clone()))
            .collect()
    };
    let names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"];
    let (mut map, mut sizes) = (BTreeMap::new(), Vec::new());
    for (name, part) in names.iter().zip([shard(false), shard(true)]) {
        sizes.push(part.values().map(|t| t.elem_count() * 4).sum::<usize>());
        map.extend(part.keys().map(|tensor| (tensor.clone(), *name)));
        candle_core::safetensors::save(&part, directory.path().join(name)).unwrap();
    }
    let index = |map: &BTreeMap<String, &str>| {
        let json = serde_json::json!({"metadata": {"total_size": sizes[0] + sizes[1]}, "weight_map": map});
        std::fs::write(directory.path().join(store::INDEX_FILE), json.to_string()).unwrap();
    };
    index(&map);
    same_as_base(&load_as(directory.path(), &Arch::tiny(32), &[]).unwrap());

    let mut lost = map.clone();
    lost.insert("gone.weight".into(), names[0]);
    index(&lost);
    assert!(matches!(Checkpoint::open(directory.path()), Err(CheckpointError::NotInShard { .. })));
    let mut outside = map.clone();
    outside.insert("time_mlp_in.bias".into(), "../model.safetensors");
    index(&outside);
    assert!(Checkpoint::open(directory.path()).unwrap_err().to_string().contains("is no file name"));

    index(&map);
    std::fs::remove_file(directory.path().join(names[1])).unwrap();
    let text = Checkpoint::open(directory.path()).unwrap_err().to_string();
    assert!(text.contains(names[1]) && text.contains(&format!("about {} bytes", sizes[1])), "{text}");
}

/// Writes the tiny policy with the statistics and tokenizer of the fixtures.
fn written(change: impl FnOnce(&mut PolicyConfig)) -> (tempfile::TempDir, PolicyConfig, Statistics) {
    let text = std::fs::read(fixture("pi05-tiny/config_with_tiny_dims.json")).unwrap();
    let (mut config, _) = PolicyConfig::parse(Path::new("config.json"), &text).unwrap();
    change(&mut config);
    let statistics = pipeline::read(&fixture("preprocessing/processors-pi05")).unwrap().unwrap().statistics.unwrap();
    let weights = load(&base_tensors()).unwrap();
    let tensors = parameters(&Arch::tiny(32)).into_iter().map(|p| {
        let tensor = weights.tensor(&p.name, &p.shape, &Device::Cpu).unwrap();
        (p.name, tensor)
    });
    let directory = tempfile::tempdir().unwrap();
    let contents = Contents {
        config: &config,
        statistics: &statistics,
        rename: &BTreeMap::from([("observation.images.front".to_owned(), "observation.images.top".to_owned())]),
        tokenizer: &Tokenizer::builtin().unwrap(),
        train_config: &serde_json::json!({"steps": 20}),
    };
    write(&directory.path().join("pretrained_model"), &contents, tensors).unwrap();
    (directory, config, statistics)
}

#[test]
fn what_is_written_is_read_back_the_same() {
    let (directory, config, statistics) = written(|config| config.vlash_forge.trained_delay = 8);
    // The training checkpoint's directory is enough.
    let read = Checkpoint::open(directory.path()).unwrap();
    assert_eq!(read.findings, []);
    assert_eq!(read.config, config);
    assert_eq!(read.statistics.as_ref(), Some(&statistics));
    assert_eq!(read.pipelines.as_ref().unwrap().rename["observation.images.front"], "observation.images.top");
    let tokenizer = read.tokenizer().unwrap().unwrap();
    let processor = read.processor(tokenizer).unwrap();
    assert_eq!((processor.spec().cameras.len(), processor.spec().rename.len()), (3, 1));
    let train: serde_json::Value =
        serde_json::from_slice(&std::fs::read(read.directory.join("train_config.json")).unwrap()).unwrap();
    assert_eq!(train["steps"], 20);
    same_as_base(&read.weights(&Arch::tiny(32), &[], Box::new(Ones)).unwrap());
    let names: Vec<_> =
        std::fs::read_dir(directory.path().join("pretrained_model")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names.len(), 11, "{names:?}");
}

#[test]
fn the_weights_have_lerobots_names_and_shapes() {
    let (directory, ..) = written(|_| ());
    let ours =
        candle_core::safetensors::load(directory.path().join("pretrained_model/model.safetensors"), &Device::Cpu)
            .unwrap();
    let theirs =
        candle_core::safetensors::load(fixture("pi05-tiny/lerobot-saved/model.safetensors"), &Device::Cpu).unwrap();
    assert_eq!(ours.len(), 113);
    for (name, tensor) in &theirs {
        assert_eq!(ours[name].dims(), tensor.dims(), "{name}");
        if !name.ends_with(path::EXPERT_LM_HEAD) {
            assert_eq!(flat(&ours[name]), flat(tensor), "{name}");
        }
    }
}

#[test]
fn the_statistics_are_lerobots_files_tensor_by_tensor() {
    let (directory, ..) = written(|_| ());
    for name in
        ["policy_preprocessor_step_3_normalizer_processor", "policy_postprocessor_step_0_unnormalizer_processor"]
    {
        let file = format!("{name}.safetensors");
        let ours = candle_core::safetensors::load(directory.path().join("pretrained_model").join(&file), &Device::Cpu)
            .unwrap();
        let theirs =
            candle_core::safetensors::load(fixture("preprocessing/processors-pi05").join(&file), &Device::Cpu).unwrap();
        assert_eq!(ours.len(), theirs.len());
        for (name, tensor) in &theirs {
            assert_eq!((ours[name].dtype(), ours[name].dims()), (tensor.dtype(), tensor.dims()), "{name}");
            assert_eq!(flat(&ours[name]), flat(tensor), "{name}");
        }
    }
}

#[test]
fn an_incomplete_or_foreign_set_of_tensors_is_not_written() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("model.safetensors");
    let text = std::fs::read(fixture("pi05-tiny/config_with_tiny_dims.json")).unwrap();
    let (config, _) = PolicyConfig::parse(Path::new("config.json"), &text).unwrap();
    let one = |name: &str, rows: usize| (name.to_owned(), Tensor::zeros((rows, 32), DType::F32, &Device::Cpu).unwrap());
    for tensors in [
        vec![one("time_mlp_in.weight", 32)],
        vec![one("time_mlp_in.weight", 31)],
        vec![one("surprise.weight", 32)],
        vec![one("time_mlp_in.weight", 32), one("time_mlp_in.weight", 32)],
    ] {
        assert!(matches!(write_weights(&file, &config, tensors), Err(CheckpointError::Incomplete { .. })));
        assert!(!file.exists());
    }
}

#[test]
fn half_precision_is_written_bit_by_bit() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("a.safetensors");
    let values = Tensor::new(&[1.5f32, -0.001, 3e38, 0.0, f32::MIN_POSITIVE], &Device::Cpu).unwrap();
    let tensors: Vec<(String, Tensor)> = [DType::BF16, DType::F16, DType::F32, DType::F64]
        .map(|dtype| (format!("{dtype:?}"), values.to_dtype(dtype).unwrap()))
        .into();
    stream(&file, tensors.clone()).unwrap();
    let read = candle_core::safetensors::load(&file, &Device::Cpu).unwrap();
    for (name, tensor) in &tensors {
        assert_eq!(read[name].dtype(), tensor.dtype());
        assert_eq!(flat(&read[name]), flat(tensor));
    }
}

#[test]
fn a_directory_that_is_no_checkpoint_says_what_it_lacks() {
    let empty = tempfile::tempdir().unwrap();
    let error = Checkpoint::open(empty.path()).unwrap_err();
    assert!(error.to_string().contains("no config.json"), "{error}");
    std::fs::copy(fixture("pi05-tiny/config_with_tiny_dims.json"), empty.path().join("config.json")).unwrap();
    let error = Checkpoint::open(empty.path()).unwrap_err();
    assert!(error.to_string().contains("no model.safetensors"), "{error}");
    let adapter =
        serde_json::json!({"r": 8, "lora_alpha": 16, "target_modules": ["q_proj"], "base_model_name_or_path": "/base"});
    std::fs::write(empty.path().join("adapter_config.json"), adapter.to_string()).unwrap();
    let error = load_as(empty.path(), &Arch::tiny(32), &[]).unwrap_err();
    assert!(matches!(&error, CheckpointError::AdapterOnly { base, .. } if base == "/base"), "{error}");
}

#[test]
fn a_base_without_statistics_cannot_run() {
    let directory = checkpoint(&base_tensors());
    let error = Checkpoint::open(directory.path()).unwrap().processor(Tokenizer::builtin().unwrap()).unwrap_err();
    assert!(error.to_string().contains("no normalisation statistics"), "{error}");
}

#[test]
fn info_tells_what_a_checkpoint_is() {
    let (directory, ..) = written(|config| config.vlash_forge.trained_delay = 8);
    let info = Checkpoint::open(directory.path()).unwrap().info();
    let described = info::describe(directory.path()).unwrap();
    assert_eq!(described, info::Description::Policy(Box::new(info.clone())));
    assert_eq!(info.parameters, parameters(&Arch::tiny(32)).iter().map(|p| p.elements()).sum::<usize>());
    assert_eq!(info.stored, BTreeMap::from([("F32".to_owned(), 113)]));
    assert_eq!((info.statistics.len(), info.cameras.len(), info.trained_delay), (2, 3, 8));
    let text = info.to_string();
    for part in [
        "π₀.₅",
        "113 F32",
        "chunks of 10",
        "observation.state: 8 dimensions, 143 frames, with quantiles, mode QUANTILES",
        "up to 8 frames",
    ] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
    let json = serde_json::to_value(&info).unwrap();
    assert_eq!(json["kind"], "pi05");
    assert_eq!(json["sizes"]["expert"]["width"], 32);
}

#[test]
fn info_tells_of_an_adapter_beside_a_policy_and_alone() {
    let (directory, ..) = written(|_| ());
    let policy = directory.path().join("pretrained_model");
    let place = policy.join("lora_adapters");
    std::fs::create_dir(&place).unwrap();
    for file in ["adapter_config.json", "adapter_model.safetensors"] {
        std::fs::copy(fixture("lora/adapter-all-linear").join(file), place.join(file)).unwrap();
    }
    let info = Checkpoint::open(directory.path()).unwrap().info();
    let [found] = info.adapters.as_slice() else { panic!("{info}") };
    assert_eq!((found.rank, found.alpha, found.linears, found.whole), (Some(8), Some(16.0), 48, 0));
    assert_eq!(found.policy.as_ref(), Some(&policy));
    let text = info.to_string();
    for part in ["rank      8, alpha 16", "48 linears adapted", "q_proj", "merged    into the policy"] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
    assert_eq!(info::describe(&place).unwrap(), info::Description::Adapter(Box::new(found.clone())));
    assert!(matches!(info::describe(Path::new("/nowhere")), Err(CheckpointError::NotACheckpoint { .. })));
}
