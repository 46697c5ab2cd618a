//! The Robot screen: what a rollout does on a robot, and the keys that stop, arm and steer it.
//!
//! A viewer like the Train screen: everything comes from [`track::telemetry`](crate::track::telemetry) messages, over the
//! rollout's socket or from its run directory, and leaving changes nothing. It is not a safety device: the physical stop
//! comes first, and limits, watchdogs and the dead-man live at the robot.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender};
use std::time::{Duration, Instant};

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers, MouseEvent};

mod action;
mod courier;
mod history;
mod keymap;
mod lines;
mod orders;
mod overlay;
mod pictures;
mod plain;
mod probe;
mod source;
mod state;
#[cfg(test)]
pub mod testing;
mod update;
mod view;

use action::Effect;
use probe::Graphics;
use source::{Data, Source};
use state::{Settings, State};

use super::app::{self, Program};
use super::capability::{Capability, process_environment};
use super::input::Event;
use super::terminal::Screen;
use super::{Exit, Options, TuiError, crash, theme};
use crate::track::event::Outcome;
use crate::track::now;
use crate::track::run_dir::RUN_FILE;
use crate::track::telemetry::{SOCKET_FILE, Steer, TELEMETRY_FILE};

/// Between two signs that the operator is there.
const HEARTBEAT_S: f64 = 1.0;
/// Between two camera images on the screen.
const IMAGE: Duration = Duration::from_millis(500);
/// Over SSH: between two frames that only new telemetry asks for, and bytes a second that images may take.
const REMOTE_FRAME_S: f64 = 0.5;
const REMOTE_IMAGE_BYTES: usize = 400;
/// About what a half block with two colours takes.
const BYTES_A_CELL: usize = 36;

/// Where a rollout is heard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RobotSource {
    /// `host:port` of the rollout's socket.
    Socket(String),
    /// Its run directory: the socket that it names, its telemetry file, and `control/` for orders.
    Directory(PathBuf),
}

impl RobotSource {
    /// Whether `path` is the run directory of a rollout, by the files that only rollouts write.
    pub fn is_rollout(path: &Path) -> bool {
        path.join(TELEMETRY_FILE).exists() || path.join(SOCKET_FILE).exists()
    }
}

impl std::fmt::Display for RobotSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            RobotSource::Socket(address) => f.write_str(address),
            RobotSource::Directory(path) => write!(f, "{}", path.display()),
        }
    }
}

/// Shows the rollout at `source` until the person leaves: in full screen where that is possible, else as lines.
///
/// # Errors
/// A directory that is no rollout's, a terminal that fails, or a defect of the interface. In every case the terminal is as
/// it was before, and the rollout is untouched.
pub fn run(source: &RobotSource, options: &Options) -> Result<Exit, TuiError> {
    if let RobotSource::Directory(path) = source {
        let begun = options.owned || path.join(RUN_FILE).exists();
        if !begun && !RobotSource::is_rollout(path) {
            return Err(TuiError::NotARollout { path: path.clone() });
        }
    }
    let capability = Capability::detect(options.color, options.glyphs, &process_environment);
    let obstacle = super::obstacle();
    if let (false, Some(reason)) = (options.plain, obstacle) {
        use std::io::Write;
        // Standard error may be closed: that is no reason not to go on.
        let _ = writeln!(io::stderr(), "vlash: {reason}: plain lines follow (as with --plain)");
    }
    if options.plain || obstacle.is_some() {
        return plain::run(source, settings(source, options, &capability), &mut io::stdout());
    }
    super::full_screen(|sender, events| full_screen(source, options, &capability, sender, events))
}

fn settings(source: &RobotSource, options: &Options, capability: &Capability) -> Settings {
    Settings {
        target: source.to_string(),
        run_dir: match source {
            RobotSource::Directory(path) => Some(path.clone()),
            RobotSource::Socket(_) => None,
        },
        read_only: options.read_only,
        owned: options.owned,
        color: capability.color,
        glyphs: capability.glyphs,
        tone: theme::Tone::Calm,
        images: true,
        graphics: Graphics::without_asking(capability.color, capability.glyphs),
        remote: capability.remote,
        zone: jiff::tz::TimeZone::system(),
        version: env!("CARGO_PKG_VERSION"),
    }
}

