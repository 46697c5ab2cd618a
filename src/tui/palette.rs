//! The command palette: `name argument`, the same words as on the command line.

use super::action::Action;
use super::capability::{ColorLevel, Glyphs};
use super::keymap::{self, BINDINGS};
use super::log::fuzzy;
use super::theme::Tone;

/// A line of the palette's list.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// What Enter completes or runs.
    pub name: &'static str,
    /// The form of its argument, if it takes one.
    pub argument: Option<&'static str>,
    pub help: &'static str,
    pub key: String,
}

/// Commands that are not keys.
const MORE: &[(&str, Option<&str>, &str)] = &[
    ("resume", None, "go on after a pause"),
    ("color", Some("never|16|256|true"), "colours to use"),
    ("glyphs", Some("braille|block|ascii"), "characters of charts and borders"),
    ("theme", Some("calm|contrast"), "faint or full side information"),
    ("mouse", Some("on|off"), "click to focus, wheel to scroll; off leaves selection to the terminal"),
];

/// What fits `typed`, best first.
pub fn candidates(typed: &str) -> Vec<Candidate> {
    let word = typed.split_whitespace().next().unwrap_or("").to_lowercase();
    let bound = BINDINGS.iter().filter(|b| !matches!(b.action, Action::Palette | Action::Escape)).map(|b| Candidate {
        name: b.name,
        argument: (b.action == Action::LearningRate).then_some("RATE"),
        help: b.help,
        key: keymap::key_label(b.action),
    });
    let more = MORE.iter().map(|&(name, argument, help)| Candidate { name, argument, help, key: String::new() });
    let mut found: Vec<(u8, Candidate)> =
        bound.chain(more).filter_map(|candidate| Some((rank(&word, candidate.name)?, candidate))).collect();
    found.sort_by_key(|(rank, _)| *rank);
    found.into_iter().map(|(_, candidate)| candidate).collect()
}

/// How well `name` fits what was typed, 0 best; none when it does not.
pub fn rank(word: &str, name: &str) -> Option<u8> {
    if name == word {
        Some(0)
    } else if name.starts_with(word) {
        Some(1)
    } else if name.contains(word) {
        Some(2)
    } else {
        fuzzy(word, name).then_some(3)
    }
}

/// Reads a whole command. The error says what would be right.
pub fn parse(line: &str) -> Result<Action, String> {
    let mut words = line.split_whitespace();
    let name = words.next().unwrap_or("");
    let argument = words.next();
    if let Some(surplus) = words.next() {
        return Err(format!("{name} takes no '{surplus}'"));
    }
    match (name, argument) {
        ("lr", Some(text)) => learning_rate(text).map(Action::SetLearningRate),
        ("pause", None) => Ok(Action::Pause),
        ("resume", None) => Ok(Action::Resume),
        ("color", argument) => choice("color", argument, &ColorLevel::NAMES).map(Action::SetColor),
        ("glyphs", argument) => choice("glyphs", argument, &Glyphs::NAMES).map(Action::SetGlyphs),
        ("theme", argument) => choice("theme", argument, &Tone::NAMES).map(Action::SetTone),
        ("mouse", argument) => choice("mouse", argument, &[("on", true), ("off", false)]).map(Action::SetMouse),
        (name, argument) => match (BINDINGS.iter().find(|b| b.name == name), argument) {
            (Some(binding), None) => Ok(binding.action),
            (Some(_), Some(argument)) => Err(format!("{name} takes no '{argument}'")),
            (None, _) => Err(unknown(name)),
        },
    }
}

fn unknown(name: &str) -> String {
    match candidates(name).first() {
        Some(near) => format!("no command '{name}'; did you mean '{}'?", near.name),
        None => format!("no command '{name}'"),
    }
}

fn choice<T: Copy>(name: &str, argument: Option<&str>, options: &[(&str, T)]) -> Result<T, String> {
    let found = options.iter().find(|(word, _)| Some(*word) == argument);
    found.map(|&(_, value)| value).ok_or_else(|| {
        let words: Vec<&str> = options.iter().map(|&(word, _)| word).collect();
        format!("{name} takes one of {}", words.join(", "))
    })
}

/// A learning rate a person typed.
pub fn learning_rate(text: &str) -> Result<f64, String> {
    match text.trim().parse::<f64>() {
        Ok(rate) if rate.is_finite() && rate > 0.0 && rate < 1.0 => Ok(rate),
        Ok(rate) => Err(format!("a learning rate lies between 0 and 1, not {rate}")),
        Err(_) => Err(format!("'{}' is no number; write e.g. 2e-5", text.trim())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn commands_with_and_without_arguments() {
        assert_eq!(parse("lr 2e-5"), Ok(Action::SetLearningRate(2e-5)));
        assert_eq!(parse("lr"), Ok(Action::LearningRate));
        assert_eq!(parse(" checkpoint "), Ok(Action::Checkpoint));
        assert_eq!(parse("glyphs ascii"), Ok(Action::SetGlyphs(Glyphs::Ascii)));
        assert_eq!(parse("mouse on"), Ok(Action::SetMouse(true)));
    }

    #[test]
    fn mistakes_are_answered_with_what_would_be_right() {
        for (line, part) in [
            ("lr fast", "no number"),
            ("lr -1", "between 0 and 1"),
            ("lr nan", "between 0 and 1"),
            ("glyphs emoji", "braille, block, ascii"),
            ("color", "one of"),
            ("checkp", "did you mean 'checkpoint'?"),
            ("stop now", "takes no 'now'"),
            ("lr 1 2", "takes no '2'"),
        ] {
            let error = parse(line).unwrap_err();
            assert!(error.contains(part), "{line}: {error}");
        }
    }

    #[test]
    fn the_best_candidate_comes_first() {
        let first = |typed| candidates(typed)[0].name;
        assert_eq!(first("ch"), "checkpoint");
        assert_eq!(first("ckp"), "checkpoint");
        assert_eq!(first("log"), "log");
        assert!(candidates("").len() > 30);
        assert!(candidates("zzzz").is_empty());
    }

    proptest! {
        #[test]
        fn any_line_parses_or_explains(line in ".{0,40}") {
            if let Err(error) = parse(&line) {
                prop_assert!(!error.is_empty());
            }
        }
    }
}
