//! What a rollout tells while it goes on: lines of [`Message`] to a file and to whoever is connected, [`Steer`] the other
//! way. The loop hands over [`Record`]s through a bounded queue and never waits: what does not fit is dropped and counted.
//!
//! The socket listens on loopback unless told otherwise; from elsewhere it is reached through a tunnel. A client that does
//! not keep up is disconnected.

mod clients;
mod record;
#[cfg(test)]
mod tests;
mod thumbnail;

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use self::clients::Clients;
pub use self::record::{MOST_CAMERAS, Record, StatusRecord, TickRecord, Values};
use crate::error::{Explain, Kind};
use crate::track::event::Level;
use crate::track::telemetry::{Hello, Message, SOCKET_FILE, Status, Steer, TELEMETRY_FILE, Tick};

/// Records that may wait: a minute of ticks.
const QUEUE: usize = 2048;
const FLUSH: Duration = Duration::from_millis(500);

/// Where telemetry goes.
#[derive(Debug, Clone, Default)]
pub struct TelemetrySettings {
    /// Gets `telemetry.jsonl` and `robot.socket`.
    pub run_dir: Option<PathBuf>,
    /// Where to listen; none: a free port on loopback.
    pub listen: Option<SocketAddr>,
    pub hello: Hello,
}

/// Telemetry that cannot begin.
#[derive(Debug, thiserror::Error)]
#[error("telemetry: cannot {attempt} {object}")]
pub struct TelemetryError {
    attempt: &'static str,
    object: String,
    source: std::io::Error,
}

impl Explain for TelemetryError {
    fn kind(&self) -> Kind {
        Kind::Environment
    }
}

/// The queue to the telemetry thread. Dropping it writes out what is queued.
pub struct Telemetry {
    queue: Option<SyncSender<Record>>,
    dropped: Arc<AtomicU64>,
    address: SocketAddr,
    thread: Option<JoinHandle<()>>,
    socket_file: Option<PathBuf>,
    clients: Arc<Clients>,
}