fn full_screen(
    source: &RobotSource,
    options: &Options,
    capability: &Capability,
    sender: &SyncSender<Event<Data>>,
    events: &Receiver<Event<Data>>,
) -> Result<Exit, TuiError> {
    let settings = settings(source, options, capability);
    let (exit, robot) = app::drive(options, capability, sender, events, |size, sender| {
        let threads = Source::spawn(source, move |data| sender.send(Event::Data(data)).is_ok())?;
        Ok(Robot::start(State::new(settings, now(), size), threads))
    })?;
    let ended = robot.state.liveness().is_over();
    Ok(if exit == Exit::Left && ended { Exit::Ended(Outcome::Finished) } else { exit })
}

/// The screen with its threads.
struct Robot {
    state: State,
    source: Source,
    /// The last sign of life that was sent, and the last frame that telemetry asked for.
    heartbeat: f64,
    marked: f64,
    /// Something arrived that is not drawn yet.
    waiting: bool,
    next_image: Instant,
}

impl Robot {
    fn start(state: State, source: Source) -> Robot {
        let mut robot = Robot {
            state,
            source,
            heartbeat: f64::NEG_INFINITY,
            marked: 0.0,
            waiting: false,
            next_image: Instant::now(),
        };
        // Over SSH only half blocks keep within the line's budget: there is nothing to ask.
        let env = &process_environment;
        if !robot.state.settings.remote && probe::may_ask(env) {
            // A terminal that cannot be asked gets half blocks.
            let answer = probe::ask().unwrap_or_default();
            robot.state.settings.graphics = probe::choose(&answer, env, robot.state.settings.graphics);
            for key in answer.typed.iter().filter(|byte| byte.is_ascii_graphic() || **byte == b' ') {
                let key = KeyEvent::new(KeyCode::Char(char::from(*key)), KeyModifiers::NONE);
                // Only stops: whatever else was typed into a screen that was not there yet meant something else.
                if keymap::stop(&key).is_some() {
                    robot.state.key(&key).into_iter().for_each(|effect| robot.send(effect));
                }
            }
        }
        robot
    }

    fn send(&self, effect: Effect) {
        if let Effect::Order { ticket, steer, every } = effect {
            self.source.order(ticket, steer, every);
        }
    }

    fn beat(&mut self, now: f64) {
        let due = now - self.heartbeat >= HEARTBEAT_S || now < self.heartbeat;
        if due && !self.state.settings.read_only && !self.state.liveness().is_over() {
            self.heartbeat = now;
            self.source.order(u64::MAX, Steer::Heartbeat, false);
        }
    }

    /// Encodes images that are new, not too often.
    fn images(&mut self) {
        let now = Instant::now();
        if now < self.next_image {
            return;
        }
        let cells = view::prepare_images(&mut self.state);
        let bytes = cells * BYTES_A_CELL;
        let share = Duration::from_secs_f64(bytes as f64 / REMOTE_IMAGE_BYTES as f64);
        self.next_image = now + if self.state.settings.remote { share.max(IMAGE) } else { IMAGE };
    }
}

impl Program for Robot {
    type Data = Data;
    type Effect = Effect;

    fn tick(&mut self, now: f64) -> bool {
        self.beat(now);
        let aged = self.state.tick(now);
        let due = self.waiting && now - self.marked >= REMOTE_FRAME_S;
        if due {
            (self.waiting, self.marked) = (false, now);
        }
        aged || due
    }

    fn data(&mut self, data: Data) -> bool {
        // An order's fate and the link are shown at once, telemetry over SSH in its turn.
        let patient = self.state.settings.remote && matches!(data, Data::Items(_));
        self.state.data(data);
        self.waiting |= patient;
        !patient
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

    fn effect(&mut self, effect: Effect, screen: &mut Screen) -> io::Result<bool> {
        match effect {
            Effect::Order { .. } => self.send(effect),
            Effect::Suspend => screen.suspend()?,
            Effect::Mouse(on) => screen.set_mouse(on)?,
            Effect::Leave => return Ok(true),
        }
        Ok(false)
    }

    fn is_over(&self) -> bool {
        self.state.leave_at_end && self.state.liveness().is_over()
    }

    fn draw(&mut self, screen: &mut Screen) -> io::Result<Duration> {
        self.state.size = screen.size()?;
        self.images();
        let state = &self.state;
        screen.draw(|frame| {
            crash::rehearse("view");
            view::render(state, frame);
        })
    }
}
