//! The loop: one channel in, state changed, effects carried out, frames drawn when due.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant};

use crossterm::event::{KeyEvent, MouseEvent};
use ratatui::layout::Size;

use super::action::Effect;
use super::capability::Capability;
use super::crash;
use super::input::{self, Event, SignalWatch};
use super::pace::Pace;
use super::source::{Request, Source};
use super::state::{Data, Settings, State};
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

/// What a screen does with what happens. [`drive`] owns the channel, the clock and the terminal.
pub trait Program {
    /// What its source tells.
    type Data: Send + 'static;
    type Effect;

    /// Moves the clock (seconds since the Unix epoch). Returns whether anything on the screen changed.
    fn tick(&mut self, now: f64) -> bool;
    /// Takes over data. Returns whether anything on the screen may have changed.
    fn data(&mut self, data: Self::Data) -> bool;
    fn key(&mut self, key: &KeyEvent) -> Vec<Self::Effect>;
    fn paste(&mut self, text: &str);
    fn mouse(&mut self, event: &MouseEvent) -> Vec<Self::Effect>;
    /// Carries out an effect. Returns whether the person leaves.
    fn effect(&mut self, effect: Self::Effect, screen: &mut Screen) -> io::Result<bool>;
    /// Whether there is nothing to stay for.
    fn is_over(&self) -> bool;
    /// Draws a frame. Returns how long sending it took.
    fn draw(&mut self, screen: &mut Screen) -> io::Result<Duration>;
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
    let settings = settings(run_dir, options, capability);
    let clipboard = capability.clipboard;
    let (exit, train) = drive(options, capability, sender, events, |size, sender| {
        let source = Source::spawn(run_dir, move |d| sender.send(Event::Data(d)).is_ok())?;
        Ok(Train { state: State::new(settings, now(), size), source, clipboard })
    })?;
    let outcome = train.state.run.ending().map(|ending| ending.outcome);
    Ok(if exit == Exit::Left { outcome.map_or(Exit::Left, Exit::Ended) } else { exit })
}

/// Takes the terminal, starts the program that `start` makes of the terminal's size and of the way to the channel, and
/// feeds it until it ends. `start` is called before anybody reads keys.
pub fn drive<P: Program>(
    options: &Options,
    capability: &Capability,
    sender: &SyncSender<Event<P::Data>>,
    events: &Receiver<Event<P::Data>>,
    start: impl FnOnce(Size, SyncSender<Event<P::Data>>) -> io::Result<P>,
) -> Result<(Exit, P), TuiError> {
    let terminal_error = |source| TuiError::Terminal { source };
    let signals = SignalWatch::start(sender.clone()).map_err(terminal_error)?;
    let screen = Screen::take(options.mouse).map_err(terminal_error)?;
    crash::rehearse("start");
    let size = screen.size().map_err(terminal_error)?;
    let program = start(size, sender.clone()).map_err(terminal_error)?;
    let stop = Arc::new(AtomicBool::new(false));
    input::spawn_keys(sender.clone(), stop.clone()).map_err(terminal_error)?;
    let pace = Pace::new(capability.remote, options.slow);
    let mut app = App { program, screen, pace };
    let end = app.run(events);
    stop.store(true, Ordering::Relaxed);
    // The terminal before the signals: a signal in between still finds somebody who restores.
    let App { program, screen, .. } = app;
    drop(screen);
    drop(signals);
    let exit = match end {
        Ok(End::Leave) => Exit::Left,
        Ok(End::Signal(signal)) => Exit::Signal(signal),
        Ok(End::Crashed) => return Err(TuiError::Crashed(crash::taken())),
        Ok(End::Lost) => Exit::TerminalLost,
        Err(error) if hung_up(&error) => Exit::TerminalLost,
        Err(source) => return Err(TuiError::Terminal { source }),
    };
    Ok((exit, program))
}

/// A terminal that hung up reports one of these.
fn hung_up(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EIO | libc::ENXIO)) || error.kind() == io::ErrorKind::BrokenPipe
}

struct App<P> {
    program: P,
    screen: Screen,
    pace: Pace,
}

impl<P: Program> App<P> {
    fn run(&mut self, events: &Receiver<Event<P::Data>>) -> io::Result<End> {
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
                let changed = self.program.tick(now());
                self.pace.mark(changed);
            }
            if self.program.is_over() {
                return Ok(End::Leave);
            }
            if self.pace.due_in(Instant::now()) == Some(Duration::ZERO) {
                let sending = self.program.draw(&mut self.screen)?;
                self.pace.drawn(Instant::now(), sending);
            }
        }
    }

    fn event(&mut self, event: Event<P::Data>) -> io::Result<Option<End>> {
        let changed = self.program.tick(now());
        self.pace.mark(changed);
        let effects = match event {
            Event::Data(data) => {
                let changed = self.program.data(data);
                self.pace.mark(changed);
                return Ok(None);
            }
            Event::Key(key) => self.program.key(&key),
            Event::Paste(text) => {
                self.program.paste(&text);
                Vec::new()
            }
            Event::Mouse(mouse) => self.program.mouse(&mouse),
            Event::Resize => {
                self.pace.resized(Instant::now());
                return Ok(None);
            }
            Event::Suspend => {
                self.screen.suspend()?;
                Vec::new()
            }
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
            if self.program.effect(effect, &mut self.screen)? {
                return Ok(Some(End::Leave));
            }
        }
        Ok(None)
    }
}

/// The Train screen with its source.
struct Train {
    state: State,
    source: Source,
    clipboard: bool,
}

impl Program for Train {
    type Data = Data;
    type Effect = Effect;

    fn tick(&mut self, now: f64) -> bool {
        self.state.tick(now)
    }

    fn data(&mut self, data: Data) -> bool {
        self.state.data(data)
    }

    fn key(&mut self, key: &KeyEvent) -> Vec<Effect> {
        self.state.key(key)
    }

    fn paste(&mut self, text: &str) {
        self.state.paste(text);
    }

    fn mouse(&mut self, event: &MouseEvent) -> Vec<Effect> {
        self.state.mouse(event)
    }

    fn is_over(&self) -> bool {
        self.state.leave_at_end && self.state.run.ending().is_some()
    }

    fn draw(&mut self, screen: &mut Screen) -> io::Result<Duration> {
        self.state.size = screen.size()?;
        let state = &self.state;
        screen.draw(|frame| {
            crash::rehearse("view");
            view::render(state, frame);
        })
    }

    fn effect(&mut self, effect: Effect, screen: &mut Screen) -> io::Result<bool> {
        match effect {
            Effect::Send { ticket, command } => self.source.request(Request::Send { ticket, command }),
            Effect::Refresh => self.source.request(Request::Refresh),
            Effect::Mouse(on) => screen.set_mouse(on)?,
            Effect::Suspend => screen.suspend()?,
            Effect::Copy(text) => self.copy(&text, screen)?,
            Effect::Leave => return Ok(true),
        }
        Ok(false)
    }
}

impl Train {
    fn copy(&mut self, text: &str, screen: &mut Screen) -> io::Result<()> {
        let told = if self.clipboard {
            screen.copy(text)?;
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
