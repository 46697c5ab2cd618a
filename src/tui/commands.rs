//! What was asked of the run on the user's behalf, and what became of it.

use std::collections::VecDeque;

use crate::track::control::Command;

/// After this long without a sign, a request is shown as unanswered.
pub const UNANSWERED_S: f64 = 60.0;
/// Most requests kept.
const CAPACITY: usize = 200;

/// How far a request has come.
#[derive(Debug, Clone, PartialEq)]
pub enum Progress {
    /// On its way to the inbox.
    Sending,
    /// The inbox did not take it.
    NotSent(String),
    Sent,
    Seen {
        step: u64,
    },
    Done {
        step: u64,
        detail: String,
    },
    Refused {
        step: u64,
        reason: String,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Number given here, before the request has an id.
    pub ticket: u64,
    /// The file's id, once sent. Requests of others appear with id only.
    pub id: Option<String>,
    /// As a person would type it: `lr 2e-5`.
    pub text: String,
    /// When it was asked (seconds since the Unix epoch).
    pub time: f64,
    pub progress: Progress,
}

impl Entry {
    /// `not seen after 60 s`, `done at step 12: …`: the state in words.
    pub fn describe(&self, now: f64) -> String {
        match &self.progress {
            Progress::Sending => "sending".into(),
            Progress::NotSent(reason) => format!("x not sent: {reason}"),
            Progress::Sent if self.is_overdue(now) => {
                format!("! not seen after {}", super::format::age(now - self.time))
            }
            Progress::Sent => "sent, waits for the end of the step".into(),
            Progress::Seen { step } => format!("sent > seen (step {step})"),
            Progress::Done { step, detail } if detail.is_empty() => format!("ok done (step {step})"),
            Progress::Done { step, detail } => format!("ok done (step {step}): {detail}"),
            Progress::Refused { step, reason } => format!("x refused (step {step}): {reason}"),
        }
    }

    pub fn is_overdue(&self, now: f64) -> bool {
        self.progress == Progress::Sent && now - self.time > UNANSWERED_S
    }
}

/// The requests of this session and those that the run's events mention.
#[derive(Debug, Default)]
pub struct Commands {
    entries: VecDeque<Entry>,
    next_ticket: u64,
}

impl Commands {
    /// Notes a request about to be sent; returns its ticket.
    pub fn ask(&mut self, command: &Command, now: f64) -> u64 {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.push(Entry { ticket, id: None, text: describe(command), time: now, progress: Progress::Sending });
        ticket
    }

    /// The inbox took it, or did not.
    pub fn sent(&mut self, ticket: u64, result: Result<String, String>) {
        let Some(entry) = self.entries.iter_mut().find(|e| e.ticket == ticket && e.id.is_none()) else { return };
        match result {
            Ok(id) => {
                entry.id = Some(id.clone());
                if entry.progress == Progress::Sending {
                    entry.progress = Progress::Sent;
                }
                self.adopt(ticket, &id);
            }
            Err(reason) => entry.progress = Progress::NotSent(reason),
        }
    }

    /// The answer was read before the ticket knew its id: joins the two entries.
    fn adopt(&mut self, ticket: u64, id: &str) {
        let is_double = |e: &Entry| e.ticket != ticket && e.id.as_deref() == Some(id);
        let Some(position) = self.entries.iter().position(is_double) else { return };
        let Some(double) = self.entries.remove(position) else { return };
        if let Some(entry) = self.entries.iter_mut().find(|e| e.ticket == ticket) {
            entry.progress = double.progress;
        }
    }

    /// An event of the run about request `id`.
    pub fn answer(&mut self, id: &str, command: &str, time: f64, progress: Progress) {
        if let Some(entry) = self.entries.iter_mut().rev().find(|e| e.id.as_deref() == Some(id)) {
            entry.progress = progress;
            return;
        }
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.push(Entry { ticket, id: Some(id.into()), text: command.replace('_', " "), time, progress });
    }

    fn push(&mut self, entry: Entry) {
        if self.entries.len() == CAPACITY {
            self.entries.pop_front();
        }
        self.entries.push_back(entry);
    }

    /// Newest first.
    pub fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().rev()
    }

    /// The newest request that waits too long.
    pub fn overdue(&self, now: f64) -> Option<&Entry> {
        self.entries.iter().rev().find(|e| e.is_overdue(now))
    }
}

fn describe(command: &Command) -> String {
    match command {
        Command::SetLearningRate { lr } => format!("lr {}", super::format::rate(*lr)),
        other => other.name().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_goes_from_sent_to_done_and_waits_visibly() {
        let mut commands = Commands::default();
        let ticket = commands.ask(&Command::Checkpoint, 100.0);
        commands.sent(ticket, Ok("7".into()));
        let first = |c: &Commands| c.iter().next().unwrap().clone();
        assert_eq!(first(&commands).describe(101.0), "sent, waits for the end of the step");
        assert_eq!(first(&commands).describe(165.0), "! not seen after 65 s");
        assert!(commands.overdue(165.0).is_some());
        commands.answer("7", "checkpoint", 166.0, Progress::Seen { step: 12 });
        assert_eq!(first(&commands).describe(500.0), "sent > seen (step 12)");
        commands.answer("7", "checkpoint", 167.0, Progress::Done { step: 12, detail: "checkpoints/12".into() });
        assert_eq!(first(&commands).describe(500.0), "ok done (step 12): checkpoints/12");
        assert_eq!((commands.overdue(999.0), commands.iter().count()), (None, 1));
    }

    #[test]
    fn an_answer_that_overtakes_the_ticket_is_joined_with_it() {
        let mut commands = Commands::default();
        let ticket = commands.ask(&Command::SetLearningRate { lr: 2e-5 }, 1.0);
        commands.answer("9", "set_learning_rate", 2.0, Progress::Refused { step: 3, reason: "too high".into() });
        assert_eq!(commands.iter().count(), 2);
        commands.sent(ticket, Ok("9".into()));
        let entries: Vec<_> = commands.iter().collect();
        assert_eq!(entries.len(), 1);
        assert_eq!(
            (entries[0].text.as_str(), entries[0].describe(9.0).as_str()),
            ("lr 2e-5", "x refused (step 3): too high")
        );
    }

    #[test]
    fn a_full_disk_is_told() {
        let mut commands = Commands::default();
        let ticket = commands.ask(&Command::Stop, 1.0);
        commands.sent(ticket, Err("disk full".into()));
        assert_eq!(commands.iter().next().unwrap().describe(99.0), "x not sent: disk full");
        assert_eq!(commands.overdue(99.0), None);
    }
}
