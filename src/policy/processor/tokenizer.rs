//! PaliGemma's tokenizer, read from `tokenizer.json`, and how a prompt fits its length limit.

use std::path::Path;
use std::sync::Arc;

use super::error::ProcessorError;
use super::prompt::Prompt;
use crate::config::train::LongPrompts;

/// Files that make a tokenizer, by the names that Hugging Face gives them; the first one is needed.
pub const FILES: [&str; 3] = ["tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"];

/// A tokenizer with the files that it came from, so that it can travel with every checkpoint.
///
/// The files are kept in memory: a checkpoint after days of training must not depend on a directory of the first day.
#[derive(Clone)]
pub struct Tokenizer {
    inner: Arc<tokenizers::Tokenizer>,
    /// Set when the file itself adds no BOS.
    bos: Option<u32>,
    files: Arc<Vec<(&'static str, Vec<u8>)>>,
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tokenizer({} entries)", self.inner.get_vocab_size(true))
    }
}

/// Beginning of every prompt.
const BOS: &str = "<bos>";

impl Tokenizer {
    /// The small tokenizer of the `tiny` preset: BPE with byte fallback, 1001 entries.
    pub fn builtin() -> Result<Tokenizer, ProcessorError> {
        let files = vec![
            (FILES[0], include_bytes!("../assets/tokenizer.json").to_vec()),
            (FILES[1], include_bytes!("../assets/tokenizer_config.json").to_vec()),
            (FILES[2], include_bytes!("../assets/special_tokens_map.json").to_vec()),
        ];
        Tokenizer::from_files(files, "of the tiny preset")
    }

    /// From a directory with `tokenizer.json`.
    pub fn from_directory(directory: &Path) -> Result<Tokenizer, ProcessorError> {
        let mut files = Vec::new();
        for name in FILES {
            let path = directory.join(name);
            match std::fs::read(&path) {
                Ok(bytes) => files.push((name, bytes)),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => {
                    return Err(ProcessorError::Tokenizer {
                        path: path.display().to_string(),
                        problem: error.to_string(),
                    });
                }
            }
        }
        if files.first().is_none_or(|(name, _)| *name != FILES[0]) {
            return Err(ProcessorError::NoTokenizer { directory: directory.display().to_string() });
        }
        Tokenizer::from_files(files, &directory.join(FILES[0]).display().to_string())
    }

    fn from_files(files: Vec<(&'static str, Vec<u8>)>, path: &str) -> Result<Tokenizer, ProcessorError> {
        let problem = |problem: String| ProcessorError::Tokenizer { path: path.to_owned(), problem };
        let bytes = files.first().map(|(_, bytes)| bytes.as_slice()).unwrap_or_default();
        let mut inner = tokenizers::Tokenizer::from_bytes(bytes).map_err(|e| problem(e.to_string()))?;
        // Length is this room's business: a truncating tokenizer would cut `Action:` off.
        inner.with_truncation(None).map_err(|e| problem(e.to_string()))?;
        inner.with_padding(None);
        let bos = inner.token_to_id(BOS).ok_or_else(|| problem(format!("it has no {BOS} token")))?;
        let probe = inner.encode_fast("a", true).map_err(|e| problem(e.to_string()))?;
        let added = probe.get_ids().first() == Some(&bos);
        Ok(Tokenizer { inner: Arc::new(inner), bos: (!added).then_some(bos), files: Arc::new(files) })
    }

    /// Token ids of `text`, BOS first, neither padded nor truncated.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, ProcessorError> {
        let encoding = self
            .inner
            .encode_fast(text, true)
            .map_err(|e| ProcessorError::Tokenizer { path: format!("(encoding {text:?})"), problem: e.to_string() })?;
        Ok(self.bos.into_iter().chain(encoding.get_ids().iter().copied()).collect())
    }

    /// The files, to be written beside a checkpoint.
    pub fn files(&self) -> impl Iterator<Item = (&'static str, &[u8])> {
        self.files.iter().map(|(name, bytes)| (*name, bytes.as_slice()))
    }

    /// Ids of a prompt of at most `limit` tokens. A longer one is refused, or its task is cut, by `long`.
    pub fn fit(&self, prompt: &Prompt, limit: usize, long: LongPrompts) -> Result<(Prompt, Vec<u32>), ProcessorError> {
        let ids = self.encode(&prompt.text())?;
        if ids.len() <= limit {
            return Ok((prompt.clone(), ids));
        }
        match long {
            LongPrompts::Refuse => {
                Err(ProcessorError::LongPrompt { task: shorten(&prompt.task), tokens: ids.len(), limit })
            }
            LongPrompts::CutTask => self.cut(prompt, limit),
        }
    }

