//! The way of orders to the robot: a thread of its own, so that neither a slow disk nor a stuck connection keeps the keys
//! from being read.

use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::orders::Delivery;
use crate::track::run_dir::CONTROL;
use crate::track::steering;
use crate::track::telemetry::Steer;

/// The connection that stands now, shared by the thread that reads it and the one that writes it.
#[derive(Debug, Clone, Default)]
pub struct Line(Arc<Mutex<Option<TcpStream>>>);

impl Line {
    fn lock(&self) -> MutexGuard<'_, Option<TcpStream>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn set(&self, stream: Option<TcpStream>) {
        *self.lock() = stream;
    }

    fn write(&self, steer: &Steer) -> Result<(), String> {
        let mut slot = self.lock();
        let Some(stream) = slot.as_mut() else { return Err("the socket is not connected".into()) };
        let mut line = serde_json::to_vec(steer).map_err(|error| error.to_string())?;
        line.push(b'\n');
        let written = stream.write_all(&line);
        if written.is_err() {
            // Half an order may have left: nothing more can be said on this connection.
            let _ = stream.shutdown(Shutdown::Both);
            *slot = None;
        }
        written.map_err(|error| format!("socket: {error}"))
    }
}

/// Carries orders by the connection, and by files in the run directory where there is one.
#[derive(Debug)]
pub struct Courier {
    line: Line,
    run_dir: Option<PathBuf>,
    /// The newest order file of each kind: while the robot has not taken it, another says nothing new.
    waiting: Vec<(Steer, PathBuf)>,
}

impl Courier {
    pub fn new(line: Line, run_dir: Option<PathBuf>) -> Courier {
        Courier { line, run_dir, waiting: Vec::new() }
    }

    /// Sends `steer` by the socket, by a file when that fails, and by both when `every` way is wanted.
    pub fn deliver(&mut self, steer: &Steer, every: bool) -> Delivery {
        let mut delivery = Delivery::default();
        match self.line.write(steer) {
            Ok(()) => delivery.sent.push("the socket".into()),
            Err(reason) => delivery.failed.push(reason),
        }
        // A sign of life by file would outlive the one who gave it.
        if (every || delivery.sent.is_empty()) && *steer != Steer::Heartbeat {
            match self.put(steer) {
                Some(Ok(())) => delivery.sent.push("a file in control/".into()),
                Some(Err(reason)) => delivery.failed.push(reason),
                None => {}
            }
        }
        delivery
    }

    /// None without a run directory.
    fn put(&mut self, steer: &Steer) -> Option<Result<(), String>> {
        let run_dir = self.run_dir.as_ref()?;
        self.waiting.retain(|(_, path)| path.exists());
        if self.waiting.iter().any(|(waiting, _)| waiting == steer) {
            return Some(Ok(()));
        }
        match steering::send(run_dir, steer.clone()) {
            Ok(id) => {
                self.waiting.push((steer.clone(), run_dir.join(CONTROL).join(format!("{id}.json"))));
                Some(Ok(()))
            }
            Err(error) => Some(Err(format!("{error}: {}", error.source))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::net::TcpListener;

    #[test]
    fn the_socket_first_then_the_file_and_every_way_when_asked() {
        let run = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let line = Line::default();
        let mut courier = Courier::new(line.clone(), Some(run.path().into()));
        let taken = || steering::take(run.path()).into_iter().map(|o| o.unwrap().steer).collect::<Vec<_>>();

        let delivery = courier.deliver(&Steer::Hold, false);
        assert_eq!(delivery.sent, ["a file in control/"]);
        assert!(delivery.failed[0].contains("not connected"));
        // A held key while nobody takes the files: one file.
        (0..20).for_each(|_| drop(courier.deliver(&Steer::Hold, false)));
        assert_eq!(courier.deliver(&Steer::Heartbeat, true).sent, [""; 0]);
        assert_eq!(taken(), [Steer::Hold]);

        line.set(Some(TcpStream::connect(listener.local_addr().unwrap()).unwrap()));
        let mut server = BufReader::new(listener.accept().unwrap().0).lines();
        assert_eq!(courier.deliver(&Steer::EmergencyStop, false).sent, ["the socket"]);
        assert_eq!(server.next().unwrap().unwrap(), r#"{"steer":"emergency_stop"}"#);
        assert!(taken().is_empty());
        assert_eq!(courier.deliver(&Steer::EmergencyStop, true).sent, ["the socket", "a file in control/"]);
        assert_eq!(taken(), [Steer::EmergencyStop]);
    }

    #[test]
    fn without_any_way_it_is_said() {
        let delivery = Courier::new(Line::default(), None).deliver(&Steer::Hold, true);
        assert_eq!((delivery.sent.len(), delivery.failed.len()), (0, 1));
    }
}
