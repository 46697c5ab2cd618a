//! The plan of a run, for a person or a program.

use std::fmt::Write;

use serde::Serialize;

use super::cards::Card;
use super::fit::{Fit, Verdict, fit, verdicts};
use super::ladder::{Ladder, quoted};
use super::memory::{Memory, estimate};
use super::subject::{PlanError, Subject, Target};
use super::time::{Range, Time, speed_of, time};
use crate::config::train::Dtype;

const GIB: f64 = (1u64 << 30) as f64;

/// Memory of a device that is there or asked about.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Room {
    pub name: String,
    pub total_bytes: u64,
    /// What others have left of it; the total for a card of the table.
    pub free_bytes: u64,
    pub fit: Fit,
    /// Why it is out of question, whatever its memory.
    pub refused: Option<String>,
}

/// What a run will need and take.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// The run in one line.
    pub run: String,
    pub parameters: u64,
    pub trained: u64,
    pub memory: Memory,
    pub total_bytes: u64,
    /// The device that was asked about, or is here.
    pub room: Option<Room>,
    pub time: Option<Time>,
    pub cards: Vec<Verdict>,
    pub ladder: Ladder,
    /// What had to be assumed.
    pub notes: Vec<String>,
}

/// The device that a report is about.
#[derive(Debug, Clone, Copy)]
pub struct On<'a> {
    pub target: Target,
    /// Its speed, if the table knows it.
    pub card: Option<&'a Card>,
    /// Name, total and free bytes of its memory.
    pub room: Option<(&'a str, u64, u64)>,
}

impl<'a> On<'a> {
    /// A card of the table, empty.
    pub fn card(card: &'a Card) -> On<'a> {
        let memory = card.memory_bytes();
        On { target: Target::Gpu, card: Some(card), room: Some((card.name, memory, memory)) }
    }

    /// Some GPU.
    pub const GPU: On<'static> = On { target: Target::Gpu, card: None, room: None };
}

impl Report {
    /// Plans `subject` on a device.
    ///
    /// # Errors
    /// An adapter configuration that names nothing of the network.
    pub fn of(subject: &Subject, on: On<'_>) -> Result<Report, PlanError> {
        let need = estimate(subject, on.target)?;
        let total = need.memory.total();
        let ladder = Ladder::of(subject, on.target, total);
        let refused = on.card.and_then(Card::refusal);
        let room = on.room.map(|(name, total_bytes, free_bytes)| Room {
            name: name.to_owned(),
            total_bytes,
            free_bytes,
            fit: if refused.is_some() { Fit::TooLarge } else { fit(total, free_bytes) },
            refused: refused.clone(),
        });
        let mut notes = subject.notes.clone();
        notes.extend(refused.map(|_| {
            "without bf16 there is float32, at a tenth of the speed, and float16, which nobody has shown to train this \
             network: neither is offered"
                .to_owned()
        }));
        let unified = on.card.is_some_and(|card| card.unified);
        notes.extend(unified.then(|| "this memory is the host's, too: system and loader take their part".to_owned()));
        Ok(Report {
            run: describe(subject, on.target),
            parameters: need.parameters,
            trained: need.trained,
            memory: need.memory,
            total_bytes: total,
            room,
            time: speed_of(on.target, on.card, subject).map(|speed| time(subject, &need, &speed)),
            // On a CPU everything is f32: no statement about cards.
            cards: if on.target == Target::Gpu { verdicts(total, &ladder) } else { Vec::new() },
            ladder,
            notes,
        })
    }

    /// How the run stands to the device, in a sentence.
    pub fn verdict(&self) -> Option<String> {
        self.room.as_ref().map(|room| room.sentence(self.total_bytes))
    }

    /// The settings of the ladder after which the run fits the device, as they are typed.
    pub fn way_out(&self) -> Option<String> {
        let free = self.room.as_ref()?.free_bytes;
        self.ladder.first_within(free).map(|rung| self.ladder.settings(rung))
    }

    /// Everything.
    pub fn text(&self) -> String {
        let mut text = format!("{}\n\n{}", self.run, self.memory_text());
        if let Some(room) = &self.room {
            let _ = writeln!(text, "\n{}", room.sentence(self.total_bytes));
        }
        if let Some(time) = &self.time {
            text.push_str(&time_text(time));
        }
        text.push_str(&self.cards_text());
        text.push_str(&self.ladder_text());
        for note in &self.notes {
            let _ = writeln!(text, "note: {note}");
        }
        text
    }

    /// The lines of memory that are not zero, and their sum.
    pub fn memory_text(&self) -> String {
        let mut text = String::from("memory at the peak of a step, GiB\n");
        for (name, bytes) in self.memory.lines().into_iter().filter(|(_, bytes)| *bytes > 0) {
            let _ = writeln!(text, "  {name:<28}{:>8}", gib(bytes));
        }
        let _ = writeln!(text, "  {:<28}{:>8}", "sum", gib(self.total_bytes));
        text
    }

