//! Screens as a person sees them, at every size, in every mode, in every trouble.

use insta::assert_snapshot;
use proptest::prelude::*;
use ratatui::backend::CrosstermBackend;
use ratatui::layout::{Rect, Size};
use ratatui::style::Color;
use ratatui::{Terminal, TerminalOptions, Viewport};

use super::{prepare_images, render};
use crate::track::event::Level;
use crate::track::telemetry::{ArmState, Chunk, Hello, Message, Origin, Phase, Status, Steer, Thumbnail, Tick};
use crate::tui::capability::{ColorLevel, Glyphs};
use crate::tui::robot::action::Effect;
use crate::tui::robot::orders::Delivery;
use crate::tui::robot::probe::Graphics;
use crate::tui::robot::source::{Data, Link};
use crate::tui::robot::state::{Pane, State};
use crate::tui::robot::testing::{NOON, after, draw, event, hear, item, messages_of, running, settings, status, text};
use crate::tui::terminal::Frames;
use crate::tui::testing::{events_of, styled_rows};

fn press(state: &mut State, keys: &str) -> Vec<Effect> {
    events_of(keys).iter().flat_map(|event| state.key(event)).collect()
}

#[test]
fn five_sizes() {
    assert_snapshot!("size_120x40", text(&mut running(120, 40)));
    assert_snapshot!("size_80x24", text(&mut running(80, 24)));
    assert_snapshot!("size_60x15", text(&mut running(60, 15)));
    assert_snapshot!("size_20x5", text(&mut running(20, 5)));
    assert_snapshot!("size_1x1", text(&mut running(1, 1)));
}

#[test]
fn synchronous_execution_waits_for_each_chunk() {
    assert_snapshot!("synchronous", text(&mut after(283, 80, 24)));
}

#[test]
fn glyph_sets() {
    let mut state = running(80, 24);
    state.settings.glyphs = Glyphs::Ascii;
    let screen = text(&mut state);
    assert!(screen.is_ascii(), "{screen}");
    assert_snapshot!("glyphs_ascii", screen);
}

#[test]
fn colour_levels() {
    let mut state = running(80, 24);
    let colourless = styled_rows(&draw(&mut state));
    assert!(!colourless.contains("Indexed") && !colourless.contains("Rgb"), "{colourless}");
    for (name, color) in [("16", ColorLevel::Ansi16), ("256", ColorLevel::Ansi256)] {
        state.settings.color = color;
        assert_snapshot!(format!("colour_{name}"), styled_rows(&draw(&mut state)));
    }
}

#[test]
fn every_layer_leaves_the_stop_keys_in_sight() {
    let mut state = running(80, 24);
    hear(&mut state, Message::Status(Status { arm: ArmState::Holding, ..status(2000) }));
    for (name, keys) in
        [("help", "?"), ("palette", ":mode"), ("arm", "Apiper-right<Enter>"), ("stop", "S"), ("events", "!")]
    {
        press(&mut state, keys);
        let screen = text(&mut state);
        let hints = screen.lines().last().unwrap();
        assert!(hints.contains("SPACE hold  E e-stop (arm sinks)"), "{name}: {hints}");
        assert_snapshot!(format!("layer_{name}"), screen);
        state.overlays.clear();
    }
}

#[test]
fn a_stop_says_by_which_way_it_went_and_whether_it_was_answered() {
    let mut state = running(80, 24);
    let effects = press(&mut state, " ");
    let [Effect::Order { ticket, steer: Steer::Hold, .. }] = effects.as_slice() else { panic!("{effects:?}") };
    let footer = |state: &State| super::footer::message(state).1;
    assert_eq!(footer(&state), "hold: sending");
    let delivery = Delivery { sent: vec!["the socket".into()], failed: Vec::new() };
    state.data(Data::Delivered { ticket: *ticket, delivery });
    assert_eq!(footer(&state), "hold: sent by the socket; no answer yet");
    state.tick(NOON + 3.0);
    assert!(footer(&state).contains("! no answer for 3 s"));
    hear(&mut state, Message::Status(Status { arm: ArmState::Holding, ..status(1100) }));
    assert_eq!(footer(&state), "hold: sent by the socket; ok the arm is HOLDING");
}

