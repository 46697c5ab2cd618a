//! A rollout's configuration as the rooms take it: the schedule, the safety filter, the watchdog.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use serde::de::DeserializeOwned;

use crate::config::run::{LimitsConfig, OverlapSetting, RunConfig};
use crate::error::{Explain, Kind};
use crate::realtime::control::{ControlSettings, Priority, RolloutSettings};
use crate::realtime::filter::{Excess, FarStart, FilterSettings, Workspace};
use crate::realtime::policy::{Guidance, GuidanceSchedule, PolicyFacts};
use crate::realtime::report::Trace;
use crate::realtime::scheduler::{Mode, Overlap, Settings, UnknownMode};
use crate::realtime::watchdog::WatchdogSettings;
use crate::realtime::worker::Injected;
use crate::robot::{Exit, Features};
use crate::track::telemetry::TELEMETRY_FILE;

/// Priority of the control thread among real-time ones: above ordinary ones, below the kernel's own.
const FIFO: u8 = 50;
/// Without a sign of life for this long the operator counts as gone; the screen gives one a second.
const DEAD_MAN: Duration = Duration::from_secs(3);
/// The last part of each wait in which the control thread looks at the clock.
const SPIN: Duration = Duration::from_micros(300);

/// Settings that this checkpoint cannot obey.
#[derive(Debug, thiserror::Error)]
pub enum Misfit {
    #[error(transparent)]
    Mode(#[from] UnknownMode),
    #[error("{key}: {word:?} is no word that control knows")]
    Word { key: &'static str, word: String },
    #[error("policy.n_action_steps: {execute} actions are executed of chunks of {horizon}")]
    Execute { execute: usize, horizon: usize },
    #[error(
        "mode {mode}: {execute} executed actions behind a delay of {delay} are {} of a chunk's {horizon}",
        execute + delay
    )]
    Room { mode: Mode, execute: usize, delay: usize, horizon: usize },
    #[error("control.latency_trace: cannot read {}", path.display())]
    Latencies { path: PathBuf, source: io::Error },
    #[error("control.latency_trace: {} tells of no inference", path.display())]
    NoLatency { path: PathBuf },
    #[error("mode rtc-trained: this checkpoint was not trained to take given actions")]
    Untrained,
}

impl Explain for Misfit {
    fn kind(&self) -> Kind {
        match self {
            Misfit::Word { .. } => Kind::Internal,
            _ => Kind::Input,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Misfit::Mode(_) | Misfit::Word { .. } => None,
            Misfit::Execute { horizon, .. } => Some(format!("policy.n_action_steps={horizon}")),
            Misfit::Room { execute, delay, horizon, .. } => {
                let least = horizon.saturating_sub(*delay).min(*execute).max(1);
                Some(format!("policy.n_action_steps={least}, or a smaller control.overlap"))
            }
            Misfit::Latencies { .. } | Misfit::NoLatency { .. } => {
                Some("give the directory of a rollout that inferred, as vlash run leaves it".into())
            }
            Misfit::Untrained => Some("control.mode=rtc, or train with train.rtc_max_delay=8".into()),
        }
    }
}

/// What the control loop goes by, for a policy of these facts on a robot with these features.
pub fn rollout(
    config: &RunConfig,
    facts: &PolicyFacts,
    features: &Features,
    task: &str,
    seed: u64,
) -> Result<RolloutSettings, Misfit> {
    let control = ControlSettings {
        filter: filter(config),
        watchdog: watchdog(config),
        seed,
        rejects: config.limits.rejected_chunks,
        recover: config.watchdog.recover,
        dead_man: config.robot.confirm.then_some(DEAD_MAN),
        expected_ticks: (config.control.fps * config.control.duration_s).clamp(1.0, 1e6) as usize,
        ..ControlSettings::new(schedule(config, facts, features)?, task)
    };
    let realtime = config.control.realtime;
    Ok(RolloutSettings {
        arm: !config.robot.confirm,
        duration: Some(seconds(config.control.duration_s)),
        exit: if config.robot.on_exit == "rest" { Exit::Rest } else { Exit::Hold },
        rest_pace: config.limits.approach_speed,
        injected: injected(config)?,
        priority: Priority { fifo: realtime.then_some(FIFO), lock_memory: realtime, own_core: realtime },
        spin: if realtime { SPIN } else { Duration::ZERO },
        ..RolloutSettings::new(control)
    })
}

