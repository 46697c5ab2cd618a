//! A rollout told in lines, with a clock of its own.

use super::*;
use crate::track::event::Level;
use crate::track::telemetry::{ArmState, Message, Status};
use crate::tui::robot::testing::{NOON, after, event, hear, rollout, settings, status};

#[test]
fn a_rollout_is_told_once_and_again_only_when_something_changed() {
    let mut state = after(702, 80, 24);
    let mut plain = Plain::default();
    let first = plain.lines(&state);
    assert_eq!(
        first[..6],
        [
            "12:00:00 the robot is heard",
            "12:00:00 piper-left is ARMED, mode vlash",
            "12:00:00 task: carrying the ball",
            "12:00:00 2.0 s   armed by operator",
            "12:00:00 12.0 s   mode vlash from chunk 12 on",
            "12:00:00 25.3 s ! missed 1 control tick: 35.4 ms",
        ]
    );
    assert!(first[6].contains("latency p50 sync 1") && first[6].contains("held 60, continued 3, late 1"), "{first:?}");
    assert!(plain.lines(&state).is_empty());
    hear(&mut state, event(710, Level::Info, "chunk 30 late by 2 steps"));
    assert_eq!(plain.lines(&state), ["12:00:00 25.7 s   chunk 30 late by 2 steps"]);
    let holding = Status { arm: ArmState::Holding, reason: Some("operator".into()), ..status(720) };
    hear(&mut state, Message::Status(holding));
    assert_eq!(plain.lines(&state), ["12:00:00 piper-left is HOLDING (operator), mode vlash"]);
    state.tick(NOON + 4.0);
    assert_eq!(plain.lines(&state)[0], "12:00:04 x LINK LOST 4 s");
    hear(&mut state, Message::Ended { time: 30.0, outcome: "stopped".into(), report: Some("report.md".into()) });
    let lines = plain.lines(&state);
    assert_eq!(lines.last().unwrap(), "12:00:04 ended: stopped; report: report.md");
}

#[test]
fn a_finished_directory_is_told_and_left() {
    let run_dir = tempfile::tempdir().unwrap();
    let mut messages = rollout(60);
    messages.push(Message::Ended { time: 9.0, outcome: "placed".into(), report: None });
    let lines: String = messages.iter().map(|m| serde_json::to_string(m).unwrap() + "\n").collect();
    std::fs::write(run_dir.path().join("telemetry.jsonl"), lines).unwrap();
    let mut out = Vec::new();
    let exit = run(&RobotSource::Directory(run_dir.path().into()), settings(), &mut out).unwrap();
    assert_eq!(exit, Exit::Ended(Outcome::Finished));
    let text = String::from_utf8(out).unwrap();
    assert!(text.contains("armed by operator") && text.contains("ended: placed"), "{text}");
}
