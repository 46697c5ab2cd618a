//! What a check found, for people ([`Report`]'s `Display`), scripts (its JSON) and exit codes.

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

use crate::dataset::cameras::{Camera, CameraSource};
use crate::dataset::finding::{Finding, Severity};

/// The outcome of a check.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    pub dataset: PathBuf,
    /// None when `meta/` could not be read.
    pub facts: Option<Facts>,
    /// In the order in which they were found.
    pub findings: Vec<Finding>,
}

/// What the dataset is, as far as its files agree.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Facts {
    /// Layout of the files: `v2.1` or `v3.0`.
    pub version: &'static str,
    pub fps: u32,
    pub episodes: usize,
    /// Episodes that the check looked at.
    pub selected: Vec<usize>,
    /// Those of them that cannot be trained on.
    pub unusable: Vec<usize>,
    /// Frames of the selected episodes, as declared.
    pub frames: usize,
    pub cameras: Vec<CameraFacts>,
    /// Dimensions of the state and of the action.
    pub state: Option<usize>,
    pub action: Option<usize>,
}

/// A camera that is read, to compare with those that a policy expects.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CameraFacts {
    /// The feature in the dataset.
    pub feature: String,
    /// Its name after the renames.
    pub name: String,
    pub height: usize,
    pub width: usize,
    pub video: bool,
}

impl From<&Camera> for CameraFacts {
    fn from(camera: &Camera) -> Self {
        CameraFacts {
            feature: camera.feature.clone(),
            name: camera.name.clone(),
            height: camera.shape.height,
            width: camera.shape.width,
            video: camera.source == CameraSource::Video,
        }
    }
}

impl Report {
    /// Adds what was found elsewhere (prompt lengths, camera slots of a policy).
    pub fn push(&mut self, finding: Finding) {
        self.findings.push(finding);
    }

    /// Number of findings of one severity.
    pub fn count(&self, severity: Severity) -> usize {
        self.findings.iter().filter(|finding| finding.severity == severity).count()
    }

    /// Whether training could start: there is no error.
    pub fn can_train(&self) -> bool {
        self.count(Severity::Error) == 0
    }

    /// The report as JSON: facts, findings, counts, and `can_train`.
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::json!({
            "dataset": self.dataset,
            "facts": self.facts,
            "findings": self.findings,
            "errors": self.count(Severity::Error),
            "warnings": self.count(Severity::Warning),
            "notes": self.count(Severity::Note),
            "can_train": self.can_train(),
        })
    }
}

impl fmt::Display for Report {
    /// What the dataset is, the findings with the gravest first, and the verdict.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.facts {
            Some(facts) => writeln!(f, "{}: {facts}", self.dataset.display())?,
            None => writeln!(f, "{}", self.dataset.display())?,
        }
        for severity in [Severity::Error, Severity::Warning, Severity::Note] {
            for finding in self.findings.iter().filter(|finding| finding.severity == severity) {
                writeln!(f, "\n{} {}\n  {}", word(severity), finding.code, finding.message)?;
                if let Some(fix) = &finding.fix {
                    writeln!(f, "  fix: {fix}")?;
                }
            }
        }
        let counts = [Severity::Error, Severity::Warning, Severity::Note].map(|s| counted(self.count(s), word(s)));
        let verdict = if self.can_train() { "training can start" } else { "training cannot start" };
        writeln!(f, "\n{}: {verdict}", counts.join(", "))
    }
}

impl fmt::Display for Facts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LeRobot {}, ", self.version)?;
        match self.selected.len() {
            all if all == self.episodes => write!(f, "{}", counted(all, "episode"))?,
            some => write!(f, "{some} of {}", counted(self.episodes, "episode"))?,
        }
        write!(f, ", {} at {} fps", counted(self.frames, "frame"), self.fps)?;
        if let (Some(state), Some(action)) = (self.state, self.action) {
            write!(f, ", state {state}, action {action}")?;
        }
        for camera in &self.cameras {
            write!(f, ", {} {}x{}", camera.name, camera.width, camera.height)?;
        }
        Ok(())
    }
}

fn word(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Note => "note",
    }
}

/// `1 frame`, `2 frames`.
pub(super) fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}
