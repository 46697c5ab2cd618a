//! What was asked of the robot here: by which way it went, and whether the robot answered.

use std::collections::VecDeque;

use super::history::History;
use crate::track::event::Level;
use crate::track::telemetry::{ArmState, Message, Status, Steer};

/// Orders of the same kind within so many seconds of each other are one entry: terminals repeat a held key.
const REPEAT_S: f64 = 1.0;
/// After so long without an answer an order is shown as unanswered.
pub const UNANSWERED_S: f64 = 2.0;
const CAPACITY: usize = 100;

/// By which ways an order left, in words, and which ways failed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Delivery {
    pub sent: Vec<String>,
    pub failed: Vec<String>,
}

/// How far an order has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    Sending,
    NotSent,
    Sent,
    /// The robot's own state shows it, or an event says so.
    Answered(String),
    Refused(String),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Order {
    pub ticket: u64,
    pub steer: Steer,
    /// First asked, by the clock of this host.
    pub time: f64,
    last: f64,
    /// How often: a held key repeats.
    pub times: u32,
    /// The robot's clock when it was asked.
    asked: f64,
    pub delivery: Delivery,
    pub progress: Progress,
}

impl Order {
    /// `hold x12`, `mode sync`: what was asked.
    pub fn text(&self) -> String {
        let what = match &self.steer {
            Steer::Mode { mode } => format!("mode {mode}"),
            Steer::Record { on } => format!("record {}", if *on { "on" } else { "off" }),
            other => other.name().to_owned(),
        };
        if self.times > 1 { format!("{what} x{}", self.times) } else { what }
    }

    /// The way and the answer, in words.
    pub fn describe(&self, now: f64) -> String {
        let mut words = Vec::new();
        if !self.delivery.sent.is_empty() {
            words.push(format!("sent by {}", self.delivery.sent.join(" and ")));
        }
        words.extend(self.delivery.failed.iter().map(|reason| format!("x {reason}")));
        words.push(match &self.progress {
            Progress::Sending => "sending".into(),
            Progress::NotSent => "x NOT SENT: use the robot's own stop".into(),
            Progress::Sent if self.is_overdue(now) => {
                format!("! no answer for {}", crate::tui::format::age(now - self.time))
            }
            Progress::Sent => "no answer yet".into(),
            Progress::Answered(text) => format!("ok {text}"),
            Progress::Refused(text) => format!("x refused: {text}"),
        });
        words.join("; ")
    }

    pub fn is_overdue(&self, now: f64) -> bool {
        self.progress == Progress::Sent && now - self.time > UNANSWERED_S
    }

    pub fn is_bad(&self, now: f64) -> bool {
        self.is_overdue(now) || matches!(self.progress, Progress::NotSent | Progress::Refused(_))
    }

    fn is_open(&self) -> bool {
        matches!(self.progress, Progress::Sending | Progress::Sent)
    }
}

/// Every order of this session, newest last.
#[derive(Debug, Default)]
pub struct Orders {
    entries: VecDeque<Order>,
    next: u64,
}

impl Orders {
    /// Notes an order about to be sent; `asked` is the robot's clock now. Returns its ticket.
    pub fn ask(&mut self, steer: &Steer, now: f64, asked: f64) -> u64 {
        let ticket = self.next;
        self.next += 1;
        if let Some(last) = self.entries.back_mut().filter(|o| o.steer == *steer && now - o.last < REPEAT_S) {
            (last.times, last.last, last.ticket) = (last.times.saturating_add(1), now, ticket);
            return ticket;
        }
        if self.entries.len() == CAPACITY {
            self.entries.pop_front();
        }
        self.entries.push_back(Order {
            ticket,
            steer: steer.clone(),
            time: now,
            last: now,
            times: 1,
            asked,
            delivery: Delivery::default(),
            progress: Progress::Sending,
        });
        ticket
    }

    /// The order left, or did not.
    pub fn delivered(&mut self, ticket: u64, delivery: Delivery) {
        // Of repeated orders only the newest has its ticket; the earlier ones' fate adds nothing.
        let Some(order) = self.entries.iter_mut().rev().find(|o| o.ticket == ticket) else { return };
        let sent = !delivery.sent.is_empty() || !order.delivery.sent.is_empty();
        if !delivery.sent.is_empty() || order.delivery.sent.is_empty() {
            order.delivery = delivery;
        }
        if order.is_open() {
            order.progress = if sent { Progress::Sent } else { Progress::NotSent };
        }
    }

    /// Looks for answers in `message`, which `history` holds already.
    pub fn answer(&mut self, message: &Message, history: &History) {
        for order in self.entries.iter_mut().filter(|o| o.is_open()) {
            let found = match message {
                Message::Status(status) if status.time > order.asked => shown(&order.steer, status),
                Message::Event { time, level, text } if *time >= order.asked => told(&order.steer, *level, text),
                Message::Ended { outcome, .. } if order.steer == Steer::Stop => {
                    Some(Progress::Answered(format!("ended: {outcome}")))
                }
                _ => None,
            };
            if let Some(progress) = found {
                order.progress = progress;
            }
        }
        if history.ended.is_some() {
            let open = self.entries.iter_mut().filter(|o| o.is_open());
            open.for_each(|o| o.progress = Progress::Answered("the rollout has ended".into()));
        }
    }

