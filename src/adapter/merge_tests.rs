use super::*;
use crate::adapter::config::PeftConfig;
use crate::adapter::select::factor_a;
use crate::error::Explain;
use candle_core::Device;
use std::collections::HashMap;
use std::path::Path;

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures");

fn identity(sha256: &str) -> BaseIdentity {
    BaseIdentity { name: "lerobot/pi05_base".to_string(), revision: None, sha256: sha256.repeat(16) }
}

fn load(path: &str) -> HashMap<String, Tensor> {
    candle_core::safetensors::load(Path::new(FIXTURES).join(path), &Device::Cpu).unwrap()
}

fn values(tensor: &Tensor) -> Vec<f32> {
    tensor.to_dtype(DType::F32).unwrap().flatten_all().unwrap().to_vec1().unwrap()
}

/// A rank-1 adapter on `q_proj` (2 × 3) with scale 2, and a bias trained in full.
fn small() -> Adapter {
    let config = PeftConfig::parse(br#"{"peft_type": "LORA", "r": 1, "lora_alpha": 2}"#, Path::new("c")).unwrap();
    let trained = [
        (factor_a("q_proj"), Tensor::new(&[[1f32, 2.0, 3.0]], &Device::Cpu).unwrap()),
        ("q_proj.lora_B.weight".to_string(), Tensor::new(&[[1f32], [10.0]], &Device::Cpu).unwrap()),
        ("head.bias".to_string(), Tensor::new(&[7f32], &Device::Cpu).unwrap()),
    ];
    Adapter::from_trained("runs/a", config, trained, Some(identity("1f0c"))).unwrap()
}

#[test]
fn the_merged_weights_are_peft_s() {
    let adapter = Adapter::read(&Path::new(FIXTURES).join("lora/adapter-all-linear")).unwrap();
    let base = load("pi05-tiny/model.safetensors");
    let expected = load("lora/adapter-all-linear/merged-model.safetensors");
    assert_eq!(base.len(), expected.len());
    let mut merge = Merge::onto(&adapter, &identity("77ab"), BasePolicy::Same).unwrap();
    let mut changed = 0;
    for (name, weight) in &base {
        let merged = merge.tensor(name, weight).unwrap();
        let pairs = values(&merged).into_iter().zip(values(&expected[name]));
        let worst = pairs.map(|(f, e)| (f - e).abs()).fold(0.0, f32::max);
        assert!(worst <= 1e-6, "{name}: {worst}");
        changed += usize::from(values(&merged) != values(weight));
    }
    assert_eq!(changed, adapter.factors.len());
    assert!(!merge.verified(), "an adapter of PEFT does not say which weights it was trained on");
    merge.finish().unwrap();
}

#[test]
fn a_merge_adds_in_f32_and_keeps_the_base_s_dtype() {
    let adapter = small();
    let mut merge = Merge::onto(&adapter, &identity("1f0c"), BasePolicy::Same).unwrap();
    assert!(merge.verified());
    let base = Tensor::full(0.5f32, (2, 3), &Device::Cpu).unwrap().to_dtype(DType::BF16).unwrap();
    let merged = merge.tensor("q_proj.weight", &base).unwrap();
    assert_eq!(merged.dtype(), DType::BF16);
    assert_eq!(values(&merged), [2.5, 4.5, 6.5, 20.5, 40.5, 60.5]);
    let bias = merge.tensor("head.bias", &Tensor::new(&[0f32], &Device::Cpu).unwrap()).unwrap();
    assert_eq!(values(&bias), [7.0]);
    merge.finish().unwrap();
}

#[test]
fn another_base_is_refused_unless_forced() {
    let adapter = small();
    let error = Merge::onto(&adapter, &identity("77ab"), BasePolicy::Same).unwrap_err();
    assert_eq!(
        error.to_string(),
        "adapter runs/a was trained on lerobot/pi05_base (sha256 1f0c1f0c…); the given base hashes to 77ab77ab…"
    );
    assert!(error.hint().unwrap().contains("--force-base"));
    assert!(!Merge::onto(&adapter, &identity("77ab"), BasePolicy::Forced).unwrap().verified());
}

#[test]
fn a_base_without_some_of_the_adapted_tensors_is_refused() {
    let adapter = small();
    let merge = Merge::onto(&adapter, &identity("1f0c"), BasePolicy::Same).unwrap();
    let error = merge.finish().unwrap_err().to_string();
    assert_eq!(error, "the adapter changes 2 tensors that the base does not have (first: head.bias, q_proj.weight)");
}

#[test]
fn shapes_that_differ_are_named_on_both_sides() {
    let adapter = small();
    let mut merge = Merge::onto(&adapter, &identity("1f0c"), BasePolicy::Same).unwrap();
    let wide = Tensor::zeros((2, 4), DType::F32, &Device::Cpu).unwrap();
    let error = merge.tensor("q_proj.weight", &wide).unwrap_err().to_string();
    assert_eq!(error, "q_proj.weight: the base has shape [2, 4], the adapter makes [2, 3]");
}
