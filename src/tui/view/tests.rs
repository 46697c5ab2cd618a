//! Screens as a person sees them, at every size, in every mode, in every trouble.

use insta::assert_snapshot;
use ratatui::backend::CrosstermBackend;
use ratatui::layout::Size;
use ratatui::{Terminal, TerminalOptions, Viewport};

use super::render;
use crate::track::event::{Body, Outcome, StepMetrics};
use crate::track::reader::{Cause, Problem, Reader, Update};
use crate::track::status::State as RunState;
use crate::tui::capability::{ColorLevel, Glyphs};
use crate::tui::state::{Data, State};
use crate::tui::terminal::Frames;
use crate::tui::testing::{NOON, beat, events, happen, metrics, press, running, settings, status, styles, text};
use crate::tui::theme::Tone;

#[test]
fn five_sizes() {
    assert_snapshot!("size_120x40", text(&running(120, 40)));
    assert_snapshot!("size_80x24", text(&running(80, 24)));
    assert_snapshot!("size_60x15", text(&running(60, 15)));
    assert_snapshot!("size_20x5", text(&running(20, 5)));
    assert_snapshot!("size_1x1", text(&running(1, 1)));
}

#[test]
fn glyph_sets() {
    let mut state = running(80, 24);
    state.settings.glyphs = Glyphs::Ascii;
    let screen = text(&state);
    assert!(screen.is_ascii(), "{screen}");
    assert_snapshot!("glyphs_ascii", screen);
    state.settings.glyphs = Glyphs::Block;
    assert_snapshot!("glyphs_block", text(&state));
}

#[test]
fn colour_levels() {
    let mut state = running(80, 24);
    let colourless = styles(&state);
    assert!(!colourless.contains("Indexed") && !colourless.contains("Rgb"), "{colourless}");
    for (name, color) in [("16", ColorLevel::Ansi16), ("256", ColorLevel::Ansi256), ("true", ColorLevel::True)] {
        state.settings.color = color;
        assert_snapshot!(format!("colour_{name}"), styles(&state));
    }
    state.settings.tone = Tone::Contrast;
    assert!(!styles(&state).contains("128, 128, 128"));
}

#[test]
fn every_layer() {
    let mut state = running(80, 24);
    for (name, keys) in [
        ("help", "?"),
        ("palette", ":s"),
        ("confirm_stop", "S"),
        ("learning_rate", "R2x<Enter>"),
        ("evidence", "i"),
        ("notifications", "!"),
    ] {
        press(&mut state, keys);
        assert_snapshot!(format!("layer_{name}"), text(&state));
        state.overlays.clear();
    }
    state.settings.owned = true;
    press(&mut state, "q");
    assert_snapshot!("layer_quit", text(&state));
}

#[test]
fn charts_with_every_look() {
    let mut state = running(120, 40);
    press(&mut state, "Ysx<Left><Left><Left>z");
    assert_snapshot!("chart_log_smooth_time_cursor", text(&state));
    press(&mut state, "0Yw");
    assert_snapshot!("chart_recent", text(&state));
}

#[test]
fn a_stale_run_says_so_and_dims() {
    let mut state = running(80, 24);
    state.settings.color = ColorLevel::Ansi256;
    state.tick(NOON + 45.0);
    let screen = text(&state);
    assert!(screen.lines().next().unwrap().ends_with("~ stale 45 s"), "{screen}");
    assert!(!screen.contains("ETA"), "an estimate from old values is not shown as current");
    assert_snapshot!("stale_styles", styles(&state));
    state.tick(NOON + 700.0);
    assert_snapshot!("silent", text(&state));
    state.run.process_alive = Some(false);
    assert_snapshot!("vanished", text(&state));
}

#[test]
fn endings() {
    let checkpoint = || Some("checkpoints/012400".to_owned());
    for (name, outcome, detail, checkpoint) in [
        ("finished", Outcome::Finished, "", checkpoint()),
        ("stopped", Outcome::Stopped, "SIGTERM", checkpoint()),
        ("failed", Outcome::Failed, "loss is not finite (batch indices 3, 17, 40)", None),
    ] {
        let mut state = running(80, 24);
        happen(&mut state, Body::Ended { step: 12_400, outcome, detail: detail.into(), checkpoint });
        assert_snapshot!(format!("ended_{name}"), text(&state));
    }
}

#[test]
fn a_directory_that_cannot_be_read() {
    for (name, cause) in [("gone", Cause::Gone), ("forbidden", Cause::PermissionDenied)] {
        let mut state = running(80, 24);
        for _ in 0..2 {
            let problem = Some(Problem { path: "/scratch/outputs/bright-owl".into(), cause: cause.clone() });
            state.data(Data::Update(Box::new(Update { problem, progress: 1.0, ..Update::default() })));
        }
        assert_snapshot!(format!("directory_{name}"), text(&state));
    }
}

#[test]
fn a_loss_that_is_not_finite_is_marked() {
    let mut state = running(80, 24);
    happen(&mut state, Body::Step(StepMetrics { loss: f64::NAN, grad_norm: f64::INFINITY, ..metrics(12_410) }));
    assert_snapshot!("not_finite", text(&state));
}

