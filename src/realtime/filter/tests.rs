//! Nothing but finite, limited commands leaves.

use proptest::prelude::*;

use super::*;
use crate::realtime::scheduler::{Command, Mode, Overlap, Scheduler, Settings};

fn names() -> Vec<String> {
    (1..=6).map(|joint| format!("joint_{joint}.pos")).chain(["gripper.pos".to_owned()]).collect()
}

fn filter(settings: FilterSettings) -> SafetyFilter {
    let mut filter = SafetyFilter::new(&names(), &Limits::piper(), settings).unwrap();
    filter.begin(&HOME).unwrap();
    filter
}

const HOME: [f32; 7] = [0.0, 0.8, -0.8, 0.0, 0.2, 0.0, 0.03];

/// Whether three successive commands keep to every limit.
fn within(limits: &Limits, fps: f64, commands: [&[f32]; 3]) -> Result<(), TestCaseError> {
    for joint in 0..limits.len() {
        let [a, b, c] = commands.map(|command| f64::from(command[joint]));
        let [low, high] = limits.position[joint].map(f64::from);
        prop_assert!(c.is_finite() && (low..=high).contains(&c), "joint {} at {}", joint, c);
        prop_assert!((c - b).abs() * fps <= f64::from(limits.velocity[joint]), "joint {} speed", joint);
        let acceleration = ((c - b) - (b - a)).abs() * fps * fps;
        prop_assert!(acceleration <= f64::from(limits.acceleration[joint]), "joint {} {}", joint, acceleration);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bits_leave_as_finite_limited_commands(
        fps in 5.0f64..200.0, refuse: bool, pace in 0.0f64..1.0,
        targets in prop::collection::vec((0u8..8, prop::collection::vec(any::<u32>(), 5..9)), 1..120),
    ) {
        let limits = Limits::piper();
        let excess = if refuse { Excess::Refuse } else { Excess::Clamp };
        let mut filter = filter(FilterSettings { excess, ..FilterSettings::new(fps) });
        let mut before = [HOME.to_vec(), HOME.to_vec()];
        for (how, bits) in targets {
            // Half of the targets are wild bits, half lie about the range, where the limits act together.
            let near = |bit: u32| (bit as f32 / u32::MAX as f32) * 8.0 - 4.0;
            let mut target: Vec<f32> =
                bits.iter().map(|&bit| if how % 2 == 0 { f32::from_bits(bit) } else { near(bit) }).collect();
            if how > 3 {
                target.resize(7, 0.5);
            }
            match how {
                2 => { filter.approach(&target, pace); }
                3 => { filter.apply(None); }
                _ => { filter.apply(Some(&target)); }
            }
            within(&limits, fps, [&before[0], &before[1], filter.command()])?;
            before = [before[1].clone(), filter.command().to_vec()];
        }
    }

    #[test]
    fn what_the_policy_is_told_is_what_will_have_left(
        steps in prop::collection::vec(-0.2f32..0.2, 24 * 7), overlap in 1usize..8, latency in 0usize..9,
    ) {
        let mut filter = filter(FilterSettings::new(30.0));
        let settings = Settings { overlap: Overlap::Fixed(overlap), ..Settings::new(Mode::Vlash, 12, 8, 7, 30.0) };
        let mut scheduler = Scheduler::new(settings).unwrap();
        let (mut due, mut told) = (None, None);
        for tick in 0..60usize {
            if let Some(launch) = scheduler.launch(&HOME, &mut filter) {
                due = Some((launch.chunk, tick + if launch.splice.is_none() { 0 } else { latency }));
                told = launch.splice.map(|splice| (splice, launch.state));
            }
            if let Some((chunk, _)) = due.take_if(|(_, at)| *at <= tick) {
                let from = filter.command().to_vec();
                let rows = steps.chunks_exact(7).cycle().skip(tick % 24).take(12);
                let actions: Vec<f32> = rows.flat_map(|row| row.iter().zip(&from).map(|(d, f)| f + d)).collect();
                scheduler.arrive(chunk, &actions, None);
            }
            let before = filter.command().to_vec();
            if let Some((_, state)) = told.take_if(|(splice, _)| *splice == tick as u64) {
                prop_assert_eq!(state, before, "at tick {}", tick);
            }
            match scheduler.command() {
                Command::Action(action) => filter.apply(Some(action.target)),
                Command::Hold(_) | Command::Stop => filter.apply(None),
            };
        }
    }
}

#[test]
fn a_chunk_with_one_bad_value_is_rejected_whole() {
    let filter = filter(FilterSettings::new(30.0));
    let mut chunk = vec![0.1; 50 * 7];
    assert_eq!(filter.check(31, &chunk, 50), Ok(()));
    for (bad, word) in [(f32::NAN, "NaN"), (f32::INFINITY, "inf"), (f32::NEG_INFINITY, "-inf")] {
        chunk[12 * 7 + 3] = bad;
        let said = filter.check(31, &chunk, 50).unwrap_err().to_string();
        assert_eq!(said, format!("action chunk 31 rejected: joint_4 is {word} at step 12 of 50"));
    }
    let said = filter.check(3, &chunk[..42 * 7], 50).unwrap_err().to_string();
    assert!(said.contains("294 values") && said.contains("350"), "{said}");
}

#[test]
fn an_invalid_action_holds_and_one_beyond_the_limits_is_clipped_or_refused() {
    let mut clamp = filter(FilterSettings::new(30.0));
    let mut target = HOME;
    target[2] = f32::NAN;
    assert!(clamp.apply(Some(&target)).invalid);
    assert_eq!(clamp.command(), HOME);
    assert!(clamp.apply(Some(&HOME[..6])).invalid);
    // 90° in one tick.
    target = HOME;
    target[0] += 1.57;
    assert_eq!(clamp.apply(Some(&target)), Passed { clipped: 1, ..Passed::default() });
    assert!(clamp.command()[0] > 0.0 && clamp.command()[0] < 0.03);
    assert_eq!(clamp.counts(), Counts { clipped: 1, invalid: 2, ..Counts::default() });

    let mut refuse = filter(FilterSettings { excess: Excess::Refuse, ..FilterSettings::new(30.0) });
    assert_eq!(refuse.apply(Some(&target)), Passed { refused: true, ..Passed::default() });
    assert_eq!(refuse.command(), HOME);
}

#[test]
fn a_trajectory_within_the_limits_leaves_as_it_is() {
    let mut filter = filter(FilterSettings::new(30.0));
    for tick in 0..200 {
        let mut target = HOME;
        target[0] += 0.8 * (1.0 - (f64::from(tick) / 30.0 * 2.0).cos()) as f32;
        assert_eq!(filter.apply(Some(&target)), Passed::default(), "tick {tick}");
        assert_eq!(filter.command(), target);
    }
}

#[test]
fn a_far_first_action_is_approached_slowly() {
    let mut filter = filter(FilterSettings::new(30.0));
    let mut target = HOME;
    target[1] = 1.6;
    assert_eq!(filter.start(&HOME), Start::Near);
    assert_eq!(filter.start(&target), Start::Far { joint: 1, distance: 1.6 - HOME[1] });
    let mut ticks = 0;
    while !filter.approach(&target, 0.25) {
        ticks += 1;
        assert!(ticks < 200, "never there: {:?}", filter.command());
    }
    // 0.8 rad at 0.625 rad/s.
    assert!((38..48).contains(&ticks), "{ticks}");
    assert!((filter.command()[1] - 1.6).abs() < 1e-3);
}

#[test]
fn a_pose_out_of_range_and_senseless_limits_are_refused() {
    let mut filter = filter(FilterSettings::new(30.0));
    let mut pose = HOME;
    pose[1] = -0.01;
    assert!(filter.begin(&pose).is_ok());
    assert_eq!(filter.command()[1], 0.0);
    pose[1] = 45.0;
    let said = filter.begin(&pose).unwrap_err().to_string();
    assert!(said.starts_with("joint_2 stands at 45"), "{said}");
    let mut limits = Limits::piper();
    limits.velocity[3] = f32::NAN;
    assert!(SafetyFilter::new(&names(), &limits, FilterSettings::new(30.0)).is_err());
    limits.velocity.pop();
    assert!(SafetyFilter::new(&names(), &limits, FilterSettings::new(30.0)).is_err());
}

fn boxed(ranges: [[f64; 2]; 3]) -> SafetyFilter {
    filter(FilterSettings { workspace: Some(Workspace { ranges }), ..FilterSettings::new(30.0) })
}

const OPEN: [f64; 2] = [f64::NEG_INFINITY, f64::INFINITY];

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever is asked for, by whichever way: the gripper stays inside and the limits are kept.
    #[test]
    fn the_gripper_never_leaves_its_workspace(
        targets in prop::collection::vec((0u8..6, prop::collection::vec(-3.0f32..3.0, 7)), 1..60), held in 1usize..12,
    ) {
        let at = filter(FilterSettings::new(30.0)).gripper().unwrap();
        let workspace = Workspace { ranges: at.map(|at| [at - 0.03, at + 0.05]) };
        let mut filter = boxed(workspace.ranges);
        let mut before = [HOME.to_vec(), HOME.to_vec()];
        for (how, target) in targets {
            for _ in 0..held {
                match how {
                    0 => { filter.apply(None); }
                    1 => { filter.approach(&target, 0.5); }
                    _ => { filter.apply(Some(&target)); }
                }
                let gripper = filter.gripper().unwrap();
                prop_assert!(workspace.holds(gripper), "{:?} outside of {:?}", gripper, workspace);
                within(&Limits::piper(), 30.0, [&before[0], &before[1], filter.command()])?;
                before = [before[1].clone(), filter.command().to_vec()];
            }
        }
    }
}

