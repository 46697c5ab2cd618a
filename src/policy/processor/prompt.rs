//! The text that the language model reads: cleaned task, state in bins, markers.
//!
//! Source: LeRobot's `Pi05PrepareStateTokenizerProcessorStep` and openpi's `PaligemmaTokenizer`. The state goes in
//! normalised and un-padded.

/// What the prompt consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PromptForm {
    /// `Task: {task}, State: {bins};\nAction: ` (π₀.₅).
    TaskAndState,
    /// `Task: {task};\nAction: ` (π₀.₅ with the state in the condition, VLASH's `state_cond`).
    Task,
    /// `{task}\n`, the text as it is (π₀).
    Bare,
}

/// A prompt in its three pieces, so that only the middle one can ever be shortened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prompt {
    before: &'static str,
    /// The cleaned task.
    pub task: String,
    after: String,
}

impl Prompt {
    /// `state`: normalised, un-padded; read by [`PromptForm::TaskAndState`] alone.
    pub fn new(form: PromptForm, task: &str, state: &[f32]) -> Prompt {
        match form {
            PromptForm::TaskAndState => {
                Prompt { before: "Task: ", task: clean(task), after: format!(", State: {};\nAction: ", bins(state)) }
            }
            PromptForm::Task => Prompt { before: "Task: ", task: clean(task), after: ";\nAction: ".into() },
            PromptForm::Bare => Prompt {
                before: "",
                task: task.to_owned(),
                after: if task.ends_with('\n') { String::new() } else { "\n".into() },
            },
        }
    }

    /// The whole text.
    pub fn text(&self) -> String {
        format!("{}{}{}", self.before, self.task, self.after)
    }

    /// Has a task at all.
    pub fn has_task(&self) -> bool {
        !strip(&self.task).is_empty()
    }

    /// The same prompt with only the first `bytes` of the task (a character boundary), without a trailing space.
    pub fn with_task_cut(&self, bytes: usize) -> Prompt {
        let kept = self.task.get(..bytes).unwrap_or(&self.task);
        Prompt { before: self.before, task: kept.trim_end().to_owned(), after: self.after.clone() }
    }
}

/// The reference's cleaning: stripped, underscores and newlines to spaces.
fn clean(task: &str) -> String {
    strip(task).replace(['_', '\n'], " ")
}

/// Python's `str.strip()`, which also counts the four separator controls as space.
fn strip(text: &str) -> &str {
    text.trim_matches(|c: char| c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c))
}

fn bins(state: &[f32]) -> String {
    state.iter().map(|&value| bin(value).to_string()).collect::<Vec<_>>().join(" ")
}

/// The bin of a normalised value among 256 equal, left-closed ones on [-1, 1]: −1 below, 255 from the last edge on.
///
/// NumPy's `digitize(x, linspace(-1, 1, 257)[:-1]) - 1`: the f32 value is compared in f64.
pub fn bin(value: f32) -> i32 {
    let value = f64::from(value);
    let edge = |k: i32| -1.0 + 2.0 * f64::from(k) / 256.0;
    // The product rounds for values next to an edge, so the guess is put right by the comparison itself.
    let mut bin = (((value + 1.0) * 128.0).floor() as i32).clamp(-1, 255);
    if bin >= 0 && edge(bin) > value {
        bin -= 1;
    }
    bin
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_are_left_closed_and_open_ended() {
        for (value, expected) in [
            (-5.0, -1),
            (-1.0, 0),
            (-0.5, 64),
            (0.0, 128),
            (-1e-30, 127),
            (1e-30, 128),
            (0.5, 192),
            (0.9921875, 255),
            (7.5, 255),
            (f32::INFINITY, 255),
            (f32::NEG_INFINITY, -1),
        ] {
            assert_eq!(bin(value), expected, "{value}");
        }
    }

    proptest::proptest! {
        #[test]
        fn a_bin_is_the_number_of_edges_not_above_the_value(value in -1.2f32..1.2) {
            let edges = (0..256).filter(|&k| -1.0 + 2.0 * f64::from(k) / 256.0 <= f64::from(value)).count();
            proptest::prop_assert_eq!(bin(value), edges as i32 - 1);
        }
    }

    #[test]
    fn a_cut_leaves_state_and_markers_whole() {
        let prompt = Prompt::new(PromptForm::TaskAndState, " pick_up the\ncube ", &[0.0, -1.0]);
        assert_eq!(prompt.text(), "Task: pick up the cube, State: 128 0;\nAction: ");
        assert_eq!(prompt.with_task_cut(5).text(), "Task: pick, State: 128 0;\nAction: ");
        assert_eq!(Prompt::new(PromptForm::Task, "a_b\n", &[]).text(), "Task: a b;\nAction: ");
        assert!(!Prompt::new(PromptForm::Task, " \n\u{1f}", &[]).has_task());
    }
}