    /// The longest beginning of the task that fits, found by bisection over its characters.
    fn cut(&self, prompt: &Prompt, limit: usize) -> Result<(Prompt, Vec<u32>), ProcessorError> {
        let boundaries: Vec<usize> = prompt.task.char_indices().map(|(at, _)| at).collect();
        let attempt = |characters: usize| -> Result<_, ProcessorError> {
            let cut = prompt.with_task_cut(boundaries.get(characters).copied().unwrap_or(0));
            let ids = self.encode(&cut.text())?;
            Ok((cut, ids))
        };
        let (mut fits, mut exceeds) = (0, boundaries.len());
        while exceeds - fits > 1 {
            let middle = fits + (exceeds - fits) / 2;
            if attempt(middle)?.1.len() <= limit { fits = middle } else { exceeds = middle }
        }
        let (cut, ids) = attempt(fits)?;
        if ids.len() > limit || !cut.has_task() {
            return Err(ProcessorError::NoRoomForTask { tokens: attempt(0)?.1.len(), limit });
        }
        Ok((cut, ids))
    }
}

/// At most 60 characters of a task, for messages.
fn shorten(task: &str) -> String {
    if task.chars().count() <= 60 {
        return task.to_owned();
    }
    task.chars().take(59).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::super::prompt::{PromptForm, bin};
    use super::super::testing::{Golden, text};
    use super::*;
    use serde::Deserialize;

    #[derive(Deserialize)]
    struct Case {
        task: String,
        #[serde(default)]
        state: Vec<f32>,
        #[serde(default)]
        bins: Vec<i32>,
        prompt: String,
        n_tokens_untruncated: Option<usize>,
    }

    fn parity(name: &str, form: PromptForm, length: usize) {
        let cases: Vec<Case> = serde_json::from_str(&text(&format!("preprocessing/{name}.json"))).unwrap();
        let golden = Golden::open(&format!("preprocessing/{name}.safetensors"));
        let (tokens, mask) = (golden.i64("tokens"), golden.u8("attention_mask"));
        let tokenizer = Tokenizer::builtin().unwrap();
        assert_eq!(cases.len(), 9);
        for (row, case) in cases.iter().enumerate() {
            let prompt = Prompt::new(form, &case.task, &case.state);
            assert_eq!(prompt.text(), case.prompt);
            assert_eq!(case.state.iter().map(|&x| bin(x)).collect::<Vec<_>>(), case.bins);
            let ids = tokenizer.encode(&prompt.text()).unwrap();
            if let Some(expected) = case.n_tokens_untruncated {
                assert_eq!(ids.len(), expected);
            }
            // The reference pads with 0 and truncates to a fixed length.
            let real = ids.len().min(length);
            let mut padded: Vec<i64> = ids[..real].iter().map(|&id| i64::from(id)).collect();
            padded.resize(length, 0);
            assert_eq!(padded, tokens[row * length..(row + 1) * length], "{:?}", case.prompt);
            let reference_mask = &mask[row * length..(row + 1) * length];
            assert!(reference_mask.iter().enumerate().all(|(at, &m)| (m == 1) == (at < real)));
        }
    }

    #[test]
    fn pi05_prompts_bins_and_ids_are_lerobots() {
        parity("prompts", PromptForm::TaskAndState, 200);
    }

    #[test]
    fn pi0_prompts_and_ids_are_lerobots() {
        parity("prompts_pi0", PromptForm::Bare, 48);
    }

    #[test]
    fn a_long_task_is_refused_or_cut_with_state_and_action_whole() {
        let tokenizer = Tokenizer::builtin().unwrap();
        let prompt = Prompt::new(PromptForm::TaskAndState, &"very long – 🤖 instruction ".repeat(60), &[0.0; 7]);
        let error = tokenizer.fit(&prompt, 200, LongPrompts::Refuse).unwrap_err();
        let ProcessorError::LongPrompt { tokens, limit: 200, .. } = error else { panic!("{error}") };
        assert_eq!(tokens, tokenizer.encode(&prompt.text()).unwrap().len());
        let (cut, ids) = tokenizer.fit(&prompt, 200, LongPrompts::CutTask).unwrap();
        assert!((180..=200).contains(&ids.len()), "{}", ids.len());
        assert!(cut.text().ends_with(", State: 128 128 128 128 128 128 128;\nAction: "));
        assert!(prompt.task.starts_with(&cut.task));
        let error = tokenizer.fit(&prompt, 20, LongPrompts::CutTask).unwrap_err();
        assert!(matches!(error, ProcessorError::NoRoomForTask { limit: 20, .. }), "{error}");
    }

    #[test]
    fn a_directory_gives_the_same_tokenizer_and_its_absence_is_named() {
        let directory = super::super::testing::path("preprocessing/tokenizer");
        let tokenizer = Tokenizer::from_directory(&directory).unwrap();
        let builtin = Tokenizer::builtin().unwrap();
        assert!(tokenizer.files().eq(builtin.files()));
        let empty = tempfile::tempdir().unwrap();
        assert!(matches!(Tokenizer::from_directory(empty.path()), Err(ProcessorError::NoTokenizer { .. })));
        std::fs::write(empty.path().join("tokenizer.json"), "{}").unwrap();
        assert!(matches!(Tokenizer::from_directory(empty.path()), Err(ProcessorError::Tokenizer { .. })));
    }
}
