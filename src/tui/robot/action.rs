//! What a person can do on the Robot screen, and when.

use super::state::{Liveness, State};
use crate::track::telemetry::{ArmState, Steer};
use crate::tui::capability::{ColorLevel, Glyphs};
use crate::tui::theme::Tone;

/// One thing a person can ask for. Keys and palette both end here.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Action {
    Hold,
    EmergencyStop,
    /// Opens the dialog that asks for the robot's name.
    Arm,
    ToggleMode,
    Mode(&'static str),
    Record,
    /// Opens the question whether to end the rollout.
    Stop,
    Freeze,
    Earlier,
    Later,
    NextPane,
    PreviousPane,
    Zoom,
    Up,
    Down,
    PageUp,
    PageDown,
    Orders,
    Events,
    Palette,
    Help,
    Suspend,
    Escape,
    Quit,
    Images(bool),
    SetColor(ColorLevel),
    SetGlyphs(Glyphs),
    SetTone(Tone),
    SetMouse(bool),
}

/// What the shell around the state has to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Send to the robot; by every way there is, or by the best.
    Order {
        ticket: u64,
        steer: Steer,
        every: bool,
    },
    Suspend,
    Mouse(bool),
    Leave,
}

impl Action {
    fn steers(self) -> bool {
        use Action::{Arm, EmergencyStop, Hold, Mode, Record, Stop, ToggleMode};
        matches!(self, Hold | EmergencyStop | Arm | ToggleMode | Mode(_) | Record | Stop)
    }

    /// Why it cannot be done now; nothing when it can. Nothing is in the way of a stop, whatever is known of the link.
    pub fn obstacle(self, state: &State) -> Option<String> {
        if !self.steers() {
            return None;
        }
        if state.settings.read_only {
            return Some("this session is read-only".into());
        }
        if state.live.ended.is_some() {
            return Some("the rollout has ended".into());
        }
        if state.liveness() == Liveness::Gone {
            return Some("the rollout's process is gone: nobody takes orders, use the robot's own stop".into());
        }
        match (self, state.liveness()) {
            (Action::Hold | Action::EmergencyStop | Action::Stop, _) => None,
            (_, Liveness::Waiting) => Some("the robot has not been heard yet".into()),
            (_, Liveness::Lost(_)) => Some("the link to the robot is lost".into()),
            (Action::Arm, _) if state.newest().is_some_and(|s| s.arm == ArmState::Armed) => {
                Some("the arm is armed already".into())
            }
            _ => None,
        }
    }
}
