//! What a person can do, and when.

use super::capability::{ColorLevel, Glyphs};
use super::state::State;
use super::theme::Tone;

/// One thing a person can ask for. Keys, palette and mouse all end here.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Action {
    PauseOrResume,
    Pause,
    Resume,
    Checkpoint,
    Stop,
    /// Opens the input for [`Action::SetLearningRate`].
    LearningRate,
    SetLearningRate(f64),
    Evaluate,
    Evidence,
    LogScale,
    TimeAxis,
    Window,
    Smoothing,
    Left,
    Right,
    ShowLog,
    NextPane,
    PreviousPane,
    Zoom,
    Restore,
    Filter,
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
    Copy,
    Notifications,
    Commands,
    Palette,
    Help,
    Refresh,
    Suspend,
    Escape,
    Quit,
    SetColor(ColorLevel),
    SetGlyphs(Glyphs),
    SetTone(Tone),
    SetMouse(bool),
}

impl Action {
    /// Whether it sends something to the run.
    pub fn steers(self) -> bool {
        matches!(
            self,
            Action::PauseOrResume
                | Action::Pause
                | Action::Resume
                | Action::Checkpoint
                | Action::Stop
                | Action::LearningRate
                | Action::SetLearningRate(_)
                | Action::Evaluate
        )
    }

    /// Why it cannot be done now; nothing when it can.
    pub fn obstacle(self, state: &State) -> Option<String> {
        if !self.steers() {
            return None;
        }
        if state.settings.read_only {
            return Some("this session is read-only".into());
        }
        if let Some(ended) = state.run.ending() {
            return Some(format!("the run has {}", ended.word()));
        }
        let paused = state.run.is_paused();
        match self {
            Action::Pause if paused => Some("the run is paused already".into()),
            Action::Resume if !paused => Some("the run is not paused".into()),
            _ => None,
        }
    }
}

/// What the shell around the state has to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    Send { ticket: u64, command: crate::track::control::Command },
    Copy(String),
    Refresh,
    Suspend,
    Mouse(bool),
    Leave,
}
