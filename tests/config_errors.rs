//! Messages for bad configurations (FF-17), as snapshots: one file, all of its errors.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::PathBuf;
use std::process::Output;

use rstest::rstest;
use vlash_forge::config::{self, Source};
use vlash_forge::error::{Explain, Kind};

const BAD: &str = "tests/fixtures/config/bad/";

/// Paths as a user in the folder of the file would see them.
fn message(file: &str, overrides: &[&str]) -> String {
    let overrides: Vec<String> = overrides.iter().map(ToString::to_string).collect();
    let errors = config::load(&Source::File(PathBuf::from(format!("{BAD}{file}"))), None, &overrides)
        .expect_err("the file is bad");
    assert_eq!(errors.kind(), Kind::Input);
    errors.to_string().replace(BAD, "")
}

#[rstest]
#[case("unknown_keys.yaml")]
#[case("unknown_keys.toml")]
#[case("types.yaml")]
#[case("types.toml")]
#[case("variables.yaml")]
#[case("contradictions.yaml")]
#[case("twice.yaml")]
#[case("twice.toml")]
#[case("tab.yaml")]
#[case("list.yaml")]
#[case("empty.yaml")]
#[case("two_documents.yaml")]
#[case("not_utf8.toml")]
#[case("notes.txt")]
#[case("absent.yaml")]
#[case("../pi05")]
fn a_bad_file_says_everything_that_is_wrong(#[case] file: &str) {
    let name = file.trim_start_matches("../").replace('.', "_");
    insta::assert_snapshot!(name, message(file, &[]));
}

#[test]
fn bad_arguments_are_shown_as_typed() {
    let overrides =
        ["--optimizer.lr=5e-5.0", "train.stepz=5", "batch_size=-1", "data.episodes=[2, x]", "plain", "lora={rnak: 3}"];
    let file = PathBuf::from("configs/train/tiny.toml");
    let overrides: Vec<String> = overrides.iter().map(ToString::to_string).collect();
    let errors = config::load(&Source::File(file), None, &overrides).unwrap_err();
    insta::assert_snapshot!("arguments", errors.to_string());
}

fn vlash(arguments: &[&str]) -> Output {
    let mut command = assert_cmd::Command::cargo_bin("vlash").expect("the binary is built");
    command.arg("train").args(arguments).output().expect("the binary runs")
}

#[test]
fn the_resolved_configuration_is_printed_with_its_origins() {
    let output = vlash(&[
        "tests/fixtures/config/pi05/cloud.yaml",
        "--policy.device",
        "cpu",
        "dataset.repo_id=lab/pick",
        "--print-config",
        "--steps=5000",
        "train.batch_size=2",
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    insta::assert_snapshot!("print_config", String::from_utf8(output.stdout).unwrap());
    insta::assert_snapshot!("print_config_notes", String::from_utf8(output.stderr).unwrap());
}

#[test]
fn a_bad_configuration_leaves_with_64_and_an_empty_standard_output() {
    let output = vlash(&["tests/fixtures/config/bad/unknown_keys.yaml", "--no-tui"]);
    assert_eq!(output.status.code(), Some(64));
    assert!(output.stdout.is_empty());
    assert!(String::from_utf8(output.stderr).unwrap().contains("did you mean optimizer.lr?"));
}

#[test]
fn help_shows_options_and_examples_wherever_it_is_asked_for() {
    for arguments in [&["train", "--help"][..], &["train", "steps=5", "-h"], &["help", "train"]] {
        let mut command = assert_cmd::Command::cargo_bin("vlash").expect("the binary is built");
        let output = command.args(arguments).output().expect("the binary runs");
        assert_eq!(output.status.code(), Some(0));
        insta::assert_snapshot!("help", String::from_utf8(output.stdout).unwrap());
    }
}
