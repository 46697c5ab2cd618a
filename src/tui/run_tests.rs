//! Updates in, knowledge out.

use super::*;

fn status(state: RunState, heartbeat: f64) -> Status {
    Status {
        state,
        name: "bright-owl".into(),
        step: 10,
        steps: 100,
        heartbeat,
        started: 0.0,
        pid: 42,
        host: "h1".into(),
        loss: None,
        lr: None,
        samples_per_s: None,
        eta_s: None,
        checkpoint: Some("checkpoints/000010".into()),
        doing: None,
    }
}

fn look(status: Option<Status>, events: Vec<Body>) -> Update {
    let events = events.into_iter().map(|body| Event { time: 50.0, body }).collect();
    Update { status, events, progress: 1.0, ..Update::default() }
}

fn step(step: u64, loss: f64) -> Body {
    Body::Step(StepMetrics { step, loss, step_s: 2.0, ..Default::default() })
}

fn started(step: u64) -> Body {
    Body::Started { step, steps: 100, pid: 1, host: "h".into(), version: "0.1.0".into(), resumed_from: None }
}

#[test]
fn an_age_is_counted_on_our_clock_once_the_heart_was_seen_to_beat() {
    let mut run = Run::new(0.0);
    assert_eq!(run.liveness(0.0), Liveness::Waiting);
    // The run's clock is an hour behind ours.
    run.apply(look(Some(status(RunState::Running, 1000.0)), vec![]), 4600.0);
    assert!(matches!(run.liveness(4600.0), Liveness::Silent(_)));
    run.apply(look(Some(status(RunState::Running, 1002.0)), vec![]), 4602.0);
    assert_eq!(run.liveness(4604.0), Liveness::Alive(2.0));
    assert_eq!(run.liveness(4647.0), Liveness::Stale(45.0));
    assert_eq!(run.liveness(5302.0), Liveness::Silent(700.0));
    run.process_alive = Some(false);
    assert_eq!(run.liveness(5302.0), Liveness::Vanished);
    run.apply(look(Some(status(RunState::Finished, 1003.0)), vec![]), 5303.0);
    assert_eq!(run.liveness(9999.0), Liveness::Ended);
}

#[test]
fn a_resumed_run_is_no_longer_ended_and_forgets_the_steps_it_repeats() {
    let mut run = Run::new(0.0);
    let ended =
        Body::Ended { step: 3, outcome: Outcome::Stopped, detail: "SIGTERM".into(), checkpoint: Some("c2".into()) };
    run.apply(look(None, vec![started(0), step(1, 3.0), step(2, 2.0), step(3, 1.0), ended]), 60.0);
    assert_eq!((run.word(), run.last_checkpoint().as_deref()), ("STOPPED", Some("c2")));
    run.apply(look(Some(status(RunState::Running, 1.0)), vec![started(2), step(3, 1.5)]), 61.0);
    assert_eq!(run.word(), "RUNNING");
    let steps: Vec<u64> = run.loss.full().iter().map(|b| b.start).collect();
    assert_eq!((steps, run.loss.last().unwrap().value), (vec![1, 2, 3], 1.5));
}

#[test]
fn history_raises_no_notifications_but_news_do() {
    let mut run = Run::new(0.0);
    let notice = |text: &str| Body::Notice { level: Level::Error, text: text.into() };
    run.apply(look(None, vec![notice("old")]), 56.0);
    // A run whose clock is behind ours makes news all the same.
    run.apply(look(None, vec![notice("new")]), 57.0);
    let seen: Vec<bool> = run.notifications.iter().map(|n| n.seen).collect();
    assert_eq!(seen, [true, false]);
}

#[test]
fn the_first_non_finite_loss_is_told_once_with_its_step() {
    let mut run = Run::new(0.0);
    run.apply(look(None, vec![step(1, 1.0), step(2, f64::NAN), step(3, f64::NAN)]), 60.0);
    let texts: Vec<&str> = run.notifications.iter().map(|n| n.text.as_str()).collect();
    assert_eq!(texts.len(), 1, "{texts:?}");
    assert!(texts[0].contains("not finite at step 2"));
    assert_eq!(run.loss.last_non_finite(), Some(3));
}

#[test]
fn one_failed_look_is_no_alarm_two_are() {
    let problem = || Update {
        problem: Some(Problem { path: "/r".into(), cause: crate::track::reader::Cause::Gone }),
        ..Update::default()
    };
    let mut run = Run::new(0.0);
    run.apply(problem(), 1.0);
    assert_eq!(run.problem, None);
    run.apply(problem(), 2.0);
    assert!(run.problem.is_some());
    run.apply(look(None, vec![]), 3.0);
    assert_eq!(run.problem, None);
}

#[test]
fn a_restarted_file_clears_what_was_read_before() {
    let mut run = Run::new(0.0);
    run.apply(look(None, vec![step(1, 1.0), step(2, 1.0)]), 1.0);
    let mut update = look(None, vec![step(1, 9.0)]);
    update.restarted = true;
    run.apply(update, 2.0);
    assert_eq!(run.loss.full().len(), 1);
    assert!(run.notifications.iter().any(|n| n.text.contains("began anew")));
}

#[test]
fn versions_are_compared_by_release() {
    let mut run = Run::new(0.0);
    run.facts.version = Some("0.6.2".into());
    assert_eq!(run.newer_version("0.4.0").as_deref(), Some("0.6.2"));
    assert_eq!(run.newer_version("0.6.0"), None);
    run.facts.version = Some("garbage".into());
    assert_eq!(run.newer_version("0.4.0"), None);
}

#[test]
fn the_time_left_is_what_the_run_says_or_follows_from_the_pace() {
    let mut run = Run::new(0.0);
    assert_eq!(run.eta(), None);
    run.apply(look(Some(status(RunState::Running, 1.0)), vec![step(10, 1.0)]), 1.0);
    assert_eq!(run.eta(), Some(180.0));
    run.apply(look(Some(Status { eta_s: Some(99.0), ..status(RunState::Running, 2.0) }), vec![]), 2.0);
    assert_eq!(run.eta(), Some(99.0));
}
