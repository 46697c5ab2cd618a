//! What a comparison found beside what it may find, so that the same test can fail, and print its numbers.

use std::fmt::Display;

use serde::Serialize;

/// The worst of one kind of difference.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Deviation {
    /// What is compared: "gradients", "loss".
    pub what: String,
    /// Where it was worst: a tensor, a step.
    pub at: String,
    pub worst: f64,
    pub tolerance: f64,
}

impl Deviation {
    /// How much of the tolerance is used up: 1 is all of it.
    pub fn share(&self) -> f64 {
        if self.worst == 0.0 { 0.0 } else { self.worst / self.tolerance }
    }
}

/// A measured number that nothing is required of.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Number {
    pub what: String,
    pub value: f64,
    pub unit: String,
}

/// Everything that one test found.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Record {
    pub deviations: Vec<Deviation>,
    pub numbers: Vec<Number>,
    /// Comparisons made.
    pub compared: usize,
}

impl Record {
    /// Notes that `found` was to be at most `tolerance`. Of each kind `what` the worst is kept.
    pub fn hold(&mut self, what: &str, at: impl Display, found: f64, tolerance: f64) {
        self.compared += 1;
        // A NaN would compare as smaller than everything.
        let worst = if found.is_nan() { f64::INFINITY } else { found };
        let new = Deviation { what: what.into(), at: at.to_string(), worst, tolerance };
        match self.deviations.iter_mut().find(|known| known.what == what) {
            Some(known) if known.share() >= new.share() => {}
            Some(known) => *known = new,
            None => self.deviations.push(new),
        }
    }

    pub fn number(&mut self, what: &str, value: f64, unit: &str) {
        self.numbers.push(Number { what: what.into(), value, unit: unit.into() });
    }

    /// The deviation that uses up most of its tolerance.
    pub fn worst(&self) -> Option<&Deviation> {
        self.deviations.iter().max_by(|a, b| a.share().total_cmp(&b.share()))
    }

    /// The error lists everything beyond its tolerance; also when nothing was compared or measured.
    pub fn check(&self) -> Result<(), String> {
        if self.compared == 0 && self.numbers.is_empty() {
            return Err("nothing was compared".into());
        }
        let beyond: Vec<String> = self
            .deviations
            .iter()
            .filter(|deviation| deviation.share() > 1.0)
            .map(|d| format!("{} ({}): {:.3e}, allowed {:.3e}", d.what, d.at, d.worst, d.tolerance))
            .collect();
        if beyond.is_empty() { Ok(()) } else { Err(beyond.join("; ")) }
    }
}
