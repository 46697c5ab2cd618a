//! LeRobot and PEFT read what we write, and compute the same from it.
//!
//! Switched on by `VLASH_PEER_PYTHON`, the path of a Python (3.12 or later) that has lerobot 0.6.1 with its `dataset`
//! extra, transformers 5.5.4 and peft 0.21.2; skipped otherwise.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

#[path = "../support/mod.rs"]
mod support;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use candle_core::{DType, Device, Tensor};
use support::{Bench, succeed};
use vlash_forge::adapter::plan::Frozen;
use vlash_forge::config::train::LossParity;
use vlash_forge::dataset::window::{StateRule, WindowSpec};
use vlash_forge::dataset::{Dataset, Selection, reach};
use vlash_forge::policy::batch::Draw;
use vlash_forge::policy::checkpoint::{Checkpoint, PolicyConfig};
use vlash_forge::policy::processor::TokenPadding;
use vlash_forge::policy::{Policy, RandomInit};

/// Sampled actions, normalised: the fixtures' README measures 3e-6 for a relative change of 1e-7 in all weights and
/// proposes about ten times that.
const ACTIONS: f32 = 5e-5;
/// The loss, by the same reasoning from 5e-7. It is of the order of one; for larger ones the limit is relative.
const LOSS: f32 = 5e-6;
/// The frames that are compared: first and last frames of episodes among them.
const INDICES: [i64; 4] = [0, 7, 31, 90];
const SHORT_RUN: [&str; 2] = ["train.steps=5", "schedule.decay_steps=5"];

/// The peer's Python, when it was named.
fn python(test: &str) -> Option<PathBuf> {
    let python = std::env::var_os("VLASH_PEER_PYTHON").filter(|path| !path.is_empty()).map(PathBuf::from);
    if python.is_none() {
        eprintln!(
            "{test}: skipped. VLASH_PEER_PYTHON=/path/to/python switches it on: a Python with \
             lerobot[dataset]==0.6.1 transformers==5.5.4 peft==0.21.2"
        );
    }
    python
}

