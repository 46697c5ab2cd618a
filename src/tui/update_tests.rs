//! Key strings in, effects and screens out.

use super::*;
use crate::track::event::{Body, Outcome};
use crate::track::status::State as RunState;
use crate::tui::commands::Progress;
use crate::tui::testing::{beat, happen, press, running, text};

fn commands(effects: &[Effect]) -> Vec<Command> {
    let command = |effect: &Effect| match effect {
        Effect::Send { command, .. } => Some(command.clone()),
        _ => None,
    };
    effects.iter().filter_map(command).collect()
}

#[test]
fn the_keys_of_the_run() {
    let mut state = running(120, 40);
    assert_eq!(commands(&press(&mut state, "pCe")), [Command::Pause, Command::Checkpoint, Command::Evaluate]);
    beat(&mut state, RunState::Paused);
    assert_eq!(commands(&press(&mut state, "p")), [Command::Resume]);
}

#[test]
fn stopping_asks_and_means_no_by_default() {
    let mut state = running(120, 40);
    assert_eq!(press(&mut state, "S"), []);
    assert!(text(&state).contains("Stop the run?"));
    assert_eq!(press(&mut state, "<Enter>"), []);
    assert!(state.overlays.is_empty());
    assert_eq!(press(&mut state, "S<Esc>Sn"), []);
    assert_eq!(commands(&press(&mut state, "Sy")), [Command::Stop]);
}

#[test]
fn the_learning_rate_is_checked_before_it_is_sent() {
    let mut state = running(120, 40);
    assert_eq!(press(&mut state, "R2x<Enter>"), []);
    assert!(text(&state).contains("'2x' is no number"));
    assert_eq!(commands(&press(&mut state, "<BS>e-5<Enter>")), [Command::SetLearningRate { lr: 2e-5 }]);
    assert!(state.overlays.is_empty());
}

#[test]
fn letters_in_a_field_are_text_and_not_keys() {
    let mut state = running(120, 40);
    assert_eq!(press(&mut state, "/qSCp"), []);
    assert_eq!(state.log_filter.text(), "qSCp");
    assert!(text(&state).contains("no line passes the filter"));
}

#[test]
fn the_palette_runs_completes_and_explains() {
    let mut state = running(120, 40);
    assert_eq!(commands(&press(&mut state, ":lr 3e-6<Enter>")), [Command::SetLearningRate { lr: 3e-6 }]);
    assert_eq!(commands(&press(&mut state, ":ckp<Enter>")), [Command::Checkpoint]);
    press(&mut state, ":glyphs<Enter>");
    let screen = text(&state);
    assert!(screen.contains(":glyphs _") && screen.contains("one of braille, block, ascii"), "{screen}");
    press(&mut state, "ascii<Enter>");
    assert_eq!(state.settings.glyphs, crate::tui::capability::Glyphs::Ascii);
    assert!(text(&state).is_ascii());
    assert_eq!(press(&mut state, ":mouse on<Enter>"), [Effect::Mouse(true)]);
    assert_eq!(press(&mut state, ":quit<Enter>"), [Effect::Leave]);
}

#[test]
fn the_log_filter_keeps_what_passes_and_escape_goes_out_layer_by_layer() {
    let mut state = running(120, 40);
    press(&mut state, "L/!gnorm loadx<BS>er<Enter>");
    let screen = text(&state);
    assert!(screen.contains("loader waited 140 ms") && !screen.contains("step 12"), "{screen}");
    assert!(state.zoomed);
    press(&mut state, "<Esc>");
    assert!(!state.zoomed && !state.log_filter.is_empty());
    press(&mut state, "<Esc>");
    assert!(state.log_filter.is_empty());
}

#[test]
fn the_cursor_reads_exact_values_and_copies_them() {
    let mut state = running(120, 40);
    let last = state.run.loss.last().unwrap().step;
    press(&mut state, "<Left><Right>");
    assert_eq!(state.look.cursor.map(|c| c - c % 16), Some(last - last % 16));
    press(&mut state, "w<Left>");
    let step = state.look.cursor.unwrap();
    let value = state.run.loss.recent().find(|p| p.step == step).unwrap().value;
    let [Effect::Copy(copied)] = &press(&mut state, "y")[..] else { panic!() };
    assert!(copied.contains(&format!("step {step}  loss {value:.3}")), "{copied}");
    assert!(text(&state).contains(copied.as_str()));
    press(&mut state, "<Esc>");
    assert_eq!(press(&mut state, "y"), [Effect::Copy("outputs/bright-owl".into())]);
}

