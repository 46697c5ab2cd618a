//! The control loop on a virtual clock: what leaves for the arm when things go well, and when they do not.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

#[path = "support/arm.rs"]
mod arm;

use std::sync::mpsc::channel;
use std::time::Duration;

use arm::{HORIZON, JOINTS, MockArm, NAME, Swing};
use vlash_forge::realtime::control::{
    ControlSettings, Core, End, Hooks, Pace, Progress, Rest, RolloutError, RolloutSettings, View, run,
};
use vlash_forge::realtime::deferred::Deferred;
use vlash_forge::realtime::filter::FarStart;
use vlash_forge::realtime::policy::ChunkPolicy;
use vlash_forge::realtime::scheduler::{Mode, Overlap, Settings};
use vlash_forge::realtime::telemetry::Record;
use vlash_forge::realtime::worker::Injected;
use vlash_forge::robot::clock::Clock;
use vlash_forge::robot::{Exit, Robot};
use vlash_forge::track::telemetry::{ArmState, Chunk, Message, Phase, Steer};

const FPS: f64 = 30.0;

fn settings(mode: Mode) -> ControlSettings {
    let schedule = Settings { overlap: Overlap::Fixed(4), ..Settings::new(mode, HORIZON, 12, JOINTS, FPS) };
    ControlSettings { expected_ticks: 1000, ..ControlSettings::new(schedule, "swing") }
}

/// A rollout on a virtual clock, with an inference of 100 ms.
struct Bench {
    arm: MockArm,
    core: Core,
    inference: Deferred,
    pace: Pace,
    clock: Clock,
    said: Vec<String>,
    /// Launched chunks that neither began nor were given up.
    launched: Vec<u64>,
}

impl Bench {
    fn new(settings: ControlSettings, policy: Swing) -> Bench {
        let clock = Clock::virtual_();
        let mut arm = MockArm::new(&clock);
        let mut core = Core::new(settings, policy.facts(), arm.features(), arm.limits()).unwrap();
        core.begin(&mut arm, clock.now()).unwrap();
        core.arm();
        let latency = Injected::Fixed(Duration::from_millis(100));
        let inference = Deferred::new(Box::new(policy), clock.clone(), latency);
        Bench {
            arm,
            core,
            inference,
            pace: Pace::new(clock.clone(), FPS, Duration::ZERO),
            clock,
            said: Vec::new(),
            launched: Vec::new(),
        }
    }

    fn tick(&mut self) -> Option<End> {
        let wake = self.pace.wait();
        let end = self.core.tick(wake.now, wake.missed, &mut self.arm, &mut self.inference).unwrap().cloned();
        for record in self.core.records() {
            match record {
                Record::Message(Message::Event { text, .. }) => self.said.push(text),
                Record::Message(Message::Chunk(Chunk { chunk, phase, .. })) => match phase {
                    Phase::Launched { .. } => self.launched.push(chunk),
                    Phase::Arrived { .. } => {}
                    Phase::Spliced { .. } | Phase::Discarded { .. } => self.launched.retain(|open| *open != chunk),
                },
                _ => {}
            }
        }
        end
    }

    fn ticks(&mut self, count: usize) {
        for _ in 0..count {
            assert_eq!(self.tick(), None);
        }
    }

    fn rest(&mut self) -> Rest {
        let wake = self.pace.wait();
        self.core.rest(wake.now, wake.missed, &mut self.arm, &[0.5; JOINTS], 0.25).unwrap()
    }

    fn steer(&mut self, steer: Steer) {
        self.core.steer(&steer, &mut self.arm, self.clock.now()).unwrap();
    }

    fn moved(&self, ticks: usize) -> bool {
        let last = &self.arm.sent[self.arm.sent.len() - ticks..];
        last.windows(2).any(|pair| pair[0] != pair[1])
    }
}

#[test]
fn the_state_told_is_the_state_at_the_splice() {
    let mut vlash = Bench::new(settings(Mode::Vlash), Swing::new());
    vlash.ticks(300);
    let metrics = vlash.core.recorder().summary();
    assert!(metrics.chunks > 20 && metrics.late_chunks == 0, "{metrics:?}");
    // The arm follows at once, so what was told is exactly what is measured, though chunks meet too sharply for the
    // acceleration limit and the filter changes commands.
    assert!(metrics.clipped_ticks > 20);
    assert_eq!(metrics.state_error.max, 0.0);
    // Held for the first inference only: ticks 0, 1 and 2.
    assert_eq!((metrics.held_ticks, metrics.continued_ticks), (3, 0));
    assert!((metrics.latency_ms.p50 - 100.0).abs() < 1e-9 && metrics.jitter_ms.max < 1e-5);

    let mut naive = Bench::new(settings(Mode::Async), Swing::new());
    naive.ticks(300);
    assert!(naive.core.recorder().summary().state_error.p50 > 0.01);
    let mut sync = Bench::new(settings(Mode::Sync), Swing::new());
    sync.ticks(300);
    let metrics = sync.core.recorder().summary();
    // Of 15 ticks 3 are waited.
    assert!((metrics.idle_fraction - 0.2).abs() < 0.01, "{}", metrics.idle_fraction);
}

