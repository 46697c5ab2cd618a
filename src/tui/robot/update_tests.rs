//! Keys in, effects out.

use super::*;
use crate::track::telemetry::{Message, Status};
use crate::tui::robot::source::{Data, Link};
use crate::tui::robot::testing::{NOON, hear, hello, running, status};
use crate::tui::testing::events_of;

fn press(state: &mut State, keys: &str) -> Vec<Effect> {
    events_of(keys).iter().flat_map(|event| state.key(event)).collect()
}

fn steers(effects: &[Effect]) -> Vec<Steer> {
    let steer = |effect: &Effect| match effect {
        Effect::Order { steer, .. } => Some(steer.clone()),
        _ => None,
    };
    effects.iter().filter_map(steer).collect()
}

/// Keys that open each layer of the screen, typing included.
pub const LAYERS: [&str; 10] = ["", "?", "?arm", ":", ":st<Down>", "A", "Api", "S", "$", "!"];

#[test]
fn stops_leave_under_every_layer_and_are_typed_nowhere() {
    for layer in LAYERS.into_iter().chain(["f", "z", "f<Left>:"]) {
        let mut state = running(80, 24);
        hear(&mut state, Message::Status(Status { arm: crate::track::telemetry::ArmState::Holding, ..status(2000) }));
        press(&mut state, layer);
        let effects = press(&mut state, "   EE E");
        let (hold, estop) = (Steer::Hold, Steer::EmergencyStop);
        let wanted =
            [hold.clone(), hold.clone(), hold.clone(), estop.clone(), estop.clone(), hold.clone(), estop.clone()];
        assert_eq!(steers(&effects), wanted, "under {layer:?}");
        let typed = state.overlays.iter_mut().filter_map(Overlay::input).map(|i| i.text.clone()).collect::<String>();
        assert!(!typed.contains([' ', 'E']), "{layer:?} typed {typed:?}");
        // Whoever stops does not go on arming.
        assert!(!state.overlays.iter().any(|o| matches!(o, Overlay::Arm { .. })));
    }
}

#[test]
fn the_owner_s_question_does_not_swallow_a_stop() {
    let mut state = running(80, 24);
    state.settings.owned = true;
    press(&mut state, "q");
    assert_eq!(state.overlays, [Overlay::Quit]);
    assert_eq!(steers(&press(&mut state, " ")), [Steer::Hold]);
    assert_eq!(press(&mut state, "<Enter>"), [Effect::Leave]);
}

#[test]
fn arming_needs_the_name_in_keys_that_do_not_stop() {
    for (robot, typed) in [("piper-left", "piper-left"), ("Arm E 7", "arm-e-7"), ("EVE", "eve")] {
        let mut state = running(80, 24);
        hear(&mut state, Message::Hello(crate::track::telemetry::Hello { robot: robot.into(), ..hello() }));
        hear(&mut state, Message::Status(Status { arm: crate::track::telemetry::ArmState::Holding, ..status(2000) }));
        assert_eq!(press(&mut state, "Awrong<Enter>"), []);
        assert!(matches!(state.overlays.last(), Some(Overlay::Arm { error: Some(_), .. })));
        press(&mut state, "<Esc>");
        let effects = press(&mut state, &format!("A{typed}<Enter>"));
        assert_eq!(steers(&effects), [Steer::Arm { robot: robot.into() }]);
        assert!(state.overlays.is_empty());
    }
    let mut state = running(80, 24);
    assert_eq!(press(&mut state, "A"), []);
    assert!(state.overlays.is_empty(), "an armed arm needs no arming");
}

#[test]
fn modes_recording_and_the_orderly_end() {
    let mut state = running(80, 24);
    assert_eq!(steers(&press(&mut state, "t")), [Steer::Mode { mode: "sync".into() }]);
    hear(&mut state, Message::Status(Status { mode: "rtc".into(), ..status(2000) }));
    hear(&mut state, Message::Status(Status { mode: "sync".into(), recording: true, ..status(2003) }));
    assert_eq!(steers(&press(&mut state, "t")), [Steer::Mode { mode: "rtc".into() }]);
    assert_eq!(steers(&press(&mut state, "m")), [Steer::Record { on: false }]);
    assert_eq!(steers(&press(&mut state, ":modevlash<Enter>")), [Steer::Mode { mode: "vlash".into() }]);
    assert_eq!(steers(&press(&mut state, "Sn")), []);
    assert_eq!(steers(&press(&mut state, "Sy")), [Steer::Stop]);
    assert_eq!(press(&mut state, "q"), [Effect::Leave]);
}

