//! What the loop hands to the telemetry thread: of fixed size, so that nothing is allocated for a tick.

use std::sync::Arc;
use std::time::Duration;

use crate::realtime::filter::MOST_JOINTS;
use crate::realtime::scheduler::Mode;
use crate::robot::Frame;
use crate::track::telemetry::{ArmState, Message, Origin, Status, Tick};

/// Cameras whose age and rate can be told.
pub const MOST_CAMERAS: usize = 8;

/// One thing to tell.
#[derive(Debug, Clone)]
pub enum Record {
    Tick(TickRecord),
    Status(StatusRecord),
    /// A camera, by its number, and its newest image.
    Thumbnail(usize, Frame),
    Message(Message),
}

/// Values by joint or camera.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Values<T, const N: usize> {
    values: [T; N],
    count: usize,
}

impl<T: Copy + Default, const N: usize> Values<T, N> {
    /// The first N of `values`.
    pub fn of(values: impl IntoIterator<Item = T>) -> Values<T, N> {
        let mut kept = Values { values: [T::default(); N], count: 0 };
        for (slot, value) in kept.values.iter_mut().zip(values) {
            *slot = value;
            kept.count += 1;
        }
        kept
    }

    pub fn as_slice(&self) -> &[T] {
        self.values.get(..self.count).unwrap_or_default()
    }
}

/// A control tick.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TickRecord {
    pub tick: u64,
    pub time: Duration,
    pub period: Duration,
    pub missed: u32,
    pub origin: Origin,
    /// The chunk and the step in it, unless held.
    pub action: Option<(u64, u32)>,
    pub state: Values<f32, MOST_JOINTS>,
    pub command: Values<f32, MOST_JOINTS>,
    pub clipped: u32,
    pub image_age: Option<Duration>,
}

impl From<&TickRecord> for Tick {
    fn from(record: &TickRecord) -> Tick {
        Tick {
            tick: record.tick,
            time: record.time.as_secs_f64(),
            period_ms: milliseconds(record.period),
            missed: record.missed,
            origin: record.origin,
            chunk: record.action.map(|(chunk, _)| chunk),
            index: record.action.map(|(_, index)| index),
            state: record.state.as_slice().to_vec(),
            command: record.command.as_slice().to_vec(),
            clipped: record.clipped,
            observation_age_ms: record.image_age.map(milliseconds),
        }
    }
}

/// State of the whole.
#[derive(Debug, Clone, PartialEq)]
pub struct StatusRecord {
    pub time: Duration,
    pub arm: ArmState,
    pub reason: Option<Arc<str>>,
    pub mode: Mode,
    pub overlap: u32,
    pub ticks: u64,
    pub late_chunks: u64,
    pub missed_ticks: u64,
    pub held_ticks: u64,
    pub continued_ticks: u64,
    pub clipped_ticks: u64,
    pub rejected_chunks: u64,
    pub camera_age: Values<Option<Duration>, MOST_CAMERAS>,
    pub camera_hz: Values<f64, MOST_CAMERAS>,
    pub recording: bool,
    pub task_state: Option<Arc<str>>,
}

impl From<&StatusRecord> for Status {
    fn from(record: &StatusRecord) -> Status {
        Status {
            time: record.time.as_secs_f64(),
            arm: record.arm,
            reason: record.reason.as_deref().map(str::to_owned),
            mode: record.mode.name().to_owned(),
            overlap: record.overlap,
            ticks: record.ticks,
            late_chunks: record.late_chunks,
            missed_ticks: record.missed_ticks,
            held_ticks: record.held_ticks,
            continued_ticks: record.continued_ticks,
            clipped_ticks: record.clipped_ticks,
            rejected_chunks: record.rejected_chunks,
            camera_age_ms: record.camera_age.as_slice().iter().map(|age| age.map(milliseconds)).collect(),
            camera_hz: record.camera_hz.as_slice().to_vec(),
            recording: record.recording,
            task_state: record.task_state.as_deref().map(str::to_owned),
        }
    }
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
