//! The chunk scheduler: which action is commanded at a tick, and when the next chunk is asked for with which state. Pure:
//! no clock, no I/O, no thread; a tick is a call.
//!
//! A tick is three calls, in this order: [`arrive`](Scheduler::arrive) or [`fail`](Scheduler::fail) with what the worker
//! reported since the last tick, [`launch`](Scheduler::launch), and [`command`](Scheduler::command). Who can infer in no
//! time may report between the last two: the chunk then counts as 0 ticks old.
//!
//! What is counted are ticks of this scheduler. A control tick that was passed over commanded nothing, so it is no tick
//! here: a chunk is entered where the arm is, not where the clock is.
//!
//! | mode | state told | row 0 of the chunk is for | entered |
//! | --- | --- | --- | --- |
//! | sync | measured | the tick of its arrival | then |
//! | async | measured | the tick of its arrival, Δ late | then |
//! | vlash | commanded at the planned splice | the planned splice | there; if late, at the number of actions commanded since |
//! | rtc, rtc-trained | measured | the tick of its launch | when it is there, at the number of actions commanded since |
//!
//! In the modes of real-time chunking a chunk entered at row d is executed for n rows from there, so that every mode
//! launches once every n ticks (the papers' execution horizon). A launch with nothing left to execute is a *standstill*
//! launch in every mode: the arm holds, the state is measured, the chunk is entered at row 0 when it is there, and none
//! is too late.

mod chunk;
mod latency;
mod settings;
#[cfg(test)]
mod tests;

use std::time::Duration;

use self::chunk::Chunk;
use self::latency::Latencies;
pub use self::settings::{LaunchAt, Miss, Mode, Overlap, Settings, SettingsError, UnknownMode};
use super::policy::{Continuity, Leftover};

/// What will really leave when targets are given: the safety filter, as the scheduler looks ahead through it.
pub trait Foresight {
    /// The last command, in `state`, after `targets` were given one a tick from now on (none: hold).
    fn foresee<'a>(&mut self, targets: &mut dyn Iterator<Item = Option<&'a [f32]>>, state: &mut [f32]);
}

/// Targets leave as they are.
#[derive(Debug, Clone, Default)]
pub struct Unfiltered {
    /// The last command; empty: none yet.
    pub last: Vec<f32>,
}

impl Foresight for Unfiltered {
    fn foresee<'a>(&mut self, targets: &mut dyn Iterator<Item = Option<&'a [f32]>>, state: &mut [f32]) {
        let last = targets.fold(None, |last, target| target.or(last)).unwrap_or(&self.last);
        state.iter_mut().zip(last).for_each(|(state, last)| *state = *last);
    }
}

/// An inference to begin now.
#[derive(Debug, Clone, PartialEq)]
pub struct Launch {
    /// Counts launches.
    pub chunk: u64,
    pub tick: u64,
    /// The tick at which its chunk is planned to begin; none: the arm waits for it.
    pub splice: Option<u64>,
    /// The state that the policy is to be told.
    pub state: Vec<f32>,
    pub continuity: Continuity,
    pub leftover: Option<Leftover>,
}

/// Why the last command is repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// The arm waits for a chunk as the schedule has it.
    Standstill,
    /// The next chunk is late and the old one is executed.
    Late,
}

/// What a tick commands.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Command<'a> {
    Action(Action<'a>),
    /// The last command again.
    Hold(Wait),
    /// The rollout is over: a chunk is late and the miss policy is to stop.
    Stop,
}

/// An action of a chunk.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Action<'a> {
    pub target: &'a [f32],
    pub chunk: u64,
    /// In the chunk as it is executed (one row a tick), and as the policy made it.
    pub row: usize,
    pub step: usize,
    /// Past those that were to be executed, because the next chunk is late.
    pub continued: bool,
    /// The tick of the observation behind it.
    pub observed: u64,
}

/// What happened to a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// Its action `row` is the first commanded, `late` ticks after the planned one.
    Spliced { chunk: u64, row: usize, late: u64, standstill: bool },
    /// It was not there at its planned tick.
    Missed { chunk: u64 },
    /// It came `late` ticks after the planned one: as many as a chunk is executed for.
    Discarded { chunk: u64, late: u64 },
}

/// Events that a tick can have; more are not kept.
const EVENTS: usize = 8;

/// An inference on its way, or its chunk waiting for its turn.
#[derive(Debug, Clone)]
struct Flight {
    number: u64,
    mode: Mode,
    launched: u64,
    /// None: the arm waits.
    splice: Option<u64>,
    /// Actions commanded since the launch, and since the planned splice. Holding does not count.
    since_launch: usize,
    since_splice: usize,
    arrived: bool,
    missed: bool,
}