/// Runs a script of the peer's; its output is part of a failure.
fn run(python: &Path, arguments: &[&str]) -> String {
    let output = Command::new(python).args(arguments).env("HF_HUB_OFFLINE", "1").output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

fn dataset() -> PathBuf {
    reach::ensure(&Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache")).unwrap()
}

/// What both sides compute for the same frames, noise and times.
struct Computed {
    actions_normalised: Tensor,
    actions: Tensor,
    loss: f32,
}

/// Noise and times, the same for every comparison.
fn draws(checkpoint: &Checkpoint) -> HashMap<String, Tensor> {
    let (rows, arch) = (INDICES.len(), &checkpoint.arch);
    let mut random = vlash_forge::random::stream(11, "peers", &[]);
    let mut values = |count: usize, normal: bool| -> Vec<f32> {
        use rand_distr::{Distribution, StandardNormal};
        let normals = (0..count).map(|_| StandardNormal.sample(&mut random));
        normals.map(|x: f32| if normal { x } else { 1.0 / (1.0 + x.exp()) }).collect()
    };
    let (chunk, width) = (arch.chunk_size, arch.max_action_dim);
    let noise = Tensor::from_vec(values(rows * chunk * width, true), (rows, chunk, width), &Device::Cpu).unwrap();
    let time = Tensor::from_vec(values(rows, false), rows, &Device::Cpu).unwrap();
    let indices = Tensor::new(&INDICES[..], &Device::Cpu).unwrap();
    HashMap::from([("indices".into(), indices), ("noise".into(), noise), ("time".into(), time)])
}

/// Through the library, as a deployment would.
fn ours(checkpoint: &Checkpoint, dataset: &Path, draws: &HashMap<String, Tensor>) -> Computed {
    let tokenizer = checkpoint.tokenizer().unwrap().expect("the tokenizer travels along");
    let processor = checkpoint.processor(tokenizer).unwrap();
    let weights = checkpoint.weights(&checkpoint.arch, &[], Box::new(RandomInit { seed: 0 })).unwrap();
    assert_eq!(weights.account().fresh, []);
    let policy = Policy::build(&checkpoint.arch, &weights, &Frozen, &Device::Cpu, DType::F32).unwrap();
    let data = Dataset::open(dataset, Selection::default()).unwrap();
    let window = WindowSpec { horizon: checkpoint.arch.chunk_size, state: StateRule::GroundTruth };
    let samples: Vec<_> = INDICES
        .iter()
        .map(|&index| processor.prepare(&data.sample(index as usize, &window, 0).unwrap()).unwrap())
        .collect();
    let (batch, targets) = processor.collate(&samples, TokenPadding::Fixed, &Device::Cpu).unwrap();
    let draw = Draw { noise: draws["noise"].clone(), time: draws["time"].clone() };
    let sampled = policy.sample(&batch, &draw.noise, checkpoint.config.num_inference_steps).unwrap();
    let loss = policy.losses(&batch, &targets, &draw, LossParity::Lerobot).unwrap().loss as f32;
    let actions = processor.unnormalise_actions(&sampled).unwrap();
    let actions_normalised = sampled.narrow(2, 0, processor.spec().action_dim).unwrap();
    Computed { actions_normalised, actions, loss }
}

/// Through LeRobot, which reads checkpoint and dataset itself; PEFT adds the adapter.
fn theirs(bench: &Bench, python: &Path, checkpoint: &Path, dataset: &Path, adapter: Option<&Path>) -> Computed {
    let (draws, out) = (bench.path("draws.safetensors"), bench.path("out.safetensors"));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers/lerobot_peer.py");
    let mut arguments = vec![script.as_path(), checkpoint, dataset, draws.as_path(), out.as_path()];
    arguments.extend(adapter.iter().flat_map(|adapter| [Path::new("--adapter"), adapter]));
    run(python, &arguments.iter().map(|path| path.to_str().unwrap()).collect::<Vec<_>>());
    let mut found = candle_core::safetensors::load(out, &Device::Cpu).unwrap();
    let mut take = |name: &str| found.remove(name).unwrap();
    Computed {
        actions_normalised: take("actions_normalised"),
        actions: take("actions"),
        loss: take("loss").to_vec1::<f32>().unwrap()[0],
    }
}

fn largest(tensor: &Tensor) -> f32 {
    tensor.abs().unwrap().flatten_all().unwrap().max(0).unwrap().to_scalar().unwrap()
}

/// Real units: the same limit times what a unit of the normalised range is worth, since un-normalising scales both.
fn assert_same(what: &str, ours: &Computed, theirs: &Computed) {
    let difference = |a: &Tensor, b: &Tensor| largest(&(a - b).unwrap());
    let normalised = difference(&ours.actions_normalised, &theirs.actions_normalised);
    let real = difference(&ours.actions, &theirs.actions);
    let loss = (ours.loss - theirs.loss).abs();
    println!(
        "{what}: actions differ by {normalised:.1e} normalised (largest {:.2}), {real:.1e} in real units (largest {:.2}); \
         loss {:.7} against {:.7}, {loss:.1e}",
        largest(&theirs.actions_normalised),
        largest(&theirs.actions),
        ours.loss,
        theirs.loss
    );
    let unit = largest(&theirs.actions) / largest(&theirs.actions_normalised).max(f32::MIN_POSITIVE);
    assert!(normalised <= ACTIONS, "{what}: normalised actions differ by {normalised}");
    assert!(real <= ACTIONS * unit.max(1.0), "{what}: actions differ by {real}");
    assert!(loss <= LOSS * theirs.loss.max(1.0), "{what}: losses differ by {loss}");
}

#[test]
fn lerobot_computes_the_same_from_a_lora_run_and_peft_from_its_adapter() {
    let Some(python) = python("lora") else { return };
    let bench = Bench::new();
    succeed(bench.train("run", &SHORT_RUN));
    let model = bench.path("run/checkpoints/000005/pretrained_model");
    let dataset = dataset();
    let checkpoint = Checkpoint::open(&model).unwrap();
    let draws = draws(&checkpoint);
    candle_core::safetensors::save(&draws, bench.path("draws.safetensors")).unwrap();
    let merged = ours(&checkpoint, &dataset, &draws);
    assert_same("merged policy in LeRobot", &merged, &theirs(&bench, &python, &model, &dataset, None));

    let base = bench.path("run/base");
    let adapted = theirs(&bench, &python, &base, &dataset, Some(&model.join("lora_adapters")));
    assert_same("adapter on its base in PEFT", &merged, &adapted);
    // The adapter must have done something, or the comparison says nothing.
    let plain = ours(&Checkpoint::open(&base).unwrap(), &dataset, &draws);
    let change = largest(&(&plain.actions_normalised - &merged.actions_normalised).unwrap());
    assert!(change > 100.0 * ACTIONS, "training moved the actions by {change} only");
}

#[test]
fn lerobot_computes_the_same_from_a_full_fine_tune() {
    let Some(python) = python("full") else { return };
    let bench = Bench::new();
    succeed(bench.train("run", &[&SHORT_RUN[..], &["adapter.enabled=false"]].concat()));
    let model = bench.path("run/checkpoints/000005/pretrained_model");
    let dataset = dataset();
    let checkpoint = Checkpoint::open(&model).unwrap();
    let draws = draws(&checkpoint);
    candle_core::safetensors::save(&draws, bench.path("draws.safetensors")).unwrap();
    let ours = ours(&checkpoint, &dataset, &draws);
    assert_same("full fine-tune in LeRobot", &ours, &theirs(&bench, &python, &model, &dataset, None));
}

/// Rows, videos and statistics of `vlash collect`, at the beginnings and ends of episodes that share files. The decoders
/// differ (FFmpeg, OpenH264), which H.264 allows no room for; the colours are FFmpeg's on both sides.
#[test]
fn lerobot_reads_the_recorded_videos_frame_by_frame() {
    let Some(python) = python("videos") else { return };
    let bench = Bench::new();
    let arguments = ["--episodes", "3", "--noise", "1", "--variant", "mixed", "--size", "96"];
    succeed(bench.vlash(&[&["collect", "--out", "demos"], &arguments[..]].concat()));
    let root = bench.path("demos");
    let data = Dataset::open(&root, Selection::default()).unwrap();
    let frames: Vec<(usize, usize)> = data
        .lengths()
        .iter()
        .enumerate()
        .flat_map(|(episode, &length)| [0, 1, length / 2, length - 1].map(|frame| (episode, frame)))
        .collect();
    let indices = frames.iter().map(|&(episode, frame)| (data.episodes()[episode].start + frame).to_string());
    let (script, out) =
        (Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers/lerobot_frames.py"), bench.path("frames.safetensors"));
    let paths = [&script, &root, &out].map(|path| path.to_str().unwrap().to_owned());
    let arguments: Vec<String> = paths.into_iter().chain(indices).collect();
    let printed = run(&python, &arguments.iter().map(String::as_str).collect::<Vec<_>>());
    let expected = format!("3 {} 30 observation.images.front observation.images.wrist", data.len());
    assert!(printed.contains(&expected), "{printed}");

    let found = candle_core::safetensors::load(&out, &Device::Cpu).unwrap();
    for (row, &(number, frame)) in frames.iter().enumerate() {
        let episode = &data.episodes()[number];
        let vector = |name: &str| found[name].get(row).unwrap().to_vec1::<f32>().unwrap();
        let window = WindowSpec { horizon: 1, state: StateRule::GroundTruth };
        let sample = data.sample(episode.start + frame, &window, 0).unwrap();
        assert_eq!((vector("state"), vector("action")), (sample.state.clone(), sample.actions.clone()));
        assert_eq!(found["episode_index"].get(row).unwrap().to_scalar::<i64>().unwrap(), number as i64);
        for camera in data.cameras() {
            let ours = data.image(episode, camera, frame).unwrap();
            let theirs = found[&camera.feature].get(row).unwrap().permute((1, 2, 0)).unwrap();
            assert_eq!(theirs.dims(), [96, 96, 3]);
            let theirs = theirs.flatten_all().unwrap().to_vec1::<u8>().unwrap();
            let farthest = ours.data.iter().zip(&theirs).map(|(a, b)| a.abs_diff(*b)).max().unwrap();
            assert!(farthest <= 1, "{}, episode {number}, frame {frame}: {farthest} levels", camera.feature);
            println!("{}, episode {number}, frame {frame}: {farthest} levels", camera.feature);
        }
    }
}

/// The published sizes are what stock LeRobot builds; its decoder takes our `config.json` as it is.
#[test]
fn stock_lerobot_decodes_the_configuration_of_a_full_size_policy() {
    let Some(python) = python("configuration") else { return };
    let bench = Bench::new();
    let (mut config, _) = PolicyConfig::parse(Path::new("config.json"), br#"{"type": "pi05"}"#).unwrap();
    config.vlash_forge.trained_delay = 8;
    config.chunk_size = 40;
    config.n_action_steps = 20;
    std::fs::write(bench.path("config.json"), config.to_json().unwrap()).unwrap();
    let script = "import sys, lerobot.policies\n\
                  from lerobot.configs.policies import PreTrainedConfig\n\
                  c = PreTrainedConfig.from_pretrained(sys.argv[1])\n\
                  print(c.type, c.chunk_size, c.n_action_steps, c.tokenizer_max_length)";
    let printed = run(&python, &["-c", script, bench.dir.path().to_str().unwrap()]);
    assert_eq!(printed.trim().lines().last(), Some("pi05 40 20 200"));
}
