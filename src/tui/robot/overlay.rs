//! What lies over the Robot screen. Stop keys go through every layer, so no field ever sees a blank or a capital E.

use crate::tui::overlay::Input;

/// A layer.
#[derive(Debug, Clone, PartialEq)]
pub enum Overlay {
    Help { input: Input, scroll: usize },
    Palette { input: Input, selected: usize },
    Arm { input: Input, error: Option<String> },
    ConfirmStop,
    Quit,
    Orders { scroll: usize },
    Events { scroll: usize },
}

impl Overlay {
    /// The text field of this layer: it swallows plain letters, except those that stop.
    pub fn input(&mut self) -> Option<&mut Input> {
        match self {
            Overlay::Help { input, .. } | Overlay::Palette { input, .. } | Overlay::Arm { input, .. } => Some(input),
            _ => None,
        }
    }

    /// What is scrolled here.
    pub fn scroll(&mut self) -> Option<&mut usize> {
        match self {
            Overlay::Help { scroll, .. } | Overlay::Orders { scroll } | Overlay::Events { scroll } => Some(scroll),
            Overlay::Palette { selected, .. } => Some(selected),
            _ => None,
        }
    }
}

/// A robot's name as it is typed to arm it: in small letters, blanks as hyphens, since capital E and the space bar stop.
pub fn typable(name: &str) -> String {
    name.trim().to_lowercase().chars().map(|c| if c.is_whitespace() { '-' } else { c }).collect()
}