/// How long inferences are made to take.
fn injected(config: &RunConfig) -> Result<Injected, Misfit> {
    let Some(path) = &config.control.latency_trace else {
        let latency = seconds(config.control.latency_ms / 1e3);
        return Ok(if latency.is_zero() { Injected::None } else { Injected::Fixed(latency) });
    };
    let path = if path.is_dir() { path.join(TELEMETRY_FILE) } else { path.clone() };
    let trace = match Trace::read(&path) {
        Ok(trace) => trace,
        Err(source) => return Err(Misfit::Latencies { path, source }),
    };
    let sound = trace.latencies.iter().filter(|ms| ms.is_finite() && **ms >= 0.0);
    let latencies: Vec<Duration> = sound.map(|ms| seconds(ms / 1e3)).collect();
    if latencies.is_empty() { Err(Misfit::NoLatency { path }) } else { Ok(Injected::Trace(latencies)) }
}

fn schedule(config: &RunConfig, facts: &PolicyFacts, features: &Features) -> Result<Settings, Misfit> {
    let control = &config.control;
    let mode: Mode = control.mode.parse()?;
    let execute = executed(config, facts)?;
    let grippers = features.joints.iter().enumerate().filter(|(_, joint)| joint.starts_with("gripper"));
    let settings = Settings {
        overlap: match control.overlap {
            OverlapSetting::Ticks(ticks) => Overlap::Fixed(ticks),
            OverlapSetting::Measured(_) => {
                Overlap::Measured { margin: seconds(control.overlap_margin_ms / 1e3), first: 1 }
            }
        },
        trained_delay: facts.trained_delay,
        rtc_trained_delay: facts.rtc_trained_delay,
        launch: word("control.launch", &control.launch)?,
        miss: word("control.miss", &control.miss)?,
        speed: control.speedup,
        grippers: grippers.map(|(joint, _)| joint).collect(),
        blend: control.blend,
        guidance: Guidance {
            execution_horizon: config.rtc.execution_horizon,
            max_weight: config.rtc.max_weight,
            schedule: guidance(&config.rtc.schedule)?,
            full_jacobian: config.rtc.jacobian == "full",
        },
        ..Settings::new(mode, facts.horizon, execute, facts.action_dim, control.fps)
    };
    // In these modes step 0 of a chunk is for the tick of its launch, so that the delay takes actions away.
    if let (Mode::Rtc | Mode::RtcTrained, Overlap::Fixed(ticks)) = (mode, settings.overlap) {
        let delay = ticks * control.speedup;
        if execute + delay > facts.horizon {
            return Err(Misfit::Room { mode, execute, delay, horizon: facts.horizon });
        }
    }
    if mode == Mode::RtcTrained && facts.rtc_trained_delay == 0 {
        return Err(Misfit::Untrained);
    }
    Ok(settings)
}

/// n. Where nobody says, a quarter of the chunk, and at least the delay that the policy was trained for: more chunks mean
/// fresher images (the policy in the box solves 57 of 60 seeds with 8 of 32 actions, 49 with 16), and the rest of the chunk
/// is there when the next is late.
fn executed(config: &RunConfig, facts: &PolicyFacts) -> Result<usize, Misfit> {
    let (horizon, speed) = (facts.horizon, config.control.speedup.max(1));
    let execute = config.policy.n_action_steps.unwrap_or_else(|| {
        let room = (horizon / 4).max(facts.trained_delay).max(facts.rtc_trained_delay).clamp(1, horizon.max(1));
        (room / speed * speed).max(speed)
    });
    if execute > horizon { Err(Misfit::Execute { execute, horizon }) } else { Ok(execute) }
}