/// The scheduler of one rollout.
#[derive(Debug, Clone)]
pub struct Scheduler {
    settings: Settings,
    mode: Mode,
    wanted: Mode,
    now: u64,
    launches: u64,
    current: Chunk,
    next: Chunk,
    flight: Option<Flight>,
    latencies: Latencies,
    overlap: usize,
    /// Inference takes longer than a chunk: the arm had better wait for each.
    outrun: bool,
    events: Vec<Event>,
}

impl Scheduler {
    /// # Errors
    /// [`SettingsError`].
    pub fn new(settings: Settings) -> Result<Scheduler, SettingsError> {
        settings.validate()?;
        let chunk = Chunk::with_room(settings.horizon, settings.horizon_ticks(), settings.action_dim);
        let mut scheduler = Scheduler {
            mode: settings.mode,
            wanted: settings.mode,
            now: 0,
            launches: 0,
            next: chunk.clone(),
            current: chunk,
            flight: None,
            latencies: Latencies::new(),
            overlap: 0,
            outrun: false,
            events: Vec::with_capacity(EVENTS),
            settings,
        };
        scheduler.overlap = scheduler.planned_overlap();
        Ok(scheduler)
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Of the chunk that is launched next.
    pub fn mode(&self) -> Mode {
        self.wanted
    }

    /// The tick that comes next.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Δ̂ in ticks that the next launch will plan with, as far as known.
    pub fn overlap(&self) -> usize {
        self.overlap
    }

    /// What a measured overlap begins with, until a latency is known: from the last warm-up run.
    pub fn expect_overlap(&mut self, ticks: usize) {
        if let Overlap::Measured { first, .. } = &mut self.settings.overlap {
            *first = ticks;
            self.overlap = 0;
            self.overlap = self.planned_overlap();
        }
    }

    /// What happened since the last call.
    pub fn events(&mut self) -> impl Iterator<Item = Event> + '_ {
        self.events.drain(..)
    }

    /// Another mode, from the next launch on: chunks that are there or on their way end as they began.
    pub fn set_mode(&mut self, mode: Mode) {
        self.wanted = mode;
    }

    /// Forgets every chunk and what is being inferred, because the arm was moved or held by someone else. Latencies stay.
    pub fn reset(&mut self) {
        self.current.clear();
        self.flight = None;
    }

    /// The chunk that `chunk` gave: `actions` are `[H, action_dim]` and finite. `latency` enters the estimate of the
    /// overlap; none: it does not (a cold start). A chunk that is not waited for any more is passed over; so is one of
    /// another size, since the safety filter rejects those. Returns the ticks that it took.
    pub fn arrive(&mut self, chunk: u64, actions: &[f32], latency: Option<Duration>) -> Option<u64> {
        if let Some(latency) = latency {
            self.latencies.push(latency);
        }
        let flight = self.flight.as_mut().filter(|flight| flight.number == chunk && !flight.arrived)?;
        if actions.len() != self.settings.horizon * self.settings.action_dim {
            return None;
        }
        flight.arrived = true;
        let took = self.now - flight.launched;
        self.next.fill(actions, self.settings.speed, &self.settings.grippers);
        self.next.number = chunk;
        self.next.observed = flight.launched;
        Some(took)
    }

    /// `chunk` gave no chunk that may be used: another is launched at once.
    pub fn fail(&mut self, chunk: u64) {
        if self.flight.as_ref().is_some_and(|flight| flight.number == chunk && !flight.arrived) {
            self.flight = None;
        }
    }

    /// Whether an inference has to begin at this tick, on the observation of this tick. `measured` is the state of the
    /// joints; through `foresight` the state is seen that will have been commanded when the chunk begins.
    pub fn launch(&mut self, measured: &[f32], foresight: &mut dyn Foresight) -> Option<Launch> {
        self.settle();
        if self.flight.is_some() {
            return None;
        }
        self.mode = self.wanted;
        self.overlap = self.planned_overlap();
        let remaining = self.current.remaining();
        let eager = self.settings.launch == LaunchAt::Eager;
        let due = match self.mode {
            Mode::Sync => remaining == 0,
            _ if self.outrun => remaining == 0,
            _ => eager || remaining <= self.overlap,
        };
        if !due {
            return None;
        }
        let standstill = remaining == 0;
        self.launches += 1;
        let launch = Launch {
            chunk: self.launches,
            tick: self.now,
            splice: (!standstill).then(|| self.now + self.overlap as u64),
            state: self.told(measured, standstill, foresight),
            continuity: self.continuity(standstill),
            leftover: self.leftover(standstill),
        };
        self.flight = Some(Flight {
            number: launch.chunk,
            mode: self.mode,
            launched: self.now,
            splice: launch.splice,
            since_launch: 0,
            since_splice: 0,
            arrived: false,
            missed: false,
        });
        Some(launch)
    }