#[test]
fn requests_refused_and_unanswered() {
    let mut state = running(80, 24);
    press(&mut state, "CR2e-5<Enter>");
    state.data(Data::Sent { ticket: 0, result: Ok("1".into()) });
    state.data(Data::Sent { ticket: 1, result: Ok("2".into()) });
    state.tick(NOON + 70.0);
    beat(&mut state, RunState::Running);
    assert!(text(&state).contains("lr 2e-5: not seen after 70 s"), "{}", text(&state));
    let reason = "above the largest rate 1e-5".into();
    happen(
        &mut state,
        Body::CommandRefused { id: "2".into(), command: "set_learning_rate".into(), step: 12_410, reason },
    );
    press(&mut state, "$");
    assert_snapshot!("requests", text(&state));
}

#[test]
fn a_run_of_a_newer_version_and_events_of_unknown_kinds() {
    let mut state = running(80, 24);
    state.settings.version = "0.3.1";
    assert!(text(&state).contains("run written by 0.4.0, this is 0.3.1: some panels may be hidden"));
}

#[test]
fn a_failed_checkpoint_stays_until_seen() {
    let mut state = running(120, 40);
    happen(
        &mut state,
        Body::CheckpointFailed {
            step: 12_400,
            reason: "no space left on device".into(),
            last_good: Some("checkpoints/012000".into()),
            next_step: 14_400,
        },
    );
    state.tick(NOON + 300.0);
    beat(&mut state, RunState::Running);
    let wanted = "failed: no space left on device; last good: checkpoints/012000; next try at step 14400";
    let footer = |state: &State| super::message(state).map(|(_, text)| text).unwrap_or_default();
    assert!(footer(&state).contains(wanted) && text(&state).contains(wanted), "{}", text(&state));
    press(&mut state, "!<Esc>");
    assert!(!footer(&state).contains(wanted));
}

#[test]
fn before_the_first_sign_of_life() {
    let state = State::new(settings(), NOON, Size::new(80, 24));
    assert_snapshot!("waiting", text(&state));
}

#[test]
fn a_recorded_directory_read_in_pieces_looks_as_read_at_once() {
    let run = tempfile::tempdir().unwrap();
    let path = run.path().join("events.jsonl");
    let recorded: String = events().iter().map(|event| serde_json::to_string(event).unwrap() + "\n").collect();
    let status = serde_json::to_vec(&status(RunState::Running, NOON)).unwrap();
    std::fs::write(run.path().join("status.json"), status).unwrap();
    let mut pieces = State::new(settings(), NOON, Size::new(120, 40));
    let mut reader = Reader::new(run.path());
    let mut written = 0;
    // Cuts that fall anywhere in a line, a clock that goes on, a drawing after every look.
    while written < recorded.len() {
        written = (written + 54_321).min(recorded.len());
        std::fs::write(&path, &recorded.as_bytes()[..written]).unwrap();
        pieces.tick(pieces.now + 0.01);
        pieces.data(Data::Update(Box::new(reader.poll())));
        text(&pieces);
    }
    let mut whole = State::new(settings(), NOON, Size::new(120, 40));
    whole.data(Data::Update(Box::new(Reader::new(run.path()).poll())));
    whole.tick(pieces.now);
    // What happened while one watched is news to that one only.
    for state in [&mut pieces, &mut whole] {
        press(state, "!<Esc>");
    }
    assert_eq!(text(&pieces), text(&whole));
    assert!(text(&whole).contains("step 12400 loss 0.297"));
}

#[test]
fn no_size_panics() {
    for width in (0..140).step_by(3).chain([1, 2, 39, 40, 75, 76, 109, 110]) {
        for height in (0..45).step_by(2).chain([1, 3, 7, 31, 1000]) {
            let mut state = running(width, height);
            text(&state);
            press(&mut state, ":");
            text(&state);
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
        let viewport = Viewport::Fixed(ratatui::layout::Rect::new(0, 0, size.width, size.height));
        let backend = CrosstermBackend::new(frames.clone());
        Line { terminal: Terminal::with_options(backend, TerminalOptions { viewport }).unwrap(), frames }
    }

    fn bytes(&mut self, state: &State) -> usize {
        self.terminal.draw(|frame| render(state, frame)).unwrap();
        self.frames.take().len()
    }
}

#[test]
fn the_bandwidth_stays_within_its_budget() {
    let mut state = running(80, 24);
    state.settings.color = ColorLevel::Ansi256;
    let mut line = Line::new(state.size);
    let whole = line.bytes(&state);
    assert!(whole <= 6000, "a whole frame of 80x24 takes {whole} bytes");
    let idle = line.bytes(&state);
    assert!(idle <= 40, "a frame without change takes {idle} bytes");
    // A minute of three logged steps a second, drawn four times a second.
    let mut total = 0;
    for quarter in 0..240u32 {
        state.tick(NOON + f64::from(quarter) * 0.25);
        if quarter % 4 != 3 {
            happen(&mut state, Body::Step(metrics(12_400 + 10 * u64::from(quarter))));
        }
        if quarter % 8 == 0 {
            beat(&mut state, RunState::Running);
        }
        total += line.bytes(&state);
    }
    let per_second = total / 60;
    println!("whole frame {whole} B, idle {idle} B, steady {per_second} B/s");
    assert!(per_second <= 2000, "steady updates take {per_second} bytes a second");
}
