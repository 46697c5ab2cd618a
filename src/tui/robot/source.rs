//! The threads behind the screen: one reads what the rollout tells, from its socket or from its run directory, the other
//! carries orders.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::RobotSource;
use super::courier::{Courier, Line};
use super::lines::{Item, Lines};
use super::orders::Delivery;
use crate::track;
use crate::track::telemetry::{Message, SOCKET_FILE, Steer, TELEMETRY_FILE};
use crate::tui::{crash, process};

/// How long a connection may take to come about, and until it says the first word.
const CONNECT: Duration = Duration::from_secs(1);
const GREETING: Duration = Duration::from_secs(3);
/// How often a reading thread looks whether it is still wanted.
const LOOK: Duration = Duration::from_millis(250);
/// A write that takes longer is no way for a stop.
const WRITE: Duration = Duration::from_millis(300);
/// Waits between attempts to connect.
const BACK_OFF: [Duration; 4] =
    [Duration::from_millis(250), Duration::from_millis(500), Duration::from_secs(1), Duration::from_secs(2)];
/// Most bytes of the file in one look, and most messages in one portion.
const MAX_READ: u64 = 1 << 20;

/// What the threads tell.
#[derive(Debug)]
pub enum Data {
    Items(Vec<Item>),
    Link(Link),
    /// The fate of an order.
    Delivered {
        ticket: u64,
        delivery: Delivery,
    },
}

/// How the rollout is heard at the moment.
#[derive(Debug, Clone, PartialEq)]
pub enum Link {
    Connecting,
    /// To this address.
    Connected(String),
    /// Why not, and seconds until the next attempt; whether the file in the run directory is followed meanwhile.
    Down {
        reason: String,
        retry_s: f64,
        file: bool,
    },
    /// Everything there is has been read.
    Finished,
    /// Its process is not on this host any more and left no word.
    Gone {
        pid: u32,
    },
}

/// An order for the courier.
struct Errand {
    ticket: u64,
    steer: Steer,
    every: bool,
}

/// The way to the threads. They end when this is dropped.
#[derive(Debug)]
pub struct Source {
    errands: mpsc::Sender<Errand>,
    stop: Arc<AtomicBool>,
}

impl Source {
    /// Starts the threads. `emit` passes data on and returns false when nobody listens any more.
    pub fn spawn(source: &RobotSource, emit: impl Fn(Data) -> bool + Send + Clone + 'static) -> io::Result<Source> {
        let (errands, inbox) = mpsc::channel::<Errand>();
        let stop = Arc::new(AtomicBool::new(false));
        let line = Line::default();
        let run_dir = match source {
            RobotSource::Socket(_) => None,
            RobotSource::Directory(path) => Some(path.clone()),
        };
        let mut courier = Courier::new(line.clone(), run_dir);
        let tell = emit.clone();
        std::thread::Builder::new().name("robot-orders".into()).spawn(move || {
            for Errand { ticket, steer, every } in inbox {
                let delivery = courier.deliver(&steer, every);
                if steer != Steer::Heartbeat && !tell(Data::Delivered { ticket, delivery }) {
                    return;
                }
            }
        })?;
        let listener = Listener {
            source: source.clone(),
            line,
            stop: stop.clone(),
            emit: Box::new(emit),
            process: RefCell::default(),
            here: track::host(),
        };
        std::thread::Builder::new().name("robot-reader".into()).spawn(move || listener.run())?;
        Ok(Source { errands, stop })
    }

