//! Field failures of datasets (FF-01 … FF-06) as a training run meets them; `data_check.rs` has what the check says.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic as tests do")]

mod support;

use std::fs;
use std::path::{Path, PathBuf};

use safetensors::SafeTensors;
use support::{Bench, finish, stderr, succeed};
use vlash_forge::track::event::Body;

const FEW: &[&str] = &["train.steps=2", "schedule.decay_steps=2"];

/// A copy of a fixture below the test's directory, which `edit` may break; returns the setting that selects it.
fn copied(bench: &Bench, fixture: &str, edit: impl FnOnce(&Path)) -> String {
    let root = bench.path("set");
    copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/datasets").join(fixture), &root);
    edit(&root);
    format!("data.repo={}", root.display())
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.path().is_dir() { copy(&entry.path(), &to) } else { fs::copy(entry.path(), to).map(drop).unwrap() }
    }
}

fn replace(path: PathBuf, from: &str, to: &str) {
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains(from), "{}: no {from}", path.display());
    fs::write(path, text.replace(from, to)).unwrap();
}

fn train(bench: &Bench, run: &str, settings: &[&str]) -> std::process::Command {
    bench.train(run, &[FEW, settings].concat())
}

/// Runs to a refusal, which must come before anything is written; returns the message.
fn refused(bench: &Bench, settings: &[&str]) -> String {
    let output = finish(train(bench, "refused", settings));
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(64), "{text}");
    assert!(!bench.path("refused").exists(), "a refused run leaves nothing behind");
    text
}

fn warnings(bench: &Bench, run: &str) -> Vec<String> {
    let text = |body: Body| if let Body::Notice { text, .. } = body { Some(text) } else { None };
    bench.events(run).into_iter().filter_map(|event| text(event.body)).collect()
}

fn losses(bench: &Bench, run: &str) -> Vec<f64> {
    let loss = |body: Body| if let Body::Step(metrics) = body { Some(metrics.loss) } else { None };
    bench.events(run).into_iter().filter_map(|event| loss(event.body)).collect()
}