#[test]
fn a_lost_link_covers_nothing_and_is_not_overlooked() {
    let mut state = running(80, 24);
    state.settings.color = ColorLevel::Ansi256;
    state.data(Data::Link(Link::Down { reason: "127.0.0.1:5151: refused".into(), retry_s: 2.0, file: false }));
    state.tick(NOON + 7.0);
    let screen = text(&mut state);
    assert!(screen.lines().next().unwrap().ends_with("x LINK LOST 7 s"), "{screen}");
    assert_snapshot!("link_lost", screen);
    // Old values are never shown as current: nothing but the trouble itself has a colour.
    let styles = styled_rows(&draw(&mut state));
    assert!(!styles.contains("Indexed(33)"), "{styles}");
}

#[test]
fn a_dead_process_is_named_and_nothing_is_shown_as_current() {
    let mut state = running(80, 24);
    state.settings.run_dir = Some("outputs/r".into());
    state.settings.color = ColorLevel::Ansi256;
    state.data(Data::Link(Link::Gone { pid: 4711 }));
    let screen = text(&mut state);
    assert!(screen.lines().next().unwrap().ends_with("mode VLASH  GONE  x GONE"), "{screen}");
    assert!(screen.contains("x GONE: process 4711 was killed or crashed"), "{screen}");
    assert!(screen.contains("outputs/r/telemetry.jsonl") && !screen.contains("SPACE"), "{screen}");
    assert!(!styled_rows(&draw(&mut state)).contains("Indexed(33)"));
}

#[test]
fn an_end_says_where_the_report_lies_and_no_longer_that_the_arm_is_armed() {
    let mut state = running(80, 24);
    state.settings.run_dir = Some("outputs/r".into());
    hear(&mut state, Message::Ended { time: 99.0, outcome: "placed".into(), report: Some("report.md".into()) });
    let screen = text(&mut state);
    assert!(screen.lines().next().unwrap().ends_with("mode VLASH  ENDED  - ended"), "{screen}");
    assert!(screen.contains("ended: placed; report: outputs/r/report.md; f looks back, q leaves"), "{screen}");
    state.size = Size::new(30, 6);
    assert!(!text(&mut state).contains("SPACE"));
}

#[test]
fn what_held_the_arm_is_over_when_it_is_armed_again_and_a_held_arm_waits_for_no_chunk() {
    let mut state = running(80, 24);
    hear(&mut state, event(1011, Level::Warn, "holding position: the operator holds it"));
    let mut say = |tick, arm| hear(&mut state, Message::Status(Status { arm, ..status(tick) }));
    say(1012, ArmState::Holding);
    say(1015, ArmState::Armed);
    assert!(!super::footer::message(&state).1.contains("holding"));
    hear(&mut state, Message::Status(Status { arm: ArmState::Holding, ..status(1018) }));
    assert!(super::footer::message(&state).1.contains("holding") && super::queue_words(&state).is_none());
}

#[test]
fn a_frozen_camera_is_named_in_words() {
    let mut state = running(120, 40);
    hear(&mut state, Message::Status(Status { camera_age_ms: vec![Some(3200.0), None], ..status(1101) }));
    let screen = text(&mut state);
    assert!(screen.contains("front FROZEN 3 s") && screen.contains("wrist no image yet"), "{screen}");
    assert!(screen.contains("x camera front is FROZEN for 3 s"), "{screen}");
}

#[test]
fn a_narrow_margin_says_low_without_colour() {
    let mut state = running(80, 24);
    assert!(!text(&mut state).contains("LOW"));
    let at = state.live.latest() + 0.1;
    let mut chunk = |phase| hear(&mut state, Message::Chunk(Chunk { chunk: 900, time: at, tick: 1020, phase }));
    chunk(Phase::Launched { splice: 1025, synchronous: false });
    chunk(Phase::Arrived { latency_ms: 160.0, preprocess_ms: 1.0, prefix_ms: 1.0, denoise_ms: 1.0, copy_ms: 1.0 });
    assert!(text(&mut state).contains("margin +7 ms LOW"), "{}", text(&mut state));
}

#[test]
fn the_frozen_view_and_its_past() {
    let mut state = running(80, 24);
    press(&mut state, &format!("f{}", "<Left>".repeat(20)));
    (1012..1100).for_each(|tick| messages_of(tick).into_iter().for_each(|m| hear(&mut state, m)));
    assert_snapshot!("frozen", text(&mut state));
}

