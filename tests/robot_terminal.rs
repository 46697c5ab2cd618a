//! `vlash run` on a terminal: the stop keys reach the arm whatever lies over the screen, and on every way out the terminal
//! is as it was and says what became of the rollout.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, mkfifo};
use terminal::{LEAVE, PATIENCE, Session, wait_until};
use vlash_forge::track::telemetry::{ArmState, Hello, Message, SOCKET_FILE};

#[path = "support/terminal.rs"]
mod terminal;

/// `vlash run` into `directory`.
fn rollout(directory: &Path, arguments: &[&str]) -> Session {
    let place = format!("run.dir={}", directory.display());
    let cache = concat!(env!("CARGO_TARGET_TMPDIR"), "/cache");
    let base = ["run", "policy.device=cpu", &place];
    Session::start(&[&base[..], arguments].concat(), &[("HOME", cache), ("VLASH_CACHE", cache)])
}

/// What the rollout in `directory` tells from now on.
struct Witness {
    hello: Hello,
    messages: Receiver<Message>,
}

impl Witness {
    fn of(directory: &Path) -> Witness {
        let socket = directory.join(SOCKET_FILE);
        wait_until("the rollout's socket", || socket.exists());
        let address = std::fs::read_to_string(socket).unwrap();
        let stream = TcpStream::connect(address.trim()).unwrap();
        let (sender, messages) = channel();
        std::thread::spawn(move || {
            let lines = BufReader::new(stream).lines().map_while(Result::ok);
            for message in lines.filter_map(|line| serde_json::from_str(&line).ok()) {
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let Message::Hello(hello) = messages.recv_timeout(PATIENCE).unwrap() else { panic!("no greeting") };
        Witness { hello, messages }
    }

    /// Waits until the arm is in `state`.
    fn wait_for(&self, state: ArmState, what: &str) {
        loop {
            let message = self.messages.recv_timeout(Duration::from_secs(10));
            let message = message.unwrap_or_else(|_| panic!("{what}: the arm does not become {state:?}"));
            if matches!(message, Message::Status(status) if status.arm == state) {
                return;
            }
        }
    }
}

#[test]
fn space_and_e_stop_the_arm_under_every_layer_and_a_killed_rollout_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let run = directory.path().join("r");
    let mut session = rollout(&run, &["--seconds", "60", "--episodes", "50"]);
    let witness = Witness::of(&run);
    session.wait_for("ARMED", 1);
    for (title, layer) in [("Help", "?"), ("Command", ":"), ("End the rollout?", "S"), ("Leave", "q")] {
        witness.wait_for(ArmState::Armed, layer);
        session.press(layer.as_bytes());
        session.redrawn(title);
        session.press(b" ");
        witness.wait_for(ArmState::Holding, layer);
        session.press(b"E");
        witness.wait_for(ArmState::EmergencyStopped, layer);
        session.press(b"\x1b");
        // A terminal tells Esc from a sequence by the time that passes.
        std::thread::sleep(Duration::from_millis(100));
        session.press(format!("A{}\r", witness.hello.robot).as_bytes());
    }
    witness.wait_for(ArmState::Armed, "the end");
    kill(Pid::from_raw(i32::try_from(witness.hello.pid).unwrap()), Signal::SIGKILL).unwrap();
    let screen = session.redrawn("x GONE: process");
    assert!(!screen.contains("ARMED") && !screen.contains("SPACE hold"), "{screen}");
    session.press(b"q");
    assert_eq!(session.wait().code(), Some(70));
    session.assert_given_back();
    let text = session.text();
    let after = &text[text.rfind(LEAVE).unwrap()..];
    assert!(after.contains("vlash run was killed from outside (signal 9, SIGKILL)"), "{after}");
}

#[test]
fn the_end_is_told_with_the_place_of_the_report() {
    let directory = tempfile::tempdir().unwrap();
    let run = directory.path().join("r");
    // Slow, so that the task is not done before it is stopped.
    let mut session = rollout(&run, &["--seconds", "60", "control.mode=sync", "control.latency_ms=1500"]);
    Witness::of(&run).wait_for(ArmState::Armed, "the beginning");
    // Before it is drawn the terminal is asked what it can do: only stops are taken from what is typed then.
    session.wait_for("ARMED", 1);
    session.press(b"S");
    session.redrawn("End the rollout?");
    session.press(b"y");
    session.redrawn("report:");
    let screen = session.redrawn("report:");
    assert!(screen.contains("- ended") && !screen.contains("ARMED"), "{screen}");
    session.press(b"q");
    assert_eq!(session.wait().code(), Some(75), "{}", session.text());
    session.assert_given_back();
    let report = run.join("report.md");
    assert!(report.exists() && session.text().contains(&format!("report: {}", report.display())));
    assert!(!run.join("checkpoints").exists(), "a rollout has none");
}

/// Whoever presses Ctrl-C before the screen is there means the rollout: it must not begin to move unseen.
#[test]
fn ctrl_c_while_the_policy_is_loaded_ends_the_rollout() {
    let directory = tempfile::tempdir().unwrap();
    let policy = directory.path().join("policy");
    std::fs::create_dir(&policy).unwrap();
    // Nobody writes into it: loading takes for ever.
    mkfifo(&policy.join("config.json"), Mode::S_IRWXU).unwrap();
    let path = format!("policy.path={}", policy.display());
    let mut session = rollout(&directory.path().join("r"), &[&path]);
    session.wait_for(&format!("loading the policy {}", policy.display()), 1);
    kill(session.pid(), Signal::SIGINT).unwrap();
    session.wait_for("vlash run is asked to end", 1);
    assert!(session.child.try_wait().unwrap().is_none());
    // Sooner it is the first one's echo.
    std::thread::sleep(Duration::from_millis(600));
    kill(session.pid(), Signal::SIGINT).unwrap();
    assert_eq!(session.wait().code(), Some(75), "{}", session.text());
    assert!(!session.text().contains("\x1b[?1049h"), "no screen was opened");
    assert!(!directory.path().join("r").exists());
}
