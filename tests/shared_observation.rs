//! Shared-observation training from outside; the network against VLASH is in `tests/parity`.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod support;

use rstest::rstest;
use support::{Bench, finish, start, stderr, succeed};
use vlash_forge::dataset::frame::RgbFrame;
use vlash_forge::dataset::write::{DatasetSpec, DatasetWriter, FeatureSpec, NumericType, Value};
use vlash_forge::track::event::{Body, StepMetrics, ValidationMetrics};

/// All three delays of a frame, in everything else that a resume could get wrong.
const SHARED: &[&str] = &[
    "model.state_cond=true",
    "train.delay.max=2",
    "train.delay.shared=true",
    "train.grad_accum=2",
    "adapter.dropout=0.1",
    "data.augment.enabled=true",
    "train.steps=20",
    "schedule.decay_steps=20",
];

fn shared(extra: &[&'static str]) -> Vec<&'static str> {
    [SHARED, extra].concat()
}

#[test]
fn twenty_steps_are_ten_and_ten_after_a_kill() {
    let bench = Bench::new();
    succeed(bench.train("straight", &shared(&["data.workers=2"])));
    let mut half = start(bench.train("parts", &shared(&["data.workers=0", "checkpoint.every=10"])));
    bench.wait_for("parts", "checkpoint", |body| matches!(body, Body::Checkpoint { step: 10, .. }));
    half.kill().unwrap();
    half.wait().unwrap();
    succeed(bench.train("parts", &shared(&["data.workers=3", "train.activation_checkpointing=true"])));
    let resumed = |body: &Body| matches!(body, Body::Started { step: 10, resumed_from: Some(_), .. });
    assert!(bench.events("parts").iter().any(|event| resumed(&event.body)), "{:?}", bench.events("parts"));
    for file in [
        "training_state/trained.safetensors",
        "training_state/optimizer_state.safetensors",
        "training_state/trainer.json",
        "pretrained_model/model.safetensors",
    ] {
        assert!(bench.saved("straight", 20, file) == bench.saved("parts", 20, file), "{file} differs");
    }
}

fn steps(bench: &Bench, run: &str) -> Vec<StepMetrics> {
    bench.events(run).into_iter().filter_map(|e| if let Body::Step(m) = e.body { Some(m) } else { None }).collect()
}

fn validations(bench: &Bench, run: &str) -> Vec<ValidationMetrics> {
    let each = bench.events(run).into_iter();
    each.filter_map(|e| if let Body::Validation(m) = e.body { Some(m) } else { None }).collect()
}

#[test]
fn frames_are_samples_and_every_delay_has_its_loss() {
    let bench = Bench::new();
    let few = ["train.steps=3", "schedule.decay_steps=3"];
    succeed(bench.train("shared", &[SHARED, &few].concat()));
    let drawn = [SHARED, &few, &["train.delay.shared=false"]].concat();
    succeed(bench.train("drawn", &drawn));
    let plain = [SHARED, &few, &["train.delay.shared=false", "train.delay.max=0"]].concat();
    succeed(bench.train("plain", &plain));

    let last = steps(&bench, "shared").pop().unwrap();
    // Batches of 2, two of them a step, three steps.
    assert_eq!(last.samples, 12);
    let chunks = last.chunks_per_s.unwrap();
    assert!((chunks / last.samples_per_s - 3.0).abs() < 1e-9, "{last:?}");
    assert!(last.loss_by_delay.len() == 3 && last.loss_by_delay.iter().all(Option::is_some), "{last:?}");
    let drawn = steps(&bench, "drawn").pop().unwrap();
    assert_eq!((drawn.samples, drawn.chunks_per_s, drawn.loss_by_delay.len()), (12, None, 3));
    let plain = steps(&bench, "plain").pop().unwrap();
    assert_eq!((plain.chunks_per_s, plain.loss_by_delay.len()), (None, 0));

    // Before the first step the two have the same weights: measured on the same frames, delays and draws.
    let (one, two) = (&validations(&bench, "shared")[0], &validations(&bench, "drawn")[0]);
    assert_eq!(one.loss_by_delay, two.loss_by_delay);
    assert_eq!((one.loss, one.shuffled, one.loss_by_delay.len()), (two.loss, two.shuffled, 3));
    assert!(one.loss_by_delay.iter().all(Option::is_some));
    assert_eq!(validations(&bench, "plain")[0].loss_by_delay, []);
}

#[test]
fn with_the_state_in_the_prompt_held_out_delays_go_round() {
    let bench = Bench::new();
    let settings = ["train.delay.max=2", "train.steps=2", "schedule.decay_steps=2", "validation.batches=3"];
    succeed(bench.train("run", &settings));
    let validation = &validations(&bench, "run")[0];
    assert!(validation.loss_by_delay.len() == 3 && validation.loss_by_delay.iter().all(Option::is_some));
}

#[rstest]
#[case(&["train.delay.max=2", "train.delay.shared=true"], "add model.state_cond=true, or set it to false")]
#[case(&["model.state_cond=true", "train.delay.shared=true"], "train.delay.max = 0; add train.delay.max=8")]
fn what_it_rests_on_is_asked_for_by_name(#[case] settings: &[&str], #[case] wanted: &str) {
    let bench = Bench::new();
    let refused = finish(bench.train("run", settings));
    assert_eq!(refused.status.code(), Some(64));
    assert!(stderr(&refused).contains(wanted), "{}", stderr(&refused));
}

/// Of an episode of one frame only delay 0 is inside: every other branch of it is padding from its first action on.
#[test]
fn episodes_of_one_frame_train_their_only_delay() {
    let bench = Bench::new();
    let joints = |name: &str| FeatureSpec::vector(name, NumericType::Float32, &["x", "y"]);
    let camera = FeatureSpec::image("observation.images.top", 16, 16);
    let spec = DatasetSpec::new(10, None, vec![camera, joints("observation.state"), joints("action")]);
    let mut writer = DatasetWriter::create(&bench.path("short"), spec).unwrap();
    for number in 0..8u8 {
        let mut episode = writer.begin("reach");
        let (image, level) = (RgbFrame { height: 16, width: 16, data: vec![30 * number; 768] }, f32::from(number));
        episode.push(&[Value::Image(&image), Value::F32(&[level, -level]), Value::F32(&[level, 1.0 - level])]).unwrap();
        writer.save(episode).unwrap();
    }
    writer.finish().unwrap();
    let few = ["data.repo=short", "train.delay.ground_truth=true", "train.steps=3", "schedule.decay_steps=3"];
    succeed(bench.train("run", &shared(&few)));
    for losses in steps(&bench, "run").into_iter().map(|m| m.loss_by_delay) {
        assert!(losses[0].is_some_and(|loss| loss > 0.0) && losses[1..].iter().all(Option::is_none), "{losses:?}");
    }
    for validation in validations(&bench, "run") {
        assert!(validation.loss.is_finite() && validation.loss > 0.0, "{validation:?}");
        assert!(validation.loss_by_delay[1..].iter().all(Option::is_none), "{validation:?}");
    }
}
