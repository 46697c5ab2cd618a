//! A run from outside: its directory, its inbox, what it refuses, and that it learns.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod support;

use std::fs;
use std::process::Stdio;

use support::{Bench, finish, start, stderr, succeed};
use vlash_forge::track::control::Command;
use vlash_forge::track::event::{Body, Outcome, ValidationMetrics};
use vlash_forge::track::inbox;
use vlash_forge::track::status::{State, Status};

const FEW: &[&str] = &["train.steps=3", "schedule.decay_steps=3"];

fn status(bench: &Bench, run: &str) -> Status {
    serde_json::from_slice(&fs::read(bench.path(run).join("status.json")).unwrap()).unwrap()
}

#[test]
fn the_run_directory_tells_the_whole_story() {
    let bench = Bench::new();
    let output = succeed(bench.train("run", FEW));
    let run = bench.path("run");
    let record: serde_json::Value = serde_json::from_slice(&fs::read(run.join("run.json")).unwrap()).unwrap();
    assert_eq!(record["config"]["train"]["steps"], 3);
    let events = bench.events("run");
    assert!(matches!(events[0].body, Body::Started { step: 0, steps: 3, .. }));
    let steps = events.iter().filter(|event| matches!(event.body, Body::Step(_))).count();
    assert_eq!(steps, 3);
    assert!(matches!(events.last().unwrap().body, Body::Ended { outcome: Outcome::Finished, step: 3, .. }));
    assert_eq!(status(&bench, "run").state, State::Finished);
    assert!(!run.join("lease.json").exists());
    assert_eq!(fs::read_link(run.join("checkpoints/last")).unwrap().to_str(), Some("000003"));
    for file in [
        "config.json",
        "model.safetensors",
        "policy_preprocessor.json",
        "policy_postprocessor.json",
        "train_config.json",
        "tokenizer.json",
        "lora_adapters/adapter_model.safetensors",
        "lora_adapters/adapter_config.json",
    ] {
        assert!(run.join("checkpoints/last/pretrained_model").join(file).is_file(), "{file} is missing");
    }
    let text = stderr(&output);
    assert!(text.contains("checkpoint: ") && text.contains("next: vlash policy info"), "{text}");
}

#[test]
fn requests_are_seen_answered_and_obeyed() {
    let bench = Bench::new();
    let mut child = start(bench.train("run", &["train.steps=100000", "schedule.decay_steps=100000"]));
    bench.wait_for("run", "step", |body| matches!(body, Body::Step(_)));
    let run = bench.path("run");
    let ask = |command| inbox::send(&run, command).unwrap();
    let done = |id: &str| {
        let event = bench.wait_for("run", "answer", |body| match body {
            Body::CommandDone { id: answered, .. } | Body::CommandRefused { id: answered, .. } => answered == id,
            _ => false,
        });
        match event.body {
            Body::CommandDone { step, detail, .. } => Ok((step, detail)),
            Body::CommandRefused { reason, .. } => Err(reason),
            _ => unreachable!("waited for an answer"),
        }
    };
    let (held_at, _) = done(&ask(Command::Pause)).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(600));
    assert_eq!(status(&bench, "run").state, State::Paused);
    assert_eq!(status(&bench, "run").step, held_at);
    // While it holds: a failed checkpoint is reported and costs nothing.
    let (place, aside) = (run.join("checkpoints"), run.join("aside"));
    fs::rename(&place, &aside).unwrap();
    fs::write(&place, "in the way").unwrap();
    assert!(done(&ask(Command::Checkpoint)).is_err());
    assert!(bench.events("run").iter().any(|event| matches!(event.body, Body::CheckpointFailed { .. })));
    fs::remove_file(&place).unwrap();
    fs::rename(&aside, &place).unwrap();
    let (step, path) = done(&ask(Command::Checkpoint)).unwrap();
    assert_eq!(step, held_at);
    assert!(
        std::path::Path::new(&path).ends_with(format!("checkpoints/{step:06}"))
            || path.ends_with(&format!("{step:06}")),
        "{path}"
    );
    assert!(done(&ask(Command::SetLearningRate { lr: -1.0 })).is_err());
    let (step, _) = done(&ask(Command::SetLearningRate { lr: 7e-5 })).unwrap();
    done(&ask(Command::Resume)).unwrap();
    let next =
        bench.wait_for("run", "step at the new rate", |body| matches!(body, Body::Step(m) if m.step == step + 1));
    assert!(matches!(next.body, Body::Step(ref m) if (m.lr - 7e-5).abs() < 1e-9), "{next:?}");
    done(&ask(Command::Evaluate)).unwrap();
    fs::write(run.join("control/zzz.json"), "not a request").unwrap();
    bench.wait_for("run", "complaint", |body| matches!(body, Body::Notice { text, .. } if text.contains("zzz.json")));
    done(&ask(Command::Stop)).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(75));
    assert_eq!(status(&bench, "run").state, State::Stopped);
}

