//! From a launch to the command: asking for chunks, taking them, and what becomes of each.

use std::mem;
use std::time::Duration;

use super::{Core, End, Rejected, Sent, largest_difference};
use crate::realtime::filter::{FarStart, FilterError, Passed, SafetyFilter, Start};
use crate::realtime::policy::Request;
use crate::realtime::scheduler::{Action, Command, Event, Launch};
use crate::realtime::worker::{Inference, Reply};
use crate::track::event::Level;
use crate::track::telemetry::{Origin, Phase};

impl Core {
    /// Takes the chunk that is there, if there is one.
    pub(super) fn take(&mut self, now: Duration, inference: &mut dyn Inference) {
        let Some(Reply { chunk, result, latency }) = inference.poll() else { return };
        if chunk == self.flying.chunk {
            self.asked_at = None;
        }
        let checked = match result {
            Ok(inferred) => match self.filter.check(chunk, &inferred.actions, self.horizon) {
                Ok(()) => Ok(inferred),
                Err(rejection) => Err((rejection.to_string(), inferred.actions)),
            },
            Err(error) => Err((format!("action chunk {chunk}: {error}"), Vec::new())),
        };
        match checked {
            Ok(inferred) => {
                self.recorder.inference(latency, &inferred.timing);
                self.latency = latency;
                let [latency_ms, preprocess_ms, prefix_ms, denoise_ms, copy_ms] = [
                    latency,
                    inferred.timing.preprocess,
                    inferred.timing.prefix,
                    inferred.timing.denoise,
                    inferred.timing.copy,
                ]
                .map(|part| part.as_secs_f64() * 1e3);
                self.tell_chunk(
                    chunk,
                    now,
                    Phase::Arrived { latency_ms, preprocess_ms, prefix_ms, denoise_ms, copy_ms },
                );
                self.scheduler.arrive(chunk, &inferred.actions, Some(latency));
            }
            Err((reason, actions)) => self.reject(now, chunk, reason, actions),
        }
    }

    fn reject(&mut self, now: Duration, chunk: u64, reason: String, actions: Vec<f32>) {
        self.recorder.rejected_chunk();
        self.scheduler.fail(chunk);
        self.pending.take_if(|pending| *pending == chunk);
        self.tell_chunk(chunk, now, Phase::Discarded { reason: reason.clone() });
        self.say(now, Level::Error, format!("{reason}. Holding position."));
        if let Some(request) = self.asked.take_if(|_| chunk == self.flying.chunk) {
            self.rejected = Some(Rejected { chunk, request, actions, reason: reason.clone() });
        }
        if self.recorder.counted().rejected_chunks >= self.settings.rejects {
            self.finish(End::Fault(format!("{reason}. Rollout stopped")));
        }
    }

    pub(super) fn ask(&mut self, now: Duration, launch: Launch, inference: &mut dyn Inference) {
        let request = Request {
            state: launch.state,
            noise_seed: noise_seed(self.settings.seed, launch.chunk),
            continuity: launch.continuity,
            leftover: launch.leftover,
            ..self.request()
        };
        self.flying.chunk = launch.chunk;
        self.flying.captured = request.images.iter().map(|image| image.captured).min();
        self.flying.told.clear();
        self.flying.told.extend_from_slice(&request.state);
        self.asked_at = Some(now);
        self.pending = Some(launch.chunk);
        self.asked = Some(request.clone());
        let overlap = launch.splice.map_or(0, |splice| splice - launch.tick);
        let phase = Phase::Launched { splice: self.number() + overlap, synchronous: launch.splice.is_none() };
        self.flying.overlap = overlap;
        self.tell_chunk(launch.chunk, now, phase);
        inference.request(launch.chunk, request);
    }

    /// Decides, limits and leaves the command in the filter.
    pub(super) fn command(&mut self, now: Duration) -> Sent {
        self.scheduler.settle();
        self.note_events(now);
        let acted = match self.scheduler.command() {
            Command::Action(action) => act(&mut self.filter, action, mem::take(&mut self.starting)),
            Command::Hold(_) => Acted::Held,
            Command::Stop => Acted::Over("a chunk is late, and then the rollout is to stop".into()),
        };
        self.note_events(now);
        let sent = match acted {
            Acted::Sent(sent) => {
                if sent.outside {
                    self.complain_of_place(now);
                }
                let captured = self.used.captured;
                Sent { image_age: captured.map(|captured| now.saturating_sub(captured)), ..sent }
            }
            Acted::Held => {
                self.filter.apply(None);
                Sent { origin: Some(Origin::Hold), ..Sent::IDLE }
            }
            Acted::Over(fault) => {
                self.filter.apply(None);
                self.finish(End::Fault(fault));
                Sent { origin: Some(Origin::Hold), ..Sent::IDLE }
            }
            Acted::Far { joint, distance, target } => {
                self.filter.apply(None);
                self.far_start(now, joint, distance, target);
                Sent::IDLE
            }
        };
        self.continued = sent.origin == Some(Origin::Continued);
        sent
    }

