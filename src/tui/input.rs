//! The threads that listen to keys and to signals.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use crossterm::event::{Event as TerminalEvent, KeyEvent, KeyEventKind, MouseEvent};
use nix::poll::{PollFd, PollFlags, PollTimeout};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGTERM, SIGTSTP, SIGWINCH};
use signal_hook::iterator::{Handle, Signals};

use super::state;

/// Everything that can happen, in one channel; `D` is what a screen's own source tells.
#[derive(Debug)]
pub enum Event<D = state::Data> {
    Key(KeyEvent),
    Paste(String),
    Mouse(MouseEvent),
    Resize,
    Data(D),
    /// SIGTERM, SIGHUP or SIGINT from outside.
    Terminate(i32),
    /// SIGTSTP from outside.
    Suspend,
    /// Continued after a stop.
    Continued,
    /// The terminal hung up.
    Lost,
    /// Some thread panicked.
    Crashed,
}

/// Starts the thread that reads keys from standard input. It ends once `stop` is set or the terminal is gone.
pub fn spawn_keys<D: Send + 'static>(sender: SyncSender<Event<D>>, stop: Arc<AtomicBool>) -> io::Result<()> {
    std::thread::Builder::new().name("keys".into()).spawn(move || {
        if read_keys(&sender, &stop).is_err() {
            let _ = sender.send(Event::Lost);
        }
    })?;
    Ok(())
}

/// The terminal is asked with `poll` first: crossterm's own reader spins for ever on a terminal that hung up.
fn read_keys<D>(sender: &SyncSender<Event<D>>, stop: &AtomicBool) -> io::Result<()> {
    let stdin = io::stdin();
    while !stop.load(Ordering::Relaxed) {
        let mut fds = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
        match nix::poll::poll(&mut fds, PollTimeout::from(250u8)) {
            Ok(0) | Err(nix::errno::Errno::EINTR) => continue,
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        let gone = PollFlags::POLLHUP | PollFlags::POLLERR | PollFlags::POLLNVAL;
        if fds[0].revents().is_none_or(|events| events.intersects(gone)) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        // A moment rather than none: bytes may be readable of which crossterm does not know yet.
        while crossterm::event::poll(Duration::from_millis(20))? {
            let event = match crossterm::event::read()? {
                TerminalEvent::Key(key) if key.kind != KeyEventKind::Release => Event::Key(key),
                TerminalEvent::Paste(text) => Event::Paste(text),
                TerminalEvent::Mouse(mouse) => Event::Mouse(mouse),
                TerminalEvent::Resize(..) => Event::Resize,
                _ => continue,
            };
            if sender.send(event).is_err() {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Signals are turned into events while this lives; afterwards they have their usual effect again.
pub struct SignalWatch {
    handle: Handle,
    defaults: Arc<AtomicBool>,
}

impl SignalWatch {
    pub fn start<D: Send + 'static>(sender: SyncSender<Event<D>>) -> io::Result<SignalWatch> {
        let defaults = Arc::new(AtomicBool::new(false));
        for signal in [SIGTERM, SIGHUP, SIGINT, SIGTSTP] {
            signal_hook::flag::register_conditional_default(signal, defaults.clone())?;
        }
        let mut signals = Signals::new([SIGTERM, SIGHUP, SIGINT, SIGTSTP, SIGCONT, SIGWINCH])?;
        let handle = signals.handle();
        let watched = handle.clone();
        std::thread::Builder::new().name("signals".into()).spawn(move || {
            for signal in signals.forever() {
                let event = match signal {
                    SIGTSTP => Event::Suspend,
                    SIGCONT => Event::Continued,
                    SIGWINCH => Event::Resize,
                    other => Event::Terminate(other),
                };
                let terminating = matches!(event, Event::Terminate(_));
                if sender.send(event).is_err() {
                    return;
                }
                if terminating {
                    insist(&watched, signal);
                }
            }
        })?;
        Ok(SignalWatch { handle, defaults })
    }
}

/// A terminal that takes no bytes must not make this process immortal.
fn insist(watched: &Handle, signal: i32) {
    for _ in 0..30 {
        std::thread::sleep(Duration::from_millis(100));
        if watched.is_closed() {
            return;
        }
    }
    let _ = crossterm::terminal::disable_raw_mode();
    std::process::exit(128 + signal);
}

impl Drop for SignalWatch {
    fn drop(&mut self) {
        self.defaults.store(true, Ordering::SeqCst);
        self.handle.close();
    }
}
