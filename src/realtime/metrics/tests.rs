//! Each figure on a rollout that can be computed by hand.

use super::*;

fn facts<'a>(milliseconds: u64, origin: Origin, spliced: bool, command: &'a [f32], state: &'a [f32]) -> TickFacts<'a> {
    TickFacts {
        time: Duration::from_millis(milliseconds),
        missed: 0,
        origin: Some(origin),
        spliced,
        clipped: false,
        command,
        state,
        image_age: Some(Duration::from_millis(milliseconds)),
    }
}

fn recorder() -> Recorder {
    Recorder::new(&["joint_1.pos".to_owned(), "gripper.pos".to_owned()], &[1], 10.0, 16)
}

#[test]
fn percentiles_are_exact() {
    let values: Vec<f64> = (1..=100).rev().map(f64::from).collect();
    let all = Distribution::of(&values);
    assert_eq!([all.min, all.p50, all.p90, all.p95, all.p99, all.max], [1.0, 50.0, 90.0, 95.0, 99.0, 100.0]);
    assert_eq!((all.count, all.mean), (100, 50.5));
    assert!((all.std - (9999.0f64 / 12.0).sqrt()).abs() < 1e-9);
    assert_eq!(Distribution::of(&[f64::NAN]), Distribution::default());
}

#[test]
fn a_rollout_by_hand() {
    let mut recorder = recorder();
    // Joint 1: 0, 1, 2 of one chunk, 5 of the next, 4, then held. The gripper jumps too and does not count.
    let commands = [[0.0, 0.0], [1.0, 0.0], [2.0, 0.0], [5.0, 9.0], [4.0, 9.0], [4.0, 9.0]];
    for (tick, command) in commands.iter().enumerate() {
        let origin = if tick == 5 { Origin::Hold } else { Origin::Fresh };
        let time = [0, 100, 200, 300, 420, 500][tick];
        recorder.tick(&facts(time, origin, tick == 3, command, &[0.5 + command[0], 70.0]));
    }
    recorder.spliced(&[2.0, 0.0], &[2.25, 5.0]);
    let metrics = recorder.summary();
    assert_eq!((metrics.ticks, metrics.held_ticks, metrics.continued_ticks), (6, 1, 0));
    assert!((metrics.idle_fraction - 1.0 / 6.0).abs() < 1e-12);
    assert!((metrics.jitter_ms.max - 20.0).abs() < 1e-9 && (metrics.period_ms.mean - 100.0).abs() < 1e-9);
    assert_eq!(metrics.boundaries[0].median_step, 1.0);
    assert_eq!((metrics.boundaries[0].jump.max, metrics.boundaries[0].velocity_jump.max), (3.0, 2.0));
    assert_eq!((metrics.boundary_jump.count, metrics.boundary_jump.max), (1, 3.0));
    // Third differences of 0 1 2 5 4 4: 2, −6, 5; times 10³.
    let expected = ((4.0 + 36.0 + 25.0) / 3.0f64).sqrt() * 1e3;
    assert!((metrics.jerk_rms - expected).abs() < 1e-6, "{}", metrics.jerk_rms);
    assert_eq!(metrics.sign_changes, 1);
    assert_eq!(metrics.state_error.max, 0.25);
    // State − command before: 1.5, 1.5, 3.5, 0.5 (4.5 − 5), 0.5.
    assert_eq!((metrics.tracking_error.max, metrics.tracking_error.count), (3.5, 5));
    assert_eq!(metrics.observation_age_ms.max, 500.0);
}

#[test]
fn a_pause_is_no_jump_and_counts_for_the_period_only() {
    let mut recorder = recorder();
    recorder.tick(&facts(0, Origin::Fresh, false, &[0.0, 0.0], &[0.0, 0.0]));
    recorder.tick(&TickFacts { origin: None, missed: 2, ..facts(100, Origin::Hold, false, &[0.0, 0.0], &[0.0, 0.0]) });
    recorder.tick(&facts(200, Origin::Fresh, true, &[3.0, 0.0], &[0.0, 0.0]));
    let metrics = recorder.summary();
    assert_eq!((metrics.ticks, metrics.missed_ticks, metrics.period_ms.count), (3, 2, 2));
    assert_eq!((metrics.boundary_jump.count, metrics.idle_fraction), (0, 0.0));
}

#[test]
fn latencies_are_split() {
    let mut recorder = recorder();
    let timing = Timing { prefix: Duration::from_millis(30), ..Timing::default() };
    recorder.inference(Duration::from_millis(50), &timing);
    recorder.inference(Duration::from_millis(70), &timing);
    let metrics = recorder.summary();
    assert_eq!((metrics.latency_ms.p50, metrics.latency_ms.max, metrics.prefix_ms.mean), (50.0, 70.0, 30.0));
    let text = serde_json::to_string(&metrics).unwrap();
    assert_eq!(serde_json::from_str::<Metrics>(&text).unwrap(), metrics);
}
