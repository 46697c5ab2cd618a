//! `vlash policy …` and what `vlash data …` says about a policy, as a user runs them.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod support;

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use candle_core::{Device, Tensor};
use rstest::rstest;
use serde_json::{Map, Value};
use support::{Bench, finish, stderr, succeed};

const FILES: [&str; 5] = ["inputs", "train_forward", "gradients", "inference", "inference_other_step_counts"];

fn fixture(name: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures")).join(name)
}

/// A checkpoint directory of the tiny fixture: its configuration, changed, and these weights.
fn checkpoint(bench: &Bench, weights: &str, change: impl FnOnce(&mut Map<String, Value>)) -> String {
    let directory = bench.path("checkpoint");
    fs::create_dir(&directory).unwrap();
    let family = weights.split('/').next().unwrap();
    let text = fs::read(fixture(family).join("config_with_tiny_dims.json")).unwrap();
    let mut config = serde_json::from_slice(&text).unwrap();
    change(&mut config);
    fs::write(directory.join("config.json"), serde_json::to_vec(&config).unwrap()).unwrap();
    fs::copy(fixture(weights), directory.join("model.safetensors")).unwrap();
    directory.display().to_string()
}

/// `vlash policy verify --json` over these files.
fn verify(bench: &Bench, checkpoint: &str, files: &[PathBuf]) -> (Output, Value) {
    let names: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let arguments = [&["policy", "verify", checkpoint, "--json", "--reference"], &names[..]].concat();
    let output = finish(bench.vlash(&arguments));
    let json = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    (output, json)
}

fn case(name: &str, files: &[&str]) -> Vec<PathBuf> {
    files.iter().map(|file| fixture(&format!("pi05-tiny/{name}/{file}.safetensors"))).collect()
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[rstest]
#[case("case-a", "pi05-tiny/model.safetensors")]
#[case("case-b", "pi05-tiny/lerobot-saved/model.safetensors")]
fn a_checkpoint_agrees_with_every_tensor_of_the_reference(#[case] name: &str, #[case] weights: &str) {
    let bench = Bench::new();
    let checkpoint = checkpoint(&bench, weights, |_| ());
    let (output, json) = verify(&bench, &checkpoint, &case(name, &FILES));
    assert_eq!(output.status.code(), Some(0), "{}{json:#}", stderr(&output));
    assert_eq!((&json["passed"], &json["compared"], &json["failed"]), (&true.into(), &203.into(), &0.into()));
    assert!(json["rows"].as_array().unwrap().iter().all(|row| row["verdict"] == "pass"));

    // A run in bfloat16 differs, within what that costs.
    let (output, json) = verify(&bench, &checkpoint, &case(name, &["inputs", "bf16_reference"]));
    assert_eq!((output.status.code(), &json["compared"]), (Some(0), &17.into()), "{json:#}");
    let largest = |name: &str| {
        let rows = json["rows"].as_array().unwrap().iter().filter(|row| row["name"] == name);
        rows.map(|row| row["max_abs"].as_f64().unwrap()).fold(0.0, f64::max)
    };
    assert!(largest("v_t") > 1e-3, "it was to be a run in half precision");
}

#[test]
fn the_table_names_every_tensor_and_the_verdict() {
    let bench = Bench::new();
    let checkpoint = checkpoint(&bench, "pi05-tiny/model.safetensors", |_| ());
    let files = case("case-b", &["inputs", "train_forward"]).map_to_text();
    let output = finish(bench.vlash(&["policy", "verify", &checkpoint, "--reference", &files[0], &files[1]]));
    let text = out(&output);
    assert_eq!(output.status.code(), Some(0), "{text}{}", stderr(&output));
    assert!(text.contains("max abs") && text.contains("layer.2.suffix_hidden"), "{text}");
    assert!(text.ends_with(" 0 not compared\npassed\n"), "{text}");
}

/// Paths as arguments.
trait AsText {
    fn map_to_text(&self) -> Vec<String>;
}

impl AsText for Vec<PathBuf> {
    fn map_to_text(&self) -> Vec<String> {
        self.iter().map(|path| path.display().to_string()).collect()
    }
}

#[test]
fn a_changed_an_unknown_and_an_unused_reference_tensor_each_fail() {
    let bench = Bench::new();
    let checkpoint = checkpoint(&bench, "pi05-tiny/model.safetensors", |_| ());
    let with = |file: &str, change: &dyn Fn(&mut HashMap<String, Tensor>)| {
        let mut files = case("case-b", &["inputs", "train_forward"]);
        let at = usize::from(file != "inputs");
        let mut tensors = candle_core::safetensors::load(&files[at], &Device::Cpu).unwrap();
        change(&mut tensors);
        files[at] = bench.path("changed.safetensors");
        candle_core::safetensors::save(&tensors, &files[at]).unwrap();
        let (output, json) = verify(&bench, &checkpoint, &files);
        assert_eq!(output.status.code(), Some(64), "{json:#}");
        let bad = json["rows"].as_array().unwrap().iter().filter(|row| row["verdict"] != "pass").cloned();
        let bad: Vec<Value> = bad.collect();
        assert_eq!((&json["passed"], json["failed"].as_u64()), (&false.into(), Some(bad.len() as u64)));
        bad
    };
    let shifted = |name: &'static str| {
        move |tensors: &mut HashMap<String, Tensor>| {
            let tensor = (&tensors[name] + 1e-3).unwrap();
            tensors.insert(name.into(), tensor);
        }
    };
    let bad = with("train_forward", &shifted("v_t"));
    assert_eq!((bad.len(), &bad[0]["name"], &bad[0]["verdict"]), (1, &"v_t".into(), &"differs".into()));
    let unknown = |name: &'static str, as_one: &'static str| {
        move |tensors: &mut HashMap<String, Tensor>| {
            let tensor = tensors[as_one].clone();
            tensors.insert(name.into(), tensor);
        }
    };
    let bad = with("train_forward", &unknown("something_else", "v_t"));
    assert_eq!((bad.len(), &bad[0]["verdict"]), (1, &"not_compared".into()));
    // A camera that the policy does not have would otherwise be passed over.
    let bad = with("inputs", &unknown("observation.images.back", "observation.images.top"));
    assert_eq!((bad.len(), &bad[0]["name"]), (1, &"observation.images.back".into()));
    // An input that two files tell differently.
    let bad = with("train_forward", &|tensors| {
        let action = Tensor::zeros((1, 10, 7), candle_core::DType::F32, &Device::Cpu).unwrap();
        tensors.insert("action".into(), action);
    });
    assert_eq!((bad.len(), &bad[0]["name"], &bad[0]["verdict"]), (1, &"action".into(), &"differs".into()));
}

