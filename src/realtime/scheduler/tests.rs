//! The schedule against the timeline of VLASH, against its manager, and against arbitrary latencies.

use proptest::prelude::*;

use super::*;
use crate::error::Explain;

const MEASURED: f32 = -1.0;

/// What one tick commanded.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Sent {
    Row { chunk: u64, row: usize, step: usize, continued: bool },
    Hold,
    Stop,
}

#[derive(Debug, Default)]
struct Play {
    sent: Vec<Sent>,
    /// The value of the command that is in force after each tick.
    values: Vec<f32>,
    launches: Vec<(Launch, Mode)>,
    events: Vec<(u64, Event)>,
}

/// The value of `step` of chunk `chunk`.
fn value(chunk: u64, step: usize) -> f32 {
    (chunk * 1000 + step as u64) as f32
}

/// Runs `ticks` ticks; inference i takes `latencies[i].0` ticks (going round) and then fails unless
/// `latencies[i].1`.
fn play(settings: Settings, latencies: &[(usize, bool)], ticks: usize, modes: &[(usize, Mode)]) -> Play {
    let (horizon, fps) = (settings.horizon, settings.fps);
    let mut scheduler = Scheduler::new(settings).unwrap();
    let mut play = Play::default();
    let mut unfiltered = Unfiltered { last: vec![MEASURED] };
    let mut working: Option<(u64, usize, bool)> = None;
    for tick in 0..ticks {
        if let Some(&(_, mode)) = modes.iter().find(|(at, _)| *at == tick) {
            scheduler.set_mode(mode);
        }
        let report = |scheduler: &mut Scheduler, working: &mut Option<(u64, usize, bool)>| {
            let Some((chunk, _, ok)) = working.take_if(|(_, due, _)| *due <= tick) else { return };
            let actions: Vec<f32> = (0..horizon).map(|step| value(chunk, step)).collect();
            let latency = latencies[(chunk as usize - 1) % latencies.len()].0;
            if ok {
                let took = scheduler.arrive(chunk, &actions, Some(Duration::from_secs_f64(latency as f64 / fps)));
                assert_eq!(took, Some(latency as u64));
            } else {
                scheduler.fail(chunk);
            }
        };
        report(&mut scheduler, &mut working);
        if let Some(launch) = scheduler.launch(&[MEASURED], &mut unfiltered) {
            assert!(working.is_none(), "one inference at a time");
            let (latency, ok) = latencies[(launch.chunk as usize - 1) % latencies.len()];
            working = Some((launch.chunk, tick + latency, ok));
            play.launches.push((launch, scheduler.launched_as));
        }
        report(&mut scheduler, &mut working);
        let sent = match scheduler.command() {
            Command::Action(action) => {
                unfiltered.last = action.target.to_vec();
                Sent::Row { chunk: action.chunk, row: action.row, step: action.step, continued: action.continued }
            }
            Command::Hold(_) => Sent::Hold,
            Command::Stop => Sent::Stop,
        };
        play.sent.push(sent);
        play.values.push(unfiltered.last[0]);
        play.events.extend(scheduler.events().map(|event| (tick as u64, event)));
        if sent == Sent::Stop {
            break;
        }
    }
    play
}

/// In time, always, by `ticks`.
fn steady(ticks: usize) -> Vec<(usize, bool)> {
    vec![(ticks, true)]
}

fn fixed(mode: Mode, horizon: usize, execute: usize, overlap: usize) -> Settings {
    Settings { overlap: Overlap::Fixed(overlap), ..Settings::new(mode, horizon, execute, 1, 30.0) }
}

fn rows(play: &Play) -> Vec<(u64, usize)> {
    let row = |sent: &Sent| match sent {
        Sent::Row { chunk, row, .. } => (*chunk, *row),
        Sent::Hold | Sent::Stop => (0, 0),
    };
    play.sent.iter().map(row).collect()
}

#[test]
fn the_timeline_of_the_paper() {
    // First chunk at once, then two ticks an inference, n = 8, overlap 3.
    let play = play(fixed(Mode::Vlash, 8, 8, 3), &[(0, true), (2, true), (2, true)], 17, &[]);
    let mut expected: Vec<(u64, usize)> =
        [1, 2].iter().flat_map(|&chunk| (0..8).map(move |row| (chunk, row))).collect();
    expected.push((3, 0));
    assert_eq!(rows(&play), expected);
    let told: Vec<(u64, Option<u64>, f32)> =
        play.launches.iter().map(|(l, _)| (l.tick, l.splice, l.state[0])).collect();
    // The observation of tick 5 comes with the target of tick 7.
    assert_eq!(told, [(0, None, MEASURED), (5, Some(8), value(1, 7)), (13, Some(16), value(2, 7))]);
}