#[test]
fn a_directory_that_is_not_a_run_is_refused_untouched() {
    let bench = Bench::new();
    fs::create_dir(bench.path("demos")).unwrap();
    fs::write(bench.path("demos/episode.mp4"), "precious").unwrap();
    let output = finish(bench.train("demos", FEW));
    assert_eq!(output.status.code(), Some(64));
    let text = stderr(&output);
    assert!(text.contains("has 1 entries and no run.json") && text.contains("run.dir=demos-run1"), "{text}");
    assert_eq!(fs::read_dir(bench.path("demos")).unwrap().count(), 1);
}

#[test]
fn two_jobs_do_not_share_a_directory() {
    let bench = Bench::new();
    let mut child = start(bench.train("run", &["train.steps=100000", "schedule.decay_steps=100000"]));
    bench.wait_for("run", "step", |body| matches!(body, Body::Step(_)));
    let second = finish(bench.train("run", &["train.steps=100000", "schedule.decay_steps=100000"]));
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(second.status.code(), Some(64));
    assert!(stderr(&second).contains(&format!("belongs to process {}", child.id())), "{}", stderr(&second));
}

#[test]
fn what_will_not_fit_is_said_before_training() {
    let bench = Bench::new();
    let inner = bench.train("run", FEW);
    let mut limited = std::process::Command::new("bash");
    limited.current_dir(bench.dir.path()).arg("-c").arg("ulimit -f 512; exec \"$@\"").arg("bash");
    limited.arg(inner.get_program()).args(inner.get_args());
    for (key, value) in inner.get_envs() {
        match value {
            Some(value) => limited.env(key, value),
            None => limited.env_remove(key),
        };
    }
    let output = finish(limited);
    assert_eq!(output.status.code(), Some(69), "{}", stderr(&output));
    assert!(stderr(&output).contains("bytes for checkpoints cannot be written"), "{}", stderr(&output));
}

#[test]
fn a_loss_that_explodes_names_the_frames_and_keeps_the_last_good_state() {
    let bench = Bench::new();
    let settings = ["train.steps=50", "schedule.kind=constant", "optim.lr=1e18", "optim.grad_clip_norm=0"];
    let output = finish(bench.train("run", &settings));
    assert_eq!(output.status.code(), Some(64), "{}", stderr(&output));
    let text = stderr(&output);
    assert!(text.contains("for dataset frames [") || text.contains("gradient"), "{text}");
    assert!(text.contains("checkpoints/"), "{text}");
    assert_eq!(status(&bench, "run").state, State::Failed);
}

#[test]
fn a_missing_episode_is_named_before_anything_is_written() {
    let bench = Bench::new();
    let output = finish(bench.train("run", &["data.episodes=[0,1,700]"]));
    assert_eq!(output.status.code(), Some(64));
    assert!(stderr(&output).contains("700"), "{}", stderr(&output));
    assert!(!bench.path("run").exists());
}

/// The embedded default on its fixed seed, as `vlash train` runs it.
#[test]
fn the_embedded_default_learns_to_look() {
    let bench = Bench::new();
    succeed(bench.vlash(&["train", "--no-tui", "run.dir=run"]));
    let last: ValidationMetrics = bench
        .events("run")
        .into_iter()
        .filter_map(|event| if let Body::Validation(metrics) = event.body { Some(metrics) } else { None })
        .next_back()
        .unwrap();
    let shuffled = last.shuffled.unwrap();
    assert!(last.loss <= 0.5 * last.zero_velocity, "held-out loss {} against {}", last.loss, last.zero_velocity);
    assert!(shuffled >= 1.5 * last.loss, "shuffled {shuffled} against {}", last.loss);
}

/// `vlash train … 2>&1 | head`: who has read enough does not end the run.
#[test]
fn a_reader_that_leaves_costs_nothing() {
    let bench = Bench::new();
    let mut command = bench.train("run", &["train.steps=3", "schedule.decay_steps=3"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop((child.stdout.take(), child.stderr.take()));
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(bench.path("run/checkpoints/last/manifest.json").exists());
}
