//! Log lines and the filter over them.

use std::collections::VecDeque;

use crate::track::event::Level;

/// Most lines kept.
const CAPACITY: usize = 4000;

#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// When it happened, for lines that do not say so themselves.
    pub time: Option<f64>,
    pub level: Level,
    pub text: String,
}

/// The newest lines of a run: its own log file where it has one, else what its events say.
#[derive(Debug, Default)]
pub struct Log {
    lines: VecDeque<Line>,
    from_file: bool,
}

impl Log {
    /// Adds a line of the run's log file. From then on events are not repeated here.
    pub fn push_file_line(&mut self, text: String) {
        if !self.from_file {
            self.from_file = true;
            self.lines.clear();
        }
        let level = level_of(&text);
        self.push(Line { time: None, level, text });
    }

    /// Adds a line made from an event.
    pub fn push_event_line(&mut self, time: f64, level: Level, text: &str) {
        if !self.from_file {
            // In words, so that it can be filtered and read without colour.
            let word = match level {
                Level::Info => "",
                Level::Warn => "WARN ",
                Level::Error => "ERROR ",
            };
            self.push(Line { time: Some(time), level, text: format!("{word}{text}") });
        }
    }

    fn push(&mut self, line: Line) {
        if self.lines.len() == CAPACITY {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
    }

    /// The lines that pass `filter`, newest last.
    pub fn matching<'a>(&'a self, filter: &'a Filter) -> impl DoubleEndedIterator<Item = &'a Line> {
        self.lines.iter().filter(move |line| filter.accepts(&line.text))
    }
}

/// A log file has no field for severity, but its writers use these words.
fn level_of(text: &str) -> Level {
    let has = |word: &str| text.split(|c: char| !c.is_alphanumeric()).any(|w| w.eq_ignore_ascii_case(word));
    if has("error") || has("failed") || has("panicked") {
        Level::Error
    } else if has("warn") || has("warning") {
        Level::Warn
    } else {
        Level::Info
    }
}

/// What a person typed after `/`: `word`, `!word` (lines without it), `~word` (its letters in order). Case does not matter;
/// several words must all hold.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Filter {
    text: String,
    terms: Vec<Term>,
}

#[derive(Debug, Clone, PartialEq)]
enum Term {
    Contains(String),
    Lacks(String),
    Fuzzy(String),
}

impl Filter {
    pub fn new(text: &str) -> Filter {
        let terms = text
            .to_lowercase()
            .split_whitespace()
            .filter_map(|word| match (word.strip_prefix('!'), word.strip_prefix('~')) {
                (Some(""), _) | (_, Some("")) => None,
                (Some(rest), _) => Some(Term::Lacks(rest.into())),
                (_, Some(rest)) => Some(Term::Fuzzy(rest.into())),
                _ => Some(Term::Contains(word.into())),
            })
            .collect();
        Filter { text: text.trim().into(), terms }
    }

    /// As it was typed.
    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    pub fn accepts(&self, line: &str) -> bool {
        if self.terms.is_empty() {
            return true;
        }
        let line = line.to_lowercase();
        self.terms.iter().all(|term| match term {
            Term::Contains(word) => line.contains(word.as_str()),
            Term::Lacks(word) => !line.contains(word.as_str()),
            Term::Fuzzy(word) => fuzzy(word, &line),
        })
    }
}

/// Whether the letters of `pattern` appear in `text` in this order. Both in the same case.
pub fn fuzzy(pattern: &str, text: &str) -> bool {
    let mut rest = text.chars();
    pattern.chars().all(|wanted| rest.any(|c| c == wanted))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_grammar_of_filters() {
        let line = "14:01:50 r3  WARN dataloader waited 140 ms";
        for (filter, expected) in [
            ("", true),
            ("warn", true),
            ("!warn", false),
            ("~dtldr", true),
            ("~drz", false),
            ("warn !dataloader", false),
            ("warn 140", true),
            ("!", true),
            ("~ warn", true),
        ] {
            assert_eq!(Filter::new(filter).accepts(line), expected, "{filter:?}");
        }
    }

    #[test]
    fn the_log_file_takes_the_place_of_event_lines_and_is_bounded() {
        let mut log = Log::default();
        log.push_event_line(1.0, Level::Info, "event");
        log.push_file_line("ERROR disk".into());
        log.push_event_line(2.0, Level::Info, "again");
        let lines: Vec<_> = log.matching(&Filter::default()).cloned().collect::<Vec<_>>();
        assert_eq!(lines, [Line { time: None, level: Level::Error, text: "ERROR disk".into() }]);
        (0..2 * CAPACITY).for_each(|i| log.push_file_line(i.to_string()));
        assert_eq!(log.matching(&Filter::default()).count(), CAPACITY);
    }

    proptest! {
        #[test]
        fn a_term_and_its_inverse_split_all_lines(word in "[a-z]{1,4}", line in ".{0,40}") {
            let plain = Filter::new(&word).accepts(&line);
            prop_assert_eq!(Filter::new(&format!("!{word}")).accepts(&line), !plain);
            let fuzzy = Filter::new(&format!("~{word}")).accepts(&line);
            prop_assert!(!plain || fuzzy);
        }
    }
}
