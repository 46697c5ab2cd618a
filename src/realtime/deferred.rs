//! Inference on a virtual clock: computed at once, given out when its latency is over.

use std::time::Duration;

use super::policy::{ChunkPolicy, Request};
use super::worker::{Inference, Injected, Reply};
use crate::robot::clock::Clock;

/// A reply is there at a tick that rounding puts this much before it.
const ROUNDING: Duration = Duration::from_micros(1);

/// A policy that takes as long as it is told to. With a latency of zero a chunk is there in the tick of its launch.
pub struct Deferred {
    policy: Box<dyn ChunkPolicy>,
    clock: Clock,
    latency: Injected,
    served: usize,
    /// The newest answer and when it is there.
    waiting: Option<(Duration, Reply)>,
}

impl Deferred {
    pub fn new(policy: Box<dyn ChunkPolicy>, clock: Clock, latency: Injected) -> Deferred {
        Deferred { policy, clock, latency, served: 0, waiting: None }
    }
}

impl Inference for Deferred {
    fn request(&mut self, chunk: u64, request: Request) {
        let latency = self.latency.of(self.served);
        self.served += 1;
        let reply = Reply { chunk, result: self.policy.infer(&request), latency };
        self.waiting = Some((self.clock.now() + latency, reply));
    }

    fn poll(&mut self) -> Option<Reply> {
        let now = self.clock.now() + ROUNDING;
        self.waiting.take_if(|(due, _)| *due <= now).map(|(_, reply)| reply)
    }
}
