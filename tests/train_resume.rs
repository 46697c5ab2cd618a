//! What a run loses when it is interrupted: nothing. All comparisons are of bytes.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod support;

use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rand::Rng;
use support::{Bench, finish, start, succeed};
use vlash_forge::track::event::Body;

/// Everything that a resume could get wrong at once: adapter dropout, accumulation, delays, augmentation.
const HARD: &[&str] = &[
    "adapter.dropout=0.1",
    "train.grad_accum=2",
    "train.delay.max=2",
    "data.augment.enabled=true",
    "schedule.decay_steps=40",
    "train.steps=40",
];

/// What must be equal: weights, moments, counters, and the policy that is deployed.
const FILES: [&str; 4] = [
    "training_state/trained.safetensors",
    "training_state/optimizer_state.safetensors",
    "training_state/trainer.json",
    "pretrained_model/model.safetensors",
];

fn hard(extra: &[&'static str]) -> Vec<&'static str> {
    [HARD, extra].concat()
}

fn assert_same(bench: &Bench, one: &str, other: &str, step: usize) {
    for file in FILES {
        assert!(bench.saved(one, step, file) == bench.saved(other, step, file), "{file} of {one} and {other} differ");
    }
}

fn signal(pid: u32, signal: Signal) {
    kill(Pid::from_raw(pid as i32), signal).unwrap();
}

#[test]
fn forty_steps_are_twenty_and_twenty_with_another_number_of_workers() {
    let bench = Bench::new();
    succeed(bench.train("straight", &hard(&["data.workers=2"])));
    let first = hard(&["data.workers=0", "checkpoint.every=20"]);
    let mut half = start(bench.train("parts", &first));
    bench.wait_for("parts", "checkpoint", |body| matches!(body, Body::Checkpoint { step: 20, .. }));
    // After the checkpoint, somewhere in the steps that follow.
    signal(half.id(), Signal::SIGKILL);
    half.wait().unwrap();
    succeed(bench.train("parts", &hard(&["data.workers=3"])));
    let resumed = |body: &Body| matches!(body, Body::Started { step: 20, resumed_from: Some(_), .. });
    assert!(bench.events("parts").iter().any(|event| resumed(&event.body)), "{:?}", bench.events("parts"));
    assert_same(&bench, "straight", "parts", 40);
}

#[test]
fn a_stop_signal_saves_and_says_resumable() {
    let bench = Bench::new();
    succeed(bench.train("straight", HARD));
    for which in [Signal::SIGTERM, Signal::SIGUSR1, Signal::SIGINT] {
        let mut child = start(bench.train("parts", HARD));
        // SIGINT comes last and finds the run near its end: any step will do.
        let since = bench.events("parts").len();
        loop {
            let events = bench.events("parts");
            if events.iter().skip(since).any(|event| matches!(event.body, Body::Step(_))) {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        signal(child.id(), which);
        let status = child.wait().unwrap();
        assert_eq!(status.code(), Some(75), "{which}: {:?}", bench.events("parts").last());
        let last = bench.events("parts").pop().unwrap();
        assert!(matches!(&last.body, Body::Ended { detail, .. } if detail == which.as_str()), "{last:?}");
    }
    succeed(bench.train("parts", HARD));
    assert_same(&bench, "straight", "parts", 40);
}

#[test]
fn kills_at_random_moments_change_nothing() {
    let bench = Bench::new();
    succeed(bench.train("straight", HARD));
    let settings = hard(&["checkpoint.every=3", "checkpoint.keep_last=2"]);
    let mut random = vlash_forge::random::stream(5, "kills", &[]);
    for _ in 0..6 {
        let mut child = start(bench.train("parts", &settings));
        std::thread::sleep(Duration::from_millis(random.random_range(300..2500)));
        let _ = kill(Pid::from_raw(child.id() as i32), Signal::SIGKILL);
        child.wait().unwrap();
    }
    succeed(bench.train("parts", &settings));
    assert_same(&bench, "straight", "parts", 40);
}

#[test]
fn another_configuration_is_shown_and_refused_until_accepted() {
    let bench = Bench::new();
    let short = ["train.steps=4", "schedule.decay_steps=4"];
    succeed(bench.train("run", &short));
    let refused = finish(bench.train("run", &["train.steps=6", "schedule.decay_steps=4", "optim.lr=1e-4"]));
    assert_eq!(refused.status.code(), Some(64));
    let message = support::stderr(&refused);
    assert!(message.contains("optim.lr: 0.0015 → 0.0001") && message.contains("--accept-changes"), "{message}");
    let breaking = finish(bench.train("run", &["train.steps=6", "schedule.decay_steps=4", "adapter.rank=4"]));
    let message = support::stderr(&breaking);
    assert!(message.contains("adapter.rank: 16 → 4") && !message.contains("--accept-changes"), "{message}");
    let changed = ["train.steps=6", "schedule.decay_steps=4", "optim.lr=1e-4", "--accept-changes"];
    succeed(bench.train("run", &changed));
    // The accepted configuration is the run's from now on.
    succeed(bench.train("run", &["train.steps=7", "schedule.decay_steps=4", "optim.lr=1e-4"]));
}

#[test]
fn a_finished_run_says_so_and_trains_nothing() {
    let bench = Bench::new();
    let settings = ["train.steps=2", "schedule.decay_steps=2"];
    succeed(bench.train("run", &settings));
    let events = bench.events("run").len();
    let again = succeed(bench.train("run", &settings));
    assert!(support::stderr(&again).contains("has done all its steps"), "{}", support::stderr(&again));
    assert_eq!(bench.events("run").len(), events);
}
