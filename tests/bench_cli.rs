//! `vlash bench …` as a user runs it, small and on the CPU: the form of what it says. No test asserts a time.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod support;

use std::fs;

use rstest::rstest;
use serde_json::Value;
use support::{Bench, finish, stderr, succeed};

const TINY: [&str; 5] = ["--preset", "tiny", "--device", "cpu", "--json"];

/// The report of `vlash bench` with these arguments.
fn report(arguments: &[&str]) -> Value {
    let bench = Bench::new();
    let output = succeed(bench.vlash(&[&["bench"], arguments].concat()));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn names(report: &Value) -> Vec<&str> {
    report["measures"].as_array().unwrap().iter().map(|measure| measure["name"].as_str().unwrap()).collect()
}

/// What every report with a device holds.
fn is_sound(report: &Value, kind: &str) {
    assert_eq!((report["schema"].as_u64(), report["kind"].as_str()), (Some(1), Some(kind)));
    assert_eq!(report["origin"]["device"], "cpu");
    assert_eq!(report["origin"]["version"], env!("CARGO_PKG_VERSION"));
    assert!(report["ceilings"]["copy_bytes_per_s"].as_f64().unwrap() > 0.0);
    assert!(report["ceilings"]["matmul_flops_per_s"].as_f64().unwrap() > 0.0);
    assert!(report["memory"]["host_peak"].as_u64().unwrap() > 1 << 20);
    for measure in report["measures"].as_array().unwrap() {
        let of = |name: &str| measure["seconds"][name].as_f64().unwrap();
        let ascending = ["min", "p50", "p90", "p99", "max"].map(of);
        assert!(ascending.is_sorted() && ascending[0] > 0.0, "{measure}");
        assert!(measure["floor_s"].is_null() || measure["floor_s"].as_f64().unwrap() > 0.0, "{measure}");
    }
}

#[test]
fn a_call_is_measured_whole_and_in_halves() {
    let report = report(&[&["infer", "--calls", "3", "--warmup", "1", "--prompt", "20"], &TINY[..]].concat());
    is_sound(&report, "infer");
    let parts = ["call", "vision and prefix", "denoising", "open device", "weights", "first call"];
    assert_eq!(names(&report), parts);
    assert_eq!(report["measures"][0]["seconds"]["n"], 3);
    let flops = |index: usize| report["measures"][index]["flops"].as_f64().unwrap();
    assert!((flops(0) - flops(1) - flops(2)).abs() < 1.0, "the halves make the whole");
    assert!(report["rates"]["chunks_per_s"].as_f64().unwrap() > 0.0);
    assert!(report["rates"]["start_to_first_action_s"].as_f64().unwrap() > 0.0);
    assert!(!report["notes"].to_string().contains("other numbers"), "{}", report["notes"]);
    assert_eq!(report["settings"]["dtype"], "float32");
}

#[rstest]
#[case(&["--lora", "4"], false)]
#[case(&["--lora-extras", "--recompute"], true)]
#[case(&["--full", "--accum", "2"], false)]
fn a_step_is_measured_by_its_parts(#[case] recipe: &[&str], #[case] state_cond: bool) {
    let few = ["train", "--steps", "2", "--warmup", "1", "--batch", "2", "--prompt", "20", "--cameras", "1"];
    let report = report(&[&few[..], recipe, &TINY[..]].concat());
    is_sound(&report, "train");
    assert_eq!(names(&report), ["step", "forward", "backward", "clip", "optimizer"]);
    assert_eq!(report["settings"]["state_cond"], state_cond);
    assert!(report["notes"].to_string().contains("loss "), "{}", report["notes"]);
    // 16 image tokens, the prompt and a chunk of 10 for each sample.
    let rate = |name: &str| report["rates"][name].as_f64().unwrap();
    assert!((rate("tokens_per_s") / rate("samples_per_s") - 46.0).abs() < 1e-6);
    assert!(rate("trained_parameters") > 0.0);
}

#[test]
fn shared_delays_stand_beside_drawn_ones_of_as_many_frames() {
    let few = ["train", "--steps", "1", "--warmup", "1", "--batch", "2", "--prompt", "20", "--shared", "3"];
    let report = report(&[&few[..], &TINY[..]].concat());
    is_sound(&report, "train");
    assert_eq!(report["settings"]["state_cond"], true);
    assert_eq!(names(&report)[..2], ["shared: step", "shared: forward"]);
    assert!(names(&report).contains(&"drawn: step"));
    let rate = |name: &str| report["rates"][name].as_f64().unwrap();
    assert!((rate("shared: samples_per_s") / rate("shared: frames_per_s") - 4.0).abs() < 1e-9);
    assert!((rate("drawn: samples_per_s") / rate("drawn: frames_per_s") - 1.0).abs() < 1e-9);
}

#[test]
fn a_configuration_says_sizes_recipe_and_batch() {
    let bench = Bench::new();
    let text = "[model]\npreset = \"tiny\"\ndtype = \"float32\"\nchunk_size = 6\nimage_resolution = [56, 56]\n\
                [train]\nbatch_size = 3\n[adapter]\nenabled = true\nrank = 2\ntargets = [\"q_proj\"]\n";
    fs::write(bench.path("a.toml"), text).unwrap();
    let arguments = ["bench", "train", "a.toml", "train.grad_accum=2", "--steps", "1", "--warmup", "0", "--json"];
    let output = succeed(bench.vlash(&arguments));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let settings = &report["settings"];
    assert_eq!((&settings["batch"], &settings["accum"], &settings["chunk"]), (&3.into(), &2.into(), &6.into()));
    assert_eq!(settings["trains"]["rank"], 2);
    // q of two vision layers, and of three layers of both Gemmas: rank × (inputs + outputs).
    assert_eq!(report["rates"]["trained_parameters"], (2 * (2 * 128 + 3 * (64 + 128) * 2)) as f64);
}

#[test]
fn every_operation_is_measured_both_ways() {
    let report = report(&[&["ops", "--calls", "2", "--warmup", "1", "--prompt", "20"], &TINY[..]].concat());
    is_sound(&report, "ops");
    for name in [
        "linear",
        "layer_norm",
        "rms_norm",
        "ada_rms",
        "gated_residual",
        "gelu",
        "gated_gelu",
        "dropout",
        "attention",
        "rope",
    ] {
        for pass in ["forward", "backward"] {
            let hit = |found: &&str| found.starts_with(&format!("{name} ")) && found.ends_with(pass);
            assert!(names(&report).iter().any(hit), "{name} {pass}");
        }
    }
    assert!(names(&report).iter().any(|name| name.starts_with("embedding")));
    assert!(!report["notes"].to_string().contains("failed"), "{}", report["notes"]);
}

#[test]
fn the_loader_is_measured_by_workers() {
    let report = report(&["load", "--workers", "0,2", "--batches", "3", "--warmup", "1", "--json"]);
    assert_eq!((report["kind"].as_str(), report["ceilings"].is_null()), (Some("load"), true));
    assert_eq!(names(&report)[0], "0 workers: batch");
    assert_eq!(names(&report)[2], "2 workers: batch");
    let rate = |name: &str| report["rates"][name].as_f64().unwrap();
    assert!(rate("2 workers: samples_per_s") > 0.0);
    let cameras = report["settings"]["cameras"].as_f64().unwrap();
    assert!((rate("0 workers: frames_per_s") / rate("0 workers: samples_per_s") - cameras).abs() < 1e-9);
}

#[test]
fn a_table_is_a_row_for_each_work_and_stays_in_files() {
    let bench = Bench::new();
    let arguments = ["bench", "table", "--out", "t", "--runs", "1", "--only", "infer-2,shared-4x9"];
    let output = succeed(bench.vlash(&[&arguments[..], &TINY[..]].concat()));
    let table: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(table, serde_json::from_slice::<Value>(&fs::read(bench.path("t/table.json")).unwrap()).unwrap());
    assert_eq!(table["rows"][0]["outcome"]["measured"]["kind"], "infer");
    assert_eq!(
        table["rows"][0]["command"],
        "vlash bench infer --cameras 2 --device cpu --preset tiny --calls 1 --json"
    );
    let markdown = fs::read_to_string(bench.path("t/table.md")).unwrap();
    let rows: Vec<&str> = markdown.lines().filter(|line| line.starts_with("| ")).collect();
    assert_eq!(rows.len(), 4, "{markdown}");
    assert!(rows[2].contains("(shared)") && rows[3].contains("(drawn)"), "{markdown}");
    assert!(bench.path("t/shared-4x9.json").exists());
}

#[test]
fn what_fails_and_what_is_skipped_are_rows_too() {
    let bench = Bench::new();
    let run = |settings: &[&str]| {
        let output = finish(bench.vlash(&[&["bench", "table", "--out", "t", "--only", "infer-2"], settings].concat()));
        (output.status.code(), fs::read_to_string(bench.path("t/table.md")).unwrap())
    };
    let (code, text) = run(&["--device", "cpu", "--dtype", "bfloat16"]);
    assert_eq!(code, Some(69));
    assert!(text.contains("failed: ") && text.contains("--dtype float32"), "{text}");
    let (code, text) = run(&["--budget", "0"]);
    assert_eq!(code, Some(0));
    assert!(text.contains("skipped"), "{text}");
}

#[rstest]
#[case(&["table", "--only", "infer-9"], "there are infer-2")]
#[case(&["ops", "--only", "atention"], "no operation has \"atention\" in its name; there are ")]
#[case(&["infer", "--dtype", "float16"], "expected `float32` or `bfloat16`")]
#[case(&["infer", "--device", "cpu", "--dtype", "bfloat16"], "hint: --dtype float32")]
#[case(&["infer", "--checkpoint", "nowhere"], "nowhere")]
#[case(&["infer", "--batch", "0"], "--batch")]
#[case(&["train", "a.toml", "b.toml"], "two configuration files")]
#[case(&["train", "--lora", "4", "--full"], "cannot be used with")]
fn slips_are_explained(#[case] arguments: &[&str], #[case] says: &str) {
    let bench = Bench::new();
    let output = finish(bench.vlash(&[&["bench"], arguments].concat()));
    assert_eq!(output.status.code(), Some(64), "{}", stderr(&output));
    assert!(stderr(&output).contains(says), "{}", stderr(&output));
}

#[test]
fn people_get_a_table() {
    let bench = Bench::new();
    let arguments = ["bench", "infer", "--preset", "tiny", "--device", "cpu", "--calls", "1", "--warmup", "0"];
    let output = succeed(bench.vlash(&arguments));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    for part in ["infer: batch 1, calls 1", "ceilings measured: copy ", "| call | 1 | ", "- memory: host peak "] {
        assert!(text.contains(part), "{part:?} in {text}");
    }
}
