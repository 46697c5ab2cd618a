//! The threads against a rollout that is only a socket or a file.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};

use super::*;
use crate::track::telemetry::Hello;
use crate::tui::robot::action::Effect;
use crate::tui::robot::state::{Liveness, State};
use crate::tui::robot::testing::{hello, rollout, running, status};
use crate::tui::testing::events_of;

fn start(source: &RobotSource) -> (Source, Receiver<Data>) {
    let (sender, receiver) = channel();
    (Source::spawn(source, move |data| sender.send(data).is_ok()).unwrap(), receiver)
}

fn say(stream: &mut TcpStream, message: &Message) {
    stream.write_all(format!("{}\n", serde_json::to_string(message).unwrap()).as_bytes()).unwrap();
}

/// Waits for data that `wanted` recognises.
fn wait<T>(receiver: &Receiver<Data>, mut wanted: impl FnMut(&Data) -> Option<T>) -> T {
    let patience = Duration::from_secs(20);
    loop {
        let data = receiver.recv_timeout(patience).expect("the threads say what happens");
        if let Some(found) = wanted(&data) {
            return found;
        }
    }
}

fn connected(data: &Data) -> Option<()> {
    matches!(data, Data::Link(Link::Connected(_))).then_some(())
}

fn finished(data: &Data) -> Option<()> {
    matches!(data, Data::Link(Link::Finished)).then_some(())
}

#[test]
fn space_and_e_reach_the_robot_under_every_layer() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (source, receiver) = start(&RobotSource::Socket(listener.local_addr().unwrap().to_string()));
    let (mut server, _) = listener.accept().unwrap();
    say(&mut server, &Message::Hello(hello()));
    wait(&receiver, connected);
    let mut heard = BufReader::new(server.try_clone().unwrap()).lines();
    for layer in ["", "?", "?arm", ":", ":st<Down>", "A", "Api", "S", "$", "!", "q", "f"] {
        let mut state = running(80, 24);
        state.settings.owned = true;
        events_of(layer).iter().for_each(|event| drop(state.key(event)));
        for key in events_of("    EEE") {
            for effect in state.key(&key) {
                let Effect::Order { ticket, steer, every } = effect else { panic!("{effect:?} under {layer:?}") };
                source.order(ticket, steer, every);
            }
        }
        let lines: Vec<String> = heard.by_ref().take(7).map(|line| line.unwrap()).collect();
        let (hold, estop) = (r#"{"steer":"hold"}"#, r#"{"steer":"emergency_stop"}"#);
        assert_eq!(lines, [hold, hold, hold, hold, estop, estop, estop], "under {layer:?}");
        // And the screen says by which way they went.
        while state.orders.iter().any(|o| o.delivery.sent.is_empty()) {
            state.data(receiver.recv_timeout(Duration::from_secs(20)).unwrap());
        }
        assert!(state.orders.iter().all(|o| o.describe(state.now).starts_with("sent by the socket")));
    }
}

#[test]
fn a_broken_connection_is_told_and_made_again() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (_source, receiver) = start(&RobotSource::Socket(listener.local_addr().unwrap().to_string()));
    for _ in 0..2 {
        let (mut server, _) = listener.accept().unwrap();
        say(&mut server, &Message::Hello(hello()));
        wait(&receiver, connected);
        drop(server);
        let file = wait(&receiver, |data| match data {
            Data::Link(Link::Down { file, .. }) => Some(*file),
            _ => None,
        });
        assert!(!file);
    }
    let (mut server, _) = listener.accept().unwrap();
    say(&mut server, &Message::Hello(hello()));
    say(&mut server, &Message::Ended { time: 9.0, outcome: "stopped".into(), report: None });
    wait(&receiver, finished);
}

#[test]
fn who_does_not_greet_gets_no_orders() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (source, receiver) = start(&RobotSource::Socket(listener.local_addr().unwrap().to_string()));
    let (mut stranger, _) = listener.accept().unwrap();
    stranger.write_all(b"SSH-2.0-OpenSSH\n").unwrap();
    let reason = wait(&receiver, |data| match data {
        Data::Link(Link::Down { reason, .. }) => Some(reason.clone()),
        _ => None,
    });
    assert!(reason.contains("does not greet like a rollout"), "{reason}");
    source.order(7, Steer::Hold, true);
    let delivery = wait(&receiver, |data| match data {
        Data::Delivered { ticket: 7, delivery } => Some(delivery.clone()),
        _ => None,
    });
    assert!(delivery.sent.is_empty(), "{delivery:?}");
}

