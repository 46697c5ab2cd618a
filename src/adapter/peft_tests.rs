use super::*;
use crate::adapter::plan::TrainPlan;
use proptest::prelude::*;
use rstest::rstest;

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/lora");

fn tensor(rows: usize, columns: usize) -> Tensor {
    Tensor::ones((rows, columns), DType::F32, &Device::Cpu).unwrap()
}

fn config(text: &str) -> PeftConfig {
    PeftConfig::parse(text.as_bytes(), Path::new("adapter_config.json")).unwrap()
}

fn rank_two() -> PeftConfig {
    config(r#"{"peft_type": "LORA", "r": 2, "lora_alpha": 2}"#)
}

fn file(tensors: &[(&str, Tensor)]) -> Vec<u8> {
    let tensors: Vec<(String, Tensor)> = tensors.iter().map(|(n, t)| (n.to_string(), t.clone())).collect();
    safetensors::serialize(tensors, None).unwrap()
}

fn parse(tensors: &[(&str, Tensor)]) -> Result<Adapter, AdapterError> {
    Adapter::parse(&file(tensors), rank_two(), None, Path::new("adapters/adapter_model.safetensors"))
}

fn values(tensor: &Tensor) -> Vec<f32> {
    tensor.flatten_all().unwrap().to_vec1().unwrap()
}

#[rstest]
#[case("adapter-all-linear", 48)]
#[case("adapter-lerobot-default", 8)]
fn peft_s_own_adapters_are_read_and_written_back_byte_for_byte(#[case] name: &str, #[case] count: usize) {
    let source = Path::new(FIXTURES).join(name);
    let adapter = Adapter::read(&source).unwrap();
    assert_eq!((adapter.factors.len(), adapter.saved.len(), &adapter.base), (count, 0, &None));
    let dir = tempfile::tempdir().unwrap();
    adapter.write(dir.path()).unwrap();
    let bytes = |path: &Path| std::fs::read(path.join(WEIGHTS_FILE)).unwrap();
    let (ours, theirs) = (bytes(dir.path()), bytes(&source));
    let (ours, theirs) = (load(&ours), load(&theirs));
    assert_eq!(ours.len(), 2 * count);
    assert!(ours == theirs, "names, dtypes, shapes and bytes are the same");
}

fn load(bytes: &[u8]) -> Vec<(String, safetensors::Dtype, Vec<usize>, Vec<u8>)> {
    let (_, header) = safetensors::SafeTensors::read_metadata(bytes).unwrap();
    assert_eq!(header.metadata().as_ref().unwrap()["format"], "pt");
    let file = safetensors::SafeTensors::deserialize(bytes).unwrap();
    let mut tensors: Vec<_> =
        file.iter().map(|(n, v)| (n.to_string(), v.dtype(), v.shape().to_vec(), v.data().to_vec())).collect();
    tensors.sort_by(|a, b| a.0.cmp(&b.0));
    tensors
}

#[test]
fn every_spelling_of_a_key_means_the_same_tensor() {
    for spelling in [
        "base_model.model.model.x.q_proj.lora_A.weight",
        "base_model.model.x.q_proj.lora_A.weight",
        "base_model.model.model.x.q_proj.lora_A.default.weight",
        "model.x.q_proj.lora_A.default.weight",
        "x.q_proj.lora_A.weight",
    ] {
        assert_eq!(canonical(spelling), "x.q_proj.lora_A.weight");
    }
    assert_eq!(canonical("base_model.model.model.action_in_proj.modules_to_save.default.bias"), "action_in_proj.bias");
    assert_eq!(canonical("base_model.model.action_in_proj.bias"), "action_in_proj.bias");
    assert_eq!(file_key("action_in_proj.bias"), "base_model.model.model.action_in_proj.bias");
}

#[test]
fn modules_trained_in_full_travel_with_the_factors_and_all_is_f32() {
    let low = |t: Tensor| t.to_dtype(DType::BF16).unwrap();
    let identity = BaseIdentity { name: "b".to_string(), revision: None, sha256: "0".repeat(64) };
    let trained = [
        ("x.q_proj.lora_A.weight".to_string(), low(tensor(2, 3))),
        ("x.q_proj.lora_B.weight".to_string(), low(tensor(5, 2))),
        ("action_in_proj.bias".to_string(), low(tensor(1, 4))),
    ];
    let adapter = Adapter::from_trained("run", rank_two(), trained, Some(identity.clone())).unwrap();
    let dir = tempfile::tempdir().unwrap();
    adapter.write(dir.path()).unwrap();
    let again = Adapter::read(dir.path()).unwrap();
    assert_eq!(again.base, Some(identity));
    let names: Vec<String> = again.trained().into_keys().collect();
    assert_eq!(names, ["action_in_proj.bias", "x.q_proj.lora_A.weight", "x.q_proj.lora_B.weight"]);
    assert!(again.trained().values().all(|t| t.dtype() == DType::F32 && values(t).iter().all(|v| *v == 1.0)));
    let plan = again.plan(3);
    assert_eq!(plan.lora("x.q_proj").unwrap().scale, 1.0);
    assert!(plan.trains("action_in_proj.bias") && !plan.trains("x.q_proj.weight"));
}

#[test]
fn writing_twice_gives_the_same_bytes() {
    let adapter = Adapter::read(&Path::new(FIXTURES).join("adapter-lerobot-default")).unwrap();
    let write = || {
        let dir = tempfile::tempdir().unwrap();
        adapter.write(dir.path()).unwrap();
        std::fs::read(dir.path().join(WEIGHTS_FILE)).unwrap()
    };
    assert!(write() == write());
}

#[test]
fn what_does_not_fit_together_is_refused_with_its_name() {
    let (a, b) = (("m.lora_A.weight", tensor(2, 3)), ("m.lora_B.weight", tensor(4, 2)));
    for (tensors, told) in [
        (vec![a.clone()], "m has lora_A but no lora_B"),
        (vec![b.clone()], "m has lora_B but no lora_A"),
        (vec![("m.lora_A.weight", tensor(3, 3)), b.clone()], "m: lora_A is [3, 3], lora_B [4, 2], where"),
        (vec![a.clone(), b.clone(), ("model.m.lora_A.weight", tensor(2, 3))], "stored twice"),
        (vec![a.clone(), b.clone(), ("m.lora_magnitude_vector.weight", tensor(1, 1))], "is not supported"),
        (vec![("m.lora_embedding_A", tensor(1, 1))], "is not supported"),
        (vec![], "it holds no adapter tensors"),
    ] {
        let error = parse(&tensors).unwrap_err().to_string();
        assert!(error.starts_with("adapters/adapter_model.safetensors is not") && error.contains(told), "{error}");
    }
    assert!(parse(&[a, b]).is_ok());
}

#[test]
fn values_are_set_all_or_not_at_all() {
    let adapter = parse(&[("m.lora_A.weight", tensor(2, 3)), ("m.lora_B.weight", tensor(4, 2))]).unwrap();
    let var = |rows, columns| Var::zeros((rows, columns), DType::F32, &Device::Cpu).unwrap();
    let (a, b, other) = (var(2, 3), var(4, 2), var(2, 9));
    let error = adapter.assign([("m.lora_A.weight", &a), ("n.bias", &b)]).unwrap_err().to_string();
    assert!(error.contains("it lacks: n.bias;") && error.ends_with("no place for: m.lora_B.weight"), "{error}");
    let error = adapter.assign([("m.lora_A.weight", &other), ("m.lora_B.weight", &b)]).unwrap_err().to_string();
    assert!(error.contains("it lacks: m.lora_A.weight;"), "{error}");
    assert_eq!(values(&b), [0.0; 8]);
    adapter.assign([("m.lora_A.weight", &a), ("m.lora_B.weight", &b)]).unwrap();
    assert_eq!((values(&a), values(&b)), (vec![1.0; 6], vec![1.0; 8]));
}

#[test]
fn a_missing_file_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let error = Adapter::read(dir.path()).unwrap_err();
    assert!(error.to_string().contains("adapter_config.json") && matches!(error, AdapterError::Read { .. }));
}

proptest! {
    #[test]
    fn no_content_of_the_weights_file_panics(at in 0usize..400, byte in any::<u8>(), cut in 0usize..400) {
        let mut bytes = file(&[("m.lora_A.weight", tensor(2, 3)), ("m.lora_B.weight", tensor(4, 2))]);
        let at = at % bytes.len();
        bytes[at] = byte;
        let parse = |bytes: &[u8]| Adapter::parse(bytes, rank_two(), None, Path::new("w"));
        let _ = parse(&bytes);
        prop_assert!(parse(&bytes[..cut.min(bytes.len() - 1)]).is_err());
    }
}
