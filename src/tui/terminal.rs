//! The terminal as it is borrowed: taken once, and given back exactly once on every way out.
//!
//! What has been changed is kept in one place of the process, because the ways out are many: the end of the loop, an
//! error, a panic in any thread, a signal, suspension. Whoever comes first gives the terminal back; later ones find
//! nothing to do, and frames that are still under way are dropped.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use crossterm::cursor::{Hide, Show};
use crossterm::event::{DisableBracketedPaste, DisableMouseCapture, EnableBracketedPaste, EnableMouseCapture};
use crossterm::style::ResetColor;
use crossterm::terminal::{
    BeginSynchronizedUpdate, EndSynchronizedUpdate, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode,
    enable_raw_mode,
};
use crossterm::{clipboard::CopyToClipboard, execute, queue};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;

/// What has to be undone.
struct Borrowed {
    /// A handle of our own: no lock of the standard library can be in the way of a restore.
    out: File,
    mouse: bool,
}

static BORROWED: Mutex<Option<Borrowed>> = Mutex::new(None);

/// How long a restore waits for a frame that is being written.
const PATIENCE: Duration = Duration::from_millis(500);

/// Raw mode, the alternate screen, no cursor, pasted text marked as such.
fn borrow(mouse: bool) -> io::Result<()> {
    let mut slot = lock();
    let mut out = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    enable_raw_mode()?;
    // From here on there is something to undo, whatever fails next.
    let result = execute!(out, EnterAlternateScreen, Hide, EnableBracketedPaste)
        .and_then(|()| if mouse { execute!(out, EnableMouseCapture) } else { Ok(()) });
    *slot = Some(Borrowed { out, mouse });
    drop(slot);
    if result.is_err() {
        restore();
    }
    result
}

/// Gives the terminal back as it was. Does nothing when that has happened already.
pub fn restore() {
    let Some(mut borrowed) = lock_with_patience().and_then(|mut slot| slot.take()) else { return };
    let out = &mut borrowed.out;
    // Each step for itself: a terminal that is gone must not keep the others from being tried.
    let _ = execute!(out, EndSynchronizedUpdate);
    if borrowed.mouse {
        let _ = execute!(out, DisableMouseCapture);
    }
    let _ = execute!(out, DisableBracketedPaste, ResetColor, LeaveAlternateScreen, Show);
    let _ = disable_raw_mode();
}

fn lock() -> MutexGuard<'static, Option<Borrowed>> {
    BORROWED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The lock may be held by a thread that waits for a stuck terminal, or by the very thread that panicked.
fn lock_with_patience() -> Option<MutexGuard<'static, Option<Borrowed>>> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match BORROWED.try_lock() {
            Ok(slot) => return Some(slot),
            Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(5)),
            Err(TryLockError::WouldBlock) => return None,
        }
    }
}

/// Collects what a frame consists of, so that it goes out in one piece.
#[derive(Clone, Default)]
pub struct Frames(Arc<Mutex<Vec<u8>>>);

impl Frames {
    fn buffer(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Everything collected since the last call.
    pub fn take(&self) -> Vec<u8> {
        std::mem::take(&mut self.buffer())
    }
}

impl Write for Frames {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    /// Frames leave by [`Screen::draw`] only.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The borrowed terminal.
pub struct Screen {
    terminal: Terminal<CrosstermBackend<Frames>>,
    frames: Frames,
    mouse: bool,
}

impl Screen {
    /// Takes the terminal on standard output.
    pub fn take(mouse: bool) -> io::Result<Screen> {
        let frames = Frames::default();
        borrow(mouse)?;
        match Terminal::new(CrosstermBackend::new(frames.clone())) {
            Ok(terminal) => Ok(Screen { terminal, frames, mouse }),
            Err(error) => {
                restore();
                Err(error)
            }
        }
    }

    pub fn size(&self) -> io::Result<ratatui::layout::Size> {
        self.terminal.size()
    }

    /// Draws and sends what changed. Returns how long sending took.
    pub fn draw(&mut self, render: impl FnOnce(&mut ratatui::Frame)) -> io::Result<Duration> {
        self.terminal.draw(render)?;
        let frame = self.frames.take();
        let begun = Instant::now();
        let mut slot = lock();
        // A restore came first: the frame belongs to nobody any more.
        let Some(borrowed) = slot.as_mut() else { return Ok(Duration::ZERO) };
        let mut bytes = Vec::with_capacity(frame.len() + 32);
        queue!(bytes, BeginSynchronizedUpdate)?;
        bytes.extend_from_slice(&frame);
        queue!(bytes, EndSynchronizedUpdate)?;
        borrowed.out.write_all(&bytes)?;
        Ok(begun.elapsed())
    }

    /// Forgets what is on the screen, so that the next frame is whole.
    pub fn invalidate(&mut self) -> io::Result<()> {
        // Not `clear`, which asks the terminal for its cursor and waits for an answer.
        let size = self.terminal.size()?;
        self.terminal.resize(size.into())
    }

    /// Puts `text` into the clipboard of the terminal's user (OSC 52), also through SSH.
    pub fn copy(&mut self, text: &str) -> io::Result<()> {
        let mut slot = lock();
        let Some(borrowed) = slot.as_mut() else { return Ok(()) };
        execute!(borrowed.out, CopyToClipboard::to_clipboard_from(text))
    }

    pub fn set_mouse(&mut self, on: bool) -> io::Result<()> {
        self.mouse = on;
        let mut slot = lock();
        let Some(borrowed) = slot.as_mut() else { return Ok(()) };
        borrowed.mouse = on;
        if on { execute!(borrowed.out, EnableMouseCapture) } else { execute!(borrowed.out, DisableMouseCapture) }
    }

    /// Gives the terminal back and stops this process. Once it is continued, the caller takes the terminal by
    /// [`Screen::resume`]; SIGCONT tells it when.
    pub fn suspend(&mut self) -> io::Result<()> {
        restore();
        signal_hook::low_level::raise(signal_hook::consts::SIGSTOP)
    }

    /// Takes the terminal anew after a stop, during which the shell may have changed its settings.
    pub fn resume(&mut self) -> io::Result<()> {
        restore();
        borrow(self.mouse)?;
        self.invalidate()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}
