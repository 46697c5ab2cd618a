//! What lies over the screen, one layer on the other.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// A layer.
#[derive(Debug, Clone, PartialEq)]
pub enum Overlay {
    Help { input: Input, scroll: usize },
    Palette { input: Input, selected: usize, error: Option<String> },
    LearningRate { input: Input, error: Option<String> },
    Filter { input: Input },
    ConfirmStop,
    Quit,
    Commands { scroll: usize },
    Notifications { scroll: usize },
    Evidence,
}

impl Overlay {
    /// The text field of this layer: it swallows plain letters.
    pub fn input(&mut self) -> Option<&mut Input> {
        match self {
            Overlay::Help { input, .. }
            | Overlay::Palette { input, .. }
            | Overlay::LearningRate { input, .. }
            | Overlay::Filter { input } => Some(input),
            _ => None,
        }
    }

    /// What is scrolled here.
    pub fn scroll(&mut self) -> Option<&mut usize> {
        match self {
            Overlay::Help { scroll, .. } | Overlay::Commands { scroll } | Overlay::Notifications { scroll } => {
                Some(scroll)
            }
            Overlay::Palette { selected, .. } => Some(selected),
            _ => None,
        }
    }
}

/// Longest text of a field, in characters.
const LIMIT: usize = 200;

/// A line that is being typed. The cursor stands at its end.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Input {
    pub text: String,
}

impl Input {
    /// Takes a key that edits; tells whether it did.
    pub fn key(&mut self, key: &KeyEvent) -> bool {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('u') if control => self.text.clear(),
            KeyCode::Char('w') if control => {
                let kept = self.text.trim_end().rfind(' ').map_or(0, |i| i + 1);
                self.text.truncate(kept);
            }
            KeyCode::Char(c) if !control && !key.modifiers.contains(KeyModifiers::ALT) => self.push(c),
            KeyCode::Backspace => {
                self.text.pop();
            }
            _ => return false,
        }
        true
    }

    /// Takes pasted text, without its line ends.
    pub fn paste(&mut self, text: &str) {
        text.chars().take(LIMIT).for_each(|c| self.push(c));
    }

    fn push(&mut self, c: char) {
        if !c.is_control() && self.text.chars().count() < LIMIT {
            self.text.push(c);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn editing_keys() {
        let mut input = Input::default();
        input.paste("set  lr\n2e-5");
        assert_eq!(input.text, "set  lr2e-5");
        let press = |input: &mut Input, code, modifiers| input.key(&KeyEvent::new(code, modifiers));
        assert!(press(&mut input, KeyCode::Char('w'), KeyModifiers::CONTROL));
        assert_eq!(input.text, "set  ");
        assert!(press(&mut input, KeyCode::Backspace, KeyModifiers::NONE));
        assert!(press(&mut input, KeyCode::Char('é'), KeyModifiers::NONE));
        assert!(!press(&mut input, KeyCode::Char('c'), KeyModifiers::CONTROL));
        assert_eq!(input.text, "set é");
        press(&mut input, KeyCode::Char('u'), KeyModifiers::CONTROL);
        assert_eq!(input.text, "");
        input.paste(&"x".repeat(1000));
        assert_eq!(input.text.len(), LIMIT);
    }
}
