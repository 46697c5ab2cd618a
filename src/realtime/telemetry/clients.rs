//! Who is connected. Each client has a thread that writes from a bounded queue and one that reads; nobody waits for a
//! client.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::track::telemetry::Steer;

/// Lines that may wait for a client; one that is further behind is disconnected.
const QUEUE: usize = 512;
/// Longer lines of a client are no requests.
const LONGEST_LINE: u64 = 4096;
const SLOWEST_WRITE: Duration = Duration::from_secs(2);
/// Each costs two threads.
const MOST_CLIENTS: usize = 32;

struct Client {
    lines: SyncSender<Arc<str>>,
    stream: TcpStream,
}

/// Everyone connected.
pub(super) struct Clients {
    clients: Mutex<Vec<Client>>,
    closed: AtomicBool,
    address: SocketAddr,
}

impl Clients {
    /// Accepts clients from now on, greets each with `hello`, and passes on what they ask for.
    pub(super) fn listen(
        listener: TcpListener,
        address: SocketAddr,
        hello: Arc<str>,
        steer: Sender<Steer>,
    ) -> std::io::Result<Arc<Clients>> {
        let clients = Arc::new(Clients { clients: Mutex::default(), closed: AtomicBool::new(false), address });
        let accepting = Arc::clone(&clients);
        let accept = move || {
            for stream in listener.incoming() {
                if accepting.closed.load(Ordering::Acquire) {
                    break;
                }
                // A client that is gone already, or no thread for it: the others are served on.
                let _ = stream.and_then(|stream| accepting.admit(stream, &hello, &steer));
            }
        };
        std::thread::Builder::new().name("telemetry-accept".into()).spawn(accept)?;
        Ok(clients)
    }

    fn all(&self) -> MutexGuard<'_, Vec<Client>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn admit(&self, stream: TcpStream, hello: &Arc<str>, steer: &Sender<Steer>) -> std::io::Result<()> {
        if self.all().len() >= MOST_CLIENTS {
            return stream.shutdown(Shutdown::Both);
        }
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(SLOWEST_WRITE))?;
        let (lines, queued) = sync_channel(QUEUE);
        // The queue is empty: there is room.
        let _ = lines.try_send(Arc::clone(hello));
        let (writing, reading) = (stream.try_clone()?, stream.try_clone()?);
        // Before it is greeted: whoever was greeted misses nothing from then on.
        self.all().push(Client { lines, stream });
        std::thread::Builder::new().name("telemetry-client".into()).spawn(move || write(writing, &queued))?;
        let steer = steer.clone();
        std::thread::Builder::new().name("telemetry-steer".into()).spawn(move || read(reading, &steer))?;
        Ok(())
    }

    /// Whether anyone is connected.
    pub(super) fn any(&self) -> bool {
        !self.all().is_empty()
    }

    /// Queues `line` for everyone; who is too far behind, or gone, is disconnected.
    pub(super) fn tell(&self, line: &Arc<str>) {
        self.all().retain(|client| {
            let kept = client.lines.try_send(Arc::clone(line)).is_ok();
            if !kept {
                let _ = client.stream.shutdown(Shutdown::Both);
            }
            kept
        });
    }

    /// Lets queued lines leave and ends every connection; accepts nobody any more.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        // Wakes the thread that accepts.
        drop(TcpStream::connect_timeout(&self.address, Duration::from_millis(200)));
        // With its queue's end a client's thread ends, after the last line.
        self.all().clear();
    }
}

fn write(mut stream: TcpStream, lines: &Receiver<Arc<str>>) {
    for line in lines {
        if stream.write_all(line.as_bytes()).is_err() {
            break;
        }
    }
    let _ = stream.shutdown(Shutdown::Both);
}

/// Requests, a JSON object a line; other lines are passed over.
fn read(stream: TcpStream, steer: &Sender<Steer>) {
    let mut reader = BufReader::new(stream);
    let mut line = Vec::new();
    loop {
        line.clear();
        match reader.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {
                let request = serde_json::from_slice::<Steer>(&line);
                if request.is_ok_and(|request| steer.send(request).is_err()) {
                    return;
                }
            }
        }
    }
}