#[test]
fn a_chunk_with_a_nan_ends_the_rollout_with_the_arm_held() {
    let mut bench = Bench::new(settings(Mode::Vlash), Swing { poison: Some(2), ..Swing::new() });
    let end = (0..200).find_map(|_| bench.tick()).unwrap();
    let reason = "action chunk 3 rejected: joint_2 is NaN at step 5 of 20";
    assert_eq!(end, End::Fault(format!("{reason}. Rollout stopped")));
    assert_eq!(bench.core.rejected().map(|rejected| rejected.chunk), Some(3));
    assert!(bench.said.iter().any(|text| text.starts_with(reason)), "{:?}", bench.said);
    assert!(bench.arm.sent.iter().flatten().all(|value| value.is_finite()));

    // More are allowed: it asks again and goes on.
    let mut bench =
        Bench::new(ControlSettings { rejects: 2, ..settings(Mode::Vlash) }, Swing { poison: Some(2), ..Swing::new() });
    bench.ticks(200);
    assert_eq!(bench.core.recorder().counted().rejected_chunks, 1);
    assert!(bench.moved(30));
}

#[test]
fn a_stalled_camera_holds_until_the_operator_arms() {
    let mut bench = Bench::new(settings(Mode::Vlash), Swing::new());
    bench.ticks(30);
    bench.arm.stall = true;
    bench.ticks(10);
    assert_eq!(bench.core.arm_state(), ArmState::Holding);
    assert!(bench.core.reason().unwrap().starts_with("camera front: last new frame"), "{:?}", bench.core.reason());
    bench.arm.stall = false;
    bench.ticks(20);
    assert!(!bench.moved(10), "it must wait for the operator");
    bench.steer(Steer::Arm { robot: "another".into() });
    bench.ticks(1);
    assert!(bench.said.iter().any(|text| text.starts_with("arm refused: the robot's name is")), "{:?}", bench.said);
    assert_eq!(bench.core.arm_state(), ArmState::Holding);
    bench.steer(Steer::Arm { robot: NAME.into() });
    bench.ticks(20);
    assert!(bench.moved(10));

    let mut bench = Bench::new(ControlSettings { recover: true, ..settings(Mode::Vlash) }, Swing::new());
    bench.ticks(30);
    bench.arm.stall = true;
    bench.ticks(10);
    bench.arm.stall = false;
    bench.ticks(20);
    assert!(bench.moved(10));
}

/// FF-22: an image that shows nothing is no observation, before the arm is armed and in motion.
#[test]
fn nothing_is_armed_with_a_camera_that_shows_nothing_and_in_motion_it_holds() {
    let clock = Clock::virtual_();
    let mut arm = MockArm::new(&clock);
    arm.capped = true;
    let (_steer, asked) = channel();
    let rollout = RolloutSettings::new(settings(Mode::Vlash));
    let error =
        run(&mut arm, Box::new(Swing::new()), &rollout, &clock, None, &asked, &mut Hooks::default()).unwrap_err();
    let RolloutError::Blank(fault) = &error else { panic!("{error}") };
    assert!(fault.to_string().starts_with("camera front: its images show nothing"), "{fault}");
    assert!(arm.sent.is_empty() && arm.disconnected == 1);

    let mut bench = Bench::new(settings(Mode::Vlash), Swing::new());
    bench.ticks(30);
    bench.arm.capped = true;
    bench.ticks(5);
    assert_eq!(bench.core.arm_state(), ArmState::Holding);
    bench.steer(Steer::Arm { robot: NAME.into() });
    bench.ticks(1);
    assert!(
        bench.said.iter().any(|text| text.starts_with("arm refused: camera front: its images")),
        "{:?}",
        bench.said
    );
    bench.arm.capped = false;
    bench.ticks(5);
    bench.steer(Steer::Arm { robot: NAME.into() });
    bench.ticks(20);
    assert!(bench.moved(10));
}

