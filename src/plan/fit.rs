//! What fits which card.

use serde::Serialize;

use super::cards::{CARDS, Card};
use super::ladder::{Ladder, Rung};

/// Above this share of a device's memory a run is close to its end.
pub const CLOSE: f64 = 0.9;

/// How a need stands to a memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Fit {
    Fits,
    /// More than [`CLOSE`] of it.
    Close,
    TooLarge,
}

/// Whether `needed` bytes fit into `available`.
pub fn fit(needed: u64, available: u64) -> Fit {
    if needed > available {
        Fit::TooLarge
    } else if needed as f64 > CLOSE * available as f64 {
        Fit::Close
    } else {
        Fit::Fits
    }
}

/// A card and this run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verdict {
    pub card: &'static str,
    pub memory_bytes: u64,
    pub fit: Fit,
    /// What is left, negative: what is missing.
    pub headroom_bytes: i64,
    /// The rung of the ladder that makes it fit, counted from 1, when it does not fit as it is.
    pub rung: Option<usize>,
    /// Why the card is out of question, whatever its memory.
    pub refused: Option<String>,
}

/// Every card of the table, in its order.
pub fn verdicts(needed: u64, ladder: &Ladder) -> Vec<Verdict> {
    CARDS.iter().map(|card| verdict(card, needed, ladder)).collect()
}

fn verdict(card: &Card, needed: u64, ladder: &Ladder) -> Verdict {
    let memory = card.memory_bytes();
    let refused = card.refusal();
    let found = if refused.is_some() { Fit::TooLarge } else { fit(needed, memory) };
    let fits = |rung: &Rung| rung.bytes.is_some_and(|bytes| fit(bytes, memory) != Fit::TooLarge);
    let rung = (found == Fit::TooLarge && refused.is_none())
        .then(|| ladder.rungs.iter().position(fits).map(|index| index + 1))
        .flatten();
    Verdict {
        card: card.name,
        memory_bytes: memory,
        fit: found,
        headroom_bytes: memory as i64 - needed as i64,
        rung,
        refused,
    }
}
