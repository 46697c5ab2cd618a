//! `vlash collect` as a user meets it: recordings that are killed, interrupted, finished early, and played by a policy.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use support::Bench;

mod support;

/// Sixty episodes of half a second, which all fail and are kept: much to interrupt, little to compute.
const MANY: [&str; 12] = [
    "--episodes",
    "60",
    "--variant",
    "mixed",
    "--noise",
    "1",
    "--size",
    "64",
    "--time-limit",
    "0.5s",
    "--keep-failures",
    "--json",
];

fn collect(bench: &Bench, out: &str, arguments: &[&str]) -> Output {
    bench.vlash(&[&["collect", "--out", out], arguments].concat()).output().unwrap()
}

fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn summary(output: &Output) -> Value {
    assert_eq!(output.status.code(), Some(0), "{}", told(output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Episodes that lie in a recording.
fn parked(bench: &Bench, out: &str) -> usize {
    let entries = fs::read_dir(bench.path(&format!("{out}.recording"))).into_iter().flatten().flatten();
    entries.filter(|entry| entry.path().extension().is_some_and(|ending| ending == "episode")).count()
}

/// Begins a recording and sends `signal` once a few episodes lie there; the exit code and what was said.
fn interrupted(bench: &Bench, out: &str, signal: Signal) -> (Option<i32>, String) {
    let mut command = bench.vlash(&[&["collect", "--out", out, "--threads", "2"], &MANY[..]].concat());
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let since = Instant::now();
    while parked(bench, out) < 3 {
        assert!(since.elapsed() < Duration::from_secs(60), "no episode within a minute");
        std::thread::sleep(Duration::from_millis(2));
    }
    kill(Pid::from_raw(child.id() as i32), signal).unwrap();
    let output = child.wait_with_output().unwrap();
    (output.status.code(), told(&output))
}

/// All files below a directory by their names.
fn files(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(root).unwrap() {
        let path = entry.unwrap().path();
        let name = PathBuf::from(path.file_name().unwrap());
        if path.is_dir() {
            found.extend(files(&path).into_iter().map(|(below, bytes)| (name.join(below), bytes)));
        } else {
            found.insert(name, fs::read(&path).unwrap());
        }
    }
    found
}

#[test]
fn a_killed_recording_goes_on_to_the_dataset_of_one_that_was_not() {
    let bench = Bench::new();
    interrupted(&bench, "killed", Signal::SIGKILL);
    let there = parked(&bench, "killed");
    assert!((3..60).contains(&there) && !bench.path("killed").exists(), "{there}");

    let refused = collect(&bench, "killed", &[&MANY[..], &["--seed", "7"]].concat());
    assert_eq!(refused.status.code(), Some(64), "{}", told(&refused));
    assert!(told(&refused).contains("seed: 0 there, 7 here"), "{}", told(&refused));
    assert_eq!(parked(&bench, "killed"), there);

    let output = collect(&bench, "killed", &MANY);
    assert!(told(&output).contains(&format!("going on with the {there} episodes")), "{}", told(&output));
    let continued = summary(&output);
    assert_eq!((continued["episodes"].as_u64(), continued["resumed"].as_u64()), (Some(60), Some(there as u64)));
    assert!(!bench.path("killed.recording").exists());

    let whole = summary(&collect(&bench, "whole", &[&MANY[..], &["--threads", "1"]].concat()));
    assert_eq!(whole["frames"], continued["frames"]);
    assert!(files(&bench.path("killed")) == files(&bench.path("whole")), "the same bytes in every file");

    let check = bench.vlash(&["data", "check", "killed", "--deep"]).output().unwrap();
    assert_eq!(check.status.code(), Some(0), "{}", String::from_utf8_lossy(&check.stdout));
    let again = collect(&bench, "killed", &MANY);
    assert_eq!(again.status.code(), Some(64));
    assert!(told(&again).contains("it exists"), "{}", told(&again));
}

#[test]
fn ctrl_c_keeps_what_is_there_and_finish_makes_a_dataset_of_it() {
    let bench = Bench::new();
    let (code, said) = interrupted(&bench, "demos", Signal::SIGINT);
    assert_eq!(code, Some(75), "{said}");
    let there = parked(&bench, "demos");
    assert!(said.contains(&format!("stopped by SIGINT with {there} of 60 episodes")), "{said}");
    assert!(said.contains("the same command goes on; vlash collect --out demos --finish"), "{said}");

    let both = collect(&bench, "demos", &["--finish", "--noise", "1"]);
    assert_eq!(both.status.code(), Some(64), "{}", told(&both));
    let finished = summary(&collect(&bench, "demos", &["--finish", "--json"]));
    assert_eq!(finished["episodes"].as_u64(), Some(there as u64));
    assert!(!bench.path("demos.recording").exists());
    let nothing = collect(&bench, "others", &["--finish"]);
    assert_eq!(nothing.status.code(), Some(64));
    assert!(told(&nothing).contains("nothing to finish"), "{}", told(&nothing));
}

/// The expert solves the task, and what it shows can be trained on.
#[test]
fn demonstrations_of_the_expert_are_a_dataset() {
    let bench = Bench::new();
    let summary = summary(&collect(&bench, "demos", &["--episodes", "2", "--size", "48", "--json"]));
    assert_eq!((summary["episodes"].as_u64(), summary["dataset"].as_str()), (Some(2), Some("demos")));
    assert!(summary["frames"].as_u64().unwrap() > 100, "{summary}");
    let check = bench.vlash(&["data", "check", "demos"]).output().unwrap();
    assert_eq!(check.status.code(), Some(0), "{}", String::from_utf8_lossy(&check.stdout));
    let account: Value = serde_json::from_slice(&fs::read(bench.path("demos/meta/collect.json")).unwrap()).unwrap();
    let command = account["command"].as_str().unwrap();
    let words: Vec<&str> = command.split(' ').skip(2).collect();
    collect(&bench, "again", &words);
    assert!(files(&bench.path("demos")) == files(&bench.path("again")), "{command}");
}

#[test]
fn a_policy_is_recorded_as_it_is_evaluated() {
    let bench = Bench::new();
    let arguments = ["--source", "box", "--mode", "vlash", "--delay", "2", "--time-limit", "0.7", "--keep-failures"];
    let arguments = [&arguments[..], &["--episodes", "2", "--size", "32", "--images", "png", "--json"]].concat();
    let recorded = summary(&collect(&bench, "a", &[&arguments[..], &["--threads", "2"]].concat()));
    assert_eq!((recorded["episodes"].as_u64(), recorded["frames"].as_u64()), (Some(2), Some(42)));
    summary(&collect(&bench, "b", &[&arguments[..], &["--threads", "1"]].concat()));
    assert!(files(&bench.path("a")) == files(&bench.path("b")));
    let account = fs::read_to_string(bench.path("a/meta/collect.json")).unwrap();
    assert!(account.contains("--source box") && account.contains("--mode vlash --delay 2"), "{account}");
}

#[test]
fn contradictions_are_refused_before_anything_is_written() {
    let bench = Bench::new();
    for (arguments, expected) in [
        (&["--mode", "vlash"][..], "the expert plays without chunks"),
        (&["--source", "box", "--noise", "1"], "only the expert"),
        (&["--source", "box", "--lead", "box"], "only the expert"),
        (&["--lead", "nowhere"], "--lead nowhere: neither box nor a checkpoint"),
        (&["--source", "exprt"], "neither expert nor box nor a checkpoint"),
        (&["--variant", "mixd"], "did you mean mixed?"),
        (&["--images", "h265"], "did you mean h264?"),
        (&["--noise", "4"], "from 0 to 3"),
        (&["--size", "97"], "97x97 pixels"),
    ] {
        let output = collect(&bench, "out", arguments);
        assert_eq!(output.status.code(), Some(64), "{arguments:?}: {}", told(&output));
        assert!(told(&output).contains(expected), "{arguments:?}: {}", told(&output));
    }
    assert_eq!(fs::read_dir(bench.dir.path()).unwrap().count(), 0);
}