    /// Sends an order without waiting; by `every` way there is, or by the best.
    pub fn order(&self, ticket: u64, steer: Steer, every: bool) {
        // The thread can only be gone after a panic, which is reported on its own.
        let _ = self.errands.send(Errand { ticket, steer, every });
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

struct Listener {
    source: RobotSource,
    line: Line,
    stop: Arc<AtomicBool>,
    emit: Box<dyn Fn(Data) -> bool + Send>,
    /// Number and host, as the rollout said.
    process: RefCell<Option<(u32, String)>>,
    here: String,
}

/// Nobody listens any more, or there is nothing more to say.
struct Over;

impl Listener {
    fn run(self) {
        // `Over` is how it ends, not a failure.
        let _ = self.listen();
        self.line.set(None);
    }

    fn listen(&self) -> Result<(), Over> {
        let mut file = match &self.source {
            RobotSource::Directory(run_dir) => Some(Follower::new(run_dir)),
            RobotSource::Socket(_) => None,
        };
        let mut failures = 0usize;
        loop {
            crash::rehearse("source");
            let reason = match self.address() {
                Ok(address) => {
                    self.tell(Data::Link(Link::Connecting))?;
                    match self.converse(&address, file.as_mut())? {
                        Conversation::Refused(reason) => reason,
                        Conversation::Broken(reason) => {
                            failures = 0;
                            reason
                        }
                    }
                }
                Err(reason) => reason,
            };
            self.mourn(file.as_mut())?;
            let wait = BACK_OFF.get(failures).copied().unwrap_or(Duration::from_secs(2));
            failures += 1;
            let retry_s = wait.as_secs_f64();
            self.tell(Data::Link(Link::Down { reason, retry_s, file: file.as_ref().is_some_and(Follower::is_there) }))?;
            self.pass(wait, file.as_mut())?;
        }
    }

    /// The end of listening when the rollout's process is known to be dead, after its last words.
    fn mourn(&self, file: Option<&mut Follower>) -> Result<(), Over> {
        let known = self.process.borrow().clone();
        let dead = known.filter(|(pid, host)| process::is_alive(*pid, host, &self.here) == Some(false));
        let Some((pid, _)) = dead else { return Ok(()) };
        self.pass(Duration::ZERO, file)?;
        self.tell(Data::Link(Link::Gone { pid }))?;
        Err(Over)
    }

    fn tell(&self, data: Data) -> Result<(), Over> {
        if self.stop.load(Ordering::Relaxed) || !(self.emit)(data) { Err(Over) } else { Ok(()) }
    }

    fn address(&self) -> Result<String, String> {
        match &self.source {
            RobotSource::Socket(address) => Ok(address.clone()),
            RobotSource::Directory(run_dir) => {
                let path = run_dir.join(SOCKET_FILE);
                let text = std::fs::read_to_string(&path).map_err(|_| format!("no {SOCKET_FILE} yet"))?;
                let address = text.trim();
                if address.is_empty() || address.len() > 300 {
                    return Err(format!("{SOCKET_FILE} holds no host:port"));
                }
                Ok(address.to_owned())
            }
        }
    }

    /// Waits for the next attempt, reading the file meanwhile.
    fn pass(&self, wait: Duration, mut file: Option<&mut Follower>) -> Result<(), Over> {
        let until = Instant::now() + wait;
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return Err(Over);
            }
            let mut more = false;
            if let Some(file) = file.as_deref_mut() {
                let (items, unfinished) = file.look();
                more = unfinished;
                self.pass_on(items)?;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() && !more {
                return Ok(());
            }
            if !more {
                std::thread::sleep(left.min(LOOK));
            }
        }
    }

    /// Passes items on; the end of the rollout is the end of listening.
    fn pass_on(&self, items: Vec<Item>) -> Result<(), Over> {
        if let Some(Item::Message(Message::Hello(hello))) = items.iter().rfind(|item| is_hello(item)) {
            self.process.replace(Some((hello.pid, hello.host.clone())));
        }
        let ended = items.iter().any(|item| matches!(item, Item::Message(Message::Ended { .. })));
        if !items.is_empty() {
            self.tell(Data::Items(items))?;
        }
        if ended {
            self.line.set(None);
            self.tell(Data::Link(Link::Finished))?;
            return Err(Over);
        }
        Ok(())
    }

    fn converse(&self, address: &str, file: Option<&mut Follower>) -> Result<Conversation, Over> {
        let mut stream = match connect(address) {
            Ok(stream) => stream,
            Err(error) => return Ok(Conversation::Refused(format!("{address}: {error}"))),
        };
        let mut lines = Lines::default();
        let mut greeted = false;
        let begun = Instant::now();
        let mut bytes = vec![0; 64 << 10];
        let reason = loop {
            if self.stop.load(Ordering::Relaxed) {
                return Err(Over);
            }
            match stream.read(&mut bytes) {
                Ok(0) => break "closed by the robot's side".to_owned(),
                Ok(count) => {
                    let mut items = Vec::new();
                    lines.push(bytes.get(..count).unwrap_or_default(), |item| items.push(item));
                    if !greeted && !items.is_empty() {
                        // Some other program may listen there by now: it gets no orders.
                        if !items.first().is_some_and(is_hello) {
                            return Ok(Conversation::Refused(format!("{address} does not greet like a rollout")));
                        }
                        greeted = true;
                        self.line.set(stream.try_clone().ok());
                        self.tell(Data::Link(Link::Connected(address.to_owned())))?;
                    }
                    self.pass_on(items)?;
                }
                Err(error) if is_timeout(&error) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break error.to_string(),
            }
            if !greeted && begun.elapsed() > GREETING {
                return Ok(Conversation::Refused(format!("{address} says nothing")));
            }
        };
        self.line.set(None);
        if let Some(file) = file.filter(|_| greeted) {
            file.skip_to_recent();
        }
        let reason = format!("{address}: {reason}");
        Ok(if greeted { Conversation::Broken(reason) } else { Conversation::Refused(reason) })
    }
}

fn is_hello(item: &Item) -> bool {
    matches!(item, Item::Message(Message::Hello(_)))
}

enum Conversation {
    /// It did not come about.
    Refused(String),
    /// It ended.
    Broken(String),
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

fn connect(address: &str) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for place in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&place, CONNECT) {
            Ok(stream) => {
                stream.set_read_timeout(Some(LOOK))?;
                stream.set_write_timeout(Some(WRITE))?;
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Reads `telemetry.jsonl` as it grows.
#[derive(Debug)]
struct Follower {
    path: PathBuf,
    offset: u64,
    lines: Lines,
}

impl Follower {
    fn new(run_dir: &Path) -> Follower {
        Follower { path: run_dir.join(TELEMETRY_FILE), offset: 0, lines: Lines::default() }
    }

    fn is_there(&self) -> bool {
        self.path.exists()
    }

    /// What was not read yet, in portions; whether there is more.
    fn look(&mut self) -> (Vec<Item>, bool) {
        let mut items = Vec::new();
        // A file that cannot be read now is looked at again; the link says what is missing.
        let more = self.read(&mut items).unwrap_or(false);
        (items, more)
    }

    fn read(&mut self, items: &mut Vec<Item>) -> io::Result<bool> {
        // Opened anew each time: that is what makes a network file system look for fresh content.
        let mut file = File::open(&self.path)?;
        let length = file.metadata()?.len();
        if length < self.offset {
            (self.offset, self.lines) = (0, Lines::default());
        }
        file.seek(SeekFrom::Start(self.offset))?;
        let mut bytes = Vec::new();
        file.take(MAX_READ).read_to_end(&mut bytes)?;
        self.offset += bytes.len() as u64;
        self.lines.push(&bytes, |item| items.push(item));
        Ok(self.offset < length)
    }

    /// After a conversation only the newest lines can be news; what is known already is taken twice without harm.
    fn skip_to_recent(&mut self) {
        let length = std::fs::metadata(&self.path).map_or(0, |m| m.len());
        let recent = length.saturating_sub(MAX_READ);
        if recent > self.offset {
            (self.offset, self.lines) = (recent, Lines::within_a_line());
        }
    }
}

#[cfg(test)]
#[path = "source_tests.rs"]
mod tests;
