//! The configurations that ship with the project, and those that the predecessors ship.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::{Path, PathBuf};

use rstest::rstest;
use vlash_forge::config::train::*;
use vlash_forge::config::{self, Loaded, Source};

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/config");
const SHIPPED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/configs/train");

fn load(path: impl AsRef<Path>, overrides: &[&str]) -> Result<Loaded<TrainConfig>, config::ConfigErrors> {
    let overrides: Vec<String> = overrides.iter().map(ToString::to_string).collect();
    config::load(&Source::File(path.as_ref().to_path_buf()), None, &overrides)
}

fn predecessors(file: &str, overrides: &[&str]) -> Result<Loaded<TrainConfig>, config::ConfigErrors> {
    load(Path::new(FIXTURES).join(file), overrides)
}

fn messages(errors: &config::ConfigErrors) -> Vec<String> {
    errors.iter().map(|error| error.message.clone()).collect()
}

/// What this version cannot do yet is refused; everything else of the files holds unchanged.
#[rstest]
#[case("pi05/sync.yaml", &[])]
#[case("pi05/async.yaml", &[])]
#[case("pi05/async_lora.yaml", &[])]
#[case("pi05/cloud.yaml", &[])]
#[case("pi05/cloud_full.yaml", &[])]
#[case("pi0/sync.yaml", &["policy.type"])]
#[case("pi0/async.yaml", &["policy.type"])]
#[case("pi0/async_lora.yaml", &["policy.type"])]
fn a_predecessors_file_is_refused_for_nothing_but_what_is_not_built(#[case] file: &str, #[case] refused: &[&str]) {
    let found = predecessors(file, &["data.repo=lab/pick"]).map_or_else(|errors| messages(&errors), |_| Vec::new());
    assert_eq!(found.len(), refused.len(), "{found:?}");
    for (message, key) in found.iter().zip(refused) {
        assert!(message.starts_with(key), "{message}");
    }
}

#[rstest]
#[case("cuda", Some(DeviceKind::Cuda(0)))]
#[case("cuda:0", Some(DeviceKind::Cuda(0)))]
#[case("CUDA:12", Some(DeviceKind::Cuda(12)))]
#[case("auto", Some(DeviceKind::Auto))]
#[case("cuda:", None)]
#[case("cuda:-1", None)]
#[case("cuda:+1", None)]
#[case("cuda:99999999999999999999", None)]
#[case("gpu", None)]
fn a_device_is_auto_cpu_or_one_gpu(#[case] text: &str, #[case] means: Option<DeviceKind>) {
    let loaded = predecessors("pi05/sync.yaml", &["data.repo=lab/pick", &format!("policy.device={text}")]);
    match means {
        Some(device) => assert_eq!(loaded.unwrap().value.runtime.device, device),
        None => assert!(messages(&loaded.unwrap_err())[0].contains("is not auto, cpu, cuda, or one of several GPUs")),
    }
}

const SMALL_ENOUGH: [&str; 2] = ["policy.device=cpu", "policy.type=pi05"];

#[rstest]
#[case("pi05/sync.yaml", 16, 1, 0, 5e-5)]
#[case("pi05/async.yaml", 16, 1, 8, 5e-5)]
#[case("pi05/async_lora.yaml", 1, 8, 8, 5e-5)]
#[case("pi05/cloud.yaml", 1, 8, 8, 5e-5)]
#[case("pi05/cloud_full.yaml", 1, 8, 8, 2e-5)]
#[case("pi0/sync.yaml", 16, 1, 0, 5e-5)]
#[case("pi0/async.yaml", 16, 1, 8, 5e-5)]
#[case("pi0/async_lora.yaml", 1, 8, 8, 5e-5)]
fn a_predecessors_file_means_the_same_here(
    #[case] file: &str,
    #[case] batch: usize,
    #[case] accumulation: usize,
    #[case] delay: usize,
    #[case] lr: f64,
) {
    let overrides = [&SMALL_ENOUGH[..], &["data.repo=lab/pick"]].concat();
    let config = predecessors(file, &overrides).unwrap().value;
    assert_eq!(
        (config.train.batch_size, config.train.grad_accum, config.train.delay.max),
        (batch, accumulation, delay)
    );
    assert_eq!(config.train.delay.shared, file.contains("async"));
    assert_eq!((config.train.steps, config.checkpoint.every, config.log.every), (50_000, 10_000, 200));
    assert_eq!(
        config.optim,
        OptimConfig {
            lr,
            betas: [0.9, 0.95],
            eps: 1e-8,
            weight_decay: 1e-10,
            grad_clip_norm: 1.0,
            preset: OptimPreset::None
        }
    );
    let decay_lr = if lr == 2e-5 { 1e-6 } else { 2.5e-6 };
    let kind = ScheduleKind::CosineDecayWithWarmup;
    assert_eq!(
        config.schedule,
        ScheduleConfig { kind, warmup_steps: 1000, decay_steps: 50_000, peak_lr: lr, decay_lr }
    );
    assert!(config.model.state_cond);
    assert_eq!((config.normalization.state, config.normalization.action), (NormMode::MeanStd, NormMode::MeanStd));
    // Nothing of the predecessors' data is held out or deleted.
    assert_eq!((config.validation.fraction, config.checkpoint.keep_last), (0.0, 0));
    let lora = file.ends_with("lora.yaml") || file.ends_with("cloud.yaml");
    assert_eq!(config.adapter.enabled, lora);
    if lora {
        assert_eq!((config.adapter.rank, config.adapter.alpha, config.adapter.dropout), (16, 16.0, 0.0));
        assert_eq!((config.adapter.targets.len(), config.adapter.also_train.len()), (10, 10));
        assert_eq!(config.adapter.quantize, None);
    }
    assert_eq!(config.train.activation_checkpointing, file.ends_with("full.yaml"));
}

