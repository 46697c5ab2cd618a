//! An arm that does what it is told, and a policy that swings it: for tests and measurements of the control loop.

// Each executable uses a part of it.
#![allow(dead_code)]

use std::sync::Arc;
use std::time::Duration;

use vlash_forge::dataset::frame::RgbFrame;
use vlash_forge::realtime::policy::{ChunkPolicy, InferError, Inferred, PolicyFacts, Request, Timing};
use vlash_forge::robot::clock::Clock;
use vlash_forge::robot::{CameraFeature, Features, Frame, JointState, Limits, Robot, RobotError};

pub const JOINTS: usize = 3;
pub const HORIZON: usize = 20;
pub const NAME: &str = "mock_arm";

/// Follows at once. What was sent to it is kept, up to the memory that it took at the start.
pub struct MockArm {
    features: Features,
    limits: Limits,
    clock: Clock,
    images: Vec<Arc<RgbFrame>>,
    sequence: u64,
    stalled: Option<Frame>,
    at: [f32; JOINTS],
    pub sent: Vec<[f32; JOINTS]>,
    pub connected: u32,
    pub stopped: u32,
    pub disconnected: u32,
    /// Where it rests.
    pub rest: Option<Vec<f32>>,
    /// The camera repeats its last image from now on.
    pub stall: bool,
    /// The camera shows nothing.
    pub capped: bool,
}

impl MockArm {
    pub fn new(clock: &Clock) -> MockArm {
        let image = |shade: u8| {
            let data = (0..768).map(|at| (at % 64) as u8 + shade).collect();
            Arc::new(RgbFrame { height: 16, width: 16, data })
        };
        MockArm {
            features: Features {
                robot_type: NAME.into(),
                joints: (1..=JOINTS).map(|joint| format!("joint_{joint}.pos")).collect(),
                cameras: vec![CameraFeature { name: "front".into(), height: 16, width: 16 }],
            },
            limits: Limits {
                position: vec![[-1.0, 1.0]; JOINTS],
                velocity: vec![3.0; JOINTS],
                acceleration: vec![30.0; JOINTS],
            },
            clock: clock.clone(),
            images: (0..4).map(image).collect(),
            sequence: 0,
            stalled: None,
            at: [0.0; JOINTS],
            sent: Vec::with_capacity(100_000),
            connected: 0,
            stopped: 0,
            disconnected: 0,
            rest: None,
            stall: false,
            capped: false,
        }
    }
}

impl Robot for MockArm {
    fn features(&self) -> &Features {
        &self.features
    }

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn connect(&mut self) -> Result<(), RobotError> {
        self.connected += 1;
        Ok(())
    }

    fn read(&mut self, state: &mut JointState) -> Result<(), RobotError> {
        state.positions.clear();
        state.positions.extend_from_slice(&self.at);
        state.captured = self.clock.now();
        Ok(())
    }

    fn frames(&mut self, frames: &mut Vec<Option<Frame>>) {
        frames.resize(1, None);
        let mut image = self.images[self.sequence as usize % self.images.len()].clone();
        if self.capped {
            image = Arc::new(RgbFrame { height: 16, width: 16, data: vec![self.sequence as u8 % 4; 768] });
        }
        let live = Frame { captured: self.clock.now(), sequence: self.sequence, image };
        self.sequence += u64::from(!self.stall);
        let stalled = self.stalled.take().filter(|_| self.stall);
        self.stalled = Some(stalled.unwrap_or(live));
        frames[0] = self.stalled.clone();
    }

    fn send(&mut self, command: &[f32]) -> Result<(), RobotError> {
        self.at.copy_from_slice(command);
        self.sent.push(self.at);
        Ok(())
    }

    fn emergency_stop(&mut self) -> Result<(), RobotError> {
        self.stopped += 1;
        Ok(())
    }

    fn rest(&self, _command: &[f32]) -> Option<Vec<f32>> {
        self.rest.clone()
    }

    fn disconnect(&mut self) -> Result<(), RobotError> {
        self.disconnected += 1;
        Ok(())
    }
}

/// Every chunk leads from the state it is told towards `centre` and swings about it.
pub struct Swing {
    pub facts: PolicyFacts,
    pub centre: f32,
    /// The chunk, from 0, that has a NaN in joint 2 at step 5.
    pub poison: Option<usize>,
    /// Computes for this long, on one core.
    pub busy: Duration,
    pub chunks: usize,
}

impl Swing {
    pub fn new() -> Swing {
        Swing {
            facts: PolicyFacts {
                horizon: HORIZON,
                action_dim: JOINTS,
                state_dim: JOINTS,
                joints: None,
                cameras: vec!["front".into()],
                trained_delay: 8,
                rtc_trained_delay: 0,
                action_range: None,
            },
            centre: 0.0,
            poison: None,
            busy: Duration::ZERO,
            chunks: 0,
        }
    }
}

impl ChunkPolicy for Swing {
    fn facts(&self) -> &PolicyFacts {
        &self.facts
    }

    fn infer(&mut self, request: &Request) -> Result<Inferred, InferError> {
        let begun = std::time::Instant::now();
        while begun.elapsed() < self.busy {
            std::hint::black_box((0..1000).map(f64::from).map(f64::sin).sum::<f64>());
        }
        let mut actions = Vec::with_capacity(HORIZON * JOINTS);
        for step in 1..=HORIZON {
            let part = step as f32 / HORIZON as f32;
            let swing = 0.1 * (part * std::f32::consts::TAU).sin();
            actions.extend(request.state.iter().map(|from| from + part * (self.centre - from) + swing));
        }
        if self.poison == Some(self.chunks)
            && let Some(value) = actions.get_mut(5 * JOINTS + 1)
        {
            *value = f32::NAN;
        }
        self.chunks += 1;
        Ok(Inferred { actions, timing: Timing { denoise: begun.elapsed(), ..Timing::default() } })
    }
}
