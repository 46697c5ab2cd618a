//! The policy in the box as a chunk policy, whatever its weights are.

use std::sync::Arc;
use std::time::Duration;

use super::boxed;
use super::loaded::{LoadError, LoadOptions, LoadedPolicy};
use super::policy::{ChunkPolicy, Continuity, Guidance, GuidanceSchedule, Leftover, Request};
use crate::config::train::DeviceKind;
use crate::dataset::frame::RgbFrame;
use crate::policy::checkpoint::Checkpoint;
use crate::policy::checkpoint::account::Nothing;
use crate::policy::checkpoint::pack::{MOST_BYTES, Recipe, pack};
use crate::policy::weights::WeightSource;
use crate::robot::Frame;

fn options() -> LoadOptions {
    LoadOptions { device: DeviceKind::Cpu, steps: Some(2), ..LoadOptions::default() }
}

fn open(options: &LoadOptions) -> Result<LoadedPolicy, LoadError> {
    let cache = tempfile::tempdir().unwrap();
    LoadedPolicy::open(&boxed::ensure(cache.path())?, options)
}

fn request(policy: &LoadedPolicy) -> Request {
    let image = RgbFrame { height: 112, width: 112, data: (0..112 * 112 * 3).map(|at| (at % 251) as u8).collect() };
    let frame = Frame { captured: Duration::ZERO, sequence: 1, image: Arc::new(image) };
    Request {
        images: vec![frame; policy.facts().cameras.len()],
        state: vec![0.1; policy.facts().state_dim],
        task: "pick the ball and place it on the pedestal of its colour".into(),
        noise_seed: 1,
        continuity: Continuity::Free,
        leftover: None,
    }
}

#[test]
fn the_box_holds_a_policy_of_the_simulated_arm() {
    let policy = open(&options()).unwrap();
    let facts = policy.facts();
    let dims = (facts.horizon, facts.action_dim, facts.state_dim, facts.trained_delay);
    assert_eq!(dims, (32, 7, 7, 12));
    assert_eq!(facts.cameras, ["front", "wrist"]);
    let joints = facts.joints.as_ref().unwrap();
    assert_eq!((joints.len(), joints[0].as_str(), joints[6].as_str()), (7, "joint_1.pos", "gripper.pos"));
    let range = facts.action_range.as_ref().unwrap();
    assert!(range.len() == 7 && range.iter().all(|[low, high]| low <= high && high.abs() < 4.0), "{range:?}");
}

