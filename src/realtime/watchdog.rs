//! Watches what the loop depends on: cameras, joint feedback, the inference thread. A function of what was observed; it
//! knows no clock and commands nothing.

use std::time::Duration;

use crate::dataset::frame::RgbFrame;
use crate::robot::Frame;

/// Images all of whose values lie so close together show nothing: a lens cap, no light, a dead sensor with its noise.
const BLANK: u8 = 12;
/// So many in a row hold the arm: one alone may be a flash.
const BLANK_IMAGES: u32 = 3;

/// The lowest and the highest value of an image that shows nothing; none of one that shows something.
pub fn blank(image: &RgbFrame) -> Option<[u8; 2]> {
    let (mut low, mut high) = (u8::MAX, u8::MIN);
    // Images that show something end the search early.
    for part in image.data.chunks(1024) {
        low = part.iter().fold(low, |low, &value| low.min(value));
        high = part.iter().fold(high, |high, &value| high.max(value));
        if high.saturating_sub(low) > BLANK {
            return None;
        }
    }
    (low <= high).then_some([low, high])
}

/// What is tolerated.
#[derive(Debug, Clone, PartialEq)]
pub struct WatchdogSettings {
    /// Older images hold the arm, or end the rollout.
    pub camera_age: Duration,
    pub camera_stop: Duration,
    /// Images of equal content in a row that count as frozen, while the arm is commanded to move by [`Self::motion`].
    pub frozen_images: u32,
    /// Equal joint readings in a row that count as frozen, while the arm is commanded to move by [`Self::motion`].
    pub frozen_readings: u32,
    /// Movement of the commands, rad, that has to show in images and readings.
    pub motion: f32,
    /// Without a chunk for this long the arm holds, if it still moves on old actions; or the rollout ends.
    pub worker_hold: Duration,
    pub worker_stop: Duration,
}

impl WatchdogSettings {
    /// Three periods for images, half a second of equal images or readings under motion.
    pub fn new(fps: f64) -> WatchdogSettings {
        let periods = |count: f64| Duration::try_from_secs_f64(count / fps).unwrap_or(Duration::from_secs(1));
        let half_a_second = (fps / 2.0).ceil().clamp(3.0, 1e6) as u32;
        WatchdogSettings {
            camera_age: periods(3.0),
            camera_stop: Duration::from_secs(3),
            frozen_images: half_a_second,
            frozen_readings: half_a_second,
            motion: 0.15,
            worker_hold: Duration::from_secs(2),
            worker_stop: Duration::from_secs(30),
        }
    }
}

/// What is wrong.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Fault {
    #[error("camera {camera}: last new frame {} ms ago (limit {} ms)", .age.as_millis(), .limit.as_millis())]
    CameraOld { camera: String, age: Duration, limit: Duration },
    #[error("camera {camera}: no frame yet, {} ms after the start (limit {} ms)", .age.as_millis(), .limit.as_millis())]
    CameraSilent { camera: String, age: Duration, limit: Duration },
    #[error("camera {camera}: {images} equal images while the arm was commanded through {motion:.2} rad")]
    CameraFrozen { camera: String, images: u32, motion: f32 },
    #[error("camera {camera}: its images show nothing, every value is {low} … {high}. Lens cap, light, exposure?")]
    CameraBlank { camera: String, low: u8, high: u8 },
    #[error("joint feedback: {readings} equal readings while the arm was commanded through {motion:.2} rad")]
    FeedbackFrozen { readings: u32, motion: f32 },
    #[error("inference: no chunk for {} ms (limit {} ms)", .silent.as_millis(), .limit.as_millis())]
    WorkerSilent { silent: Duration, limit: Duration },
}

/// What has to be done.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    Well,
    Hold(Fault),
    Stop(Fault),
}

/// What one tick saw.
#[derive(Debug, Clone, Copy)]
pub struct Observed<'a> {
    pub now: Duration,
    /// The newest image of each camera.
    pub frames: &'a [Option<Frame>],
    pub state: &'a [f32],
    /// The command in force.
    pub command: &'a [f32],
    /// Since when the worker owes a chunk.
    pub waiting_since: Option<Duration>,
    /// Whether the arm moves on actions past those that were to be executed.
    pub continued: bool,
}

/// One camera's content.
#[derive(Debug, Clone, Copy, Default)]
struct Content {
    sequence: Option<u64>,
    hash: u64,
    repeats: u32,
    motion: f32,
    /// Images in a row that show nothing, and the values of the last.
    blank: u32,
    shade: [u8; 2],
}

/// The watchdog of one rollout.
#[derive(Debug, Clone)]
pub struct Watchdog {
    settings: WatchdogSettings,
    cameras: Vec<String>,
    contents: Vec<Content>,
    began: Option<Duration>,
    command: Vec<f32>,
    state: Vec<f32>,
    repeats: u32,
    motion: f32,
}

