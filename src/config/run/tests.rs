//! The rollout's key table against its type, VLASH's files, and what is refused.

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::*;
use crate::config::keys::{Effect, RUN};
use crate::config::tests::{another, leaves};
use crate::config::{Loaded, Source, load_as, print};

fn no_env(_: &str) -> Option<String> {
    None
}

fn load(source: &Source, arguments: &[&str]) -> Result<Loaded<RunConfig>, String> {
    let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
    load_as(source, None, &arguments, &no_env).map_err(|errors| errors.to_string())
}

fn built_in(arguments: &[&str]) -> RunConfig {
    load(&Source::Embedded, arguments).unwrap().value
}

fn fixture(name: &str) -> Source {
    Source::File(PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/config/run/")).join(name))
}

#[test]
fn the_table_names_every_field_and_no_other() {
    let mut fields = BTreeSet::new();
    leaves("", &serde_json::to_value(built_in(&[])).unwrap(), &mut fields);
    let table: BTreeSet<String> = RUN.all().filter(|key| key.is_field()).map(|key| key.toml.to_string()).collect();
    assert_eq!(fields, table);
}

#[test]
fn every_acting_key_changes_the_configuration_under_each_of_its_names() {
    let before = built_in(&["control.speedup=2", "control.overlap=3", "limits.approach_speed=0.5"]);
    let tree = serde_json::to_value(&before).unwrap();
    for key in RUN.all().filter(|key| matches!(key.effect, Effect::Acts)) {
        // What only one word describes today, and what must have a form of its own.
        let value = match key.toml {
            "robot.type" => continue,
            "telemetry.listen" => "0.0.0.0:1".to_string(),
            "policy.n_action_steps" => "8".to_string(),
            "control.mode" => "async".to_string(),
            toml => {
                let now = toml.split('.').try_fold(&tree, |tree, part| tree.get(part)).unwrap();
                another(&key.kind, now)
            }
        };
        for alias in key.names(Vocabulary::Toml).chain(key.names(Vocabulary::Yaml)) {
            let set = format!("{}={value}", alias.path);
            let after = built_in(&["control.speedup=2", "control.overlap=3", "limits.approach_speed=0.5", &set]);
            assert_ne!(after, before, "{set}");
        }
    }
}

#[test]
fn the_reference_is_not_stale_and_holds_the_defaults() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/configs/run/reference.toml");
    let reference = print::run_reference();
    if std::env::var_os("VLASH_BLESS").is_some() {
        std::fs::write(path, &reference).unwrap();
    }
    let committed = std::fs::read_to_string(path).unwrap();
    assert!(committed == reference, "reference.toml is stale; VLASH_BLESS=1 cargo test --lib config:: writes it anew");
    let from_file = load(&Source::File(path.into()), &[]).unwrap().value;
    assert_eq!(from_file, built_in(&["control.duration_s=60", "watchdog.recover=false"]));
}

#[test]
fn the_printed_configuration_loads_as_the_same() {
    let first =
        load(&fixture("async.yaml"), &["robot.type=sim", "policy.path=/p", "task=a \"ball\"", "control.overlap=auto"]);
    let first = first.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("printed.toml");
    std::fs::write(&path, print::resolved(&first)).unwrap();
    assert_eq!(load(&Source::File(path), &[]).unwrap().value, first.value);
}

