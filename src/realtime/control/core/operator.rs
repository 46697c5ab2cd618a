//! What the operator asks for, and what holds the arm.

use std::time::Duration;

use super::{Core, End, largest_difference};
use crate::realtime::control::error::RolloutError;
use crate::realtime::scheduler::Mode;
use crate::robot::Robot;
use crate::track::event::Level;
use crate::track::telemetry::{ArmState, Steer};

/// Largest difference of a joint between state and command with which a held arm is armed again.
const ARM_ERROR: f32 = 0.1;
const EMERGENCY: &str = "emergency stop: the arm obeys nothing and may sink";

impl Core {
    /// What an operator asked for.
    ///
    /// # Errors
    /// The arm did not take its emergency stop, or does not obey again after it.
    pub fn steer(&mut self, steer: &Steer, robot: &mut dyn Robot, now: Duration) -> Result<(), RolloutError> {
        match steer {
            Steer::Hold if self.arm == ArmState::Armed => self.hold("the operator holds it".into(), false, now),
            Steer::Hold => {}
            Steer::EmergencyStop => {
                robot.emergency_stop()?;
                self.stand(EMERGENCY.into(), false, now);
                self.say(now, Level::Warn, EMERGENCY.into());
                self.arm = ArmState::EmergencyStopped;
            }
            Steer::Arm { robot: name } => self.rearm(name, robot, now)?,
            Steer::Mode { mode } => match mode.parse::<Mode>() {
                Ok(Mode::RtcTrained) if self.scheduler.settings().rtc_trained_delay == 0 => {
                    let text = "mode refused: this checkpoint was not trained for rtc-trained";
                    self.say(now, Level::Warn, text.into());
                }
                Ok(mode) => {
                    self.scheduler.set_mode(mode);
                    self.say(now, Level::Info, format!("mode {mode} from the next chunk on"));
                }
                Err(error) => self.say(now, Level::Warn, format!("mode refused: {error}")),
            },
            Steer::Record { on } => self.recording = *on,
            Steer::Stop => self.end = Some(End::Stopped),
            Steer::Heartbeat => self.heartbeat = now,
        }
        Ok(())
    }

    fn rearm(&mut self, name: &str, robot: &mut dyn Robot, now: Duration) -> Result<(), RolloutError> {
        if self.arm == ArmState::Armed {
            return Ok(());
        }
        if name != self.robot_name {
            self.say(now, Level::Warn, format!("arm refused: the robot's name is {}, not {name:?}", self.robot_name));
            return Ok(());
        }
        if self.arm == ArmState::EmergencyStopped {
            robot.connect()?;
            self.begin(robot, now)?;
        }
        if let Some(fault) = self.capped() {
            self.say(now, Level::Warn, format!("arm refused: {fault}"));
            return Ok(());
        }
        let error = largest_difference(&self.state.positions, self.filter.command());
        if error > ARM_ERROR {
            let text = format!("arm refused: a joint is {error:.3} from its command, at most {ARM_ERROR} is allowed");
            self.say(now, Level::Warn, text);
            return Ok(());
        }
        self.heartbeat = now;
        self.arm();
        self.say(now, Level::Info, "armed by the operator".into());
        Ok(())
    }

    pub(super) fn hold(&mut self, reason: String, watched: bool, now: Duration) {
        self.say(now, Level::Warn, format!("holding position: {reason}"));
        self.stand(reason, watched, now);
    }

    /// The policy commands nothing any more.
    fn stand(&mut self, reason: String, watched: bool, now: Duration) {
        self.scheduler.reset();
        self.give_up(now, "the arm was held");
        (self.arm, self.reason, self.watched) = (ArmState::Holding, Some(reason.into()), watched);
        (self.approach, self.asked_at, self.continued) = (None, None, false);
    }
}