#[test]
fn the_end_before_the_beginning_and_an_unheard_robot() {
    let mut state = running(80, 24);
    hear(&mut state, Message::Ended { time: 40.0, outcome: "placed".into(), report: Some("report.md".into()) });
    state.tick(NOON + 60.0);
    assert_snapshot!("ended", text(&mut state));
    let mut state = State::new(settings(), NOON, Size::new(80, 24));
    state.data(Data::Link(Link::Down { reason: "no robot.socket yet".into(), retry_s: 1.0, file: false }));
    assert_snapshot!("waiting", text(&mut state));
}

#[test]
fn images_are_drawn_in_colour_and_told_in_words() {
    let mut state = running(120, 40);
    assert!(text(&mut state).contains("front 30 Hz, 20 ms ago"));
    state.settings.color = ColorLevel::True;
    let blocks = |state: &mut State| draw(state).content().iter().filter(|c| matches!(c.bg, Color::Rgb(..))).count();
    assert!(blocks(&mut state) > 50);
    state.settings.color = ColorLevel::Ansi256;
    assert_eq!(blocks(&mut state), 0, "256 colours are the terminal's own");
    assert!(draw(&mut state).content().iter().filter(|c| matches!(c.bg, Color::Indexed(_))).count() > 50);
    state.settings.color = ColorLevel::True;
    press(&mut state, ":imagesoff<Enter>");
    assert_eq!(blocks(&mut state), 0);
    press(&mut state, ":imageson<Enter>");
    state.settings.graphics = Graphics::Kitty { cell: (10, 20) };
    let placeholders =
        |state: &mut State| draw(state).content().iter().filter(|c| c.symbol().contains('\u{10EEEE}')).count();
    assert!(placeholders(&mut state) > 0);
    press(&mut state, "?");
    assert_eq!(placeholders(&mut state), 0, "nothing can be drawn over pixels");
}

#[test]
fn no_size_panics() {
    let mut state = running(80, 24);
    state.settings.color = ColorLevel::True;
    for width in (0..140).step_by(7).chain([1, 2, 39, 40, 75, 76, 109, 110]) {
        for height in (0..45).step_by(4).chain([1, 3, 7, 31]) {
            state.size = Size::new(width, height);
            for pane in Pane::ALL {
                state.set_focus(pane);
                text(&mut state);
            }
            for layer in ["?", ":", "A", "S", "!"] {
                press(&mut state, layer);
                text(&mut state);
                state.overlays.clear();
            }
        }
    }
}

fn number() -> impl Strategy<Value = f64> {
    prop_oneof![Just(0.0), Just(f64::NAN), Just(f64::INFINITY), Just(-1e300), Just(1e300), -100.0..100.0f64]
}

fn count() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0u64), Just(u64::MAX), Just(i64::MAX as u64), 0..200u64]
}

fn small() -> impl Strategy<Value = Vec<f32>> {
    proptest::collection::vec(prop_oneof![any::<f32>(), -3.0f32..3.0], 0..9)
}

