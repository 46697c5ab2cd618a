//! `vlash data …` as a user runs it: output, error text, exit code.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::{Path, PathBuf};

use assert_cmd::Command;
use serde_json::Value;

fn fixture(name: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures")).join(name)
}

/// Exit code, stdout and stderr of `vlash data ARGS`.
fn data(args: &[&str], dataset: &Path) -> (i32, String, String) {
    let mut command = Command::cargo_bin("vlash").expect("the binary is built with the tests");
    let output =
        command.arg("data").args(&args[..1]).arg(dataset).args(&args[1..]).output().expect("the binary starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (output.status.code().expect("no signal ended it"), text(output.stdout), text(output.stderr))
}

#[test]
fn info_tells_what_a_dataset_holds() {
    let (code, out, _) = data(&["info"], &fixture("datasets/v30-h264"));
    assert_eq!(code, 0);
    assert!(out.contains("episodes     4 (143 frames, 7.2 s at 20 fps)\n"), "{out}");
    assert!(out.contains("camera       observation.images.front (128 × 96, video, h264)\n"), "{out}");
    assert!(out.contains("vector       action [6] float32: joint_0.pos, joint_1.pos"), "{out}");
    assert!(out.contains("statistics   of 9 features, with quantiles"), "{out}");
    let (code, out, _) = data(&["info", "--json"], &fixture("datasets/v21"));
    let info: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(code, 0);
    assert_eq!((&info["format"], &info["frames"]), (&"v2.1".into(), &148.into()));
    assert_eq!(info["tasks"][1], "push_the green block\nto the left");
    assert_eq!(info["statistics"]["quantiles"], false);
}

#[test]
fn show_prints_the_delayed_window() {
    let args = ["show", "--index", "2", "--horizon", "3", "--delay", "1", "--json"];
    let (code, out, _) = data(&args, &fixture("vlash/dataset-equal-dims"));
    assert_eq!(code, 0);
    let shown: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&shown["frame"], &shown["delay"]), (&2.into(), &1.into()));
    // The state is the action of frame 2; actions follow from frame 3 on.
    assert_eq!(shown["state"][0], 1002.0);
    assert_eq!(shown["actions"][0][0], 1003.0);
    assert_eq!(shown["action_is_pad"].as_array().map(Vec::len), Some(3));
}

#[test]
fn bad_input_leaves_with_64_and_a_hint() {
    let (code, out, error) = data(&["show", "--index", "0", "--episodes", "9"], &fixture("datasets/v21"));
    assert_eq!((code, out.as_str()), (64, ""));
    assert_eq!(
        error,
        "vlash: there is no episode 9: this dataset has [0, 1, 2, 3]\nhint: data.episodes = [0, 1, 2, 3]\n"
    );
    let (code, _, error) = data(&["info"], Path::new("/nowhere/at/all"));
    assert_eq!(code, 64);
    assert!(
        error.starts_with("vlash: /nowhere/at/all is not a LeRobot dataset: there is no such directory"),
        "{error}"
    );
    let (code, _, error) = data(&["show", "--index", "0", "--episodes", "3..1"], &fixture("datasets/v21"));
    assert_eq!(code, 64);
    assert!(error.contains("\"3..1\" is not a number or a range of them"), "{error}");
}
