//! A policy whose every number is known, for tests of evaluations.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::campaign::Policies;
use super::error::EvalError;
use super::report::PolicyFacet;
use crate::error::Kind;
use crate::realtime::policy::{ChunkPolicy, InferError, Inferred, PolicyFacts, Request, Timing};

/// Chunks of 16 actions for the simulated arm, trained for delays up to 8.
pub(super) fn facts() -> PolicyFacts {
    PolicyFacts {
        horizon: 16,
        action_dim: 7,
        state_dim: 7,
        joints: None,
        cameras: vec!["front".into(), "wrist".into()],
        trained_delay: 8,
        rtc_trained_delay: 0,
        action_range: None,
    }
}

/// Of such a policy whose weights have the digest `digest`.
pub(super) fn facet(digest: &str) -> PolicyFacet {
    let PolicyFacts { horizon, trained_delay, rtc_trained_delay, .. } = facts();
    PolicyFacet { name: "turning".into(), digest: digest.into(), horizon, trained_delay, rtc_trained_delay }
}

/// Turns joint 1 by about 2 mrad a step, from the state that it is told; the noise decides how much exactly.
pub(super) struct Turning {
    pub(super) facts: PolicyFacts,
    /// Which inference gives a number that is none.
    pub(super) broken: Option<usize>,
    pub(super) asked: usize,
    /// How long each takes.
    pub(super) takes: Duration,
    /// Whether there is no chunk at all.
    pub(super) fails: bool,
}

impl Turning {
    pub(super) fn new(broken: Option<usize>) -> Turning {
        Turning { facts: facts(), broken, asked: 0, takes: Duration::ZERO, fails: false }
    }
}

impl ChunkPolicy for Turning {
    fn facts(&self) -> &PolicyFacts {
        &self.facts
    }

    fn infer(&mut self, request: &Request) -> Result<Inferred, InferError> {
        assert_eq!(request.images.len(), 2);
        if self.fails {
            return Err(InferError { reason: "no chunk today".into(), kind: Kind::Environment });
        }
        std::thread::sleep(self.takes);
        let pace = 0.002 + 1e-5 * (request.noise_seed % 7) as f32;
        let step = |row: usize| {
            let mut action = request.state.clone();
            action[0] += pace * (row + 1) as f32;
            action
        };
        let mut actions: Vec<f32> = (0..self.facts.horizon).flat_map(step).collect();
        if self.broken == Some(self.asked) {
            actions[9] = f32::NAN;
        }
        self.asked += 1;
        Ok(Inferred { actions, timing: Timing::default() })
    }
}

/// Where such policies come from; counts them.
pub(super) struct Turner {
    facts: PolicyFacts,
    digest: &'static str,
    pub(super) forks: AtomicUsize,
}

impl Turner {
    pub(super) fn new(digest: &'static str) -> Turner {
        Turner { facts: facts(), digest, forks: AtomicUsize::new(0) }
    }
}

impl Policies for Turner {
    fn facts(&self) -> &PolicyFacts {
        &self.facts
    }

    fn facet(&self) -> PolicyFacet {
        facet(self.digest)
    }

    fn fork(&self, _seed: u64) -> Result<Box<dyn ChunkPolicy>, EvalError> {
        self.forks.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(Turning::new(None)))
    }
}