#[test]
fn an_ended_rollout_is_read_from_its_file_whatever_its_socket_file_says() {
    let run = tempfile::tempdir().unwrap();
    let mut messages = rollout(40);
    messages.push(Message::Ended { time: 99.0, outcome: "placed".into(), report: Some("report.md".into()) });
    let lines: String = messages.iter().map(|m| serde_json::to_string(m).unwrap() + "\n").collect();
    std::fs::write(run.path().join(TELEMETRY_FILE), lines).unwrap();
    // A port at which nobody listens any more.
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    std::fs::write(run.path().join(SOCKET_FILE), gone.to_string()).unwrap();
    let (_source, receiver) = start(&RobotSource::Directory(run.path().into()));
    let mut state = State::new(crate::tui::robot::testing::settings(), 0.0, Default::default());
    for data in receiver.iter() {
        let over = finished(&data).is_some();
        state.data(data);
        if over {
            break;
        }
    }
    assert_eq!(state.live.ended.as_ref().map(|e| e.outcome.as_str()), Some("placed"));
    assert_eq!(state.live.tick_at(f64::INFINITY).map(|t| t.tick), Some(39));
}

#[test]
fn the_file_goes_on_where_the_socket_cannot_be_reached_and_orders_go_by_file() {
    let run = tempfile::tempdir().unwrap();
    let path = run.path().join(TELEMETRY_FILE);
    std::fs::write(&path, format!("{}\n", serde_json::to_string(&Message::Hello(hello())).unwrap())).unwrap();
    let (source, receiver) = start(&RobotSource::Directory(run.path().into()));
    let greeted = |data: &Data| matches!(data, Data::Items(items) if !items.is_empty()).then_some(());
    wait(&receiver, greeted);
    let mut file = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
    let line = serde_json::to_string(&Message::Status(status(3))).unwrap();
    let (first, rest) = line.split_at(20);
    file.write_all(first.as_bytes()).unwrap();
    file.write_all(format!("{rest}\n").as_bytes()).unwrap();
    wait(&receiver, greeted);
    source.order(1, Steer::EmergencyStop, true);
    let delivery = wait(&receiver, |data| match data {
        Data::Delivered { delivery, .. } => Some(delivery.clone()),
        _ => None,
    });
    assert_eq!(delivery.sent, ["a file in control/"]);
    let orders = crate::track::steering::take(run.path());
    assert_eq!(orders.into_iter().map(|o| o.unwrap().steer).collect::<Vec<_>>(), [Steer::EmergencyStop]);
}

/// Killed, crashed, out of memory: a dead process is not "silent for two seconds" and takes no orders.
#[test]
fn a_dead_process_is_told_at_once_after_its_last_words() {
    let mut child = std::process::Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    let run = tempfile::tempdir().unwrap();
    let greeting = Message::Hello(Hello { pid: child.id(), host: crate::track::host(), ..hello() });
    let messages = [greeting.clone(), Message::Status(status(3))];
    let lines: String = messages.iter().map(|m| serde_json::to_string(m).unwrap() + "\n").collect();
    std::fs::write(run.path().join(TELEMETRY_FILE), lines).unwrap();
    let (_source, receiver) = start(&RobotSource::Directory(run.path().into()));
    let mut state = State::new(crate::tui::robot::testing::settings(), 0.0, Default::default());
    let gone = |data: &Data| matches!(data, Data::Link(Link::Gone { pid }) if *pid == child.id()).then_some(());
    for data in receiver.iter() {
        let over = gone(&data).is_some();
        state.data(data);
        if over {
            break;
        }
    }
    assert_eq!((state.liveness(), state.newest().map(|s| s.ticks)), (Liveness::Gone, Some(3)));

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (_source, receiver) = start(&RobotSource::Socket(listener.local_addr().unwrap().to_string()));
    let (mut server, _) = listener.accept().unwrap();
    say(&mut server, &greeting);
    drop(server);
    wait(&receiver, gone);
}