#[test]
fn what_cannot_be_verified_is_said() {
    type Change = fn(&mut Map<String, Value>);
    let no_dims: Change = |config| drop(config.shift_remove("tiny_dims"));
    let unchanged: Change = |_| ();
    for (weights, change, says) in [
        ("pi0-tiny/model.safetensors", unchanged, "is a π₀ policy: it comes with a later version"),
        ("pi05-tiny/model.safetensors", no_dims, "under tiny_dims"),
        ("pi05-tiny/case-a/inputs.safetensors", unchanged, "config.json"),
    ] {
        let bench = Bench::new();
        let checkpoint = checkpoint(&bench, weights, change);
        let (output, _) = verify(&bench, &checkpoint, &case("case-a", &["inputs"]));
        assert_eq!(output.status.code(), Some(64));
        if weights.ends_with("model.safetensors") {
            assert!(stderr(&output).contains(says), "{}", stderr(&output));
        } else {
            assert!(stderr(&output).contains("its names are no policy's"), "{}", stderr(&output));
        }
    }
    let bench = Bench::new();
    let checkpoint = checkpoint(&bench, "pi05-tiny/model.safetensors", unchanged);
    for (files, says) in [
        (vec![bench.path("nowhere.safetensors")], "cannot read the reference"),
        (case("case-a", &["train_forward"]), "give the case's inputs file too"),
    ] {
        let (output, _) = verify(&bench, &checkpoint, &files);
        assert_eq!(output.status.code(), Some(64));
        assert!(stderr(&output).contains(says), "{}", stderr(&output));
    }
}