    /// What this tick commands; the next tick begins.
    pub fn command(&mut self) -> Command<'_> {
        self.settle();
        self.notice_miss();
        let late = self.flight.as_ref().is_some_and(|flight| flight.missed && !flight.arrived);
        let executed = self.current.remaining() == 0;
        let origin = self.origin(self.current.row);
        let now = self.now;
        self.now += 1;
        let Some(continued) = origin else {
            if late && executed && self.settings.miss == Miss::Stop {
                return Command::Stop;
            }
            return Command::Hold(if late { Wait::Late } else { Wait::Standstill });
        };
        if let Some(flight) = &mut self.flight {
            flight.since_launch += 1;
            flight.since_splice += usize::from(flight.splice.is_some_and(|splice| now >= splice));
        }
        let row = self.current.row;
        self.current.row += 1;
        match self.current.at(row) {
            Some(target) => Command::Action(Action {
                target,
                chunk: self.current.number,
                row,
                step: (row + 1) * self.settings.speed - 1,
                continued,
                observed: self.current.observed,
            }),
            None => Command::Hold(Wait::Standstill),
        }
    }

    /// Whether `row` of the chunk in use is commanded when its turn comes: as planned (`false`), past its end (`true`).
    fn origin(&self, row: usize) -> Option<bool> {
        let continues = self.settings.miss == Miss::Continue
            && self.flight.as_ref().is_some_and(|flight| flight.splice.is_some())
            && row < self.current.len();
        if row < self.current.end { Some(false) } else { continues.then_some(true) }
    }

    /// The action that is commanded next, if one is.
    pub fn peek(&self) -> Option<&[f32]> {
        let row = self.current.row;
        self.current.at(row).filter(|_| self.origin(row).is_some())
    }

    /// Lets the chunk that is there begin, if its turn has come. [`launch`](Self::launch) and [`command`](Self::command) do
    /// so first.
    pub fn settle(&mut self) {
        let Some(flight) = self.flight.as_ref().filter(|flight| flight.arrived) else { return };
        let (chunk, standstill) = (flight.number, flight.splice.is_none());
        let splice = flight.splice.unwrap_or(self.now);
        let row = match flight.mode {
            _ if standstill => 0,
            Mode::Vlash if self.now < splice => return,
            Mode::Vlash => flight.since_splice,
            Mode::Rtc | Mode::RtcTrained => flight.since_launch,
            Mode::Sync | Mode::Async => 0,
        };
        let n = self.settings.execute_ticks();
        let took = self.now - flight.launched;
        let late = self.now.saturating_sub(splice);
        let end = if flight.mode.counts_from_launch() { (row + n).min(self.next.len()) } else { n };
        self.flight = None;
        self.outrun = took >= (n + self.overlap) as u64;
        if !standstill && (late >= n as u64 || row >= end) {
            self.outrun = true;
            self.note(Event::Discarded { chunk, late });
            return;
        }
        (self.next.row, self.next.end) = (row, end);
        if !standstill {
            self.next.blend(&self.current, self.settings.blend);
        }
        std::mem::swap(&mut self.current, &mut self.next);
        self.note(Event::Spliced { chunk, row, late, standstill });
    }

    fn notice_miss(&mut self) {
        let now = self.now;
        let missing = |flight: &&mut Flight| !flight.arrived && !flight.missed;
        let Some(flight) = self.flight.as_mut().filter(missing) else { return };
        if flight.splice.is_some_and(|splice| now >= splice) {
            flight.missed = true;
            let chunk = flight.number;
            self.note(Event::Missed { chunk });
        }
    }

    fn planned_overlap(&self) -> usize {
        match self.settings.overlap {
            Overlap::Fixed(ticks) => ticks,
            Overlap::Measured { margin, first } => {
                let now = if self.overlap == 0 { first } else { self.overlap };
                self.latencies.overlap(now, margin, self.settings.fps, self.settings.largest_overlap(self.wanted))
            }
        }
    }

    /// The state that the policy is told.
    fn told(&self, measured: &[f32], standstill: bool, foresight: &mut dyn Foresight) -> Vec<f32> {
        let mut state = measured.to_vec();
        if self.mode == Mode::Vlash && !standstill && self.overlap > 0 {
            let continues = self.settings.miss == Miss::Continue;
            let current = &self.current;
            let rows = current.row..current.row + self.overlap;
            let mut targets =
                rows.map(|row| current.at(row).filter(|_| row < current.end || continues && row < current.len()));
            foresight.foresee(&mut targets, &mut state);
        }
        state
    }

    fn continuity(&self, standstill: bool) -> Continuity {
        match self.mode {
            Mode::Rtc if !standstill => Continuity::Rtc(self.settings.guidance),
            Mode::RtcTrained if !standstill => Continuity::Prefix,
            _ => Continuity::Free,
        }
    }

    fn leftover(&self, standstill: bool) -> Option<Leftover> {
        let wanted = self.mode.counts_from_launch() && !standstill;
        let speed = self.settings.speed;
        let delay = self.overlap * speed;
        wanted.then(|| Leftover { actions: self.current.left(speed, delay), delay })
    }

    fn note(&mut self, event: Event) {
        if self.events.len() < EVENTS {
            self.events.push(event);
        }
    }
}
