//! A recorded run told in lines, with a clock of its own.

use super::*;
use crate::track::event::{Body, Outcome};
use crate::track::status::State as RunState;
use crate::tui::testing::{NOON, beat, happen, metrics, running};

#[test]
fn a_run_is_told_once_and_again_only_when_something_changed() {
    let mut state = running(80, 24);
    let mut plain = Plain::default();
    assert_eq!(
        plain.lines(&state),
        [
            "12:00:00 bright-owl is running on h3, process 4123, step 12400 of 30000",
            "12:00:00 step 12400 of 30000: loss 0.297, down 3 % over 500 steps, lr 1.27e-5, 49.6 samples/s, 5h 12m left",
            "12:00:00 validation at step 12000: loss 0.330, zero velocity 1.21",
        ]
    );
    assert!(plain.lines(&state).is_empty());

    state.tick(NOON + 3.0);
    happen(&mut state, Body::Step(metrics(12_410)));
    assert!(plain.lines(&state).is_empty(), "progress comes at most every ten seconds");
    state.tick(NOON + 12.0);
    assert_eq!(plain.lines(&state).len(), 1);

    state.tick(NOON + 45.0);
    assert_eq!(plain.lines(&state), ["12:00:45 ~ stale 45 s"]);
    assert!(plain.lines(&state).is_empty());
    beat(&mut state, RunState::Running);
    assert_eq!(plain.lines(&state), ["12:00:45 signs of life again"]);

    let checkpoint = Some("checkpoints/012410".into());
    happen(&mut state, Body::Ended { step: 12_410, outcome: Outcome::Stopped, detail: "SIGTERM".into(), checkpoint });
    let lines = plain.lines(&state);
    assert_eq!(lines[0], "12:00:45 bright-owl is stopped on h3, process 4123, step 12410 of 30000");
    assert!(lines[1].contains("last checkpoint checkpoints/012410; next: the same vlash train command"), "{lines:?}");
}

#[test]
fn a_finished_directory_is_told_and_left() {
    let run_dir = tempfile::tempdir().unwrap();
    let lines: String =
        crate::tui::testing::events().iter().map(|event| serde_json::to_string(event).unwrap() + "\n").collect();
    std::fs::write(run_dir.path().join("events.jsonl"), lines).unwrap();
    let status = crate::tui::testing::status(RunState::Finished, NOON);
    std::fs::write(run_dir.path().join("status.json"), serde_json::to_vec(&status).unwrap()).unwrap();
    let mut out = Vec::new();
    let capability = Capability::detect(Default::default(), Default::default(), &|_| None);
    let exit = run(run_dir.path(), &Options { plain: true, ..Options::default() }, &capability, &mut out).unwrap();
    assert_eq!(exit, Exit::Ended(Outcome::Finished));
    let text = String::from_utf8(out).unwrap();
    assert!(text.contains("bright-owl is finished") && text.contains("vlash policy info"), "{text}");
}

#[test]
fn a_closed_pipe_ends_quietly() {
    struct Closed;
    impl Write for Closed {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let run_dir = tempfile::tempdir().unwrap();
    let capability = Capability::detect(Default::default(), Default::default(), &|_| None);
    let exit = run(run_dir.path(), &Options { owned: true, ..Options::default() }, &capability, &mut Closed).unwrap();
    assert_eq!(exit, Exit::Left);
}