fn filter(config: &RunConfig) -> FilterSettings {
    let limits = &config.limits;
    FilterSettings {
        margin: limits.margin as f32,
        max_step: limits.max_step.map(|step| step as f32),
        workspace: workspace(limits),
        excess: if limits.excess == "refuse" { Excess::Refuse } else { Excess::Clamp },
        start_distance: limits.start_distance as f32,
        far_start: match limits.far_start.as_str() {
            "refuse" => FarStart::Refuse,
            _ => FarStart::Approach(limits.approach_speed),
        },
        ..FilterSettings::new(config.control.fps)
    }
}

/// None where no side is closed.
fn workspace(limits: &LimitsConfig) -> Option<Workspace> {
    let ranges = [limits.workspace_x, limits.workspace_y, limits.workspace_z];
    let open = [f64::NEG_INFINITY, f64::INFINITY];
    ranges.iter().any(Option::is_some).then(|| Workspace { ranges: ranges.map(|range| range.unwrap_or(open)) })
}

fn watchdog(config: &RunConfig) -> WatchdogSettings {
    let (asked, usual) = (&config.watchdog, WatchdogSettings::new(config.control.fps));
    WatchdogSettings {
        camera_age: asked.camera_age_ms.map_or(usual.camera_age, |limit| seconds(limit / 1e3)),
        camera_stop: seconds(asked.camera_stop_s),
        frozen_images: asked.frozen.unwrap_or(usual.frozen_images),
        frozen_readings: asked.frozen.unwrap_or(usual.frozen_readings),
        worker_stop: seconds(asked.inference_stop_s),
        ..usual
    }
}

/// A word that the key table let through, as the type that obeys it.
fn word<T: DeserializeOwned>(key: &'static str, word: &str) -> Result<T, Misfit> {
    serde_json::from_value(serde_json::json!(word)).map_err(|_| Misfit::Word { key, word: word.to_owned() })
}

fn guidance(word: &str) -> Result<GuidanceSchedule, Misfit> {
    match word {
        "zeros" => Ok(GuidanceSchedule::Zeros),
        "ones" => Ok(GuidanceSchedule::Ones),
        "linear" => Ok(GuidanceSchedule::Linear),
        "exponential" => Ok(GuidanceSchedule::Exponential),
        _ => Err(Misfit::Word { key: "rtc.schedule", word: word.to_owned() }),
    }
}