/// Chunk and index by tick; launches by tick, with the state told unless measured.
type Schedule = (Vec<(u64, usize)>, Vec<(usize, Option<f32>)>);

/// VLASH's manager: launch at `i == n − overlap` with the chunk's last action as state, switch at the wrap.
fn manager(n: usize, overlap: usize, ticks: usize) -> Schedule {
    let (mut current, mut next, mut i, mut launched) = (0u64, None, 0, 0);
    let (mut sent, mut launches) = (Vec::new(), Vec::new());
    for tick in 0..ticks {
        if current == 0 && next.is_none() {
            launched += 1;
            launches.push((tick, None));
            current = launched;
        } else if i == 0 {
            current = next.take().unwrap_or(current);
        }
        if i == n - overlap {
            launched += 1;
            launches.push((tick, Some(value(current, n - 1))));
            next = Some(launched);
        }
        sent.push((current, i));
        i = (i + 1) % n;
        if i == 0 {
            current = 0;
        }
    }
    (sent, launches)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn in_time_it_is_the_manager_of_vlash(n in 2usize..20, overlap in 0usize..20, latency in 0usize..20) {
        let overlap = 1 + overlap % (n - 1);
        let latency = latency % (overlap + 1);
        let mut latencies = vec![(latency, true); 200];
        latencies[0] = (0, true);
        let ours = play(fixed(Mode::Vlash, n + 5, n, overlap), &latencies, 90, &[]);
        let (sent, launches) = manager(n, overlap, 90);
        prop_assert_eq!(rows(&ours), sent);
        let told: Vec<_> = ours.launches.iter()
            .map(|(l, _)| (l.tick as usize, l.splice.map(|_| l.state[0]))).collect();
        prop_assert_eq!(told, launches);
    }

    #[test]
    fn nothing_is_replayed_skipped_or_made_up(
        mode in 0usize..5, n in 1usize..12, slack in 0usize..8, overlap in 0usize..12, measured: bool, eager: bool,
        miss in 0usize..3, speed in 1usize..4,
        latencies in prop::collection::vec((0usize..30, prop::bool::weighted(0.9)), 1..12),
        modes in prop::collection::vec((0usize..150, 0usize..5), 0..4),
    ) {
        let settings = Settings {
            overlap: match measured {
                true => Overlap::Measured { margin: Duration::ZERO, first: 2 },
                false => Overlap::Fixed(overlap.min(n)),
            },
            trained_delay: 8,
            launch: if eager { LaunchAt::Eager } else { LaunchAt::End },
            miss: [Miss::Continue, Miss::Hold, Miss::Stop][miss],
            speed,
            ..Settings::new(Mode::ALL[mode], n * speed + slack, n * speed, 1, 30.0)
        };
        let modes: Vec<(usize, Mode)> = modes.into_iter().map(|(at, mode)| (at, Mode::ALL[mode])).collect();
        let play = play(settings.clone(), &latencies, 150, &modes);
        check(&settings, &play)?;
    }
}