    /// The first action is far: the arm goes there slowly and asks anew, or holds.
    fn far_start(&mut self, now: Duration, joint: usize, distance: f32, target: Vec<f32>) {
        let joint = self.filter.names().get(joint).cloned().unwrap_or_default();
        self.scheduler.reset();
        self.give_up(now, "its first action is far from the arm");
        self.starting = true;
        if !self.filter.reaches(&target) {
            self.hold("the first action is outside of limits.workspace".into(), false, now);
        } else if let FarStart::Approach(_) = self.settings.filter.far_start {
            let text = format!("the first action is {distance:.2} from where {joint} stands: going there slowly");
            self.say(now, Level::Info, text);
            self.approach = Some(target);
        } else {
            let most = self.settings.filter.start_distance;
            self.hold(FilterError::Far { joint, distance, most }.to_string(), false, now);
        }
    }

    /// What became of chunks, before the next takes the place of what is known of one.
    pub(super) fn note_events(&mut self, now: Duration) {
        let next = self.scheduler.peek();
        let jump = next.map_or(0.0, |next| largest_difference(self.filter.command(), next));
        let mut events = [None; 4];
        events.iter_mut().zip(self.scheduler.events()).for_each(|(slot, event)| *slot = Some(event));
        for event in events.into_iter().flatten() {
            match event {
                Event::Spliced { chunk, row, late, .. } => {
                    mem::swap(&mut self.used, &mut self.flying);
                    self.pending.take_if(|pending| *pending == chunk);
                    self.spliced = true;
                    self.recorder.spliced(&self.used.told, &self.state.positions);
                    let state_error = largest_difference(&self.used.told, &self.state.positions);
                    let phase = Phase::Spliced { index: row as u32, late: late as u32, jump, state_error };
                    self.tell_chunk(chunk, now, phase);
                    if late > 0 {
                        self.complain_of_delay(now, chunk, late);
                    }
                }
                Event::Missed { .. } => self.recorder.late_chunk(),
                Event::Discarded { chunk, late } => {
                    self.recorder.discarded_chunk();
                    self.pending.take_if(|pending| *pending == chunk);
                    let reason = format!(
                        "{late} ticks late: inference is slower than a chunk. Fewer denoising steps or cameras, a longer \
                         chunk, or a lower fps"
                    );
                    self.complain(now, || format!("chunk {chunk} is not used: {reason}"));
                    self.tell_chunk(chunk, now, Phase::Discarded { reason });
                }
            }
        }
    }
}

impl Core {
    /// An inference that took longer than was planned with.
    fn complain_of_delay(&mut self, now: Duration, chunk: u64, late: u64) {
        let planned = self.used.overlap as f64 * 1e3 / self.settings.schedule.fps;
        let took = self.latency.as_secs_f64() * 1e3;
        self.complain(now, || {
            format!(
                "inference took {took:.0} ms, {planned:.0} ms were planned: chunk {chunk} began {late} ticks late. Fewer \
                 denoising steps (policy.num_steps), a lower control.fps or a faster device help"
            )
        });
    }

    /// A command that led the gripper out of its box.
    fn complain_of_place(&mut self, now: Duration) {
        let [x, y, z] = self.filter.gripper().unwrap_or_default();
        self.complain(now, || {
            format!(
                "the policy leads the gripper out of limits.workspace: it is held at {x:.3}, {y:.3}, {z:.3} m (forward, \
                 left, up)"
            )
        });
    }

    /// Gives up what was asked for: nobody waits for it any more.
    pub(super) fn give_up(&mut self, now: Duration, reason: &str) {
        if let Some(chunk) = self.pending.take() {
            self.tell_chunk(chunk, now, Phase::Discarded { reason: reason.into() });
        }
    }
}

/// What became of a tick's decision.
enum Acted {
    Sent(Sent),
    Held,
    /// The rollout ends, and why.
    Over(String),
    /// The first action is too far from the arm.
    Far {
        joint: usize,
        distance: f32,
        target: Vec<f32>,
    },
}

/// Sends `action` through the filter, unless it is the first and far away.
fn act(filter: &mut SafetyFilter, action: Action<'_>, first: bool) -> Acted {
    if first && let Start::Far { joint, distance } = filter.start(action.target) {
        return Acted::Far { joint, distance, target: action.target.to_vec() };
    }
    let passed = filter.apply(Some(action.target));
    if passed.refused {
        let fault = format!("an action of chunk {} is beyond the limits and is refused. Rollout stopped", action.chunk);
        return Acted::Over(fault);
    }
    let origin = if action.continued { Origin::Continued } else { Origin::Fresh };
    let action = (action.chunk, action.step as u32);
    let Passed { clipped, outside, .. } = passed;
    Acted::Sent(Sent { origin: Some(origin), action: Some(action), clipped, outside, image_age: None })
}

/// Chunks of a rollout begin from different noise.
fn noise_seed(seed: u64, chunk: u64) -> u64 {
    seed ^ chunk.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