/// What is beyond any duration lasts as long as can be said.
fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Source, load_run};
    use crate::realtime::scheduler::{LaunchAt, Miss};

    fn made(arguments: &[&str]) -> Result<RolloutSettings, String> {
        let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
        let config = load_run(&Source::Embedded, &arguments).unwrap().value;
        let facts = PolicyFacts {
            horizon: 32,
            action_dim: 7,
            state_dim: 7,
            joints: None,
            cameras: Vec::new(),
            trained_delay: 8,
            rtc_trained_delay: 0,
            action_range: None,
        };
        let joints = vec!["joint_1.pos".into(), "gripper.pos".into()];
        let features = Features { robot_type: "arm".into(), joints, cameras: Vec::new() };
        rollout(&config, &facts, &features, "pick", 3).map_err(|misfit| misfit.to_string())
    }

    #[test]
    fn every_setting_arrives_where_it_is_obeyed() {
        let usual = made(&[]).unwrap();
        assert_eq!((usual.control.schedule.execute, usual.control.schedule.mode), (8, Mode::Vlash));
        assert_eq!(usual.control.schedule.grippers, [1]);
        assert!(usual.arm && usual.control.dead_man.is_none());
        let other = made(&[
            "control.mode=async",
            "control.overlap=3",
            "control.miss=hold",
            "control.launch=eager",
            "control.blend=2",
            "control.speedup=2",
            "control.latency_ms=184.5",
            "control.realtime=true",
            "policy.n_action_steps=12",
            "limits.excess=refuse",
            "limits.far_start=refuse",
            "limits.margin=0.1",
            "limits.approach_speed=0.5",
            "limits.rejected_chunks=4",
            "limits.workspace_z=[0.02, 0.5]",
            "watchdog.camera_age_ms=250",
            "watchdog.frozen=9",
            "watchdog.recover=true",
            "robot.confirm=true",
            "robot.on_exit=rest",
            "rtc.schedule=linear",
            "rtc.jacobian=full",
        ])
        .unwrap();
        let schedule = &other.control.schedule;
        assert_eq!((schedule.mode, schedule.overlap, schedule.miss), (Mode::Async, Overlap::Fixed(3), Miss::Hold));
        assert_eq!((schedule.launch, schedule.blend, schedule.speed, schedule.execute), (LaunchAt::Eager, 2, 2, 12));
        assert_eq!((schedule.guidance.schedule, schedule.guidance.full_jacobian), (GuidanceSchedule::Linear, true));
        assert_eq!(other.injected, Injected::Fixed(Duration::from_micros(184_500)));
        assert_eq!((other.priority.fifo, other.arm), (Some(FIFO), false));
        assert_eq!((other.exit, other.rest_pace), (Exit::Rest, 0.5));
        assert_eq!((other.control.filter.excess, other.control.filter.far_start), (Excess::Refuse, FarStart::Refuse));
        assert_eq!((other.control.filter.margin, other.control.rejects, other.control.recover), (0.1, 4, true));
        assert_eq!(
            (other.control.watchdog.camera_age, other.control.watchdog.frozen_images),
            (Duration::from_millis(250), 9)
        );
        assert_eq!(other.control.dead_man, Some(DEAD_MAN));
        let open = [f64::NEG_INFINITY, f64::INFINITY];
        assert_eq!(other.control.filter.workspace, Some(Workspace { ranges: [open, open, [0.02, 0.5]] }));
        assert_eq!(usual.control.filter.workspace, None);
    }

    #[test]
    fn latencies_of_another_rollout_are_replayed() {
        let run = tempfile::tempdir().unwrap();
        let trace = format!("control.latency_trace={}", run.path().display());
        assert!(made(&[&trace]).unwrap_err().contains("telemetry.jsonl"), "there is none yet");
        let told = |ms: f64| {
            format!(
                r#"{{"kind":"chunk","chunk":1,"time":1.0,"tick":1,"phase":"arrived","latency_ms":{ms},"preprocess_ms":0,"prefix_ms":0,"denoise_ms":0,"copy_ms":0}}"#
            )
        };
        let file = run.path().join(TELEMETRY_FILE);
        std::fs::write(&file, "").unwrap();
        assert!(made(&[&trace]).unwrap_err().contains("tells of no inference"));
        std::fs::write(&file, format!("{}\n{}\n", told(120.0), told(80.5))).unwrap();
        let wanted = [120_000, 80_500].map(Duration::from_micros).to_vec();
        assert_eq!(made(&[&trace]).unwrap().injected, Injected::Trace(wanted));
    }

    #[test]
    fn what_a_chunk_has_no_room_for_is_refused() {
        let refused = |arguments: &[&str]| made(arguments).unwrap_err();
        assert_eq!(
            refused(&["policy.n_action_steps=40"]),
            "policy.n_action_steps: 40 actions are executed of chunks of 32"
        );
        assert_eq!(
            refused(&["control.mode=rtc", "control.overlap=10", "policy.n_action_steps=24"]),
            "mode rtc: 24 executed actions behind a delay of 10 are 34 of a chunk's 32"
        );
        assert!(refused(&["control.mode=rtc-trained"]).contains("was not trained to take given actions"));
        assert_eq!(made(&["control.speedup=5"]).unwrap().control.schedule.execute, 5);
    }
}