#[test]
fn vlash_s_files_run_once_robot_policy_and_task_are_named() {
    let named = ["robot.type=sim", "--policy.path=/p", "--single_task=pick"];
    for (name, mode, overlap) in [("async.yaml", "vlash", 4), ("sync.yaml", "sync", 0)] {
        let loaded = load(&fixture(name), &named).unwrap();
        let config = &loaded.value;
        assert_eq!((config.control.mode.as_str(), config.control.overlap), (mode, OverlapSetting::Ticks(overlap)));
        assert_eq!(
            (config.control.duration_s, config.control.fps, config.policy.n_action_steps),
            (600.0, 30.0, Some(32))
        );
        assert_eq!(config.policy.device, DeviceKind::Cuda(0));
        assert_eq!(config.task.as_deref(), Some("pick"));
        let notes: Vec<String> = loaded.notes.iter().map(|note| note.text.clone()).collect();
        assert!(
            notes.iter().any(|note| note.starts_with("robot.port, robot.id, robot.cameras have no effect")),
            "{notes:?}"
        );
        assert!(notes.iter().any(|note| note.contains("our engine always fuses")), "{notes:?}");
        let said = format!("control.mode is not set: {mode}, as inference_overlap_steps says (0: sync, more: vlash)");
        assert!(notes.contains(&said), "{notes:?}");
    }
    let other = load(&fixture("async.yaml"), &[&named[..], &["control.mode=async"]].concat()).unwrap().value;
    assert_eq!(other.control.mode, "async");
}

#[test]
fn vlash_s_files_as_they_stand_say_everything_that_is_missing() {
    let error = load(&fixture("async.yaml"), &[]).unwrap_err();
    let error = error.replace(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/config/run/"), "");
    insta::assert_snapshot!(error, @r"
    3 errors in the configuration
      async.yaml:4:9: robot.type: so101_follower runs with its own client against a policy server, which comes with a later version; sim runs today
      async.yaml:16:9: policy.path: <path to the policy checkpoint> is a placeholder; write the real value in its place
      async.yaml:24:14: single_task: <task description> is a placeholder; write the real value in its place
    ");
}

#[test]
fn contradictions_are_refused_in_the_vocabulary_of_the_file() {
    let message = |arguments: &[&str]| load(&Source::Embedded, arguments).unwrap_err();
    insta::assert_snapshot!(message(&[
        "robot.type=piper",
        "control.fps=2000",
        "control.duration_s=1e9",
        "policy.n_action_steps=10",
        "control.speedup=4",
        "control.overlap=3",
        "limits.approach_speed=0",
        "telemetry.listen=nowhere",
        "control.mood=sync",
        "control.miss=wait",
        "control.launch=4",
    ]), @r#"
    10 errors in the configuration
      argument control.mood=sync: unknown key control.mood; did you mean control.mode?
      argument control.miss=wait: control.miss: "wait" is not one of continue, hold, stop
      argument control.launch=4: control.launch: 4 is not one of end, eager
      argument robot.type=piper: robot.type: piper is not built yet: its limits and its kinematics are, and the simulated arm (sim) has them; its CAN bus comes with a later version
      argument control.fps=2000: control.fps: 2000.0 Hz is beyond 1000 Hz
      argument control.duration_s=1e9: control.duration_s: 1000000000.0 s is longer than a day
      argument policy.n_action_steps=10: policy.n_action_steps: of 10 actions the last is dropped with control.speedup = 4; the nearest is 8
      argument control.overlap=3: control.overlap: 3 ticks are more than the 2 of a chunk
      argument limits.approach_speed=0: limits.approach_speed: 0 never arrives
      argument telemetry.listen=nowhere: telemetry.listen: "nowhere" is not host:port
    "#);
    insta::assert_snapshot!(message(&["control.overlap=0", "robot.type=r2d2"]), @r"
    2 errors in the configuration
      argument robot.type=r2d2: robot.type: there is no robot r2d2; sim runs today
      argument control.overlap=0: control.overlap: inference during motion takes at least 1 tick; 0 is mode sync
    ");
    let message = message(&["control.overlap=soon"]);
    assert_eq!(
        message,
        "argument control.overlap=soon: control.overlap: \"soon\" is not a whole number (example: 4) nor \"auto\""
    );
}

#[test]
fn settings_in_vain_are_said() {
    let loaded = load(&Source::Embedded, &["control.mode=sync", "control.blend=3", "rtc.max_weight=2"]).unwrap();
    let notes: Vec<&str> = loaded.notes.iter().map(|note| note.text.as_str()).collect();
    assert_eq!(
        notes,
        [
            "rtc.max_weight has no effect: only mode rtc guides",
            "control.blend has no effect: in mode sync the arm waits for every chunk",
        ]
    );
}