    /// Newest first.
    pub fn iter(&self) -> impl Iterator<Item = &Order> {
        self.entries.iter().rev()
    }

    pub fn newest(&self) -> Option<&Order> {
        self.entries.back()
    }
}

/// Whether the robot's state is what was asked for.
fn shown(steer: &Steer, status: &Status) -> Option<Progress> {
    let done = match steer {
        Steer::Hold => matches!(status.arm, ArmState::Holding | ArmState::EmergencyStopped | ArmState::Disarmed),
        Steer::EmergencyStop => status.arm == ArmState::EmergencyStopped,
        Steer::Arm { .. } => status.arm == ArmState::Armed,
        Steer::Mode { mode } => status.mode == *mode,
        Steer::Record { on } => status.recording == *on,
        Steer::Stop | Steer::Heartbeat => false,
    };
    let words = || match steer {
        Steer::Mode { .. } => format!("mode is {}", status.mode),
        Steer::Record { .. } => if status.recording { "recording" } else { "not recording" }.to_owned(),
        _ => format!("the arm is {}", arm_words(status.arm)),
    };
    done.then(|| Progress::Answered(words()))
}

/// Whether an event speaks of the order: a warning refuses it, anything else only the state confirms.
fn told(steer: &Steer, level: Level, text: &str) -> Option<Progress> {
    let lower = text.to_lowercase();
    let about = match steer {
        Steer::EmergencyStop => lower.contains("emergency"),
        other => lower.contains(other.name()),
    };
    let refused = about && level != Level::Info && lower.contains("refus");
    refused.then(|| Progress::Refused(crate::tui::format::clean(text)))
}

/// The state of the arm as shown.
pub fn arm_words(arm: ArmState) -> &'static str {
    match arm {
        ArmState::Disarmed => "DISARMED",
        ArmState::Armed => "ARMED",
        ArmState::Holding => "HOLDING",
        ArmState::EmergencyStopped => "E-STOPPED",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(time: f64, arm: ArmState) -> Message {
        Message::Status(Status { time, arm, ..Status::default() })
    }

    #[test]
    fn an_order_goes_from_sent_to_answered() {
        let (mut orders, history) = (Orders::default(), History::default());
        let ticket = orders.ask(&Steer::Hold, 100.0, 5.0);
        orders.delivered(ticket, Delivery { sent: vec!["the socket".into()], failed: Vec::new() });
        orders.answer(&status(5.0, ArmState::Holding), &history);
        assert_eq!(orders.newest().unwrap().describe(101.0), "sent by the socket; no answer yet");
        assert_eq!(orders.newest().unwrap().describe(103.0), "sent by the socket; ! no answer for 3 s");
        orders.answer(&status(5.1, ArmState::Holding), &history);
        assert_eq!(orders.newest().unwrap().describe(199.0), "sent by the socket; ok the arm is HOLDING");
    }

    #[test]
    fn a_held_key_is_one_entry() {
        let mut orders = Orders::default();
        for i in 0..30 {
            let ticket = orders.ask(&Steer::Hold, 100.0 + f64::from(i) * 0.03, 5.0);
            orders.delivered(ticket, Delivery { sent: vec!["the socket".into()], failed: Vec::new() });
        }
        orders.ask(&Steer::EmergencyStop, 101.0, 5.0);
        let texts: Vec<String> = orders.iter().map(Order::text).collect();
        assert_eq!(texts, ["emergency stop", "hold x30"]);
    }

    #[test]
    fn refusals_and_failures_are_told() {
        let (mut orders, history) = (Orders::default(), History::default());
        let ticket = orders.ask(&Steer::Arm { robot: "x".into() }, 100.0, 5.0);
        orders.delivered(ticket, Delivery { sent: vec!["control/".into()], failed: vec!["socket: closed".into()] });
        let text = "arm refused: the command is 0.3 rad away".to_owned();
        orders.answer(&Message::Event { time: 6.0, level: Level::Warn, text }, &history);
        let told = orders.newest().unwrap().describe(100.0);
        assert_eq!(told, "sent by control/; x socket: closed; x refused: arm refused: the command is 0.3 rad away");
        let ticket = orders.ask(&Steer::Hold, 101.0, 5.0);
        orders.delivered(ticket, Delivery { sent: Vec::new(), failed: vec!["no link".into()] });
        assert!(orders.newest().unwrap().is_bad(101.0));
        assert!(orders.newest().unwrap().describe(101.0).contains("NOT SENT"));
    }
}