#[test]
fn panes_zoom_and_restore() {
    let mut state = running(80, 24);
    press(&mut state, "<Tab><Tab><Tab><Tab><Tab>");
    assert_eq!((state.focus, state.tab), (Pane::Log, Pane::Log));
    press(&mut state, "<Tab>z");
    assert!(state.zoomed && state.focus == Pane::Loss && state.tab == Pane::Log);
    press(&mut state, "Ywsx0");
    assert!(!state.zoomed && state.look.log_scale && !state.look.recent);
}

#[test]
fn a_run_of_others_is_left_at_once_an_own_one_asks() {
    let mut state = running(120, 40);
    assert_eq!(press(&mut state, "q"), [Effect::Leave]);
    state.settings.owned = true;
    assert_eq!(press(&mut state, "q"), []);
    assert!(text(&state).contains("leave it running (default)"));
    assert_eq!(press(&mut state, "<Esc>"), []);
    assert_eq!(press(&mut state, "q<Enter>"), [Effect::Leave]);
    press(&mut state, "<Esc>");
    assert_eq!(commands(&press(&mut state, "qs")), [Command::Stop]);
    assert!(state.leave_at_end);
    happen(&mut state, ended(Outcome::Stopped));
    assert_eq!(press(&mut state, "q"), [Effect::Leave]);
}

fn ended(outcome: Outcome) -> Body {
    Body::Ended { step: 12_400, outcome, detail: String::new(), checkpoint: None }
}

#[test]
fn control_c_twice_leaves_whatever_is_open() {
    let mut state = running(120, 40);
    state.settings.owned = true;
    press(&mut state, ":lr");
    assert_eq!(press(&mut state, "<C-c>"), []);
    assert_eq!(state.overlays, [Overlay::Quit]);
    state.tick(state.now + 3.0);
    assert_eq!(press(&mut state, "<C-c>"), []);
    state.tick(state.now + 1.0);
    assert_eq!(press(&mut state, "<C-c>"), [Effect::Leave]);
}

#[test]
fn what_cannot_be_done_says_why() {
    let mut state = running(120, 40);
    state.settings.read_only = true;
    assert_eq!(press(&mut state, "pCSRe"), []);
    assert!(text(&state).contains("read-only"));
    assert!(!text(&state).contains("C checkpoint"));
    let mut state = running(120, 40);
    happen(&mut state, ended(Outcome::Finished));
    assert_eq!(press(&mut state, "C"), []);
    assert!(state.run.notifications.back().unwrap().text.contains("the run has finished"));
    press(&mut state, "?checkp");
    assert!(text(&state).contains("not now: the run has finished"));
}

#[test]
fn a_request_is_followed_to_its_answer() {
    let mut state = running(120, 40);
    let [Effect::Send { ticket, .. }] = press(&mut state, "C")[..] else { panic!() };
    state.data(crate::tui::state::Data::Sent { ticket, result: Ok("77".into()) });
    happen(&mut state, Body::CommandSeen { id: "77".into(), command: "checkpoint".into(), step: 12_410 });
    press(&mut state, "$");
    assert!(text(&state).contains("sent > seen (step 12410)"));
    let refused = "another checkpoint is being written".to_owned();
    happen(
        &mut state,
        Body::CommandRefused { id: "77".into(), command: "checkpoint".into(), step: 12_411, reason: refused },
    );
    assert!(text(&state).contains("x refused (step 12411): another checkpoint"));
    assert!(matches!(state.run.commands.iter().next().unwrap().progress, Progress::Refused { .. }));
    press(&mut state, "$");
    assert!(state.overlays.is_empty());
}

#[test]
fn the_mouse_focuses_and_scrolls() {
    let mut state = running(120, 40);
    let event = |kind, column, row| MouseEvent { kind, column, row, modifiers: KeyModifiers::NONE };
    state.mouse(&event(MouseEventKind::Down(MouseButton::Left), 100, 20));
    assert_eq!(state.focus, Pane::Memory);
    state.mouse(&event(MouseEventKind::ScrollUp, 5, 35));
    assert_eq!((state.focus, state.log_scroll), (Pane::Log, 1));
    state.mouse(&event(MouseEventKind::Down(MouseButton::Left), 500, 500));
}

#[test]
fn every_bound_key_is_harmless_in_every_layer_and_at_every_size() {
    for opener in ["", "?", ":", "/", "R", "S", "q", "$", "!", "i", "z"] {
        for (width, height) in [(120, 40), (80, 24), (60, 15), (20, 5), (1, 1)] {
            let mut state = running(width, height);
            state.settings.owned = true;
            press(&mut state, opener);
            for key in "pCSReiYxwshlLz0/kjgGy!$:?rq<Esc><Tab><S-Tab><Up><Down><Left><Right><PgUp><Home><Enter>"
                .split_inclusive('>')
            {
                press(&mut state, key);
                text(&state);
            }
        }
    }
}
