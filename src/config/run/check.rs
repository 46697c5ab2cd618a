//! What a rollout's configuration must fulfil as a whole, as far as neither robot nor checkpoint is needed for it.

use super::{OverlapSetting, RunConfig};
use crate::config::validate::{Finding, Name};

/// Arms that other programs drive and that can be served by a policy server.
const SERVED: [&str; 9] = [
    "so100_follower",
    "so101_follower",
    "bi_so100_follower",
    "koch_follower",
    "hope_jr_arm",
    "hope_jr_hand",
    "lekiwi",
    "reachy2",
    "reachy2_robot",
];
/// Names under which a Piper goes.
const PIPER: [&str; 3] = ["piper", "piper_follower", "agilex_piper"];

/// All findings at once.
pub fn check(config: &RunConfig, name: Name<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut find = |wrong: bool, keys: &[&'static str], message: String| {
        if wrong {
            findings.push(Finding { keys: keys.to_vec(), message });
        }
    };
    if let Some(problem) = robot(&config.robot.kind) {
        find(true, &["robot.type"], format!("{}: {problem}", name("robot.type")));
    }
    let control = &config.control;
    let (fps, most) = (control.fps, 1000.0);
    find(fps > most, &["control.fps"], format!("{}: {fps:?} Hz is beyond {most} Hz", name("control.fps")));
    let (long, most) = (control.duration_s, 86_400.0);
    let duration = name("control.duration_s");
    find(long > most, &["control.duration_s"], format!("{duration}: {long:?} s is longer than a day"));
    let (q, n) = (control.speedup, config.policy.n_action_steps);
    let (speedup, steps) = (name("control.speedup"), name("policy.n_action_steps"));
    if let Some(n) = n.filter(|n| !n.is_multiple_of(q.max(1))) {
        let nearest = (n / q * q).max(q);
        let message =
            format!("{steps}: of {n} actions the last is dropped with {speedup} = {q}; the nearest is {nearest}");
        find(true, &["policy.n_action_steps", "control.speedup"], message);
    }
    if let (OverlapSetting::Ticks(overlap), Some(n)) = (control.overlap, n) {
        let ticks = n / q.max(1);
        let message = format!("{}: {overlap} ticks are more than the {ticks} of a chunk", name("control.overlap"));
        find(overlap > ticks, &["control.overlap", "policy.n_action_steps", "control.speedup"], message);
    }
    let nowhere = control.mode != "sync" && control.overlap == OverlapSetting::Ticks(0);
    let message = format!("{}: inference during motion takes at least 1 tick; 0 is mode sync", name("control.overlap"));
    find(nowhere, &["control.overlap", "control.mode"], message);
    let stands = config.limits.approach_speed == 0.0;
    find(stands, &["limits.approach_speed"], format!("{}: 0 never arrives", name("limits.approach_speed")));
    let limits = &config.limits;
    let axes = [
        ("limits.workspace_x", limits.workspace_x),
        ("limits.workspace_y", limits.workspace_y),
        ("limits.workspace_z", limits.workspace_z),
    ];
    for (key, range) in axes {
        let [low, high] = range.unwrap_or([0.0, 1.0]);
        find(low >= high, &[key], format!("{}: nothing lies between {low:?} and {high:?}", name(key)));
    }
    let (fixed, trace) = (name("control.latency_ms"), name("control.latency_trace"));
    find(
        control.latency_ms > 0.0 && control.latency_trace.is_some(),
        &["control.latency_ms", "control.latency_trace"],
        format!("{fixed} and {trace}: one latency or those of a rollout, not both"),
    );
    let listen = &config.telemetry.listen;
    let is_address =
        listen.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
    let message = format!("telemetry.listen: \"{}\" is not host:port", crate::config::error::printable(listen));
    find(!is_address, &["telemetry.listen"], message);
    findings
}

/// What stands in the way of running a robot of this type.
fn robot(kind: &str) -> Option<String> {
    let kind = kind.trim();
    let shown = crate::config::error::printable(kind);
    if kind == "sim" {
        None
    } else if PIPER.contains(&kind) {
        Some(format!(
            "{shown} is not built yet: its limits and its kinematics are, and the simulated arm (sim) has them; its CAN bus comes \
             with a later version"
        ))
    } else if SERVED.contains(&kind) {
        Some(format!(
            "{shown} runs with its own client against a policy server, which comes with a later version; sim runs today"
        ))
    } else {
        Some(format!("there is no robot {shown}; sim runs today"))
    }
}

/// Settings that mean nothing beside others: the keys to look for, and why.
pub fn idle(config: &RunConfig) -> Vec<(&'static [&'static str], &'static str)> {
    let mut idle: Vec<(&'static [&'static str], &'static str)> = Vec::new();
    let control = &config.control;
    if control.mode != "rtc" {
        let keys = &["rtc.execution_horizon", "rtc.max_weight", "rtc.schedule", "rtc.jacobian"];
        idle.push((keys, "only mode rtc guides"));
    }
    if control.mode == "sync" {
        let keys = &["control.blend", "control.launch", "control.overlap_margin_ms"];
        idle.push((keys, "in mode sync the arm waits for every chunk"));
    } else if matches!(control.overlap, OverlapSetting::Ticks(_)) {
        idle.push((&["control.overlap_margin_ms"], "the overlap is fixed"));
    }
    if config.limits.far_start != "approach" {
        idle.push((&["limits.approach_speed"], "a far first action ends the rollout"));
    }
    idle
}