#[test]
fn info_describes_what_a_training_leaves_wherever_it_is_pointed_at() {
    let bench = Bench::new();
    let settings = ["train.steps=3", "schedule.decay_steps=3", "train.delay.max=2"];
    succeed(bench.train("run", &settings));
    let info = |place: &str| {
        let output = succeed(bench.vlash(&["policy", "info", "--json", place]));
        let text = out(&succeed(bench.vlash(&["policy", "info", place])));
        (serde_json::from_slice::<Value>(&output.stdout).unwrap(), text)
    };
    let model = "run/checkpoints/000003/pretrained_model";
    let (policy, text) = info(model);
    for same in ["run", "run/checkpoints", "run/checkpoints/000003"] {
        let (other, _) = info(same);
        assert_eq!((&other["kind"], &other["statistics"]), (&policy["kind"], &policy["statistics"]), "{same}");
        assert!(other["directory"].as_str().unwrap().ends_with("000003/pretrained_model"), "{other}");
    }
    assert_eq!(
        (&policy["kind"], &policy["trained_delay"], &policy["chunk_size"]),
        (&"pi05".into(), &2.into(), &10.into())
    );
    assert_eq!(policy["adapters"][0]["rank"], 16);
    assert!(policy["adapters"][0]["whole"].as_u64().unwrap() > 0);
    for part in ["π₀.₅", "observation.state: ", "mode QUANTILES", "tokenizer", "adapter", "trained up to 2 frames"]
    {
        assert!(text.contains(part), "{part} in\n{text}");
    }
    let (base, text) = info("run/base");
    assert_eq!((&base["sizes"], base["adapters"].as_array().map(Vec::len)), (&policy["sizes"], Some(0)), "{text}");
    let (adapter, text) = info(&format!("{model}/lora_adapters"));
    assert_eq!((&adapter["rank"], &adapter["parameters"]), (&16.into(), &policy["adapters"][0]["parameters"]));
    assert!(text.contains("run/base (sha256 ") && text.contains("merged    into the policy"), "{text}");

    merging_the_adapter_again_gives_the_policy_beside_it(&bench, model);

    let output = finish(bench.vlash(&["policy", "info", "nowhere"]));
    assert_eq!(output.status.code(), Some(64));
    assert!(stderr(&output).contains("there is no directory nowhere"));
}