#[test]
fn a_far_first_action_is_approached_or_refused() {
    let mut bench = Bench::new(settings(Mode::Vlash), Swing { centre: 14.0, ..Swing::new() });
    bench.ticks(120);
    assert!(bench.said.iter().any(|text| text.starts_with("the first action is")), "{:?}", bench.said);
    // At a quarter of 3 rad/s.
    let fastest = bench.arm.sent.windows(2).take(30).map(|pair| (pair[1][0] - pair[0][0]).abs()).fold(0.0, f32::max);
    assert!(fastest > 0.0 && fastest <= 0.75 / 30.0, "{fastest}");
    let mut refusing = settings(Mode::Vlash);
    refusing.filter.far_start = FarStart::Refuse;
    let mut bench = Bench::new(refusing, Swing { centre: 14.0, ..Swing::new() });
    bench.ticks(60);
    assert!(!bench.moved(60));
    assert_eq!(bench.core.arm_state(), ArmState::Holding);
}

#[test]
fn holding_and_the_emergency_stop_work_at_once() {
    let mut bench = Bench::new(settings(Mode::Vlash), Swing::new());
    bench.ticks(30);
    bench.steer(Steer::Hold);
    // Held down: harmless.
    bench.steer(Steer::Hold);
    bench.ticks(20);
    assert!(!bench.moved(15));
    assert!(bench.launched.is_empty(), "what was on its way is given up, not late for ever: {:?}", bench.launched);
    bench.steer(Steer::Arm { robot: NAME.into() });
    bench.ticks(20);
    assert!(bench.moved(10));

    bench.steer(Steer::EmergencyStop);
    assert_eq!(bench.arm.stopped, 1);
    let sent = bench.arm.sent.len();
    bench.ticks(5);
    assert_eq!(bench.arm.sent.len(), sent, "nothing is commanded after an emergency stop");
    bench.steer(Steer::Arm { robot: NAME.into() });
    assert_eq!(bench.arm.connected, 1, "it is brought to obey again");
    bench.ticks(20);
    assert!(bench.moved(10));
    bench.steer(Steer::Stop);
    assert_eq!(bench.tick(), Some(End::Stopped));
}

#[test]
fn without_a_sign_of_the_operator_it_holds() {
    let dead_man = Some(Duration::from_millis(500));
    let mut bench = Bench::new(ControlSettings { dead_man, ..settings(Mode::Vlash) }, Swing::new());
    bench.ticks(14);
    bench.steer(Steer::Heartbeat);
    bench.ticks(14);
    assert_eq!(bench.core.arm_state(), ArmState::Armed);
    bench.ticks(10);
    assert_eq!(bench.core.arm_state(), ArmState::Holding);
}

#[test]
fn a_rollout_ends_with_its_time_or_its_task_and_leaves_the_arm_in_order() {
    let clock = Clock::virtual_();
    let mut arm = MockArm::new(&clock);
    let (_steer, asked) = channel();
    let control = settings(Mode::Vlash);
    let timed = RolloutSettings { duration: Some(Duration::from_secs(2)), ..RolloutSettings::new(control.clone()) };
    let summary = run(&mut arm, Box::new(Swing::new()), &timed, &clock, None, &asked, &mut Hooks::default()).unwrap();
    assert_eq!((summary.end, arm.disconnected, arm.connected), (End::Duration, 1, 1));
    assert_eq!(summary.metrics.ticks, 61);

    let mut ticks = 0;
    let mut progress = || {
        ticks += 1;
        Progress { state: Some("placed".into()), over: ticks == 10 }
    };
    let mut hooks = Hooks { progress: Some(&mut progress), view: None };
    let held = RolloutSettings::new(control);
    let summary = run(&mut arm, Box::new(Swing::new()), &held, &clock, None, &asked, &mut hooks).unwrap();
    assert_eq!((summary.end, arm.disconnected), (End::Done("placed".into()), 2));
}

