//! A device whose memory runs out in the middle of a run (FF-12), without one: the computation of gradients fails as
//! candle's CUDA backend does.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::Path;

use vlash_forge::config::{self, Source};
use vlash_forge::dataset::reach;
use vlash_forge::error::{Explain, Failure};
use vlash_forge::policy::batch::{Batch, Draw, Targets};
use vlash_forge::policy::{Policy, StepOptions, StepOutput};
use vlash_forge::track::recorder::Silent;
use vlash_forge::train::compute::{Compute, Directly};
use vlash_forge::train::{self, Report, TrainError};

/// Computes so many micro-batches, then finds no memory.
struct Full(usize);

impl Compute for Full {
    fn gradients(
        &mut self,
        policy: &Policy,
        batch: &Batch,
        targets: &Targets,
        draw: &Draw,
        options: &StepOptions,
    ) -> candle_core::Result<StepOutput> {
        let Some(left) = self.0.checked_sub(1) else {
            return Err(candle_core::Error::Msg("DriverError(CUDA_ERROR_OUT_OF_MEMORY, \"out of memory\")".into()));
        };
        self.0 = left;
        Directly.gradients(policy, batch, targets, draw, options)
    }
}

fn train(place: &Path, compute: Box<dyn Compute>, settings: &[&str]) -> Result<Report, Box<TrainError>> {
    let data = place.join("data");
    if !data.exists() {
        reach::generate(&data, 6).unwrap();
    }
    let places = [format!("data.repo={}", data.display()), format!("run.dir={}", place.join("run").display())];
    let short = ["train.steps=6", "train.batch_size=2", "train.grad_accum=2", "validation.batches=1", "data.workers=0"];
    let settings: Vec<String> =
        places.into_iter().chain(short.iter().chain(settings).map(ToString::to_string)).collect();
    let loaded = config::load(&Source::Embedded, None, &settings).unwrap();
    train::run(train::Request {
        config: &loaded.value,
        notes: Vec::new(),
        command: Vec::new(),
        accept_changes: true,
        ignore_plan: false,
        compute,
        listener: Box::new(Silent),
    })
    .map_err(Box::new)
}

#[test]
fn a_run_without_memory_says_what_to_give_up_and_goes_on_from_its_last_finished_step() {
    let place = tempfile::tempdir().unwrap();
    // Three steps of two micro-batches, and the first half of the fourth.
    let error = train(place.path(), Box::new(Full(7)), &[]).unwrap_err();
    assert_eq!(error.kind().exit_code(), 75, "the run can go on");
    let TrainError::OutOfMemory(found) = &*error else { panic!("{error}") };
    assert_eq!((found.step, found.rank, found.ranks, found.batch, found.whole), (4, 0, 1, 2, true));
    let message = Failure::from(*error).message();
    for wanted in [
        "step 4: out of memory in the forward and backward pass (rank 0 of 1, batch 2)",
        "GiB were expected",
        "the last finished step is saved: ",
        "checkpoints/000003",
        "1. ",
        "train.batch_size=1 train.grad_accum=4",
        "QLoRA",
        "CUDA_ERROR_OUT_OF_MEMORY",
        "hint: to continue this run: the same command with train.batch_size=1 train.grad_accum=4",
        "--accept-changes",
    ] {
        assert!(message.contains(wanted), "{wanted:?} is missing in:\n{message}");
    }
    // What the hint says.
    let settings = ["train.batch_size=1", "train.grad_accum=4", "train.activation_checkpointing=true"];
    let report = train(place.path(), Box::new(Directly), &settings).unwrap();
    assert_eq!(report.checkpoint.unwrap().step, 6);
    let events = std::fs::read_to_string(place.path().join("run/events.jsonl")).unwrap();
    assert!(events.contains("checkpoints/000003"), "{events}");
}

#[test]
fn without_a_finished_step_nothing_is_promised() {
    let place = tempfile::tempdir().unwrap();
    let error = train(place.path(), Box::new(Full(1)), &[]).unwrap_err();
    assert_eq!(error.kind().exit_code(), 69);
    let message = Failure::from(*error).message();
    assert!(message.contains("step 1: out of memory"), "{message}");
    assert!(message.contains("there is no checkpoint yet"), "{message}");
    assert!(!place.path().join("run/checkpoints/last").exists());
}