/// The rules, from what was sent alone.
fn check(settings: &Settings, play: &Play) -> Result<(), TestCaseError> {
    let mut last: Option<(u64, usize)> = None;
    for (tick, sent) in play.sent.iter().enumerate() {
        let Sent::Row { chunk, row, step, continued } = *sent else { continue };
        prop_assert!(step < settings.horizon);
        prop_assert_eq!(step, (row + 1) * settings.speed - 1);
        let (launch, mode) = play.launches.iter().find(|(launch, _)| launch.chunk == chunk).unwrap();
        match last {
            Some((before, old)) if before == chunk => prop_assert_eq!(row, old + 1),
            before => {
                prop_assert!(before.is_none_or(|(before, _)| before < chunk), "an old chunk came back");
                let commanded = |from: u64| {
                    let sent = play.sent.get(from as usize..tick).unwrap_or_default();
                    sent.iter().filter(|sent| matches!(sent, Sent::Row { .. })).count()
                };
                let expected = match (launch.splice, mode) {
                    (None, _) | (_, Mode::Sync | Mode::Async) => 0,
                    (Some(splice), Mode::Vlash) => commanded(splice),
                    (Some(_), Mode::Rtc | Mode::RtcTrained) => commanded(launch.tick),
                };
                prop_assert_eq!(row, expected);
                prop_assert!(!continued);
                let late = launch.splice.map_or(0, |splice| (tick as u64).saturating_sub(splice));
                prop_assert!(late < settings.execute_ticks() as u64, "a chunk {} ticks late was used", late);
                if let (Some(splice), Mode::Vlash) = (launch.splice, mode) {
                    prop_assert!(tick as u64 >= splice, "before its turn");
                    if tick as u64 == splice && splice > launch.tick {
                        prop_assert_eq!(launch.state[0], play.values[tick - 1], "told where the arm will be");
                    }
                }
            }
        }
        let rtc = mode.counts_from_launch();
        prop_assert!(continued || rtc || row < settings.execute_ticks());
        prop_assert!(!continued || settings.miss == Miss::Continue);
        last = Some((chunk, row));
    }
    for (launch, mode) in &play.launches {
        if launch.splice.is_none() || *mode != Mode::Vlash {
            prop_assert_eq!(launch.state[0], MEASURED);
        }
        prop_assert_eq!(launch.leftover.is_some(), mode.counts_from_launch() && launch.splice.is_some());
        if let Some(leftover) = &launch.leftover {
            prop_assert!(!leftover.actions.is_empty() && leftover.actions.len() >= leftover.delay);
        }
    }
    let launched = |chunk: u64| play.launches.iter().find(|(launch, _)| launch.chunk == chunk).unwrap().0.splice;
    for (tick, event) in &play.events {
        match *event {
            Event::Missed { chunk } => prop_assert_eq!(launched(chunk), Some(*tick)),
            Event::Discarded { chunk, late } => {
                let (_, mode) = play.launches.iter().find(|(launch, _)| launch.chunk == chunk).unwrap();
                // Of a chunk that counts from its launch nothing may be left, even in time.
                prop_assert!(late > 0 || mode.counts_from_launch());
            }
            Event::Spliced { chunk, late, standstill, .. } => {
                prop_assert_eq!(standstill, launched(chunk).is_none());
                prop_assert_eq!(late, launched(chunk).map_or(0, |splice| tick.saturating_sub(splice)));
            }
        }
    }
    Ok(())
}

#[test]
fn a_late_chunk_is_entered_where_the_arm_is() {
    // Planned for tick 8, there at tick 10.
    let late = |miss| {
        let settings = Settings { miss, ..fixed(Mode::Vlash, 12, 8, 3) };
        let mut latencies = vec![(2, true); 9];
        (latencies[0], latencies[1]) = ((0, true), (5, true));
        play(settings, &latencies, 12, &[])
    };
    let went_on = late(Miss::Continue);
    // a8 and a9 were commanded since tick 8, so b0 and b1 are in the past.
    assert_eq!(rows(&went_on)[7..], [(1, 7), (1, 8), (1, 9), (2, 2), (2, 3)]);
    assert!(went_on.events.contains(&(8, Event::Missed { chunk: 2 })));
    assert!(went_on.events.contains(&(10, Event::Spliced { chunk: 2, row: 2, late: 2, standstill: false })));
    let held = late(Miss::Hold);
    // The arm stood still meanwhile: the chunk begins where it is.
    assert_eq!(rows(&held)[7..], [(1, 7), (0, 0), (0, 0), (2, 0), (2, 1)]);
    assert_eq!(late(Miss::Stop).sent.last(), Some(&Sent::Stop));
}

#[test]
fn inference_slower_than_a_chunk_makes_the_arm_wait_for_each() {
    let mut latencies = vec![(40, true); 9];
    latencies[0] = (0, true);
    let play = play(fixed(Mode::Vlash, 8, 4, 2), &latencies, 160, &[]);
    let discarded: Vec<u64> =
        play.events.iter().filter_map(|(_, e)| matches!(e, Event::Discarded { .. }).then_some(1)).collect();
    // Once; from then on it is asked at standstill, when none is too late.
    assert_eq!(discarded.len(), 1);
    assert!(play.launches[2..].iter().all(|(launch, _)| launch.splice.is_none()));
    assert_eq!(play.sent.iter().filter(|sent| matches!(sent, Sent::Row { chunk: 3, .. })).count(), 4);
}

#[test]
fn real_time_chunking_enters_at_the_delay_and_launches_once_every_n_ticks() {
    let mut latencies = vec![(2, true); 40];
    latencies[0] = (0, true);
    let play = play(fixed(Mode::Rtc, 20, 8, 3), &latencies, 40, &[]);
    let launches: Vec<u64> = play.launches.iter().map(|(launch, _)| launch.tick).collect();
    // From entry at step 2 on eight actions are executed; three before their end the next is asked for.
    assert_eq!(launches, [0, 5, 12, 19, 26, 33]);
    assert_eq!(rows(&play)[5..9], [(1, 5), (1, 6), (2, 2), (2, 3)]);
    let leftover = play.launches[1].0.leftover.as_ref().unwrap();
    assert_eq!((leftover.delay, leftover.actions.len(), leftover.actions[0]), (3, 15, value(1, 5)));
}

