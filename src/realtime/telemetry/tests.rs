//! Lines reach the file and every client; nobody is waited for.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::mpsc::channel;

use super::*;
use crate::dataset::frame::RgbFrame;
use crate::robot::Frame;
use crate::track::telemetry::Origin;

fn tick(tick: u64) -> Record {
    Record::Tick(TickRecord {
        tick,
        time: Duration::from_millis(33 * tick),
        period: Duration::from_millis(33),
        missed: 0,
        origin: Origin::Fresh,
        action: Some((1, 4)),
        state: Values::of([0.5, 0.25]),
        command: Values::of([0.5, 0.5]),
        clipped: 2,
        image_age: None,
    })
}

fn settings(directory: &Path) -> TelemetrySettings {
    let hello = Hello { robot: "piper_sim".into(), cameras: vec!["front".into()], ..Hello::default() };
    TelemetrySettings { run_dir: Some(directory.to_owned()), listen: None, hello }
}

fn message(line: &str) -> Message {
    serde_json::from_str(line).unwrap()
}

#[test]
fn lines_reach_the_file_and_a_client_and_requests_come_back() {
    let directory = tempfile::tempdir().unwrap();
    let (steer, asked) = channel();
    let telemetry = Telemetry::start(settings(directory.path()), steer).unwrap();
    let address = fs::read_to_string(directory.path().join(SOCKET_FILE)).unwrap();
    let stream = TcpStream::connect(address.trim()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    // Greeted, so connected from here on.
    assert!(matches!(message(&lines.next().unwrap().unwrap()), Message::Hello(hello) if hello.robot == "piper_sim"));
    (&stream).write_all(b"nonsense\n{\"steer\":\"hold\"}\n").unwrap();
    assert_eq!(asked.recv_timeout(Duration::from_secs(20)), Ok(Steer::Hold));

    let image = Arc::new(RgbFrame { height: 2, width: 128, data: vec![10; 768] });
    telemetry.send(Record::Thumbnail(0, Frame { captured: Duration::ZERO, sequence: 1, image }));
    telemetry.send(tick(7));
    let Message::Thumbnail(small) = message(&lines.next().unwrap().unwrap()) else { panic!("no thumbnail") };
    assert_eq!((small.width, small.height, small.camera.as_str()), (64, 1, "front"));
    let Message::Tick(told) = message(&lines.next().unwrap().unwrap()) else { panic!("no tick") };
    assert_eq!((told.tick, told.index, told.command), (7, Some(4), vec![0.5, 0.5]));

    drop(telemetry);
    assert!(!directory.path().join(SOCKET_FILE).exists());
    let file = fs::read_to_string(directory.path().join(TELEMETRY_FILE)).unwrap();
    let kinds: Vec<Message> = file.lines().map(message).collect();
    assert!(matches!(kinds.as_slice(), [Message::Hello(_), Message::Tick(_)]), "{file}");
}

#[test]
fn a_client_that_does_not_read_is_let_go_and_holds_up_nobody() {
    let (steer, _asked) = channel();
    let telemetry = Telemetry::start(TelemetrySettings::default(), steer).unwrap();
    let idle = TcpStream::connect(telemetry.address()).unwrap();
    let mut greeting = String::new();
    BufReader::new(idle.try_clone().unwrap()).read_line(&mut greeting).unwrap();
    // Far more than its queue and the system's buffers take: megabytes.
    let text = "x".repeat(16 << 10);
    let mut sent = 0;
    while telemetry.clients.any() && sent < 20_000 {
        let event = Message::Event { time: 0.0, level: Level::Info, text: text.clone() };
        telemetry.send(Record::Message(event));
        sent += 1;
        if sent % 256 == 0 {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    assert!(!telemetry.clients.any(), "still connected after {sent} lines");
}