fn message() -> impl Strategy<Value = Message> {
    let hello = (number(), small(), 0usize..4, any::<u16>()).prop_map(|(fps, limits, cameras, execute)| {
        Message::Hello(Hello {
            robot: "r\u{1b}[31m".into(),
            fps,
            joints: (0..limits.len()).map(|i| i.to_string()).collect(),
            limits: limits.iter().map(|&l| [l, -l]).collect(),
            cameras: (0..cameras).map(|i| format!("c{i}")).collect(),
            execute: usize::from(execute),
            ..Hello::default()
        })
    });
    let tick = (count(), number(), number(), small(), small(), proptest::option::of(count()), any::<u32>());
    let tick = tick.prop_map(|(tick, time, period_ms, state, command, chunk, missed)| {
        let origin = if missed % 2 == 0 { Origin::Fresh } else { Origin::Continued };
        Message::Tick(Tick {
            tick,
            time,
            period_ms,
            missed,
            origin,
            chunk,
            state,
            command,
            clipped: missed,
            ..Tick::default()
        })
    });
    let phase = prop_oneof![
        (count(), any::<bool>()).prop_map(|(splice, synchronous)| Phase::Launched { splice, synchronous }),
        number().prop_map(|ms| Phase::Arrived {
            latency_ms: ms,
            preprocess_ms: ms,
            prefix_ms: ms,
            denoise_ms: ms,
            copy_ms: ms
        }),
        (any::<u32>(), any::<u32>()).prop_map(|(index, late)| Phase::Spliced {
            index,
            late,
            jump: 0.0,
            state_error: 0.0
        }),
        Just(Phase::Discarded { reason: "stale".into() }),
    ];
    let chunk = (count(), number(), count(), phase)
        .prop_map(|(chunk, time, tick, phase)| Message::Chunk(Chunk { chunk, time, tick, phase }));
    let status = (number(), any::<u32>(), count(), proptest::collection::vec(proptest::option::of(number()), 0..4));
    let status = status.prop_map(|(time, overlap, n, ages)| {
        let arm = if n % 2 == 0 { ArmState::Armed } else { ArmState::EmergencyStopped };
        Message::Status(Status {
            time,
            arm,
            overlap,
            ticks: n,
            late_chunks: n / 2,
            camera_hz: vec![time],
            camera_age_ms: ages,
            ..Status::default()
        })
    });
    let thumbnail = (number(), 0u32..9, 0u32..9).prop_map(|(time, width, height)| {
        Message::Thumbnail(Thumbnail { camera: "c0".into(), time, width, height, rgb: "AAAA".into() })
    });
    let said = number().prop_map(|time| Message::Event { time, level: Level::Warn, text: "\u{202e}x".into() });
    let ended = number().prop_map(|time| Message::Ended { time, outcome: String::new(), report: None });
    prop_oneof![hello, tick, chunk, status, thumbnail, said, ended]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn whatever_is_told_is_drawn_somehow(messages in proptest::collection::vec(message(), 0..40)) {
        let mut state = State::new(settings(), NOON, Size::new(120, 40));
        state.settings.color = ColorLevel::True;
        for (i, message) in messages.into_iter().enumerate() {
            state.data(Data::Items(vec![item(message)]));
            state.size = [Size::new(120, 40), Size::new(80, 24), Size::new(20, 5), Size::new(1, 1)][i % 4];
            if i % 3 == 0 {
                press(&mut state, "f<Left>");
            }
            text(&mut state);
        }
    }
}

/// Draws as to a real terminal and counts bytes.
struct Line {
    terminal: Terminal<CrosstermBackend<Frames>>,
    frames: Frames,
}

impl Line {
    fn new(size: Size) -> Line {
        let frames = Frames::default();
        let viewport = Viewport::Fixed(Rect::new(0, 0, size.width, size.height));
        let backend = CrosstermBackend::new(frames.clone());
        Line { terminal: Terminal::with_options(backend, TerminalOptions { viewport }).unwrap(), frames }
    }

    fn bytes(&mut self, state: &State) -> usize {
        self.terminal.draw(|frame| render(state, frame)).unwrap();
        self.frames.take().len()
    }
}

/// Bytes a second of a steady rollout at the pace of SSH, and of the whole first frame.
fn steady(size: Size, images: bool) -> (usize, usize) {
    let mut state = running(size.width, size.height);
    state.settings.color = ColorLevel::Ansi256;
    (state.settings.remote, state.settings.images) = (true, images);
    let mut line = Line::new(state.size);
    let whole = line.bytes(&state);
    let (mut total, mut image_due) = (0, 0.0);
    let seconds = 30;
    for half in 0..2 * seconds {
        for tick in 0..15 {
            messages_of(1012 + half * 15 + tick).into_iter().for_each(|m| hear(&mut state, m));
        }
        let passed = half as f64 * crate::tui::robot::REMOTE_FRAME_S;
        state.tick(NOON + passed);
        if passed >= image_due {
            let cells = prepare_images(&mut state);
            let bytes = cells * crate::tui::robot::BYTES_A_CELL;
            image_due = passed + bytes as f64 / crate::tui::robot::REMOTE_IMAGE_BYTES as f64;
        }
        total += line.bytes(&state);
    }
    (whole, total / seconds as usize)
}

#[test]
fn the_bandwidth_stays_within_its_budget() {
    for (size, images) in [(Size::new(80, 24), false), (Size::new(120, 40), false), (Size::new(120, 40), true)] {
        let (whole, per_second) = steady(size, images);
        println!("{size}, images {images}: whole frame {whole} B, steady {per_second} B/s");
        assert!(per_second <= 2000, "{size}, images {images}: {per_second} bytes a second");
        assert!(size.width > 80 || whole <= 6000, "a whole frame of {size} takes {whole} bytes");
    }
    let mut state = running(80, 24);
    let mut line = Line::new(state.size);
    line.bytes(&state);
    state.tick(NOON + 0.4);
    let idle = line.bytes(&state);
    assert!(idle <= 40, "a frame without change takes {idle} bytes");
    hear(&mut state, event(1013, Level::Info, "x"));
}