    /// The steps down, each with those before it.
    pub fn ladder_text(&self) -> String {
        let mut text = String::from("\nif memory runs out, in this order (each with those before it)\n");
        for (index, rung) in self.ladder.rungs.iter().enumerate() {
            let after = rung.bytes.map_or_else(|| "–".to_owned(), gib);
            let _ = writeln!(text, "  {}. {:>7}  {}", index + 1, after, rung.what);
            if !rung.settings.is_empty() {
                let _ = writeln!(
                    text,
                    "              {}",
                    rung.settings.iter().map(|text| quoted(text)).collect::<Vec<_>>().join(" ")
                );
            }
        }
        text
    }

    fn cards_text(&self) -> String {
        if self.cards.is_empty() {
            return String::new();
        }
        let mut text = String::from("\ncards                GiB  left\n");
        for verdict in &self.cards {
            let headroom = verdict.headroom_bytes as f64 / GIB;
            let (mark, remark) = match (&verdict.refused, verdict.fit, verdict.rung) {
                (Some(reason), ..) => ("✗", format!("      {reason}")),
                (_, Fit::Fits, _) => ("✓", format!("{headroom:>6.1}")),
                (_, Fit::Close, _) => ("✓", format!("{headroom:>6.1}  close")),
                (_, Fit::TooLarge, Some(rung)) => ("✗", format!("{headroom:>6.1}  fits from step {rung} below")),
                (_, Fit::TooLarge, None) => ("✗", format!("{headroom:>6.1}  with nothing that this version has")),
            };
            let memory = verdict.memory_bytes as f64 / GIB;
            let _ = writeln!(text, "{mark} {:<15}{memory:>7.1}{remark}", verdict.card);
        }
        text
    }
}

impl Room {
    /// The verdict in a sentence.
    pub fn sentence(&self, needed: u64) -> String {
        let Room { name, total_bytes, free_bytes, fit, refused } = self;
        if let Some(reason) = refused {
            return format!("✗ cannot run on {name}: {reason}");
        }
        let free = if free_bytes == total_bytes {
            format!("{} GiB", gib(*total_bytes))
        } else {
            format!("{} GiB free of {}", gib(*free_bytes), gib(*total_bytes))
        };
        match fit {
            Fit::Fits => format!("✓ fits {name}: {} of {free}", gib(needed)),
            Fit::Close => format!("✓ fits {name}, closely: {} of {free}", gib(needed)),
            Fit::TooLarge => format!("✗ does not fit {name}: {} needed, {free}", gib(needed)),
        }
    }
}

/// The run in one line: what trains, how.
fn describe(subject: &Subject, target: Target) -> String {
    let (config, arch) = (&subject.config, &subject.arch);
    let trains = match &config.adapter {
        adapter if !adapter.enabled => "every weight trains".to_owned(),
        adapter if adapter.also_train.is_empty() => format!("LoRA of rank {}", adapter.rank),
        adapter => format!("LoRA of rank {} and {} more modules", adapter.rank, adapter.also_train.len()),
    };
    let dtype = match (target, config.model.dtype) {
        (Target::Gpu, Dtype::Bfloat16) => "bf16",
        _ => "f32",
    };
    let recompute = if config.train.activation_checkpointing { "with" } else { "without" };
    let cameras = match subject.cameras.len() {
        1 => "one camera".to_owned(),
        n => format!("{n} cameras"),
    };
    let branches = match subject.branches() {
        1 => String::new(),
        n => format!(" × {n} delays"),
    };
    format!(
        "{}: {trains}; batch {} × {}{branches}, {cameras}, prompts of {}, {dtype}, {recompute} recomputation, chunk {}",
        config.run.name,
        config.train.batch_size,
        config.train.grad_accum,
        config.model.tokenizer_max_length,
        arch.chunk_size,
    )
}

fn time_text(time: &Time) -> String {
    let between = |range: Range, show: fn(f64) -> String| format!("{} to {}", show(range.best), show(range.worst));
    format!(
        "time: a step {}, all steps {}; {} samples/s (no step can be below {})\n",
        between(time.step_s, duration),
        between(time.total_s, duration),
        between(Range { best: time.samples_per_s.worst, worst: time.samples_per_s.best }, |rate| format!("{rate:.1}")),
        duration(time.floor_s),
    )
}

/// Seconds in the unit that a person would use.
fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 0.01 => format!("{:.1} ms", s * 1e3),
        s if s < 1.0 => format!("{:.0} ms", s * 1e3),
        s if s < 120.0 => format!("{s:.1} s"),
        s if s < 7200.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}

/// Bytes as GiB.
pub fn gib(bytes: u64) -> String {
    format!("{:.2}", bytes as f64 / GIB)
}
