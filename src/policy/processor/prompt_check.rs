//! Whether the prompts of a dataset fit, said before training (FF-06).

use super::prompt::{Prompt, PromptForm};
use super::{Processor, ProcessorError, PromptLength, Tokenizer};
use crate::config::train::LongPrompts;
use crate::dataset::finding::{Finding, Severity};
use crate::dataset::meta::Tasks;

/// Tokenises the prompt of every task with `state` (raw units; the one with the longest text is the largest) and
/// reports those that exceed the limit, or one that says nothing; none when all fit.
pub fn check(processor: &Processor, tasks: &Tasks, state: &[f32]) -> Result<Option<Finding>, ProcessorError> {
    let mut lengths = Vec::new();
    for (index, task) in tasks.iter() {
        match processor.prompt_length(task, state) {
            Ok(length) => lengths.push((index, length)),
            Err(ProcessorError::EmptyTask { .. }) => return Ok(Some(empty(index, task))),
            Err(error) => return Err(error),
        }
    }
    Ok(over(&lengths, processor.spec().long_prompts))
}

/// What of a policy decides on the length of its prompts.
#[derive(Debug, Clone, Copy)]
pub struct PromptRules {
    pub form: PromptForm,
    /// `tokenizer_max_length`
    pub limit: usize,
    /// Real dimensions of the state.
    pub state_dim: usize,
}

/// The lengths of a dataset's prompts without its statistics: with the state whose text is the longest. Says how long
/// they become, and refuses those over the limit. Tasks without text are the dataset check's business.
pub fn check_longest(rules: PromptRules, tokenizer: &Tokenizer, tasks: &Tasks) -> Result<Finding, ProcessorError> {
    // Bin 255: three digits in every dimension.
    let state = vec![1.0; rules.state_dim];
    let mut lengths = Vec::new();
    for (index, task) in tasks.iter() {
        let prompt = Prompt::new(rules.form, task, &state);
        if prompt.has_task() {
            let tokens = tokenizer.encode(&prompt.text())?.len();
            lengths.push((index, PromptLength { tokens, limit: rules.limit }));
        }
    }
    let longest = lengths.iter().map(|(_, length)| length.tokens).max().unwrap_or(0);
    Ok(over(&lengths, LongPrompts::Refuse).unwrap_or_else(|| Finding {
        severity: Severity::Note,
        code: "prompt-length",
        message: format!("the longest prompt has {longest} of {} tokens", rules.limit),
        fix: None,
    }))
}

fn over(lengths: &[(i64, PromptLength)], long: LongPrompts) -> Option<Finding> {
    let over = lengths.iter().filter(|(_, length)| length.excess() > 0).count();
    // The first of the longest.
    let (index, longest) = lengths.iter().rev().max_by_key(|(_, length)| length.tokens)?;
    let (PromptLength { tokens, limit }, excess) = (longest, longest.excess());
    if over == 0 {
        return None;
    }
    let refused = long == LongPrompts::Refuse;
    Some(Finding {
        severity: if refused { Severity::Error } else { Severity::Warning },
        code: "long-prompt",
        message: format!(
            "{over} of {} tasks exceed {limit} tokens (longest {tokens}, task_index {index}): {excess} tokens of its text {} cut",
            lengths.len(),
            if refused { "would be" } else { "are" }
        ),
        fix: Some(format!(
            "shorten it in meta/tasks, set model.tokenizer_max_length={tokens} (the base was trained with {limit}), or data.long_prompts=cut_task"
        )),
    })
}

fn empty(index: i64, task: &str) -> Finding {
    Finding {
        severity: Severity::Error,
        code: "empty-task",
        message: format!("task_index {index} has the text {task:?}: nothing tells the policy what to do"),
        fix: Some(format!(
            "write a text for task_index {index} into meta/tasks, or leave its episodes out with data.episodes"
        )),
    }
}