impl Watchdog {
    /// Cameras in the order of the frames that it will see.
    pub fn new(settings: WatchdogSettings, cameras: &[String], joints: usize) -> Watchdog {
        Watchdog {
            settings,
            cameras: cameras.to_vec(),
            contents: vec![Content::default(); cameras.len()],
            began: None,
            command: Vec::with_capacity(joints),
            state: Vec::with_capacity(joints),
            repeats: 0,
            motion: 0.0,
        }
    }

    /// Counts frozen images and readings from here on anew: someone has looked and lets the arm move.
    pub fn forgive(&mut self) {
        for content in &mut self.contents {
            (content.repeats, content.motion) = (0, 0.0);
        }
        (self.repeats, self.motion) = (0, 0.0);
    }

    /// The worst that this tick shows.
    pub fn observe(&mut self, seen: &Observed<'_>) -> Verdict {
        let began = *self.began.get_or_insert(seen.now);
        let moved = largest_step(&self.command, seen.command);
        copy(&mut self.command, seen.command);
        let mut worst = self.worker(seen);
        for camera in 0..self.contents.len() {
            let frame = seen.frames.get(camera).and_then(Option::as_ref);
            worst = worse(worst, self.camera(camera, frame, moved, seen.now, began));
        }
        worse(worst, self.feedback(seen, moved))
    }

    fn camera(&mut self, camera: usize, frame: Option<&Frame>, moved: f32, now: Duration, began: Duration) -> Verdict {
        let (Some(content), Some(name)) = (self.contents.get_mut(camera), self.cameras.get(camera)) else {
            return Verdict::Well;
        };
        content.motion += moved;
        let age = now.saturating_sub(frame.map_or(began, |frame| frame.captured));
        let fault = |limit| match frame {
            Some(_) => Fault::CameraOld { camera: name.clone(), age, limit },
            None => Fault::CameraSilent { camera: name.clone(), age, limit },
        };
        if age > self.settings.camera_stop {
            return Verdict::Stop(fault(self.settings.camera_stop));
        }
        if age > self.settings.camera_age {
            return Verdict::Hold(fault(self.settings.camera_age));
        }
        let Some(frame) = frame else { return Verdict::Well };
        if content.sequence != Some(frame.sequence) {
            let hash = hash(&frame.image.data);
            if content.sequence.is_some() && hash == content.hash {
                content.repeats += 1;
            } else {
                (content.repeats, content.motion) = (0, 0.0);
            }
            (content.sequence, content.hash) = (Some(frame.sequence), hash);
            let shade = blank(&frame.image);
            content.blank = if shade.is_some() { content.blank + 1 } else { 0 };
            content.shade = shade.unwrap_or_default();
        }
        if content.blank >= BLANK_IMAGES {
            let [low, high] = content.shade;
            return Verdict::Hold(Fault::CameraBlank { camera: name.clone(), low, high });
        }
        let frozen = content.repeats >= self.settings.frozen_images && content.motion > self.settings.motion;
        if frozen {
            return Verdict::Hold(Fault::CameraFrozen {
                camera: name.clone(),
                images: content.repeats + 1,
                motion: content.motion,
            });
        }
        Verdict::Well
    }

    fn feedback(&mut self, seen: &Observed<'_>, moved: f32) -> Verdict {
        let same = self.state == seen.state;
        copy(&mut self.state, seen.state);
        (self.repeats, self.motion) = if same { (self.repeats + 1, self.motion + moved) } else { (0, 0.0) };
        if self.repeats >= self.settings.frozen_readings && self.motion > self.settings.motion {
            return Verdict::Stop(Fault::FeedbackFrozen { readings: self.repeats + 1, motion: self.motion });
        }
        Verdict::Well
    }

    fn worker(&self, seen: &Observed<'_>) -> Verdict {
        let silent = seen.waiting_since.map_or(Duration::ZERO, |since| seen.now.saturating_sub(since));
        let fault = |limit| Fault::WorkerSilent { silent, limit };
        if silent > self.settings.worker_stop {
            return Verdict::Stop(fault(self.settings.worker_stop));
        }
        if silent > self.settings.worker_hold && seen.continued {
            return Verdict::Hold(fault(self.settings.worker_hold));
        }
        Verdict::Well
    }
}

fn worse(a: Verdict, b: Verdict) -> Verdict {
    match (&a, &b) {
        (Verdict::Stop(_), _) | (_, Verdict::Well) | (Verdict::Hold(_), Verdict::Hold(_)) => a,
        _ => b,
    }
}

