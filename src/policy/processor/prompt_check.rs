//! Whether the prompts of a dataset fit, said before training (FF-06).

use super::{Processor, ProcessorError};
use crate::config::train::LongPrompts;
use crate::dataset::finding::{Finding, Severity};
use crate::dataset::meta::Tasks;

/// Tokenises the prompt of every task with `state` (raw units; the one with the longest text is the largest) and
/// reports those that exceed the limit, or that say nothing; none when all fit.
pub fn check(processor: &Processor, tasks: &Tasks, state: &[f32]) -> Result<Option<Finding>, ProcessorError> {
    let mut over = 0;
    let mut longest: Option<(i64, usize, usize)> = None;
    for (index, task) in tasks.iter() {
        let length = match processor.prompt_length(task, state) {
            Err(ProcessorError::EmptyTask { .. }) => return Ok(Some(empty(index, task))),
            other => other?,
        };
        if length.excess() > 0 {
            over += 1;
        }
        if longest.is_none_or(|(_, tokens, _)| length.tokens > tokens) {
            longest = Some((index, length.tokens, length.excess()));
        }
    }
    let limit = processor.spec().tokenizer_max_length;
    let Some((index, tokens, excess)) = longest.filter(|_| over > 0) else { return Ok(None) };
    let refused = processor.spec().long_prompts == LongPrompts::Refuse;
    Ok(Some(Finding {
        severity: if refused { Severity::Error } else { Severity::Warning },
        code: "long-prompt",
        message: format!(
            "{over} of {} tasks exceed {limit} tokens (longest {tokens}, task_index {index}): {excess} tokens of its text {} cut",
            tasks.len(),
            if refused { "would be" } else { "are" }
        ),
        fix: Some(format!(
            "shorten it in meta/tasks, set model.tokenizer_max_length={tokens} (the base was trained with {limit}), or data.long_prompts=cut_task"
        )),
    }))
}

fn empty(index: i64, task: &str) -> Finding {
    Finding {
        severity: Severity::Error,
        code: "empty-task",
        message: format!("task_index {index} has the text {task:?}: nothing tells the policy what to do"),
        fix: Some(format!("write a text for task_index {index} into meta/tasks, or leave its episodes out with data.episodes")),
    }
}