#[test]
fn the_view_freezes_while_the_robot_continues() {
    let mut state = running(80, 24);
    let before = state.live.latest();
    press(&mut state, "f");
    hear(&mut state, Message::Status(status(2000)));
    assert_eq!(state.shown().1, before);
    assert!(state.live.latest() > before);
    press(&mut state, "<Left><Left>");
    assert!((state.shown().1 - (before - 1.0)).abs() < 1e-9);
    (0..500).for_each(|_| drop(press(&mut state, "<Left>")));
    let earliest = state.frozen.as_ref().map(|f| f.history.earliest());
    assert_eq!(Some(state.shown().1), earliest);
    (0..500).for_each(|_| drop(press(&mut state, "<Right>")));
    assert_eq!(state.shown().1, before);
    press(&mut state, "f");
    assert_eq!(state.shown().1, state.live.latest());
}

#[test]
fn a_read_only_session_sends_nothing() {
    let mut state = running(80, 24);
    state.settings.read_only = true;
    assert_eq!(press(&mut state, " EAtmSy"), []);
    assert!(state.fresh_note().is_some_and(|(_, text)| text.contains("read-only")));
}

#[test]
fn without_a_good_link_stops_go_every_way_and_nothing_else_goes() {
    let mut state = running(80, 24);
    let every = |effects: Vec<Effect>| matches!(effects.as_slice(), [Effect::Order { every: true, .. }]);
    assert!(!every(press(&mut state, " ")));
    state.tick(NOON + 3.0);
    assert!(every(press(&mut state, " ")) && every(press(&mut state, "E")));
    assert_eq!(press(&mut state, "t"), []);
    let mut unheard = State::new(crate::tui::robot::testing::settings(), NOON, state.size);
    assert!(every(press(&mut unheard, "E")));
}

#[test]
fn a_broken_connection_is_a_lost_link_and_a_file_that_tells_is_none() {
    let mut state = running(80, 24);
    state.tick(NOON + 0.5);
    state.data(Data::Link(Link::Down { reason: "closed".into(), retry_s: 1.0, file: false }));
    assert!(matches!(state.liveness(), Liveness::Lost(_)));
    state.data(Data::Link(Link::Down { reason: "closed".into(), retry_s: 1.0, file: true }));
    assert!(matches!(state.liveness(), Liveness::Alive(_)));
}

#[test]
fn nobody_takes_orders_once_the_process_is_gone_and_leaving_asks_nothing() {
    let mut state = running(80, 24);
    state.settings.owned = true;
    state.data(Data::Link(Link::Gone { pid: 7 }));
    assert_eq!((state.liveness(), press(&mut state, " EAtmSy")), (Liveness::Gone, Vec::new()));
    assert!(state.fresh_note().is_some_and(|(_, text)| text.contains("use the robot's own stop")));
    assert_eq!(press(&mut state, "q"), [Effect::Leave]);
}

/// What is said for some seconds only has to be taken off the screen when they are over, though nothing arrives any more.
#[test]
fn a_message_that_time_alone_ends_makes_a_new_frame() {
    let mut unheard = State::new(crate::tui::robot::testing::settings(), NOON, ratatui::layout::Size::new(80, 24));
    unheard.notify(Level::Info, "sent".into());
    let changes: Vec<bool> = (1..=11).map(|second| unheard.tick(NOON + f64::from(second))).collect();
    assert_eq!(changes.iter().position(|changed| *changed), Some(9));
    assert_eq!(changes.iter().filter(|changed| **changed).count(), 1);
    let mut state = running(80, 24);
    hear(&mut state, Message::Ended { time: 99.0, outcome: "placed".into(), report: None });
    press(&mut state, " ");
    assert!(super::super::view::message(&state).1.starts_with("ended: placed"));
}
