//! What a tick tells: to the metrics, and to whoever watches.

use std::time::Duration;

use super::{Core, RECORDS, Rate, Sent};
use crate::realtime::metrics::TickFacts;
use crate::realtime::telemetry::{Record, StatusRecord, TickRecord, Values};
use crate::track::event::Level;
use crate::track::telemetry::{Chunk, Message, Origin, Phase};

const STATUS_PERIOD: Duration = Duration::from_millis(100);
const THUMBNAIL_PERIOD: Duration = Duration::from_millis(500);
/// Between two complaints of the same kind: a machine that is too slow is so all the time.
const COMPLAINT_PERIOD: Duration = Duration::from_secs(5);
const RATE_PERIOD: Duration = Duration::from_secs(1);

impl Core {
    /// Of the tick that is at work, from 0: what telemetry counts in. The scheduler's own count stands still while the arm
    /// is not under the policy.
    pub(super) fn number(&self) -> u64 {
        self.recorder.counted().ticks
    }

    /// Tells a person something.
    pub fn say(&mut self, now: Duration, level: Level, text: String) {
        self.tell(Record::Message(Message::Event { time: now.as_secs_f64(), level, text }));
    }

    /// Tells a person what goes wrong now and then, not each time; only then `text` is put together.
    pub fn complain(&mut self, now: Duration, text: impl FnOnce() -> String) {
        if self.complained.is_none_or(|before| now.saturating_sub(before) >= COMPLAINT_PERIOD) {
            self.complained = Some(now);
            self.say(now, Level::Warn, text());
        }
    }

    pub(super) fn account(&mut self, now: Duration, missed: u32, sent: Sent) {
        let tick = self.number();
        let period = self.last_sent.map_or(Duration::ZERO, |last| now.saturating_sub(last));
        self.last_sent = Some(now);
        self.recorder.tick(&TickFacts {
            time: now,
            missed,
            origin: sent.origin,
            spliced: self.spliced,
            clipped: sent.clipped != 0,
            command: self.filter.command(),
            state: &self.state.positions,
            image_age: sent.image_age,
        });
        self.tell(Record::Tick(TickRecord {
            tick,
            time: now,
            period,
            missed,
            origin: sent.origin.unwrap_or(Origin::Hold),
            action: sent.action,
            state: Values::of(self.state.positions.iter().copied()),
            command: Values::of(self.filter.command().iter().copied()),
            clipped: sent.clipped,
            image_age: sent.image_age,
        }));
    }

    /// Status and thumbnails, when they are due.
    pub(super) fn tell_state(&mut self, now: Duration) {
        for (rate, frame) in self.rates.iter_mut().zip(&self.frames) {
            let sequence = frame.as_ref().map_or(0, |frame| frame.sequence);
            let over = now.saturating_sub(rate.since);
            if over >= RATE_PERIOD {
                let hz = sequence.saturating_sub(rate.sequence) as f64 / over.as_secs_f64();
                *rate = Rate { sequence, since: now, hz };
            }
        }
        if now >= self.status_due {
            self.status_due = now + STATUS_PERIOD;
            let status = self.status(now);
            self.tell(Record::Status(status));
        }
        if now >= self.thumbnails_due {
            self.thumbnails_due = now + THUMBNAIL_PERIOD;
            for camera in 0..self.frames.len() {
                if let Some(frame) = self.frame(camera).cloned() {
                    self.tell(Record::Thumbnail(camera, frame));
                }
            }
        }
    }

    fn status(&self, now: Duration) -> StatusRecord {
        let counted = self.recorder.counted();
        let ages = self.frames.iter().map(|frame| frame.as_ref().map(|frame| now.saturating_sub(frame.captured)));
        StatusRecord {
            time: now,
            arm: self.arm,
            reason: self.reason.clone(),
            mode: self.scheduler.mode(),
            overlap: self.scheduler.overlap() as u32,
            ticks: counted.ticks,
            late_chunks: counted.late_chunks,
            missed_ticks: counted.missed_ticks,
            held_ticks: counted.held_ticks,
            continued_ticks: counted.continued_ticks,
            clipped_ticks: counted.clipped_ticks,
            rejected_chunks: counted.rejected_chunks,
            camera_age: Values::of(ages),
            camera_hz: Values::of(self.rates.iter().map(|rate| rate.hz)),
            recording: self.recording,
            task_state: self.task_state.clone(),
        }
    }

    pub(super) fn tell_chunk(&mut self, chunk: u64, now: Duration, phase: Phase) {
        let tick = self.number();
        self.tell(Record::Message(Message::Chunk(Chunk { chunk, time: now.as_secs_f64(), tick, phase })));
    }

    fn tell(&mut self, record: Record) {
        if self.outbox.len() < RECORDS {
            self.outbox.push(record);
        }
    }
}
