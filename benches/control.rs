//! Jitter of the control loop at 30 Hz while the inference thread saturates a core.
//!
//! `cargo bench --bench control -- [SECONDS] [SPIN_US] [FIFO]`: 60 s, no spin and no real-time priority by default. Prints
//! the figures of the period between commands.

#![allow(clippy::unwrap_used, reason = "a measurement that cannot begin has nothing to tell")]

#[path = "../tests/support/arm.rs"]
mod arm;

use std::sync::mpsc::channel;
use std::time::Duration;

use arm::{HORIZON, JOINTS, MockArm, Swing};
use vlash_forge::realtime::control::{ControlSettings, Hooks, Priority, RolloutSettings, run};
use vlash_forge::realtime::scheduler::{LaunchAt, Mode, Settings};
use vlash_forge::realtime::telemetry::{Telemetry, TelemetrySettings};
use vlash_forge::robot::clock::Clock;

fn main() {
    let numbers: Vec<u64> = std::env::args().filter_map(|argument| argument.parse().ok()).collect();
    let given = |at: usize| numbers.get(at).copied();
    let seconds = given(0).unwrap_or(60);
    let schedule = Settings { launch: LaunchAt::Eager, ..Settings::new(Mode::Vlash, HORIZON, 12, JOINTS, 30.0) };
    let mut control = ControlSettings::new(schedule, "swing");
    control.expected_ticks = (seconds * 30 + 30) as usize;
    let settings = RolloutSettings {
        duration: Some(Duration::from_secs(seconds)),
        priority: Priority {
            fifo: given(2).and_then(|priority| u8::try_from(priority).ok()),
            lock_memory: true,
            own_core: true,
        },
        spin: Duration::from_micros(given(1).unwrap_or(0)),
        ..RolloutSettings::new(control)
    };
    let clock = Clock::monotonic();
    let mut arm = MockArm::new(&clock);
    let policy = Swing { busy: Duration::from_millis(120), ..Swing::new() };
    let (steer, asked) = channel();
    let telemetry = Telemetry::start(TelemetrySettings::default(), steer).unwrap();
    let hooks = &mut Hooks::default();
    let summary = run(&mut arm, Box::new(policy), &settings, &clock, Some(&telemetry), &asked, hooks).unwrap();
    summary.notices.iter().for_each(|notice| println!("{notice}"));
    let metrics = summary.metrics;
    println!("{} s at {} Hz: {} ticks, {} missed", seconds, metrics.fps, metrics.ticks, metrics.missed_ticks);
    println!("period ms: mean {:.4} std {:.4}", metrics.period_ms.mean, metrics.period_ms.std);
    let jitter = metrics.jitter_ms;
    println!(
        "|period - 1/fps| ms: mean {:.4} p50 {:.4} p99 {:.4} max {:.4}",
        jitter.mean, jitter.p50, jitter.p99, jitter.max
    );
    println!(
        "inference ms: p50 {:.2} max {:.2}; chunks {}, late {}",
        metrics.latency_ms.p50, metrics.latency_ms.max, metrics.chunks, metrics.late_chunks
    );
}
