//! What charts need of a rollout's `telemetry.jsonl`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use crate::chart::Chunk;
use crate::track::telemetry::{Message, Origin, Phase, Tick};

/// Longer lines are none of ours.
const LONGEST_LINE: usize = 1 << 20;

/// A rollout over time, in seconds.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Trace {
    /// In the order of their launches, over all episodes.
    pub chunks: Vec<Chunk>,
    /// Latencies of inferences, milliseconds.
    pub latencies: Vec<f64>,
    /// When a command was sent, and the milliseconds since the one before.
    pub periods: Vec<[f64; 2]>,
    /// When a tick of a moving arm had no fresh action.
    pub without_action: Vec<f64>,
    /// The last overlap in ticks.
    pub overlap: Option<u32>,
    /// Where the episode's chunk of that number stands in `chunks`.
    known: BTreeMap<u64, usize>,
}

impl Trace {
    /// Reads the file at `path`. Lines that are cut off or of kinds unknown here are passed over.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn read(path: &Path) -> io::Result<Trace> {
        let mut trace = Trace::default();
        let mut reader = BufReader::new(File::open(path)?);
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line)? > 0 {
            if let Some(message) = Some(&line).filter(|line| line.len() <= LONGEST_LINE).and_then(|line| parse(line)) {
                trace.hear(message);
            }
            line.clear();
        }
        Ok(trace)
    }

    /// Takes in one message.
    pub fn hear(&mut self, message: Message) {
        match message {
            Message::Tick(tick) => self.tick(&tick),
            Message::Chunk(chunk) => self.chunk(chunk.chunk, chunk.time, chunk.phase),
            Message::Status(status) => self.overlap = Some(status.overlap),
            Message::Hello(_) | Message::Thumbnail(_) | Message::Event { .. } | Message::Ended { .. } => {}
        }
    }

    fn tick(&mut self, tick: &Tick) {
        // The first of an episode has none before it.
        if tick.period_ms > 0.0 {
            self.periods.push([tick.time, tick.period_ms]);
        }
        let moves = self.chunks.iter().any(|chunk| chunk.executed.is_some());
        if tick.origin != Origin::Fresh && moves {
            self.without_action.push(tick.time);
        }
        let Some(chunk) = tick.chunk.and_then(|number| self.known.get(&number)).and_then(|at| self.chunks.get_mut(*at))
        else {
            return;
        };
        let end = tick.time + tick.period_ms.max(0.0) / 1e3;
        let from = chunk.executed.map_or(tick.time, |[from, _]| from);
        chunk.executed = Some([from, end]);
    }

    fn chunk(&mut self, number: u64, time: f64, phase: Phase) {
        match phase {
            Phase::Launched { .. } => {
                // Numbers begin anew with each episode.
                self.known.insert(number, self.chunks.len());
                self.chunks.push(Chunk { launched: time, arrived: None, executed: None });
            }
            Phase::Arrived { latency_ms, .. } => {
                self.latencies.push(latency_ms);
                if let Some(chunk) = self.known.get(&number).and_then(|at| self.chunks.get_mut(*at)) {
                    chunk.arrived = Some(time);
                }
            }
            Phase::Spliced { .. } | Phase::Discarded { .. } => {}
        }
    }
}

fn parse(line: &[u8]) -> Option<Message> {
    serde_json::from_slice(line).ok()
}