/// Runs for a second and is to rest at 0.5 rad; the way that was sent after the last tick under the policy.
fn rested(first: Option<Steer>) -> (End, Vec<[f32; JOINTS]>) {
    let clock = Clock::virtual_();
    let mut arm = MockArm::new(&clock);
    arm.rest = Some(vec![0.5; JOINTS]);
    let (steer, asked) = channel();
    let mut ticks = 0;
    let mut last = 0;
    let mut view = |_: View<'_>| {
        ticks += 1;
        last = ticks;
        // When the rollout is at its last tick, so that it is read on the way to rest.
        if ticks == 31 {
            first.iter().for_each(|first| steer.send(first.clone()).unwrap());
        }
    };
    let settings = RolloutSettings {
        duration: Some(Duration::from_secs(1)),
        exit: Exit::Rest,
        ..RolloutSettings::new(settings(Mode::Vlash))
    };
    let mut hooks = Hooks { progress: None, view: Some(&mut view) };
    let summary = run(&mut arm, Box::new(Swing::new()), &settings, &clock, None, &asked, &mut hooks).unwrap();
    assert_eq!(arm.disconnected, 1);
    (summary.end, arm.sent.split_off(last))
}

#[test]
fn at_the_end_the_arm_goes_to_its_rest_pose_slowly() {
    let (end, way) = rested(None);
    assert_eq!(end, End::Duration);
    assert!(way.last().unwrap().iter().all(|at| (at - 0.5).abs() < 1e-3), "{:?}", way.last());
    // At a quarter of 3 rad/s, once what the policy left is braked.
    let fastest = way.windows(2).skip(5).map(|pair| (pair[1][0] - pair[0][0]).abs()).fold(0.0, f32::max);
    assert!(way.len() > 15 && fastest > 0.01 && fastest <= 0.75 / 30.0, "{fastest} in {} ticks", way.len());
}

#[test]
fn the_way_to_rest_is_not_begun_after_a_fault_and_ends_when_somebody_wants_it_to() {
    let mut bench = Bench::new(settings(Mode::Vlash), Swing { poison: Some(2), ..Swing::new() });
    let end = (0..200).find_map(|_| bench.tick()).unwrap();
    assert!(matches!(end, End::Fault(_)) && !bench.core.may_rest(), "{end:?}");
    for steer in [Steer::EmergencyStop, Steer::Hold, Steer::Stop] {
        let (_, way) = rested(Some(steer.clone()));
        assert!(way.is_empty(), "{steer:?}: {way:?}");
    }

    // In the middle of the way.
    let mut bench = Bench::new(settings(Mode::Vlash), Swing::new());
    bench.ticks(30);
    bench.core.finish(End::Duration);
    assert_eq!(bench.tick(), Some(End::Duration));
    assert!(bench.core.may_rest());
    for _ in 0..5 {
        assert_eq!(bench.rest(), Rest::Going);
    }
    let sent = bench.arm.sent.len();
    bench.steer(Steer::EmergencyStop);
    assert_eq!((bench.rest(), bench.arm.stopped, bench.arm.sent.len()), (Rest::BrokenOff, 1, sent));
    assert!(!bench.core.may_rest());
}

#[test]
fn on_the_way_to_rest_the_arm_waits_for_what_is_late_and_stays_when_it_does_not_come() {
    let mut bench = Bench::new(settings(Mode::Vlash), Swing::new());
    bench.ticks(30);
    bench.core.finish(End::Duration);
    bench.tick();
    bench.arm.stall = true;
    (0..10).for_each(|_| assert_eq!(bench.rest(), Rest::Going));
    assert!(!bench.moved(4));
    bench.arm.stall = false;
    (0..5).for_each(|_| assert_eq!(bench.rest(), Rest::Going));
    assert!(bench.moved(4));
    bench.arm.stall = true;
    // Three seconds.
    let ended = (0..120).position(|_| bench.rest() == Rest::BrokenOff);
    assert!(ended.is_some_and(|ticks| (85..95).contains(&ticks)), "{ended:?}");
}

#[test]
fn what_does_not_fit_together_is_said_before_anything_is_powered() {
    let clock = Clock::virtual_();
    let arm = MockArm::new(&clock);
    let facts = |change: fn(&mut vlash_forge::realtime::policy::PolicyFacts)| {
        let mut facts = Swing::new().facts().clone();
        change(&mut facts);
        Core::new(settings(Mode::Vlash), &facts, arm.features(), arm.limits()).err()
    };
    let camera = facts(|facts| facts.cameras = vec!["wrist".into()]).unwrap();
    assert_eq!(camera.to_string(), "the policy needs camera wrist; the robot has front");
    let units = facts(|facts| facts.action_range = Some(vec![[-90.0, 90.0]; JOINTS])).unwrap();
    assert!(matches!(units, RolloutError::Units { .. }), "{units}");
    assert!(matches!(facts(|facts| facts.action_dim = 7), Some(RolloutError::Joints { .. })));
    assert!(facts(|_| {}).is_none());
}
