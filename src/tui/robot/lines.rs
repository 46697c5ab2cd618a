//! Bytes to messages: one JSON object a line, from a socket or a file, none of it trusted.

use serde::Deserialize;

use super::pictures::Picture;
use crate::track::telemetry::Message;

/// Longest line that is read, in bytes: a thumbnail of 512×512 fits.
const MAX_LINE: usize = 2 << 20;

/// What a line said.
#[derive(Debug, Clone, PartialEq)]
pub enum Item {
    Message(Message),
    Picture(Picture),
    /// A kind that this version does not know, or knows in another form.
    Unknown,
    /// No message at all.
    Damaged,
}

/// Cuts a stream into lines and reads each.
#[derive(Debug, Default)]
pub struct Lines {
    pending: Vec<u8>,
    /// Within a line that was too long: all up to its end is dropped.
    skipping: bool,
}

impl Lines {
    /// For a stream that begins somewhere within a line, which is dropped.
    pub fn within_a_line() -> Lines {
        Lines { pending: Vec::new(), skipping: true }
    }

    /// Takes the next `bytes` of the stream; calls `take` for every line that they complete.
    pub fn push(&mut self, bytes: &[u8], mut take: impl FnMut(Item)) {
        for piece in bytes.split_inclusive(|b| *b == b'\n') {
            let (content, ends) = piece.strip_suffix(b"\n").map_or((piece, false), |content| (content, true));
            if !self.skipping && self.pending.len() + content.len() > MAX_LINE {
                self.pending.clear();
                self.skipping = true;
                take(Item::Damaged);
            }
            if !self.skipping {
                self.pending.extend_from_slice(content);
            }
            if ends {
                if !self.skipping && !self.pending.trim_ascii().is_empty() {
                    take(read(&self.pending));
                }
                self.pending.clear();
                self.skipping = false;
            }
        }
    }
}

fn read(line: &[u8]) -> Item {
    match serde_json::from_slice::<Message>(line) {
        Ok(Message::Thumbnail(thumbnail)) => Picture::decode(&thumbnail).map_or(Item::Damaged, Item::Picture),
        Ok(message) => Item::Message(message),
        Err(_) => {
            #[derive(Deserialize)]
            struct Kind {
                #[serde(rename = "kind")]
                _kind: String,
            }
            if serde_json::from_slice::<Kind>(line).is_ok() { Item::Unknown } else { Item::Damaged }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::track::event::Level;
    use proptest::prelude::*;

    fn items(parts: &[&[u8]]) -> Vec<Item> {
        let mut lines = Lines::default();
        let mut found = Vec::new();
        parts.iter().for_each(|part| lines.push(part, |item| found.push(item)));
        found
    }

    #[test]
    fn lines_are_read_wherever_they_are_cut() {
        let message = Message::Event { time: 1.0, level: Level::Info, text: "armed".into() };
        let line = serde_json::to_vec(&message).unwrap();
        for cut in 0..line.len() {
            let (first, second) = line.split_at(cut);
            assert_eq!(items(&[first, second, b"\n"]), [Item::Message(message.clone())]);
        }
        assert_eq!(
            items(&[b"{\"kind\":\"later\"}\n{\"kind\":\"tick\"}\nnoise\n\n{"]),
            [Item::Unknown, Item::Unknown, Item::Damaged]
        );
    }

    #[test]
    fn a_line_without_end_is_dropped_and_the_next_is_read() {
        let long = vec![b'x'; MAX_LINE + 1];
        assert_eq!(items(&[&long, &long, b"\n", b"{\"kind\":\"later\"}\n"]), [Item::Damaged, Item::Unknown]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_harmless(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let ends = bytes.iter().filter(|b| **b == b'\n').count();
            prop_assert!(items(&[&bytes]).len() <= ends);
        }
    }
}