fn largest_step(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

fn copy(to: &mut Vec<f32>, from: &[f32]) {
    to.clear();
    to.extend_from_slice(from);
}

/// Of an image's bytes, eight at a time: equal images have equal hashes, and others hardly ever.
fn hash(bytes: &[u8]) -> u64 {
    let mix = |hash: u64, word: u64| (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    let words = bytes.chunks(8).map(|bytes| bytes.iter().fold(0, |word, &byte| word << 8 | u64::from(byte)));
    words.fold(bytes.len() as u64, mix)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    fn frame(captured: u64, sequence: u64, grey: u8) -> Option<Frame> {
        let data = (0..18).map(|at| grey ^ (at * 8)).collect();
        Some(Frame { captured: ms(captured), sequence, image: Arc::new(RgbFrame { height: 2, width: 3, data }) })
    }

    fn watchdog() -> Watchdog {
        Watchdog::new(WatchdogSettings::new(30.0), &["front".into(), "wrist".into()], 1)
    }

    /// 60 ticks at 30 Hz; frames, state and command by tick. The first verdict that is not well, with its tick.
    fn first(frames: impl Fn(u64) -> Vec<Option<Frame>>, joint: impl Fn(u64) -> (f32, f32)) -> Option<(u64, Verdict)> {
        let mut watchdog = watchdog();
        (0..200).find_map(|tick| {
            let (state, command) = joint(tick);
            let verdict = watchdog.observe(&Observed {
                now: ms(tick * 33),
                frames: &frames(tick),
                state: &[state],
                command: &[command],
                waiting_since: None,
                continued: false,
            });
            (verdict != Verdict::Well).then_some((tick, verdict))
        })
    }

    fn moving(tick: u64) -> (f32, f32) {
        (tick as f32 * 0.02, tick as f32 * 0.02)
    }

    fn live(tick: u64) -> Option<Frame> {
        frame(tick * 33, tick, tick as u8)
    }

    #[test]
    fn all_well_holds_nothing() {
        assert_eq!(first(|tick| vec![live(tick), live(tick)], moving), None);
        // A scene that stands while the arm stands is no frozen camera.
        assert_eq!(first(|tick| vec![live(tick), frame(tick * 33, tick, 7)], |_| (0.0, 0.0)), None);
    }

    #[test]
    fn a_stalled_camera_is_named_after_three_periods() {
        let stalls = |tick: u64| vec![live(tick), live(tick.min(10))];
        let Some((14, Verdict::Hold(fault))) = first(stalls, moving) else { panic!("{:?}", first(stalls, moving)) };
        assert_eq!(fault.to_string(), "camera wrist: last new frame 132 ms ago (limit 100 ms)");
        assert!(matches!(first(|t| vec![live(t), None], moving), Some((4, Verdict::Hold(Fault::CameraSilent { .. })))));
    }

    #[test]
    fn an_image_that_repeats_under_motion_is_frozen() {
        let repeats = |tick: u64| vec![live(tick), frame(tick * 33, tick, 7)];
        assert!(matches!(first(repeats, moving), Some((15, Verdict::Hold(Fault::CameraFrozen { .. })))));
    }

    #[test]
    fn a_camera_that_shows_nothing_is_told_from_a_flash_and_from_a_dark_scene() {
        let grey = |tick: u64, value: u8, noise: u8| {
            let data = (0..3000).map(|at| value + at as u8 % (noise + 1)).collect();
            let image = Arc::new(RgbFrame { height: 20, width: 50, data });
            vec![live(tick), Some(Frame { captured: ms(tick * 33), sequence: tick, image })]
        };
        let black = first(|tick| if tick < 20 { vec![live(tick), live(tick)] } else { grey(tick, 0, 6) }, moving);
        let Some((22, Verdict::Hold(fault))) = black else { panic!("{black:?}") };
        let said = "camera wrist: its images show nothing, every value is 0 … 6. Lens cap, light, exposure?";
        assert_eq!(fault.to_string(), said);
        assert!(matches!(
            first(|tick| grey(tick, 250, 5), moving),
            Some((2, Verdict::Hold(Fault::CameraBlank { .. })))
        ));
        let flash = |tick: u64| if tick % 40 == 7 { grey(tick, 255, 0) } else { vec![live(tick), live(tick)] };
        assert_eq!(first(flash, moving), None);
        assert_eq!(
            blank(&RgbFrame { height: 20, width: 50, data: grey(0, 3, 30)[1].clone().unwrap().image.data.clone() }),
            None
        );
        assert_eq!(blank(&RgbFrame { height: 0, width: 0, data: Vec::new() }), None);
    }

    #[test]
    fn frozen_feedback_under_motion_is_the_arms_fault() {
        let found = first(|tick| vec![live(tick), live(tick)], |tick| (0.0, tick as f32 * 0.02));
        assert!(matches!(found, Some((15, Verdict::Stop(Fault::FeedbackFrozen { .. })))), "{found:?}");
    }

    #[test]
    fn a_silent_worker_holds_what_moves_and_ends_what_waits_too_long() {
        let seen = |milliseconds, continued| {
            let (frames, state) = ([frame(milliseconds, 1, 1), frame(milliseconds, 1, 1)], [0.0]);
            watchdog().observe(&Observed {
                now: ms(milliseconds),
                frames: &frames,
                state: &state,
                command: &state,
                waiting_since: Some(ms(0)),
                continued,
            })
        };
        assert_eq!(seen(5000, false), Verdict::Well);
        assert!(matches!(seen(5000, true), Verdict::Hold(Fault::WorkerSilent { .. })));
        assert!(matches!(seen(31_000, false), Verdict::Stop(_)));
    }
}
