//! A report of a made-up rollout.

use super::*;
use crate::realtime::metrics::{Boundary, Distribution};
use crate::track::telemetry::{Chunk, Message, Origin, Phase, Status, Tick};

fn chunk(chunk: u64, time: f64, phase: Phase) -> Message {
    Message::Chunk(Chunk { chunk, time, tick: 0, phase })
}

fn arrived(latency_ms: f64) -> Phase {
    Phase::Arrived { latency_ms, preprocess_ms: 1.0, prefix_ms: 2.0, denoise_ms: 3.0, copy_ms: 0.5 }
}

fn launched() -> Phase {
    Phase::Launched { splice: 4, synchronous: false }
}

/// Two episodes of one second at 10 Hz; in the second the second chunk is late by one tick.
fn messages() -> Vec<Message> {
    let mut messages = vec![Message::Status(Status { overlap: 2, ..Status::default() })];
    for (episode, begun) in [0.0, 5.0].into_iter().enumerate() {
        for tick in 0..10u64 {
            let time = begun + 0.1 * tick as f64;
            if tick % 5 == 0 {
                messages.push(chunk(tick / 5, time - 0.2, launched()));
                messages.push(chunk(tick / 5, time - 0.05, arrived(150.0 + tick as f64)));
            }
            let late = episode == 1 && tick == 5;
            messages.push(Message::Tick(Tick {
                tick,
                time,
                period_ms: if tick == 0 { 0.0 } else { 100.0 },
                origin: if late { Origin::Hold } else { Origin::Fresh },
                chunk: (!late).then_some(tick / 5),
                ..Tick::default()
            }));
        }
    }
    messages
}

fn trace() -> Trace {
    let mut trace = Trace::default();
    messages().into_iter().for_each(|message| trace.hear(message));
    trace
}

fn report() -> Report {
    let of = |p50: f64| Distribution {
        count: 20,
        mean: p50,
        p50,
        p95: 2.0 * p50,
        p99: 3.0 * p50,
        max: 4.0 * p50,
        ..Distribution::default()
    };
    let metrics = Metrics {
        fps: 10.0,
        seconds: 0.9,
        ticks: 10,
        chunks: 2,
        latency_ms: of(150.0),
        period_ms: of(100.0),
        jitter_ms: of(0.02),
        idle_fraction: 0.1,
        jerk_rms: 12.34,
        boundaries: vec![Boundary {
            joint: "joint_1.pos".into(),
            median_step: 0.01,
            jump: of(0.02),
            velocity_jump: of(0.015),
        }],
        ..Metrics::default()
    };
    let episode = |seed, end: &str, success| Episode {
        seed,
        end: end.into(),
        success: Some(success),
        warm_up_ms: 160.0,
        notices: Vec::new(),
        metrics: metrics.clone(),
    };
    let mut second = episode(8, "camera wrist: last new frame 812 ms ago | hold", false);
    second.notices.push("delay of 9 steps; this checkpoint was trained for ≤ 8.".into());
    second.metrics.held_ticks = 1;
    Report {
        format: 1,
        version: "0.0.0".into(),
        robot: "piper_sim".into(),
        policy: "in the box".into(),
        task: "pick the ball".into(),
        mode: "vlash".into(),
        fps: 10.0,
        horizon: 8,
        execute: 5,
        trained_delay: 3,
        episodes: vec![episode(7, "placed", true), second],
    }
}

#[test]
fn the_text_names_every_figure() {
    let text = markdown::text(&report());
    for line in [
        "# Rollout on piper_sim",
        "- Mode vlash, 10 Hz, 5 of 8 actions executed a chunk, trained for delays of at most 3 steps",
        "- Success: 1 of 2, in 0.9 s on average",
        "| 7 | placed | 0.9 | 10 | 0 | 0 | 0 | 0 |",
        "| 8 | camera wrist: last new frame 812 ms ago \\| hold | 0.9 | 10 | 1 | 0 | 0 | 0 |",
        "> delay of 9 steps; this checkpoint was trained for ≤ 8.",
        "| inference latency, ms | 150.0 | 0.0 | 150.0 | 0.0 | 300.0 | 450.0 | 600.0 |",
        "| \\|period − wanted\\|, ms | 0.02 | 0.00 | 0.02 | 0.00 | 0.04 | 0.06 | 0.08 |",
        "| · denoise | n/a | n/a | n/a | n/a | n/a | n/a | n/a |",
        "| joint_1.pos | 0.0100 | 0.0200 | 0.0400 | 0.0800 | 0.0300 | 0.0600 |",
        "![Control period](period.svg)",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
    assert!(
        text.contains("10.0 % of the ticks under the policy without a fresh action. RMS jerk 12.3 rad/s³"),
        "{text}"
    );
}

#[test]
fn the_charts_name_what_they_are_measured_against() {
    let (report, trace) = (report(), trace());
    assert!(latency(&report, &trace).contains("overlap 2 ticks"));
    assert!(period(&report, &trace).contains("100.0 ms"));
    assert!(timeline(&report, &trace).contains("Chunks over time, mode vlash"));
    let sync = Report { mode: "sync".into(), ..report };
    assert!(!latency(&sync, &trace).contains("overlap"), "the arm waits: there is no budget");
}

#[test]
fn chunks_of_two_episodes_stand_apart_and_holes_are_seen() {
    let trace = trace();
    assert_eq!(trace.chunks.len(), 4);
    assert_eq!(trace.without_action, [5.5]);
    assert_eq!(trace.latencies, [150.0, 155.0, 150.0, 155.0]);
    assert_eq!((trace.periods.len(), trace.overlap), (18, Some(2)));
    let last = trace.chunks.last().unwrap();
    assert_eq!((last.launched, last.arrived), (5.3, Some(5.45)));
    let [from, to] = last.executed.unwrap();
    assert!((from - 5.6).abs() < 1e-9 && (to - 6.0).abs() < 1e-9, "{from} … {to}");
}

#[test]
fn files_are_written_from_a_file_that_was_cut_off() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("telemetry.jsonl");
    let mut text: String = messages().iter().map(|message| serde_json::to_string(message).unwrap() + "\n").collect();
    text.push_str("{\"kind\":\"of tomorrow\"}\n{\"kind\":\"tick\",\"ti");
    std::fs::write(&path, text).unwrap();
    let read = Trace::read(&path).unwrap();
    assert_eq!(read, trace());
    write(directory.path(), &report(), &read).unwrap();
    let json = std::fs::read(directory.path().join(JSON)).unwrap();
    assert_eq!(serde_json::from_slice::<Report>(&json).unwrap(), report());
    for name in [MARKDOWN, LATENCY, TIMELINE, PERIOD] {
        assert!(std::fs::metadata(directory.path().join(name)).unwrap().len() > 200, "{name}");
    }
}
