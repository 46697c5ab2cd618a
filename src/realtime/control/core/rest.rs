//! The way to the rest pose, after a rollout: watched and limited as everything else is. What would hold an arm makes it
//! wait, what would end a rollout breaks it off.

use std::time::Duration;

use super::{Core, End, Sent};
use crate::realtime::watchdog::Verdict;
use crate::robot::{Robot, RobotError};
use crate::track::event::Level;
use crate::track::telemetry::ArmState;

/// How far the way is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rest {
    Going,
    There,
    /// Somebody holds or stopped the arm, or something failed for good.
    BrokenOff,
}

impl Core {
    /// Whether the arm may be moved though its rollout is over: it ended in order, and nobody holds or stopped the arm.
    pub fn may_rest(&self) -> bool {
        self.arm == ArmState::Armed && !matches!(self.end, Some(End::Fault(_)))
    }

    /// One tick at `now`, after `missed` that were passed over, on the way to `pose` at `pace` (0…1) of the speed limits.
    ///
    /// # Errors
    /// The arm's: it must not be commanded any further.
    pub fn rest(
        &mut self,
        now: Duration,
        missed: u32,
        robot: &mut dyn Robot,
        pose: &[f32],
        pace: f64,
    ) -> Result<Rest, RobotError> {
        if self.arm != ArmState::Armed {
            return Ok(Rest::BrokenOff);
        }
        robot.read(&mut self.state)?;
        robot.frames(&mut self.frames);
        // What was asked for before the end is nobody's any more.
        (self.asked_at, self.continued) = (None, false);
        let rest = match self.verdict(now) {
            Verdict::Stop(fault) => self.break_off(now, &fault.to_string()),
            _ if self.is_alone(now) => self.break_off(now, "no sign of the operator"),
            // It goes on when that is over.
            Verdict::Hold(_) => {
                self.filter.apply(None);
                Rest::Going
            }
            Verdict::Well if self.filter.approach(pose, pace) => Rest::There,
            Verdict::Well => Rest::Going,
        };
        robot.send(self.filter.command())?;
        self.account(now, missed, Sent::IDLE);
        self.tell_state(now);
        Ok(rest)
    }

    fn break_off(&mut self, now: Duration, why: &str) -> Rest {
        self.filter.apply(None);
        self.say(now, Level::Warn, format!("not at the rest pose, holding position: {why}"));
        Rest::BrokenOff
    }
}