#[test]
fn a_silent_yaml_file_stands_at_the_predecessors_defaults() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("silent.yaml");
    std::fs::write(&path, "policy:\n  type: pi05\ndataset:\n  repo_id: lab/pick\n").unwrap();
    let loaded = load(&path, &[]).unwrap();
    let config = &loaded.value;
    assert_eq!((config.train.steps, config.train.batch_size, config.checkpoint.every), (100_000, 8, 20_000));
    assert_eq!((config.run.seed, config.data.workers, config.log.every), (1000, 4, 200));
    assert_eq!((config.optim.lr, config.optim.weight_decay, config.optim.grad_clip_norm), (2.5e-5, 0.01, 1.0));
    assert_eq!(
        (config.schedule.warmup_steps, config.schedule.decay_steps, config.schedule.peak_lr),
        (1000, 30_000, 2.5e-5)
    );
    assert_eq!((config.model.dtype, config.run.name.as_str()), (Dtype::Bfloat16, "pi05"));
    let notes: Vec<String> = loaded.notes.iter().map(ToString::to_string).collect();
    for said in ["RANDOM weights", "MEAN_STD", "nothing is uploaded"] {
        assert_eq!(notes.iter().filter(|note| note.contains(said)).count(), 1, "{said}: {notes:?}");
    }
}

#[test]
fn a_plain_optimizer_without_a_schedule_is_lerobots() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("plain.yaml");
    std::fs::write(&path, "use_policy_training_preset: false\ndataset: {repo_id: a/b}\nscheduler: null\n").unwrap();
    let config = load(&path, &[]).unwrap().value;
    assert_eq!((config.optim.lr, config.optim.betas, config.optim.weight_decay), (1e-3, [0.9, 0.999], 1e-2));
    assert_eq!((config.schedule.kind, config.schedule.peak_lr), (ScheduleKind::Constant, 1e-3));
}

#[test]
fn lerobots_peft_block_switches_adapters_on() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("peft.yaml");
    std::fs::write(&path, "dataset: {repo_id: a/b}\npeft: {method_type: LORA, r: 8, target_modules: [q_proj]}\n")
        .unwrap();
    let adapter = load(&path, &[]).unwrap().value.adapter;
    assert!(adapter.enabled);
    assert_eq!((adapter.rank, adapter.alpha, adapter.targets), (8, 8.0, vec!["q_proj".to_string()]));
}

#[test]
fn spellings_of_yaml_1_1_are_understood() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("spellings.yaml");
    let text = "\u{feff}policy:\n  type: PI05\n  freeze_vision_encoder: yes\n  train_expert_only: off\n\
                dataset:\n  repo_id: a/b\n  episodes: '0:3,7'\nlora: {enable: On}\nresume: true\n\
                batch_size: '8'\nsteps: 1e3\nuse_policy_training_preset: no\noptimizer: {lr: 5e-5}\njob_name: no\n";
    std::fs::write(&path, text).unwrap();
    let config = load(&path, &[]).unwrap().value;
    assert_eq!(config.model.freeze, [Freeze::Vision]);
    assert_eq!(config.data.episodes.as_deref(), Some(&[0, 1, 2, 7][..]));
    assert!(config.adapter.enabled);
    assert_eq!(config.run.resume, Resume::Always);
    assert_eq!((config.train.batch_size, config.train.steps, config.optim.lr), (8, 1000, 5e-5));
    assert_eq!(config.run.name, "no");
}

#[rstest]
#[case(None, Preset::Tiny, true)]
#[case(Some(Preset::Tiny), Preset::Tiny, true)]
#[case(Some(Preset::Small), Preset::Small, false)]
#[case(Some(Preset::Full), Preset::Full, true)]
fn the_built_in_configurations_load(#[case] preset: Option<Preset>, #[case] expected: Preset, #[case] adapter: bool) {
    let overrides = ["data.repo=x".to_string(), "model.base=y".to_string()];
    let config = config::load(&Source::Embedded, preset, &overrides).unwrap().value;
    assert_eq!(config.model.preset, expected);
    assert_eq!(config.adapter.enabled, adapter);
}

#[test]
fn every_shipped_file_loads() {
    let mut files: Vec<PathBuf> = std::fs::read_dir(SHIPPED).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert_eq!(files.len(), 6);
    for file in files {
        let loaded = load(&file, &["data.repo=x", "model.base=y"]).unwrap_or_else(|errors| panic!("{errors}"));
        let notes: Vec<String> = loaded.notes.iter().map(ToString::to_string).collect();
        let expected = if file.ends_with("reference.toml") { 3 } else { 0 };
        assert_eq!(notes.len(), expected, "{}: {notes:?}", file.display());
    }
}

/// The predecessors' files, resolved, printed as TOML, loaded again: nothing changes on the way.
#[rstest]
fn printing_and_loading_is_the_identity(#[files("tests/fixtures/config/pi*/*.yaml")] file: PathBuf) {
    let overrides = [&SMALL_ENOUGH[..], &["data.repo=lab/pick"]].concat();
    let first = load(&file, &overrides).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let printed = dir.path().join("printed.toml");
    std::fs::write(&printed, config::print::resolved(&first)).unwrap();
    assert_eq!(load(&printed, &[]).unwrap().value, first.value);
}
