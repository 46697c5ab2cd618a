//! The loop: one channel in, state changed, effects carried out, frames drawn when due.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant};

use super::action::Effect;
use super::capability::Capability;
use super::crash;
use super::input::{self, Event, SignalWatch};
use super::pace::Pace;
use super::source::{Request, Source};
use super::state::{Settings, State};
use super::terminal::Screen;
use super::{Exit, Options, TuiError, view};
use crate::track::event::Level;
use crate::track::now;

/// The clock of ages on the screen.
const TICK: Duration = Duration::from_secs(1);
/// Most events taken before a frame may be drawn.
const BATCH: usize = 64;

/// What a session is told by flags and terminal.
pub fn settings(run_dir: &Path, options: &Options, capability: &Capability) -> Settings {
    Settings {
        run_dir: run_dir.into(),
        read_only: options.read_only,
        owned: options.owned,
        color: capability.color,
        glyphs: capability.glyphs,
        tone: super::theme::Tone::Calm,
        mouse: options.mouse,
        zone: jiff::tz::TimeZone::system(),
        version: env!("CARGO_PKG_VERSION"),
    }
}

struct App {
    state: State,
    screen: Screen,
    source: Source,
    pace: Pace,
    clipboard: bool,
}

/// Why the loop ends.
enum End {
    Leave,
    Signal(i32),
    Lost,
    Crashed,
}

/// Runs the full-screen interface until the person leaves.
pub fn run(
    run_dir: &Path,
    options: &Options,
    capability: &Capability,
    sender: &SyncSender<Event>,
    events: &Receiver<Event>,
) -> Result<Exit, TuiError> {
    let terminal_error = |source| TuiError::Terminal { source };
    let signals = SignalWatch::start(sender.clone()).map_err(terminal_error)?;
    let screen = Screen::take(options.mouse).map_err(terminal_error)?;
    crash::rehearse("start");
    let stop = Arc::new(AtomicBool::new(false));
    input::spawn_keys(sender.clone(), stop.clone()).map_err(terminal_error)?;
    let data = sender.clone();
    let source = Source::spawn(run_dir, move |d| data.send(Event::Data(d)).is_ok()).map_err(terminal_error)?;
    let size = screen.size().map_err(terminal_error)?;
    let state = State::new(settings(run_dir, options, capability), now(), size);
    let pace = Pace::new(capability.remote, options.slow);
    let mut app = App { state, screen, source, pace, clipboard: capability.clipboard };
    let end = app.run(events);
    stop.store(true, Ordering::Relaxed);
    let outcome = app.state.run.ending().map(|ending| ending.outcome);
    // The terminal before the signals: a signal in between still finds somebody who restores.
    drop(app);
    drop(signals);
    match end {
        Ok(End::Leave) => Ok(outcome.map_or(Exit::Left, Exit::Ended)),
        Ok(End::Signal(signal)) => Ok(Exit::Signal(signal)),
        Ok(End::Crashed) => Err(TuiError::Crashed(crash::taken())),
        Ok(End::Lost) => Ok(Exit::TerminalLost),
        Err(error) if hung_up(&error) => Ok(Exit::TerminalLost),
        Err(source) => Err(TuiError::Terminal { source }),
    }
}

/// A terminal that hung up reports one of these.
fn hung_up(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EIO | libc::ENXIO)) || error.kind() == io::ErrorKind::BrokenPipe
}

impl App {
    fn run(&mut self, events: &Receiver<Event>) -> io::Result<End> {
        let mut ticked = Instant::now();
        loop {
            let moment = Instant::now();
            let to_tick = (ticked + TICK).saturating_duration_since(moment);
            let wait = self.pace.due_in(moment).map_or(to_tick, |due| due.min(to_tick));
            match events.recv_timeout(wait) {
                Ok(first) => {
                    for event in std::iter::once(first).chain(events.try_iter().take(BATCH)) {
                        if let Some(end) = self.event(event)? {
                            return Ok(end);
                        }
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(End::Leave),
            }
            if ticked.elapsed() >= TICK {
                ticked = Instant::now();
                let changed = self.state.tick(now());
                self.pace.mark(changed);
            }
            if self.state.leave_at_end && self.state.run.ending().is_some() {
                return Ok(End::Leave);
            }
            if self.pace.due_in(Instant::now()) == Some(Duration::ZERO) {
                self.draw()?;
            }
        }
    }

    fn draw(&mut self) -> io::Result<()> {
        self.state.size = self.screen.size()?;
        let state = &self.state;
        let sending = self.screen.draw(|frame| {
            crash::rehearse("view");
            view::render(state, frame);
        })?;
        self.pace.drawn(Instant::now(), sending);
        Ok(())
    }

    fn event(&mut self, event: Event) -> io::Result<Option<End>> {
        let changed = self.state.tick(now());
        self.pace.mark(changed);
        let effects = match event {
            Event::Data(data) => {
                let changed = self.state.data(data);
                self.pace.mark(changed);
                return Ok(None);
            }
            Event::Key(key) => self.state.key(&key),
            Event::Paste(text) => {
                self.state.paste(&text);
                Vec::new()
            }
            Event::Mouse(mouse) => self.state.mouse(&mouse),
            Event::Resize => {
                self.pace.resized(Instant::now());
                return Ok(None);
            }
            Event::Suspend => vec![Effect::Suspend],
            Event::Continued => {
                self.screen.resume()?;
                Vec::new()
            }
            Event::Terminate(signal) => return Ok(Some(End::Signal(signal))),
            Event::Lost => return Ok(Some(End::Lost)),
            Event::Crashed => return Ok(Some(End::Crashed)),
        };
        self.pace.mark(true);
        for effect in effects {
            if let Some(end) = self.effect(effect)? {
                return Ok(Some(end));
            }
        }
        Ok(None)
    }

    fn effect(&mut self, effect: Effect) -> io::Result<Option<End>> {
        match effect {
            Effect::Send { ticket, command } => self.source.request(Request::Send { ticket, command }),
            Effect::Refresh => self.source.request(Request::Refresh),
            Effect::Mouse(on) => self.screen.set_mouse(on)?,
            Effect::Suspend => self.screen.suspend()?,
            Effect::Copy(text) => self.copy(&text)?,
            Effect::Leave => return Ok(Some(End::Leave)),
        }
        Ok(None)
    }

    fn copy(&mut self, text: &str) -> io::Result<()> {
        let told = if self.clipboard {
            self.screen.copy(text)?;
            format!("sent to the clipboard: {text}")
        } else {
            match save_copy(text) {
                Ok(path) => format!("this terminal has no clipboard; saved to {}", path.display()),
                Err(error) => format!("cannot save the copied text: {error}"),
            }
        };
        self.state.run.notify(Level::Info, told);
        Ok(())
    }
}

fn save_copy(text: &str) -> io::Result<PathBuf> {
    let directory = crash::state_dir().unwrap_or_else(std::env::temp_dir);
    std::fs::create_dir_all(&directory)?;
    let path = directory.join("copied.txt");
    crate::files::write_atomic(&path, text.as_bytes())?;
    Ok(path)
}