#[test]
fn a_chunk_is_a_function_of_the_request_for_every_fork() {
    let mut policy = open(&options()).unwrap();
    let request = request(&policy);
    let first = policy.infer(&request).unwrap();
    assert_eq!(first.actions.len(), 32 * 7);
    assert!(first.timing.prefix > Duration::ZERO && first.timing.denoise > Duration::ZERO);
    let forks: Vec<_> = (0..2).map(|_| policy.fork()).collect();
    let found: Vec<Vec<f32>> = std::thread::scope(|scope| {
        let running: Vec<_> = forks
            .into_iter()
            .map(|mut fork| {
                let request = request.clone();
                scope.spawn(move || fork.infer(&request).unwrap().actions)
            })
            .collect();
        running.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(found.iter().all(|actions| *actions == first.actions));
    let other = policy.infer(&Request { noise_seed: 2, ..request }).unwrap();
    assert_ne!(other.actions, first.actions);
}

#[test]
fn guidance_brings_the_chunk_to_the_old_one() {
    let mut policy = open(&LoadOptions { steps: Some(10), ..options() }).unwrap();
    let range = policy.facts().action_range.clone().unwrap();
    // A quarter into each joint's range, for ten steps. The expert does not move joints 4 and 6.
    let row: Vec<f32> = range.iter().map(|[low, high]| low + 0.25 * (high - low)).collect();
    let leftover = Leftover { actions: row.repeat(10), delay: 4 };
    let guidance =
        Guidance { execution_horizon: 10, max_weight: 10.0, schedule: GuidanceSchedule::Linear, full_jacobian: false };
    let free = request(&policy);
    let far = |actions: &[f32]| -> f32 {
        let part = |(at, action): (usize, &f32)| {
            let [low, high] = range[at % 7];
            (action - row[at % 7]).abs() / (high - low).max(0.02)
        };
        actions[..4 * 7].iter().enumerate().map(part).fold(0.0, f32::max)
    };
    let tied = Request { continuity: Continuity::Rtc(guidance), leftover: Some(leftover.clone()), ..free.clone() };
    let (free, tied) = (policy.infer(&free).unwrap(), policy.infer(&tied).unwrap());
    assert!(far(&tied.actions) < 0.3 * far(&free.actions), "{} {}", far(&tied.actions), far(&free.actions));
}

#[test]
fn what_does_not_fit_is_refused_and_the_policy_stays_usable() {
    let mut policy = open(&options()).unwrap();
    let good = request(&policy);
    let refused = |policy: &mut LoadedPolicy, request: Request| policy.infer(&request).unwrap_err().to_string();
    let blind = refused(&mut policy, Request { images: Vec::new(), ..good.clone() });
    assert!(blind.contains("0 images for the cameras"), "{blind}");
    assert!(refused(&mut policy, Request { state: vec![0.0; 3], ..good.clone() }).contains("observation.state"));
    assert!(refused(&mut policy, Request { state: vec![f32::NAN; 7], ..good.clone() }).contains("NaN"));
    let delay = policy.facts().rtc_trained_delay + 1;
    let leftover = Some(Leftover { actions: vec![0.0; 70], delay });
    let beyond = Request { continuity: Continuity::Prefix, leftover, ..good.clone() };
    assert!(refused(&mut policy, beyond).contains("trained to take at most"));
    policy.infer(&good).unwrap();
}

#[test]
fn cameras_are_found_by_the_robots_names() {
    let map = |from: &str, to: &str| [(from.to_string(), to.to_string())].into();
    let policy = open(&LoadOptions { cameras: map("tripod", "observation.images.front"), ..options() }).unwrap();
    assert_eq!(policy.facts().cameras, ["tripod", "wrist"]);
    let policy = open(&LoadOptions { cameras: map("observation.images.tripod", "front"), ..options() }).unwrap();
    assert_eq!(policy.facts().cameras, ["tripod", "wrist"]);
    let error = open(&LoadOptions { cameras: map("tripod", "side"), ..options() }).unwrap_err();
    assert!(matches!(error, LoadError::Camera { ref camera, .. } if camera == "side"), "{error}");
}

/// bfloat16 on disk is the upper half of an f32: what the CPU computes with is that number exactly. And packing what is
/// packed changes nothing.
#[test]
fn packed_weights_are_read_as_the_numbers_they_are() {
    let (cache, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let place = boxed::ensure(cache.path()).unwrap();
    let recipe = Recipe { data: Some("by hand".into()), evaluation: None };
    let bytes = pack(&place, out.path(), &recipe).unwrap();
    assert!(bytes < MOST_BYTES, "{bytes}");
    let name = "paligemma_with_expert.gemma_expert.model.layers.0.mlp.up_proj.weight";
    let read = |directory: &std::path::Path| {
        let checkpoint = Checkpoint::open(directory).unwrap();
        let weights = checkpoint.weights(&checkpoint.arch, &[], Box::new(Nothing)).unwrap();
        let tensor = weights.tensor(name, &[384, 128], &candle_core::Device::Cpu).unwrap();
        assert_eq!(tensor.dtype(), candle_core::DType::BF16);
        tensor.to_dtype(candle_core::DType::F32).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap()
    };
    let values = read(&place);
    assert!(values.iter().all(|value| value.to_bits() & 0xffff == 0) && values.iter().any(|&value| value != 0.0));
    assert_eq!(read(out.path()), values);
    let written: serde_json::Value =
        serde_json::from_slice(&std::fs::read(out.path().join("recipe.json")).unwrap()).unwrap();
    assert_eq!(written["data"], "by hand");
}
