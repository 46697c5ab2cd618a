//! The terminal is given back exactly once, as it was, on every way out: `vlash watch` in a pseudo-terminal.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::pty::OpenptyResult;
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::{LocalFlags, SetArg, tcsetattr};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use terminal::{ENTER, LEAVE, Session, terminal, wait_until};

#[path = "support/terminal.rs"]
mod terminal;

/// `vlash watch` on a terminal of its own.
fn watch(run: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Session {
    let watch = ["watch", run.to_str().unwrap()];
    Session::start(&[&watch[..], arguments].concat(), environment)
}

/// A run directory with a beating heart, as far as its files tell.
fn run_directory() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let run = directory.path().join("bright-owl");
    std::fs::create_dir(&run).unwrap();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
    let status = format!(
        r#"{{"state":"running","name":"bright-owl","step":5,"steps":100,"heartbeat":{now},"started":{now},"pid":1,"host":"elsewhere"}}"#
    );
    std::fs::write(run.join("status.json"), status).unwrap();
    (directory, run)
}

#[test]
fn leaving_by_key() {
    let (_keep, run) = run_directory();
    let mut session = watch(&run, &["--mouse"], &[]);
    session.wait_for("bright-owl", 1);
    assert!(!session.modes().local_flags.contains(LocalFlags::ICANON), "the terminal is raw while it is borrowed");
    session.press(b"q");
    assert!(session.wait().success());
    session.assert_restored(1);
    assert_eq!(session.text().matches("\x1b[?1000h").count(), 1);
}

#[test]
fn a_key_steers_the_run_through_its_inbox() {
    let (_keep, run) = run_directory();
    let mut session = watch(&run, &[], &[]);
    session.wait_for("bright-owl", 1);
    session.press(b"C");
    wait_until("a request in the inbox", || {
        std::fs::read_dir(run.join("control")).is_ok_and(|mut entries| {
            entries.any(|entry| entry.unwrap().path().extension().is_some_and(|extension| extension == "json"))
        })
    });
    session.press(b"\x03");
    assert!(session.wait().success());
    session.assert_restored(1);
}

#[test]
fn signals_from_outside() {
    let (_keep, run) = run_directory();
    for signal in [Signal::SIGTERM, Signal::SIGHUP, Signal::SIGINT] {
        let mut session = watch(&run, &[], &[]);
        session.wait_for("bright-owl", 1);
        kill(session.pid(), signal).unwrap();
        assert_eq!(session.wait().code(), Some(128 + signal as i32), "{signal}");
        session.assert_restored(1);
    }
}

#[test]
fn suspension_and_return() {
    let (_keep, run) = run_directory();
    let mut session = watch(&run, &[], &[]);
    for round in 1..=2 {
        session.wait_for("bright-owl", round);
        session.press(b"\x1a");
        let stopped = waitpid(session.pid(), Some(WaitPidFlag::WUNTRACED)).unwrap();
        assert!(matches!(stopped, WaitStatus::Stopped(_, Signal::SIGSTOP)), "{stopped:?}");
        session.wait_for(LEAVE, round);
        assert_eq!(session.modes(), session.before, "the shell gets the terminal as it was");
        kill(session.pid(), Signal::SIGCONT).unwrap();
        session.wait_for(ENTER, round + 1);
    }
    session.wait_for("bright-owl", 3);
    session.press(b"q");
    assert!(session.wait().success());
    session.assert_restored(3);
}

#[test]
fn a_stop_without_notice_and_return() {
    let (_keep, run) = run_directory();
    let mut session = watch(&run, &[], &[]);
    session.wait_for("bright-owl", 1);
    kill(session.pid(), Signal::SIGSTOP).unwrap();
    let stopped = waitpid(session.pid(), Some(WaitPidFlag::WUNTRACED)).unwrap();
    assert!(matches!(stopped, WaitStatus::Stopped(..)), "{stopped:?}");
    // What a shell does when its job stops.
    tcsetattr(&session.terminal, SetArg::TCSANOW, &session.before).unwrap();
    kill(session.pid(), Signal::SIGCONT).unwrap();
    session.wait_for("bright-owl", 2);
    assert!(!session.modes().local_flags.contains(LocalFlags::ICANON), "the terminal is raw again");
    session.press(b"q");
    assert!(session.wait().success());
    session.assert_restored(2);
}

#[test]
fn panics_in_the_view_in_another_thread_and_before_the_first_frame() {
    let (_keep, run) = run_directory();
    for place in ["view", "source", "start"] {
        let mut session = watch(&run, &[], &[("VLASH_TEST_PANIC", place)]);
        assert_eq!(session.wait().code(), Some(70), "{place}: {:?}", session.text());
        session.assert_restored(1);
        let text = session.text();
        let message = &text[text.rfind(LEAVE).unwrap()..];
        assert!(message.contains("vlash: internal error at ") && message.contains(place), "{message}");
        assert!(message.contains("Your runs are not affected."), "{message}");
        let reports: Vec<_> = std::fs::read_dir(session.state.path().join("vlash")).unwrap().flatten().collect();
        assert_eq!(reports.len(), 1);
        assert!(message.contains(&reports[0].path().display().to_string()), "{message}");
        let report = std::fs::read_to_string(reports[0].path()).unwrap();
        assert!(report.contains(&format!("rehearsed at {place}")), "{report}");
    }
}

#[test]
fn a_terminal_that_closes() {
    let (_keep, run) = run_directory();
    let OpenptyResult { master, slave } = terminal();
    let end = || Stdio::from(slave.try_clone().unwrap());
    let mut child = Command::new(env!("CARGO_BIN_EXE_vlash"))
        .arg("watch")
        .arg(&run)
        .env_clear()
        .env("TERM", "xterm")
        .stdin(end())
        .stdout(end())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    drop(slave);
    let mut reader = File::from(master);
    reader.read_exact(&mut [0]).unwrap();
    drop(reader);
    let mut code = None;
    wait_until("the end of a watcher without a terminal", || {
        code = child.try_wait().unwrap().map(|status| status.code());
        code.is_some()
    });
    assert_eq!(code, Some(Some(69)));
}

#[test]
fn without_a_terminal_lines_follow_and_the_reason_is_told() {
    let (_keep, run) = run_directory();
    let finished = std::fs::read_to_string(run.join("status.json")).unwrap().replace("running", "finished");
    std::fs::write(run.join("status.json"), finished).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_vlash")).arg("watch").arg(&run).output().unwrap();
    assert!(output.status.success());
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(err.contains("is not a terminal: plain lines follow (as with --plain)"), "{err}");
    assert!(out.contains("bright-owl is finished") && !out.contains('\x1b'), "{out}");
}

#[test]
fn a_mistyped_option_and_a_directory_that_is_no_run_leave_the_terminal_alone() {
    let directory = tempfile::tempdir().unwrap();
    for (arguments, message) in [(&[][..], "it holds none of run.json"), (&["--glyps"][..], "--glyphs")] {
        let mut session = watch(directory.path(), arguments, &[("NO_COLOR", "1")]);
        assert_eq!(session.wait().code(), Some(64));
        let text = session.text();
        assert!(text.contains(message) && !text.contains("\x1b[?"), "{text:?}");
        assert_eq!(session.modes(), session.before);
    }
}