#[test]
fn a_table_is_not_run_into_and_what_stays_above_is_followed() {
    let mut free = filter(FilterSettings::new(30.0));
    let height = free.gripper().unwrap()[2];
    let mut filter = boxed([OPEN, OPEN, [height - 0.05, f64::INFINITY]]);
    // The shoulder leans forward: down.
    let down = [0.0, 1.6, -0.8, 0.0, 0.2, 0.0, 0.03];
    for _ in 0..60 {
        free.apply(Some(&down));
        filter.apply(Some(&down));
    }
    assert!(free.gripper().unwrap()[2] < height - 0.1, "it would have been far below");
    let stands = filter.gripper().unwrap()[2];
    assert!((height - 0.05..height).contains(&stands), "{stands} of {height}");
    assert!(filter.counts().outside > 10 && filter.apply(Some(&down)).outside);
    assert!(!filter.reaches(&down) && filter.reaches(&HOME));
    // The future is foreseen as it will be.
    let mut state = [0.0; 7];
    filter.foresee(&mut std::iter::repeat_n(Some(&down[..]), 20), &mut state);
    assert_eq!(state, filter.command());
    let sideways = [0.5, HOME[1], HOME[2], 0.0, 0.2, 0.0, 0.03];
    assert!((0..60).all(|_| !filter.apply(Some(&sideways)).outside));
    assert_eq!(filter.command(), sideways);
}

#[test]
fn a_workspace_is_refused_where_it_cannot_be_kept() {
    let workspace = Some(Workspace { ranges: [[0.9, 1.0], OPEN, OPEN] });
    let settings = FilterSettings { workspace, ..FilterSettings::new(30.0) };
    let mut filter = SafetyFilter::new(&names(), &Limits::piper(), settings.clone()).unwrap();
    let error = filter.begin(&HOME).unwrap_err();
    assert!(error.to_string().ends_with("outside of limits.workspace: x 0.900 … 1.000"), "{error}");
    let mut limits = Limits::piper();
    limits.position.truncate(3);
    limits.velocity.truncate(3);
    limits.acceleration.truncate(3);
    let error = SafetyFilter::new(&names()[..3], &limits, settings).unwrap_err();
    assert!(matches!(error, FilterError::Kinematics { joints: 3, .. }), "{error}");
}