/// `model`: the last checkpoint of the run in `run/`, which holds its own base.
fn merging_the_adapter_again_gives_the_policy_beside_it(bench: &Bench, model: &str) {
    let adapter = format!("{model}/lora_adapters");
    let merge = |base: &str, more: &[&str]| {
        finish(bench.vlash(&[&["policy", "merge", &adapter, "--base", base, "--out", "merged"], more].concat()))
    };
    let output = merge("run/base", &[]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(out(&output).contains("the base is the one that the adapter was trained on"));
    for file in fs::read_dir(bench.path(model)).unwrap().map(|file| file.unwrap().path()).filter(|path| path.is_file())
    {
        let name = file.file_name().unwrap();
        assert_eq!(fs::read(bench.path("merged").join(name)).unwrap(), fs::read(&file).unwrap(), "{name:?}");
    }
    let again = merge("run/base", &[]);
    assert!(stderr(&again).contains("merged is not empty"), "{}", stderr(&again));
    fs::remove_dir_all(bench.path("merged")).unwrap();
    // The trained policy is another base; nothing is written until that is meant.
    let other = merge(model, &[]);
    assert_eq!(other.status.code(), Some(64));
    assert!(stderr(&other).contains("--force-base") && !bench.path("merged").exists(), "{}", stderr(&other));
    assert_eq!(merge(model, &["--force-base"]).status.code(), Some(0));
}

/// `vlash data check DATASET … --json`: exit code and findings by code.
fn check(bench: &Bench, dataset: &str, arguments: &[&str]) -> (i32, HashMap<String, Value>) {
    let dataset = fixture(dataset).display().to_string();
    let output = finish(bench.vlash(&[&["data", "check", &dataset, "--json"], arguments].concat()));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", stderr(&output)));
    let findings = json["findings"].as_array().unwrap().iter();
    let by_code = findings.map(|finding| (finding["code"].as_str().unwrap().to_owned(), finding.clone())).collect();
    (output.status.code().unwrap(), by_code)
}

#[test]
fn check_compares_cameras_and_prompts_with_a_policy() {
    let bench = Bench::new();
    let policy = checkpoint(&bench, "pi05-tiny/model.safetensors", |config| {
        config.insert("tokenizer_max_length".into(), 40.into());
    });
    let tokenizer = fixture("preprocessing/tokenizer").display().to_string();
    // The policy sees top, wrist and side; the dataset has front and side.
    let (code, found) = check(&bench, "datasets/v30-h264", &["--policy", &policy, "--tokenizer", &tokenizer]);
    assert_eq!(code, 64);
    let fix = found["policy-cameras"]["fix"].as_str().unwrap();
    assert!(fix.contains(r#"data.rename = { "observation.images.front" = "observation.images.top" }"#), "{fix}");
    assert!(fix.contains("model.empty_cameras = 1"), "{fix}");
    assert!(found["long-prompt"]["message"].as_str().unwrap().contains("exceed 40 tokens"), "{found:?}");

    // What was proposed, and a policy of longer prompts.
    let config = Path::new(&policy).join("config.json");
    let text =
        fs::read_to_string(&config).unwrap().replace("\"tokenizer_max_length\":40", "\"tokenizer_max_length\":200");
    fs::write(&config, text).unwrap();
    let rename = "observation.images.front=observation.images.top";
    let arguments = ["--policy", &policy, "--tokenizer", &tokenizer, "--empty-cameras", "1", "--rename", rename];
    let (code, found) = check(&bench, "datasets/v30-h264", &arguments);
    assert_eq!(code, 0, "{found:?}");
    assert!(found["masked-camera"]["message"].as_str().unwrap().contains("observation.images.wrist"));
    assert!(found["prompt-length"]["message"].as_str().unwrap().contains("of 200 tokens"));

    // Without a tokenizer nothing is guessed.
    for (arguments, way) in [(vec![], "--policy CHECKPOINT"), (vec!["--policy", &policy], "--tokenizer DIR")] {
        let (_, found) = check(&bench, "datasets/v30-h264", &arguments);
        assert!(found["prompts-unchecked"]["fix"].as_str().unwrap().ends_with(way), "{found:?}");
        assert!(!found.contains_key("prompt-length"));
    }
}

/// LeRobot's prompts and normalised states of three samples.
#[test]
fn show_prints_what_the_policys_processor_makes_of_a_sample() {
    let bench = Bench::new();
    let policy = checkpoint(&bench, "pi05-tiny/model.safetensors", |_| ());
    for folder in ["preprocessing/processors-pi05", "preprocessing/tokenizer"] {
        for file in fs::read_dir(fixture(folder)).unwrap() {
            let file = file.unwrap();
            fs::copy(file.path(), Path::new(&policy).join(file.file_name())).unwrap();
        }
    }
    let golden = candle_core::safetensors::load(fixture("preprocessing/end_to_end_pi05.safetensors"), &Device::Cpu);
    let golden = golden.unwrap();
    let indices = golden["indices"].to_vec1::<i64>().unwrap();
    let states = golden["pre.state"].to_vec2::<f32>().unwrap();
    let masks = golden["pre.token_mask"].to_vec2::<u8>().unwrap();
    let dataset = fixture("datasets/v30-av1").display().to_string();
    for ((index, state), mask) in indices.iter().zip(states).zip(masks) {
        let arguments = ["data", "show", &dataset, "--index", &index.to_string(), "--policy", &policy, "--json"];
        let shown: Value = serde_json::from_slice(&succeed(bench.vlash(&arguments)).stdout).unwrap();
        assert_eq!(shown["prompt_tokens"], mask.iter().filter(|&&m| m == 1).count());
        let ours = shown["state_normalised"].as_array().unwrap();
        assert_eq!(ours.len(), state.len());
        for (ours, theirs) in ours.iter().zip(&state) {
            let difference = (ours.as_f64().unwrap() as f32 - theirs).abs();
            assert!(difference <= 1e-6 * theirs.abs().max(1.0), "{ours} against {theirs}");
        }
    }
    let shown = out(&succeed(bench.vlash(&["data", "show", &dataset, "--index", "0"])));
    assert!(shown.contains("of the tiny preset (built-in tokenizer), the dataset's own statistics"), "{shown}");
    assert!(shown.contains("Task: Pick up the red cube and place it in the bin., State: "), "{shown}");
}
