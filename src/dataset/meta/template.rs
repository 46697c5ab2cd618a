//! Path templates of `info.json`, in the part of Python's format syntax that LeRobot uses.

use std::path::PathBuf;

/// `videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4`, parsed and checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    Number(Placeholder, usize),
    VideoKey,
}

/// What a path template of `info.json` may ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placeholder {
    EpisodeChunk,
    EpisodeIndex,
    ChunkIndex,
    FileIndex,
}

/// Values for the placeholders. A file belongs to one episode (v2.1) or to a chunk (v3.0).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    Episode { chunk: usize, episode: usize },
    File { chunk: usize, file: usize },
}

/// The widest zero padding that makes sense for a number in a file name.
const WIDEST: usize = 20;

impl Template {
    /// Parses `text`, allowing exactly the placeholders `allowed` (and `video_key`), of which `required` must occur.
    pub fn parse(
        text: &str,
        allowed: &[Placeholder],
        required: Placeholder,
        video_key: bool,
    ) -> Result<Template, String> {
        let mut parts = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            literal.push_str(&rest[..at]);
            let brace = &rest[at..];
            if let Some(after) = brace.strip_prefix("{{").or_else(|| brace.strip_prefix("}}")) {
                literal.push_str(&brace[..1]);
                rest = after;
                continue;
            }
            let (inside, after) = brace
                .strip_prefix('{')
                .and_then(|inner| inner.split_once('}'))
                .ok_or_else(|| format!("unbalanced brace in {text:?}"))?;
            if !literal.is_empty() {
                parts.push(Part::Text(std::mem::take(&mut literal)));
            }
            parts.push(placeholder(inside, allowed, video_key)?);
            rest = after;
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            parts.push(Part::Text(literal));
        }
        if !parts.iter().any(|part| matches!(part, Part::Number(found, _) if *found == required)) {
            return Err(format!("{text:?} lacks the placeholder {{{}}}", required.name()));
        }
        if video_key && !parts.contains(&Part::VideoKey) {
            return Err(format!("{text:?} lacks the placeholder {{video_key}}"));
        }
        let template = Template { parts };
        if text.starts_with('/') || text.contains('\\') || text.split('/').any(|component| component == "..") {
            return Err(format!("{text:?} leads out of the dataset's directory"));
        }
        Ok(template)
    }

    /// The path below the dataset's root. `video_key` has been checked to be a plain file name.
    pub fn expand(&self, place: Place, video_key: &str) -> PathBuf {
        let mut path = String::new();
        for part in &self.parts {
            match part {
                Part::Text(text) => path.push_str(text),
                Part::VideoKey => path.push_str(video_key),
                Part::Number(placeholder, width) => {
                    let value = match (placeholder, place) {
                        (Placeholder::EpisodeChunk, Place::Episode { chunk, .. })
                        | (Placeholder::ChunkIndex, Place::File { chunk, .. }) => chunk,
                        (Placeholder::EpisodeIndex, Place::Episode { episode, .. }) => episode,
                        (Placeholder::FileIndex, Place::File { file, .. }) => file,
                        // `parse` allows only the placeholders of one layout, whose places are of one kind.
                        _ => unreachable!("a template of one layout was given a place of the other"),
                    };
                    path.push_str(&format!("{value:0width$}"));
                }
            }
        }
        PathBuf::from(path)
    }
}

impl Placeholder {
    fn name(self) -> &'static str {
        match self {
            Placeholder::EpisodeChunk => "episode_chunk",
            Placeholder::EpisodeIndex => "episode_index",
            Placeholder::ChunkIndex => "chunk_index",
            Placeholder::FileIndex => "file_index",
        }
    }
}

fn placeholder(inside: &str, allowed: &[Placeholder], video_key: bool) -> Result<Part, String> {
    let (name, format) = inside.split_once(':').unwrap_or((inside, ""));
    if video_key && name == "video_key" && matches!(format, "" | "s") {
        return Ok(Part::VideoKey);
    }
    let Some(&known) = allowed.iter().find(|known| known.name() == name) else {
        let mut names: Vec<&str> = allowed.iter().map(|known| known.name()).collect();
        if video_key {
            names.push("video_key");
        }
        return Err(format!("unknown placeholder {{{name}}}; known here: {}", names.join(", ")));
    };
    let digits = format.strip_suffix('d').unwrap_or(format);
    let width = match digits.strip_prefix('0') {
        None if digits.is_empty() => 0,
        Some(width) => width.parse().ok().filter(|&width| width <= WIDEST).ok_or_else(|| bad_format(inside))?,
        None => return Err(bad_format(inside)),
    };
    Ok(Part::Number(known, width))
}

fn bad_format(inside: &str) -> String {
    format!("format of {{{inside}}} is not understood; expected for example :06d")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rstest::rstest;

    const V21: [Placeholder; 2] = [Placeholder::EpisodeChunk, Placeholder::EpisodeIndex];

    #[test]
    fn the_standard_video_template_expands() {
        let text = "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4";
        let template = Template::parse(text, &V21, Placeholder::EpisodeIndex, true).unwrap();
        let path = template.expand(Place::Episode { chunk: 1, episode: 1042 }, "observation.images.top");
        assert_eq!(path, PathBuf::from("videos/chunk-001/observation.images.top/episode_001042.mp4"));
    }

    #[rstest]
    #[case("data/{shard}/{episode_index}.parquet", "unknown placeholder {shard}")]
    #[case("data/{episode_index:06x}.parquet", "format of {episode_index:06x}")]
    #[case("data/{episode_index:0999999999d}.parquet", "format of")]
    #[case("data/episode.parquet", "lacks the placeholder {episode_index}")]
    #[case("data/{episode_index", "unbalanced")]
    #[case("../{episode_index}.parquet", "leads out")]
    #[case("/etc/{episode_index}", "leads out")]
    fn refused(#[case] text: &str, #[case] expected: &str) {
        let error = Template::parse(text, &V21, Placeholder::EpisodeIndex, false).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }

    proptest! {
        #[test]
        fn any_text_parses_or_is_refused(text in "[a-z{}:0-9/._d]{0,40}") {
            if let Ok(template) = Template::parse(&text, &V21, Placeholder::EpisodeIndex, false) {
                template.expand(Place::Episode { chunk: 0, episode: usize::MAX }, "");
            }
        }
    }
}
