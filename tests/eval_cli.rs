//! `vlash eval` as a user meets it: the policy in the box on the simulated arm.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::fs;
use std::process::Output;

use serde_json::Value;
use support::{Bench, stderr, succeed};
use vlash_forge::dataset::video::{PoolOptions, VideoPool};
use vlash_forge::eval::grid::Method;
use vlash_forge::eval::report::Report;
use vlash_forge::eval::stats::wilson;

mod support;

const EVAL: &[&str] = &["eval", "--seeds", "3,7", "--out", "e"];
/// Rollouts of a second: two inferences each.
const SHORT: &[&str] = &["--time-limit", "1"];

fn eval(bench: &Bench, arguments: &[&str]) -> Output {
    succeed(bench.vlash(&[EVAL, arguments].concat()))
}

fn refused(arguments: &[&str]) -> String {
    let bench = Bench::new();
    let output = bench.vlash(&[EVAL, arguments].concat()).output().unwrap();
    assert_eq!(output.status.code(), Some(64), "{}", stderr(&output));
    assert!(!bench.path("e").exists(), "nothing is begun");
    stderr(&output)
}

#[test]
fn a_table_as_json_and_the_same_again_without_a_rollout() {
    let bench = Bench::new();
    let table = [SHORT, &["--modes", "sync,vlash", "--delays", "0,4", "--json"]].concat();
    let output = eval(&bench, &table);
    let text = String::from_utf8(output.stdout).unwrap();
    let report: Report = serde_json::from_str(&text).unwrap();
    assert_eq!((report.schema, report.clock.as_str(), report.variant.as_str()), (1, "virtual", "static"));
    assert_eq!((report.seeds.as_str(), report.execute, report.time_limit_s), ("3, 7", 16, 1.0));
    assert_eq!((report.policies[0].name.as_str(), report.policies[0].horizon), ("the policy in the box", 32));
    let cells: Vec<(Method, &str)> = report.cells.iter().map(|cell| (cell.method, cell.delay.as_str())).collect();
    assert_eq!(cells, [(Method::Sync, "0"), (Method::Vlash, "0"), (Method::Sync, "4"), (Method::Vlash, "4")]);
    for cell in &report.cells {
        // Nobody is that fast, and nothing can be said of two trials.
        assert_eq!((cell.success.successes, cell.success.trials), (0, 2));
        assert_eq!((cell.success.low, cell.success.high), wilson(0, 2));
        assert!(cell.success.high > 0.6 && cell.time_mean_s.is_none() && cell.inferences >= 2.0, "{cell:?}");
    }
    // Waiting four ticks for each of two chunks; for the first only, if the second is computed meanwhile.
    assert_eq!(report.cells.iter().map(|cell| cell.held).collect::<Vec<_>>(), [0.0, 0.0, 8.0, 4.0]);
    // As those read it who do not know our types.
    let value: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["cells"][3]["method"], "vlash");
    assert_eq!(value["cells"][3]["success"]["trials"], 2);
    assert_eq!(fs::read_to_string(bench.path("e/report.json")).unwrap(), text);
    for name in ["report.md", "success.svg", "time.svg"] {
        assert!(fs::metadata(bench.path("e").join(name)).unwrap().len() > 200, "{name}");
    }

    let again = eval(&bench, &table);
    assert!(stderr(&again).contains("rollouts 8 of 8, 8 of them from before"), "{}", stderr(&again));
    assert_eq!(String::from_utf8(again.stdout).unwrap(), text);
}

#[test]
fn in_real_time_the_latency_is_measured_and_said() {
    let bench = Bench::new();
    let output = eval(&bench, &[SHORT, &["--real-time", "--modes", "vlash", "--steps", "1"]].concat());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("real clock") && text.contains("policy A, vlash: measured latency p50 "), "{text}");
    assert!(text.contains("Note: latencies were measured on ") && text.contains("every number here changes"), "{text}");
    let report: Report = serde_json::from_slice(&fs::read(bench.path("e/report.json")).unwrap()).unwrap();
    let [cell] = report.cells.as_slice() else { panic!("{report:?}") };
    let latency = cell.latency_ms.unwrap();
    assert!(latency.count >= 1 && latency.p50 > 1.0 && latency.p95 >= latency.p50, "{latency:?}");
    assert!((cell.delay_ticks - latency.mean * 0.03).abs() < 1e-9, "{cell:?}");
    assert_eq!((cell.delay.as_str(), cell.success.trials), ("measured", 2));
}

#[test]
fn a_film_shows_the_modes_side_by_side() {
    let bench = Bench::new();
    let film = ["--video", "films/both.mp4", "--latency", "33.3ms,100ms", "--time-limit", "0.2", "--json"];
    let output = eval(&bench, &film);
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&said["seed"], &said["file"]), (&Value::from(3), &Value::from("films/both.mp4")));
    let pane =
        |at: usize| (said["panes"][at]["method"].as_str().unwrap(), said["panes"][at]["delay"].as_str().unwrap());
    assert_eq!([pane(0), pane(1)], [("sync", "100ms"), ("vlash", "100ms")]);
    // Six ticks, and a while for the last picture.
    let index = VideoPool::new(PoolOptions::default()).index(&bench.path("films/both.mp4")).unwrap();
    assert_eq!((index.frames(), index.width, &said["frames"]), (51, 960, &Value::from(51)));
    assert!(!bench.path("e").exists(), "there is no table");
    assert_eq!(fs::read_dir(bench.path("films")).unwrap().count(), 1, "no temporary file stays");
}

#[test]
fn what_cannot_be_rolled_out_is_refused_before_anything_is_written() {
    let error = refused(&["--delays", "24"]);
    assert!(error.contains("--delays 24") && error.contains("outlasts"), "{error}");
    let error = refused(&["--latency", "fast"]);
    assert!(error.contains("--latency fast: neither a time") && error.contains("184.5ms"), "{error}");
    for (injected, value) in [("--latency", "184.5ms"), ("--delays", "4"), ("--threads", "2")] {
        let error = refused(&["--real-time", injected, value]);
        assert!(error.contains(&format!("{injected} ")) && error.contains("--real-time measures"), "{error}");
    }
    let error = refused(&["--real-time", "--modes", "rtc-trained"]);
    assert!(error.contains("was not trained to take given actions") && error.contains("--modes rtc"), "{error}");
    let error = refused(&["--video", "both.mp4", "--real-time"]);
    assert!(error.contains("--real-time measures a latency; --video records"), "{error}");
    let error = refused(&["--video", "both.avi"]);
    assert!(error.contains("--video both.avi: what is written is MP4"), "{error}");
    let error = refused(&["--video", "both.mp4", "--latency", "5444ms"]);
    assert!(error.contains("vlash at 5444ms: left out") && error.contains("a shorter --latency"), "{error}");
    let error = refused(&["nowhere/checkpoint"]);
    assert!(error.contains("nowhere/checkpoint"), "{error}");
}