#[test]
fn ff_01_layout_and_version_in_contradiction() {
    let bench = Bench::new();
    let data = copied(&bench, "v21", |root| replace(root.join("meta/info.json"), "\"v2.1\"", "\"v3.0\""));
    let text = refused(&bench, &[&data]);
    for part in ["info.json says v3.0 but the files are laid out as v2.1", "set codebase_version to \"v2.1\""] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn ff_02_a_selection_that_a_message_prints_works_when_pasted() {
    let bench = Bench::new();
    let data = copied(&bench, "v21", |root| {
        fs::remove_file(root.join("videos/chunk-000/observation.images.top/episode_000001.mp4")).unwrap();
    });
    let text = refused(&bench, &[&data]);
    let fix =
        text.lines().find_map(|line| line.split_once("fix: ").filter(|(_, fix)| fix.starts_with("data.episodes")));
    let (_, fix) = fix.unwrap_or_else(|| panic!("no selection in {text}"));
    assert_eq!(fix, "data.episodes = [0, 2, 3]");
    succeed(train(&bench, "pasted", &[&data, fix]));
}

/// `joint_2` of the fixture stands still: its statistics have no spread, and the file's own are made impossible, too.
#[test]
fn ff_03_a_constant_joint_trains_and_what_is_saved_is_widened() {
    let bench = Bench::new();
    let data = copied(&bench, "v30-av1", |root| {
        let path = root.join("meta/stats.json");
        let mut stats: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        stats["action"]["std"][0] = serde_json::json!(-1.0);
        fs::write(path, stats.to_string()).unwrap();
    });
    succeed(train(&bench, "run", &[&data]));
    assert!(losses(&bench, "run").iter().all(|loss| loss.is_finite()));
    let said = warnings(&bench, "run");
    assert!(said.iter().any(|text| text.contains("(joint_3.pos)") && text.contains("floor of 0.02")), "{said:?}");
    let model = bench.path("run/checkpoints/last/pretrained_model");
    let bytes = fs::read(model.join("policy_preprocessor_step_3_normalizer_processor.safetensors")).unwrap();
    let saved = SafeTensors::deserialize(&bytes).unwrap();
    let values = |name: &str| -> Vec<f32> {
        let data = saved.tensor(name).unwrap().data().to_vec();
        data.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
    };
    for feature in ["observation.state", "action"] {
        let (low, high) = (values(&format!("{feature}.q01")), values(&format!("{feature}.q99")));
        let narrowest = low.iter().zip(&high).map(|(low, high)| high - low).fold(f32::INFINITY, f32::min);
        assert!(narrowest >= 0.0199, "{feature}: {low:?} {high:?}");
    }
}

#[test]
fn ff_04_chunks_and_delays_longer_than_the_episodes() {
    let bench = Bench::new();
    let data = copied(&bench, "v21", |_| {});
    succeed(train(&bench, "chunk", &[&data, "model.chunk_size=60"]));
    let said = warnings(&bench, "chunk");
    let padding = said.iter().find(|text| text.contains("chunk 60 against episodes of 29..41 frames"));
    assert!(padding.is_some_and(|text| text.contains("are padding and carry no loss (fix: ")), "{said:?}");
    assert!(losses(&bench, "chunk").iter().all(|loss| loss.is_finite() && *loss > 0.0));
    succeed(train(&bench, "delay", &[&data, "train.delay.max=60"]));
    assert!(losses(&bench, "delay").iter().all(|loss| loss.is_finite() && *loss > 0.0));
}

#[test]
fn ff_05_cameras_are_matched_by_name_and_the_hint_can_be_pasted() {
    let bench = Bench::new();
    let own = copied(&bench, "v21", |_| {});
    succeed(train(&bench, "base", &[&own]));
    let base = format!("model.base={}", bench.path("base/checkpoints/last/pretrained_model").display());
    let other = format!("data.repo={}/tests/fixtures/datasets/v30-h264", env!("CARGO_MANIFEST_DIR"));
    let text = refused(&bench, &[&base, &other]);
    for name in
        ["observation.images.top", "observation.images.wrist", "observation.images.front", "observation.images.side"]
    {
        assert!(text.contains(name), "{text}");
    }
    let (_, hint) = text.split_once("hint: ").unwrap();
    let (toml, yaml) = hint.lines().next().unwrap().split_once("  # YAML: ").unwrap();
    // As an argument, as a TOML file and as a YAML file.
    succeed(train(&bench, "argument", &[&base, &other, toml]));
    fs::write(bench.path("pasted.toml"), format!("model.preset = \"tiny\"\nmodel.chunk_size = 10\n{toml}\n")).unwrap();
    succeed(bench.train("toml", &[FEW, &["pasted.toml", &base, &other]].concat()));
    fs::write(bench.path("pasted.yaml"), format!("policy: {{type: pi05, chunk_size: 10}}\n{yaml}\n")).unwrap();
    succeed(bench.train("yaml", &[FEW, &["pasted.yaml", "--preset", "tiny", &base, &other]].concat()));
    // One camera for a policy of two: only after the configuration says which is empty.
    let one = "data.cameras=[\"observation.images.top\"]";
    let text = refused(&bench, &[&base, &own, one]);
    let (_, hint) = text.split_once("hint: ").unwrap();
    let (toml, yaml) = hint.lines().next().unwrap().split_once("  # YAML: ").unwrap();
    assert_eq!((toml, yaml), ("model.empty_cameras = 1", "policy.empty_cameras: 1; masks observation.images.wrist"));
    succeed(train(&bench, "masked", &[&base, &own, one, toml]));
}

#[test]
fn ff_06_long_and_empty_tasks() {
    let bench = Bench::new();
    let green = "push_the green block\\nto the left";
    let data = copied(&bench, "v21", |root| replace(root.join("meta/tasks.jsonl"), green, &"word ".repeat(400)));
    let text = refused(&bench, &[&data]);
    for part in ["1 of 2 tasks exceed 200 tokens", "task_index 1", "data.long_prompts=cut_task"] {
        assert!(text.contains(part), "{text}");
    }
    succeed(train(&bench, "cut", &[&data, "data.long_prompts=cut_task"]));
    let empty = bench.path("set/meta/tasks.jsonl");
    replace(empty, &"word ".repeat(400), " ");
    let text = refused(&bench, &[&data]);
    assert!(text.contains("task_index 1") && text.contains("meta/tasks"), "{text}");
}
