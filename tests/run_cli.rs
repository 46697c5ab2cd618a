//! `vlash run` as a user meets it: the policy in the box on the simulated arm.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use support::Bench;
use vlash_forge::realtime::boxed;
use vlash_forge::realtime::report::{JSON, LATENCY, MARKDOWN, PERIOD, Report, TIMELINE};
use vlash_forge::robot::sim::ik::HOME;
use vlash_forge::track::steering;
use vlash_forge::track::telemetry::{Message, Steer, TELEMETRY_FILE};

mod support;

fn run(bench: &Bench, arguments: &[&str]) -> Output {
    let base = ["run", "--no-tui", "run.dir=r", "policy.device=cpu"];
    bench.vlash(&[&base[..], arguments].concat()).output().unwrap()
}

fn error(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn report(directory: &Path) -> Report {
    serde_json::from_slice(&fs::read(directory.join(JSON)).unwrap()).unwrap()
}

fn messages(directory: &Path) -> Vec<Message> {
    let text = fs::read_to_string(directory.join(TELEMETRY_FILE)).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Starts a rollout that would take a minute, ends it by `end` once it ticks, and gives its exit code.
fn ended_by(bench: &Bench, end: impl FnOnce(u32)) -> Option<i32> {
    let mut command = bench.vlash(&["run", "--no-tui", "run.dir=r", "policy.device=cpu", "--seconds", "60"]);
    let mut child = command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).spawn().unwrap();
    let since = Instant::now();
    while !messages(&bench.path("r")).iter().any(|message| matches!(message, Message::Tick(_))) {
        assert!(since.elapsed() < Duration::from_secs(120), "no tick within two minutes");
        std::thread::sleep(Duration::from_millis(20));
    }
    end(child.id());
    child.wait().unwrap().code()
}

#[test]
fn a_rollout_leaves_telemetry_and_a_report() {
    let bench = Bench::new();
    let output = run(&bench, &["--seconds", "1", "--seed", "5", "--episodes", "2", "control.mode=sync"]);
    assert_eq!(output.status.code(), Some(0), "{}", error(&output));
    let directory = bench.path("r");
    let report = report(&directory);
    let seeds: Vec<u64> = report.episodes.iter().map(|episode| episode.seed).collect();
    assert_eq!((seeds, report.mode.as_str(), report.policy.as_str()), (vec![5, 6], "sync", "in the box"));
    for episode in &report.episodes {
        assert!(episode.metrics.ticks > 0 && episode.metrics.latency_ms.count > 0, "{episode:?}");
        assert_eq!((episode.end.as_str(), episode.success), ("time is over", Some(false)));
    }
    let told = messages(&directory);
    assert!(
        matches!(told.first(), Some(Message::Hello(hello)) if hello.robot == "piper_sim" && hello.joints.len() == 7)
    );
    assert!(matches!(told.last(), Some(Message::Ended { report: Some(report), .. }) if report == MARKDOWN));
    let text = fs::read_to_string(directory.join(MARKDOWN)).unwrap();
    assert!(text.contains("- Success: 0 of 2"), "{text}");
    for name in ["run.json", LATENCY, TIMELINE, PERIOD] {
        assert!(fs::metadata(directory.join(name)).unwrap().len() > 200, "{name}");
    }
    assert!(!directory.join("robot.socket").exists(), "nobody listens any more");
    let lines = String::from_utf8(output.stdout).unwrap();
    assert!(lines.contains("piper_sim is ARMED, mode sync") && lines.contains("ended: 0 of 2 episodes"), "{lines}");
}

#[test]
fn a_signal_and_an_order_end_a_rollout_with_its_report() {
    let bench = Bench::new();
    let code = ended_by(&bench, |pid| kill(Pid::from_raw(i32::try_from(pid).unwrap()), Signal::SIGTERM).unwrap());
    assert_eq!((code, report(&bench.path("r")).episodes[0].end.as_str()), (Some(75), "stopped by the operator"));
    let bench = Bench::new();
    let code = ended_by(&bench, |_| drop(steering::send(&bench.path("r"), Steer::Stop).unwrap()));
    assert_eq!((code, report(&bench.path("r")).episodes[0].end.as_str()), (Some(75), "stopped by the operator"));
}

/// FF-22: the arm holds, and the message names the camera, its age and the limit.
#[test]
fn a_camera_that_stalls_holds_the_arm() {
    let bench = Bench::new();
    let output = run(&bench, &["--seconds", "2", "robot.faults=[stall:wrist@0.3]"]);
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(lines.contains("holding position: camera wrist: last new frame 1"), "{lines}{}", error(&output));
    assert!(lines.contains("ms ago (limit 100 ms)"), "{lines}");
    let held = |message: &Message| matches!(message, Message::Status(status) if status.reason.is_some());
    assert!(messages(&bench.path("r")).iter().any(held));
}

/// The policy in the box with NaN where joint 4 is computed.
fn broken_policy(bench: &Bench) -> PathBuf {
    let place = bench.path("broken");
    let whole = boxed::ensure(&bench.path("whole")).unwrap();
    fs::create_dir(&place).unwrap();
    for entry in fs::read_dir(whole).unwrap().flatten() {
        fs::copy(entry.path(), place.join(entry.file_name())).unwrap();
    }
    let weights = place.join("model.safetensors");
    let mut bytes = fs::read(&weights).unwrap();
    let length = usize::try_from(u64::from_le_bytes(bytes[..8].try_into().unwrap())).unwrap();
    let header: serde_json::Value = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
    let bias = &header["model.action_out_proj.bias"];
    assert_eq!(bias["dtype"], "BF16");
    let at = 8 + length + usize::try_from(bias["data_offsets"][0].as_u64().unwrap()).unwrap() + 3 * 2;
    bytes[at..at + 2].copy_from_slice(&0x7fc0u16.to_le_bytes());
    fs::write(weights, bytes).unwrap();
    place
}

/// FF-21: nothing is commanded, and the message names the joint and the step.
#[test]
fn a_policy_of_nans_never_moves_the_arm() {
    let bench = Bench::new();
    let place = broken_policy(&bench);
    let output = run(&bench, &["--seconds", "2", &format!("policy.path={}", place.display())]);
    assert_eq!(output.status.code(), Some(64), "{}", error(&output));
    insta::assert_snapshot!("nan", error(&output));
    let told = messages(&bench.path("r"));
    assert!(!told.iter().any(|message| matches!(message, Message::Tick(_))), "{told:?}");
    assert!(matches!(told.last(), Some(Message::Ended { outcome, .. }) if outcome.contains("NaN")), "{told:?}");
    assert!(report(&bench.path("r")).episodes.is_empty());
}

#[test]
fn the_arm_is_left_at_its_rest_pose() {
    let bench = Bench::new();
    // What a busy machine does to the cameras is not asked here.
    let patient = ["watchdog.camera_age_ms=2000", "watchdog.frozen=1000", "watchdog.inference_stop_s=60"];
    let resting = ["--seconds", "0.5", "robot.on_exit=rest", "limits.approach_speed=0.5"];
    let output = run(&bench, &[&resting[..], &patient].concat());
    assert_eq!(output.status.code(), Some(0), "{}", error(&output));
    let told = messages(&bench.path("r"));
    let ticks = || told.iter().filter_map(|message| if let Message::Tick(tick) = message { Some(tick) } else { None });
    let home =
        |joints: &[f32]| joints.iter().zip(HOME).map(|(at, home)| (f64::from(*at) - home).abs()).fold(0.0, f64::max);
    let end = home(&ticks().next_back().unwrap().state);
    assert!(end < 0.02, "{end} rad from the rest pose");
    let going = |message: &Message| matches!(message, Message::Event { text, .. } if text == "going to the rest pose");
    assert!(told.iter().any(going));
}

#[test]
fn bad_configurations_say_everything_before_anything_starts() {
    let bench = Bench::new();
    let output =
        run(&bench, &["robot.type=koch_follower", "control.fps=fast", "control.mod=sync", "policy.n_actions=4"]);
    assert_eq!(output.status.code(), Some(64));
    insta::assert_snapshot!("settings", error(&output));
    let output = run(&bench, &["robot.faults=[melt:wrist@1]"]);
    assert_eq!(output.status.code(), Some(64));
    insta::assert_snapshot!("fault", error(&output));
    let output = run(&bench, &["policy.n_action_steps=99"]);
    assert_eq!(output.status.code(), Some(64));
    insta::assert_snapshot!("misfit", error(&output));
    assert!(!bench.path("r").exists());
}

#[test]
fn a_file_of_vlash_s_is_checked_against_policy_and_robot() {
    let bench = Bench::new();
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/config/run/async.yaml");
    let named = ["run", file, "--dry-run", "robot.type=sim", "--policy.device=cpu", "--single_task=pick"];
    let output = bench.vlash(&[&named[..], &["--policy.path=/nowhere"]].concat()).output().unwrap();
    assert_eq!(output.status.code(), Some(64));
    assert!(error(&output).contains("/nowhere"), "{}", error(&output));
    let output = bench.vlash(&["run", "--dry-run", "policy.device=cpu"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", error(&output));
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("policy: in the box on CPU") && said.contains("mode vlash, 30 Hz"), "{said}");
}
