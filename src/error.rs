//! What every error of this project can tell: who has to act, and what to do.
//!
//! Rooms define their own `thiserror` enums and implement [`Explain`] for them. The binary prints the
//! chain once, then the hint, and leaves with [`Kind::exit_code`].

use std::error::Error as StdError;

/// Who has to act, which decides the exit code of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Bad input or configuration: retrying the same command cannot help. Exit code 64.
    Input,
    /// GPU, network, permission, disk: retrying may help once the environment is mended. Exit code 69.
    Environment,
    /// A defect of ours. Exit code 70.
    Internal,
    /// Stopped or preempted with a checkpoint written; the same command continues. Exit code 75.
    Stopped,
}

impl Kind {
    /// The exit code of the process (after BSD's `sysexits.h`).
    pub fn exit_code(self) -> u8 {
        match self {
            Kind::Input => 64,
            Kind::Environment => 69,
            Kind::Internal => 70,
            Kind::Stopped => 75,
        }
    }
}

/// An error that is written for the person who has to act on it.
///
/// `Display` says what was attempted, on what, and what was found against what was expected;
/// [`Explain::hint`] says what to do, as a command or a configuration line that works when pasted.
pub trait Explain: StdError + Send + Sync + 'static {
    /// Who has to act.
    fn kind(&self) -> Kind;
    /// What to do about it, if anything in particular.
    fn hint(&self) -> Option<String> {
        None
    }
}

/// Any room's error on its way to the user.
#[derive(Debug)]
pub struct Failure(Box<dyn Explain>);

impl Failure {
    /// Who has to act.
    pub fn kind(&self) -> Kind {
        self.0.kind()
    }

    /// The whole message: the chain of causes, then the hint on a line of its own.
    pub fn message(&self) -> String {
        let mut text = told(&self.0);
        let mut source = self.0.source();
        while let Some(cause) = source {
            let cause_text = told(cause);
            if !text.contains(&cause_text) {
                text.push_str(": ");
                text.push_str(&cause_text);
            }
            source = cause.source();
        }
        if let Some(hint) = self.0.hint() {
            text.push_str("\nhint: ");
            text.push_str(&hint);
        }
        text
    }
}

/// What an error says, without the backtrace that candle's errors carry in their text when RUST_BACKTRACE is set: the
/// message is for the person who has to act.
fn told(error: &dyn std::fmt::Display) -> String {
    let text = error.to_string();
    text.split_once("\n   0: ").map_or(text.as_str(), |(said, _)| said).trim_end().to_owned()
}

impl<E: Explain> From<E> for Failure {
    fn from(error: E) -> Self {
        Failure(Box::new(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot read {path}")]
    struct Unreadable {
        path: &'static str,
        source: std::io::Error,
    }

    impl Explain for Unreadable {
        fn kind(&self) -> Kind {
            Kind::Environment
        }
        fn hint(&self) -> Option<String> {
            Some(format!("chmod u+r {}", self.path))
        }
    }

    #[test]
    fn the_message_holds_the_chain_once_and_the_hint_last() {
        let failure = Failure::from(Unreadable { path: "a.toml", source: std::io::Error::other("denied") });
        assert_eq!(failure.message(), "cannot read a.toml: denied\nhint: chmod u+r a.toml");
        assert_eq!(failure.kind().exit_code(), 69);
    }

    #[test]
    fn backtraces_of_tensor_errors_are_left_out() {
        let source = std::io::Error::other("out of memory\n   0: candle_core::error\n   1: main\n");
        let failure = Failure::from(Unreadable { path: "a.toml", source });
        assert_eq!(failure.message(), "cannot read a.toml: out of memory\nhint: chmod u+r a.toml");
    }
}
