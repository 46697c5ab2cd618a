//! What can be wrong with a sample, its statistics, its cameras or its prompt.

use super::cameras;
use crate::error::{Explain, Kind};

/// Why a sample or an action cannot be processed.
#[derive(Debug, thiserror::Error)]
pub enum ProcessorError {
    #[error("cannot read the tokenizer {path}: {problem}")]
    Tokenizer { path: String, problem: String },
    #[error("no tokenizer.json in {directory}")]
    NoTokenizer { directory: String },
    #[error(
        "token {id} of the prompt {prompt:?} lies outside the policy's vocabulary of {vocab_size}: the tokenizer belongs to another model"
    )]
    Vocabulary { id: u32, prompt: String, vocab_size: usize },
    #[error("the task text is empty{}", of_sample(.index))]
    EmptyTask {
        index: Option<usize>,
        /// Texts that the dataset does have.
        known: Vec<String>,
    },
    #[error(
        "the prompt of task {task:?} has {tokens} tokens, the limit tokenizer_max_length is {limit}: \
         {} tokens too many", tokens - limit
    )]
    LongPrompt { task: String, tokens: usize, limit: usize },
    #[error(
        "state and markers of the prompt alone have {tokens} tokens, the limit tokenizer_max_length is {limit}: no task text fits"
    )]
    NoRoomForTask { tokens: usize, limit: usize },
    #[error("tokenizer_max_length is {found}; 1 to {most} are possible (the language model's positions)")]
    TokenLimit { found: usize, most: usize },
    #[error("the rename map names the camera {camera:?}, but the data has [{}]", offered.join(", "))]
    RenamedCamera { camera: String, offered: Vec<String> },
    #[error("two cameras are called {slot:?} after renaming: {}", cameras.join(" and "))]
    TwoCameras { slot: String, cameras: Vec<String> },
    #[error("{feature}: {found} values where the policy takes {expected}{}", of_sample(.index))]
    Length { feature: String, found: usize, expected: usize, index: Option<usize> },
    #[error(
        "{branches} branches with states of their own and one prompt: the prompt of this policy holds the state{}",
        of_sample(.index)
    )]
    StateInPrompt { branches: usize, index: Option<usize> },
    #[error("{feature}[{dimension}] is {value}{}", of_sample(.index))]
    NotFinite { feature: String, dimension: usize, value: f32, index: Option<usize> },
    #[error("image {camera}: {problem}{}", of_sample(.index))]
    Image { camera: String, problem: String, index: Option<usize> },
    #[error("{}", cameras::describe(.slots, .offered, .missing))]
    Cameras {
        slots: Vec<String>,
        offered: Vec<String>,
        /// Slots without a camera of that name.
        missing: Vec<String>,
        /// `empty_cameras` as it was.
        allowed: usize,
    },
    #[error("statistics of {feature}: {problem}")]
    ImpossibleStatistics { feature: String, problem: String },
    #[error("no statistics of {feature}: the normalisation mode {mode} needs {needed}")]
    MissingStatistics { feature: String, needed: &'static str, mode: &'static str },
    #[error("cannot put {what} on the device")]
    Device { what: &'static str, source: candle_core::Error },
    #[error("a batch of no samples")]
    EmptyBatch,
}

fn of_sample(index: &Option<usize>) -> String {
    index.map(|index| format!(" (dataset index {index})")).unwrap_or_default()
}

impl ProcessorError {
    /// The same error, with the dataset index of the sample that it is about.
    pub(super) fn at(mut self, sample: Option<usize>) -> Self {
        match &mut self {
            ProcessorError::EmptyTask { index, .. }
            | ProcessorError::Length { index, .. }
            | ProcessorError::StateInPrompt { index, .. }
            | ProcessorError::NotFinite { index, .. }
            | ProcessorError::Image { index, .. } => *index = sample,
            _ => {}
        }
        self
    }
}

impl Explain for ProcessorError {
    fn kind(&self) -> Kind {
        match self {
            ProcessorError::Device { .. } => Kind::Environment,
            ProcessorError::EmptyBatch => Kind::Internal,
            _ => Kind::Input,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            ProcessorError::Tokenizer { .. } | ProcessorError::NoTokenizer { .. } => {
                Some("point model.tokenizer at a directory that holds the tokenizer.json of the base policy".into())
            }
            ProcessorError::Vocabulary { .. } => {
                Some("point model.tokenizer at the tokenizer that the policy was trained with".into())
            }
            ProcessorError::EmptyTask { known, .. } if !known.is_empty() => Some(format!(
                "give each episode one of the dataset's tasks: {}",
                known.iter().take(5).map(|t| format!("{t:?}")).collect::<Vec<_>>().join(", ")
            )),
            ProcessorError::EmptyTask { .. } => Some("write the task into the dataset's meta/tasks".into()),
            ProcessorError::LongPrompt { tokens, .. } => Some(format!(
                "shorten the text in meta/tasks, or data.long_prompts=cut_task, or model.tokenizer_max_length={tokens} \
                 (the base was trained with 200)"
            )),
            ProcessorError::NoRoomForTask { tokens, .. } => Some(format!("model.tokenizer_max_length={}", tokens + 20)),
            ProcessorError::Cameras { slots, offered, missing, allowed } => {
                Some(cameras::propose(slots, offered, missing, *allowed))
            }
            ProcessorError::StateInPrompt { .. } => Some("model.state_cond=true, or train.delay.shared=false".into()),
            ProcessorError::ImpossibleStatistics { feature, .. }
            | ProcessorError::MissingStatistics { feature, .. } => Some(format!(
                "remove {feature:?} from meta/stats.json (and stats of that feature from meta/episodes): \
                     absent statistics are recomputed from the data"
            )),
            _ => None,
        }
    }
}
