//! One joint's bounds: position, step a tick, and change of the step.

use super::rejection::FilterError;
use super::{FilterSettings, MOST_JOINTS};
use crate::robot::Limits;

/// Speed and acceleration stay a hair below their limits, so that rounding to single precision does not lead beyond.
const HAIR: f64 = 0.999;

/// Positions in rad or m; speeds and accelerations a tick.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Joint {
    low: f32,
    high: f32,
    fastest: f64,
    change: f64,
    position: f32,
    velocity: f64,
}

/// # Errors
/// Limits or settings that make no sense.
pub(super) fn all(names: &[String], limits: &Limits, settings: &FilterSettings) -> Result<Vec<Joint>, FilterError> {
    let count = names.len();
    let widths = [limits.position.len(), limits.velocity.len(), limits.acceleration.len()];
    if let Some(&found) = widths.iter().find(|&&width| width != count) {
        return Err(FilterError::Width { found, expected: count });
    }
    if count > MOST_JOINTS {
        return Err(FilterError::TooMany(count));
    }
    if !(settings.fps.is_finite() && settings.fps > 0.0 && (0.0..0.5).contains(&settings.margin)) {
        return Err(FilterError::Settings { fps: settings.fps, margin: settings.margin });
    }
    let bounds = limits.position.iter().zip(&limits.velocity).zip(&limits.acceleration);
    names
        .iter()
        .zip(bounds)
        .map(|(name, ((range, velocity), acceleration))| {
            Joint::new(*range, *velocity, *acceleration, settings).ok_or_else(|| FilterError::Limits {
                joint: name.clone(),
                limits: [range[0], range[1], *velocity, *acceleration],
            })
        })
        .collect()
}

impl Joint {
    fn new([low, high]: [f32; 2], velocity: f32, acceleration: f32, settings: &FilterSettings) -> Option<Joint> {
        let sound = low.is_finite() && high.is_finite() && low < high;
        let positive = |value: f32| value.is_finite() && value > 0.0;
        if !sound
            || !positive(velocity)
            || !positive(acceleration)
            || settings.max_step.is_some_and(|step| !positive(step))
        {
            return None;
        }
        let margin = settings.margin * (high - low);
        let (low, high) = (low + margin, high - margin);
        let step = f64::from(velocity) / settings.fps;
        Some(Joint {
            low,
            high,
            fastest: HAIR * settings.max_step.map_or(step, |most| step.min(f64::from(most))),
            change: HAIR * f64::from(acceleration) / (settings.fps * settings.fps),
            position: low + (high - low) / 2.0,
            velocity: 0.0,
        })
    }

    pub(super) fn range(&self) -> [f32; 2] {
        [self.low, self.high]
    }

    pub(super) fn command(&self) -> f32 {
        self.position
    }

    pub(super) fn stand_at(&mut self, measured: f32) {
        self.position = measured.clamp(self.low, self.high);
        self.velocity = 0.0;
    }

    /// How far a value is out of the range.
    pub(super) fn outside(&self, value: f32) -> f64 {
        let beyond = f64::from(value) - f64::from(value.clamp(self.low, self.high));
        beyond.abs()
    }

    pub(super) fn distance(&self, target: f32) -> f64 {
        (f64::from(target) - f64::from(self.position)).abs()
    }

    /// One tick towards `target`, which is finite.
    pub(super) fn follow(&mut self, target: f32) {
        let step = f64::from(target.clamp(self.low, self.high)) - f64::from(self.position);
        self.step(step, self.fastest);
    }

    /// Whether it does not move.
    pub(super) fn stands(&self) -> bool {
        self.velocity == 0.0
    }

    /// One tick towards standing still.
    pub(super) fn brake(&mut self) {
        self.step(0.0, self.fastest);
    }

    /// One tick towards `target` at `pace` of the speed limit, so that it can stop there. Returns whether it has.
    pub(super) fn approach(&mut self, target: f32, pace: f64) -> bool {
        let target = f64::from(target.clamp(self.low, self.high));
        let step = target - f64::from(self.position);
        let most = fastest_to_stop_within(step.abs(), self.change);
        self.step(step.clamp(-most, most), self.fastest * pace.clamp(0.0, 1.0));
        (target - f64::from(self.position)).abs() < 1e-4 && self.velocity.abs() < 1e-4
    }

    /// Moves by `wanted` or the nearest step that the limits allow.
    fn step(&mut self, wanted: f64, fastest: f64) {
        let position = f64::from(self.position);
        // A speed above `fastest` (it was lowered) comes down as quickly as may be.
        let slowest_change = (self.velocity - self.change, self.velocity + self.change);
        let highest = fastest.min(slowest_change.1).max(slowest_change.0);
        let lowest = (-fastest).max(slowest_change.0).min(slowest_change.1);
        let highest = highest.min(fastest_to_stop_within(f64::from(self.high) - position, self.change));
        let lowest = lowest.max(-fastest_to_stop_within(position - f64::from(self.low), self.change));
        let step = wanted.max(lowest).min(highest);
        let next = ((position + step) as f32).clamp(self.low, self.high);
        self.velocity = f64::from(next) - position;
        self.position = next;
    }
}

/// The longest step u after which a joint that slows down by `change` a tick stops within `distance`, u included: the
/// inverse of u + (u − change) + (u − 2·change) + …, which is linear between multiples of `change`.
fn fastest_to_stop_within(distance: f64, change: f64) -> f64 {
    let distance = distance.max(0.0);
    let further = (((1.0 + 8.0 * distance / change).sqrt() - 1.0) / 2.0).floor();
    (distance + change * further * (further + 1.0) / 2.0) / (further + 1.0)
}

#[cfg(test)]
mod tests {
    use super::fastest_to_stop_within;

    #[test]
    fn the_longest_step_after_which_it_can_stop() {
        for (distance, change) in [(0.0, 0.1), (0.05, 0.1), (0.1, 0.1), (0.3, 0.1), (0.37, 0.1), (7.0, 0.03)] {
            let step = fastest_to_stop_within(distance, change);
            let mut gone = 0.0;
            let mut now = step;
            while now > 0.0 {
                gone += now;
                now -= change;
            }
            assert!((gone - distance).abs() < 1e-9, "{distance} {change}: {step} leads {gone} far");
        }
    }
}
