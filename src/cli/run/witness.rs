//! Who follows a rollout in its own process: lines or JSON on standard output; signals and `control/` files that steer it.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;
use std::time::Duration;

use crate::cli::output::tell;
use crate::track::steering;
use crate::track::telemetry::Steer;
use crate::train::signals::StopFlag;
use crate::tui::Options;
use crate::tui::robot::{self, RobotSource};

/// Between two looks for signals and orders.
const INTERVAL: Duration = Duration::from_millis(50);

/// Tells a rollout on standard output until it ends.
pub fn tell_rollout(address: SocketAddr, json: bool) -> JoinHandle<()> {
    std::thread::spawn(move || {
        if json {
            // A reader that has had enough is no failure of the rollout.
            let _ = copy(address, &mut io::stdout().lock());
        } else {
            let options = Options { owned: true, plain: true, read_only: true, ..Options::default() };
            if let Err(error) = robot::run(&RobotSource::Socket(address.to_string()), &options) {
                tell(format_args!("note: the rollout goes on unseen: {error}"));
            }
        }
    })
}

/// Everything but images, as it comes.
fn copy(address: SocketAddr, out: &mut impl Write) -> io::Result<()> {
    for line in BufReader::new(TcpStream::connect(address)?).lines() {
        let line = line?;
        if !line.starts_with(r#"{"kind":"thumbnail""#) {
            writeln!(out, "{line}")?;
        }
    }
    out.flush()
}

/// Passes on what asks for an end from outside: signals, and orders in the run directory.
pub struct Ear {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Ear {
    pub fn open(directory: &Path, stop: StopFlag, steer: Sender<Steer>) -> Ear {
        let over = Arc::new(AtomicBool::new(false));
        let (finished, directory) = (Arc::clone(&over), PathBuf::from(directory));
        let thread = std::thread::spawn(move || {
            let mut asked = false;
            while !finished.load(Ordering::Relaxed) {
                if stop.is_raised() && !asked {
                    asked = true;
                    tell(format_args!("{}: the rollout ends", stop.name()));
                    let _ = steer.send(Steer::Stop);
                }
                for order in steering::take(&directory) {
                    match order {
                        Ok(order) => drop(steer.send(order.steer)),
                        Err(problem) => tell(format_args!("note: {problem}")),
                    }
                }
                std::thread::sleep(INTERVAL);
            }
        });
        Ear { over, thread: Some(thread) }
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