impl Telemetry {
    /// Listens, and starts the thread. What clients ask for goes to `steer`.
    ///
    /// # Errors
    /// The address or the run directory cannot be used.
    pub fn start(settings: TelemetrySettings, steer: Sender<Steer>) -> Result<Telemetry, TelemetryError> {
        let wanted = settings.listen.unwrap_or_else(|| SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        let failed = |attempt, object: String| move |source| TelemetryError { attempt, object, source };
        let listener = TcpListener::bind(wanted).map_err(failed("listen on", wanted.to_string()))?;
        let address = listener.local_addr().map_err(failed("listen on", wanted.to_string()))?;
        let path = |name: &str| settings.run_dir.as_ref().map(|directory| directory.join(name));
        let file = path(TELEMETRY_FILE).map(|path| open(&path)).transpose()?;
        let socket_file = path(SOCKET_FILE);
        if let Some(path) = &socket_file {
            fs::write(path, format!("{address}\n")).map_err(failed("write", path.display().to_string()))?;
        }
        let clients = Clients::listen(listener, address, hello_line(&settings.hello), steer)
            .map_err(failed("serve", address.to_string()))?;
        let (queue, records) = sync_channel(QUEUE);
        let dropped = Arc::new(AtomicU64::new(0));
        let writer = Writer {
            records,
            file,
            clients: Arc::clone(&clients),
            cameras: settings.hello.cameras.clone(),
            dropped: Arc::clone(&dropped),
            told: 0,
            time: 0.0,
            flushed: Instant::now(),
            line: String::new(),
        };
        let hello = Message::Hello(settings.hello);
        let thread = std::thread::Builder::new()
            .name("telemetry".into())
            .spawn(move || writer.run(&hello))
            .map_err(failed("start", "its thread".to_owned()))?;
        Ok(Telemetry { queue: Some(queue), dropped, address, thread: Some(thread), socket_file, clients })
    }

    /// Queues `record`; drops it when the queue is full. Neither waits nor allocates.
    pub fn send(&self, record: Record) {
        let sent = self.queue.as_ref().is_some_and(|queue| queue.try_send(record).is_ok());
        if !sent {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Records that did not fit into the queue.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

impl Drop for Telemetry {
    fn drop(&mut self) {
        self.queue = None;
        // A panic of that thread lost lines, nothing else.
        let _ = self.thread.take().map(JoinHandle::join);
        self.clients.close();
        // Whoever finds the file would try to connect.
        let _ = self.socket_file.take().map(fs::remove_file);
    }
}

fn open(path: &Path) -> Result<BufWriter<File>, TelemetryError> {
    let file = File::create(path);
    file.map(BufWriter::new).map_err(|source| TelemetryError {
        attempt: "write",
        object: path.display().to_string(),
        source,
    })
}

fn hello_line(hello: &Hello) -> Arc<str> {
    line(&Message::Hello(hello.clone())).into()
}

/// `message` as a line, with its end. What JSON cannot say (no message has such a value) is an empty line.
fn line(message: &Message) -> String {
    let mut line = serde_json::to_string(message).unwrap_or_default();
    line.push('\n');
    line
}

/// The telemetry thread.
struct Writer {
    records: Receiver<Record>,
    file: Option<BufWriter<File>>,
    clients: Arc<Clients>,
    cameras: Vec<String>,
    dropped: Arc<AtomicU64>,
    told: u64,
    /// Of the last tick, seconds.
    time: f64,
    flushed: Instant,
    line: String,
}

impl Writer {
    fn run(mut self, hello: &Message) {
        self.line = line(hello);
        self.append();
        loop {
            match self.records.recv_timeout(FLUSH) {
                Ok(record) => self.write(&record),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            self.tell_dropped();
            if self.flushed.elapsed() >= FLUSH {
                self.flush();
            }
        }
        self.flush();
    }

    fn write(&mut self, record: &Record) {
        let (message, kept) = match record {
            Record::Tick(tick) => {
                self.time = tick.time.as_secs_f64();
                (Message::Tick(Tick::from(tick)), true)
            }
            Record::Status(status) => (Message::Status(Status::from(status)), true),
            Record::Thumbnail(camera, frame) => {
                let Some(name) = self.cameras.get(*camera).filter(|_| self.clients.any()) else { return };
                (Message::Thumbnail(thumbnail::of(name, frame)), false)
            }
            Record::Message(message) => (message.clone(), true),
        };
        self.tell(&message, kept);
    }

    fn tell(&mut self, message: &Message, kept: bool) {
        self.line = line(message);
        if kept {
            self.append();
        }
        if self.clients.any() {
            self.clients.tell(&Arc::from(self.line.as_str()));
        }
    }

    fn append(&mut self) {
        let failed = self.file.as_mut().and_then(|file| file.write_all(self.line.as_bytes()).err());
        if let Some(error) = failed {
            self.give_up(&error);
        }
    }

    fn flush(&mut self) {
        self.flushed = Instant::now();
        let failed = self.file.as_mut().and_then(|file| file.flush().err());
        if let Some(error) = failed {
            self.give_up(&error);
        }
    }

    /// A full disk ends the file, not the rollout.
    fn give_up(&mut self, error: &std::io::Error) {
        self.file = None;
        let text = format!("{TELEMETRY_FILE} ends here: {error}");
        let event = Message::Event { time: self.time, level: Level::Warn, text };
        self.clients.tell(&Arc::from(line(&event).as_str()));
    }

    fn tell_dropped(&mut self) {
        let dropped = self.dropped.load(Ordering::Relaxed);
        if dropped > self.told {
            let text = format!("{} telemetry records were dropped: the queue was full", dropped - self.told);
            self.told = dropped;
            self.tell(&Message::Event { time: self.time, level: Level::Warn, text }, true);
        }
    }
}
