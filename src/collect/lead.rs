//! Being led by a policy before the recording begins: demonstrations of how to go on from where it errs.
//!
//! A policy that was cloned from an expert meets, by its own small errors, what the expert never shows: a hand that closed
//! beside the ball, say, and carries nothing. Demonstrations that begin there are those that it lacks (DAgger, arXiv
//! 1011.0686).

use std::sync::Arc;
use std::time::Duration;

use rand::Rng;

use crate::realtime::policy::{ChunkPolicy, Continuity, InferError, Request};
use crate::robot::Frame;
use crate::robot::sim::render::{Camera, render};
use crate::robot::sim::{IMAGE_SIZE, Outcome, TASK, World};

/// Ticks of the policy's part at most: an episode without trouble takes about a hundred.
const LONGEST_WAY: usize = 160;
/// Actions of a chunk that are executed, and ticks that an inference takes, at most.
const EXECUTED: std::ops::RangeInclusive<usize> = 6..=16;
const LATEST: usize = 12;

/// Moves `world` by `policy` for a while. How long, with how late chunks and how many actions of each, are drawn: the ways
/// of erring differ. A function of the seed and of what the policy answers.
///
/// # Errors
/// The policy gave no chunk.
pub fn by_policy(world: &mut World, seed: u64, policy: &mut dyn ChunkPolicy) -> Result<(), InferError> {
    let mut random = crate::random::stream(seed, "collect/lead", &[]);
    let ticks = random.random_range(1..LONGEST_WAY);
    let executed = random.random_range(EXECUTED).min(policy.facts().horizon / 2).max(1);
    let late = random.random_range(0..=LATEST.min(executed));
    let (mut chunk, mut next, mut at) = (infer(world, policy, world.joints().to_vec(), seed, 0)?, Vec::new(), 0);
    for tick in 0..ticks {
        if world.outcome() != Outcome::Running || world.rests_on_goal() {
            break;
        }
        let number = tick as u64 + 1;
        if at == executed {
            let fresh = if late == 0 { infer(world, policy, world.joints().to_vec(), seed, number)? } else { next };
            (chunk, next, at) = (fresh, Vec::new(), 0);
        }
        if late > 0 && at + late == executed {
            // As VLASH does it: the picture is of now, the state is that in which the chunk will begin.
            next = infer(world, policy, action(&chunk, executed - 1).to_vec(), seed, number)?;
        }
        world.step(&action(&chunk, at));
        at += 1;
    }
    Ok(())
}

/// Action `step` of a chunk; what a policy left out moves nothing.
fn action(chunk: &[f32], step: usize) -> [f32; 7] {
    std::array::from_fn(|joint| chunk.get(step * 7 + joint).copied().unwrap_or(f32::NAN))
}

fn infer(
    world: &World,
    policy: &mut dyn ChunkPolicy,
    state: Vec<f32>,
    seed: u64,
    number: u64,
) -> Result<Vec<f32>, InferError> {
    let snapshot = world.snapshot();
    let cameras = policy.facts().cameras.clone();
    let seen = cameras.iter().filter_map(|name| Camera::ALL.into_iter().find(|camera| camera.name() == name));
    let images = seen.map(|camera| Frame {
        captured: Duration::ZERO,
        sequence: number,
        image: Arc::new(render(&snapshot, camera, IMAGE_SIZE)),
    });
    let request = Request {
        images: images.collect(),
        state,
        task: Arc::from(TASK),
        noise_seed: crate::random::stream(seed, "collect/lead/noise", &[number]).random(),
        continuity: Continuity::Free,
        leftover: None,
    };
    Ok(policy.infer(&request)?.actions)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::realtime::policy::{Inferred, PolicyFacts, Timing};
    use crate::robot::sim::world::FPS;
    use crate::robot::sim::{Setup, Variant};

    /// Radians a tick.
    const STEP: f32 = 0.004;

    /// Turns joint 1 evenly from the state that it is told.
    struct Turning(PolicyFacts);

    impl ChunkPolicy for Turning {
        fn facts(&self) -> &PolicyFacts {
            &self.0
        }

        fn infer(&mut self, request: &Request) -> Result<Inferred, InferError> {
            assert_eq!(request.images.len(), 2);
            let row = |step: usize| {
                let mut action = request.state.clone();
                action[0] += STEP * (step + 1) as f32;
                action
            };
            Ok(Inferred { actions: (0..32).flat_map(row).collect(), timing: Timing::default() })
        }
    }

    fn led(seed: u64) -> (f32, f64) {
        let facts = PolicyFacts {
            horizon: 32,
            action_dim: 7,
            state_dim: 7,
            joints: None,
            cameras: vec!["front".into(), "wrist".into()],
            trained_delay: 12,
            rtc_trained_delay: 0,
            action_range: None,
        };
        let mut world = World::new(&Setup { variant: Variant::Static, seed });
        let from = world.joints()[0];
        by_policy(&mut world, seed, &mut Turning(facts)).unwrap();
        (world.joints()[0] - from, world.time() * FPS)
    }

    /// Whatever delay and number of actions are drawn: no tick without an action, and each continues the one before.
    #[test]
    fn it_leads_without_a_pause_and_the_same_way_again() {
        let ways: Vec<_> = (0..12).map(led).collect();
        for (seed, (turned, ticks)) in ways.iter().enumerate() {
            assert!((1.0..160.0).contains(ticks), "seed {seed}: {ticks} ticks");
            assert!((turned - STEP * *ticks as f32).abs() < 1e-3, "seed {seed}: {turned} rad in {ticks} ticks");
        }
        assert_eq!(ways, (0..12).map(led).collect::<Vec<_>>());
        let longest = ways.iter().map(|(_, ticks)| *ticks).fold(0.0, f64::max);
        assert!(longest > 60.0, "at most {longest} ticks");
    }
}