#[test]
fn naive_chunks_are_entered_at_once_and_sync_waits() {
    let naive = play(fixed(Mode::Async, 8, 8, 3), &[(0, true), (2, true)], 9, &[]);
    assert_eq!(rows(&naive)[4..9], [(1, 4), (1, 5), (1, 6), (2, 0), (2, 1)]);
    let sync = play(fixed(Mode::Sync, 8, 4, 0), &steady(2), 14, &[]);
    let held: Vec<usize> = (0..14).filter(|&tick| sync.sent[tick] == Sent::Hold).collect();
    assert_eq!(held, [0, 1, 6, 7, 12, 13]);
    // In no time there is no wait.
    let quick = play(fixed(Mode::Sync, 8, 4, 0), &steady(0), 9, &[]);
    assert!(!quick.sent.contains(&Sent::Hold));
}

#[test]
fn speed_up_drops_steps_and_leaves_the_overlap_in_ticks() {
    let settings = Settings { speed: 2, ..fixed(Mode::Vlash, 16, 8, 2) };
    let play = play(settings, &[(0, true), (1, true), (1, true)], 8, &[]);
    let steps: Vec<usize> =
        play.sent.iter().map(|sent| if let Sent::Row { step, .. } = sent { *step } else { usize::MAX }).collect();
    assert_eq!(steps, [1, 3, 5, 7, 1, 3, 5, 7]);
    assert_eq!((play.launches[1].0.tick, play.launches[1].0.splice), (2, Some(4)));
    assert_eq!(play.launches[1].0.state[0], value(1, 7));
}

#[test]
fn a_measured_overlap_follows_the_latency_up_to_what_was_trained() {
    let run = |latency, trained_delay| {
        let settings = Settings { trained_delay, ..Settings::new(Mode::Vlash, 50, 20, 1, 30.0) };
        let play = play(settings, &steady(latency), 200, &[]);
        let launch = play.launches.last().unwrap().0.clone();
        launch.splice.unwrap() - launch.tick
    };
    assert_eq!([run(3, 8), run(6, 8), run(11, 8), run(11, 0)], [4, 7, 8, 12]);
}

#[test]
fn a_toggle_takes_effect_at_a_launch_and_a_reset_forgets() {
    let settings = fixed(Mode::Vlash, 12, 8, 3);
    let toggled = play(settings.clone(), &[(0, true), (2, true), (2, true)], 24, &[(6, Mode::Sync)]);
    assert_eq!(toggled.launches[1].1, Mode::Vlash);
    assert_eq!((toggled.launches[2].1, toggled.launches[2].0.tick), (Mode::Sync, 16));

    let mut scheduler = Scheduler::new(settings).unwrap();
    let mut unfiltered = Unfiltered::default();
    let first = scheduler.launch(&[0.0], &mut unfiltered).unwrap();
    scheduler.reset();
    assert_eq!(scheduler.arrive(first.chunk, &[1.0; 12], None), None);
    assert!(matches!(scheduler.command(), Command::Hold(Wait::Standstill)));
    let second = scheduler.launch(&[0.0], &mut unfiltered).unwrap();
    assert_eq!((second.chunk, second.splice), (2, None));
}

#[test]
fn settings_that_cannot_be_obeyed_name_what_can() {
    let speed = Settings { speed: 3, ..fixed(Mode::Vlash, 50, 25, 4) };
    let error = Scheduler::new(speed).unwrap_err();
    assert!(error.hint().unwrap().ends_with("24"), "{error}");
    assert!(Scheduler::new(fixed(Mode::Vlash, 50, 60, 4)).is_err());
    assert!(Scheduler::new(fixed(Mode::Vlash, 50, 8, 9)).is_err());
    assert!(Scheduler::new(Settings { grippers: vec![1], ..fixed(Mode::Vlash, 50, 8, 1) }).is_err());
    let warning = Settings { trained_delay: 8, ..fixed(Mode::Vlash, 50, 20, 14) }.untrained(Mode::Vlash, 14).unwrap();
    assert!(warning.contains("delay of 14 steps") && warning.contains("≤ 8"), "{warning}");
    assert_eq!("rtc-trained".parse(), Ok(Mode::RtcTrained));
    assert!("fast".parse::<Mode>().is_err());
}
