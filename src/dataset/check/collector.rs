//! Gathers what the single checks find, so that a thousand bad episodes do not become a thousand lines.

use std::collections::{BTreeMap, BTreeSet};

use crate::config::ranges;
use crate::dataset::error::DatasetError;
use crate::dataset::finding::{Finding, Severity};
use crate::error::Explain;

use super::report::counted;

/// So many findings of one kind are listed one by one; the others are counted.
const LISTED: usize = 5;

/// A problem of some episodes, all told by one message.
#[derive(Debug)]
struct Problem {
    severity: Severity,
    code: &'static str,
    episodes: Vec<usize>,
    message: String,
    fix: Option<String>,
}

#[derive(Debug, Default)]
pub(super) struct Collector {
    findings: Vec<Finding>,
    problems: Vec<Problem>,
    unusable: BTreeSet<usize>,
}

impl Collector {
    /// Something about the dataset as a whole.
    pub(super) fn push(&mut self, severity: Severity, code: &'static str, message: String, fix: Option<String>) {
        self.findings.push(Finding { severity, code, message, fix });
    }

    pub(super) fn extend(&mut self, findings: impl IntoIterator<Item = Finding>) {
        self.findings.extend(findings);
    }

    /// Something about `episodes`; an error makes them unusable.
    pub(super) fn problem(&mut self, severity: Severity, code: &'static str, episodes: &[usize], message: String) {
        self.problem_with_fix(severity, code, episodes, message, None);
    }

    pub(super) fn problem_with_fix(
        &mut self,
        severity: Severity,
        code: &'static str,
        episodes: &[usize],
        message: String,
        fix: Option<String>,
    ) {
        if severity == Severity::Error {
            self.unusable.extend(episodes);
        }
        self.problems.push(Problem { severity, code, episodes: episodes.to_vec(), message, fix });
    }

    /// Takes over what another collector has (files are checked side by side).
    pub(super) fn absorb(&mut self, other: Collector) {
        self.findings.extend(other.findings);
        self.problems.extend(other.problems);
        self.unusable.extend(other.unusable);
    }

    /// A reader's error about the dataset as a whole.
    pub(super) fn error(&mut self, error: &DatasetError) {
        self.findings.push(finding(error));
    }

    /// A reader's error about `episodes`.
    pub(super) fn failure(&mut self, episodes: &[usize], error: &DatasetError) {
        self.problem_with_fix(Severity::Error, code(error), episodes, chain(error), error.hint());
    }

    /// All findings, problems of episodes last, and the selection that avoids the unusable ones of `selected`.
    pub(super) fn finish(mut self, selected: &[usize]) -> (Vec<Finding>, Vec<usize>) {
        let mut kinds: BTreeMap<(Severity, &'static str), Vec<Problem>> = BTreeMap::new();
        for problem in self.problems {
            kinds.entry((problem.severity, problem.code)).or_default().push(problem);
        }
        for ((severity, code), mut problems) in kinds {
            let rest = problems.split_off(problems.len().min(LISTED));
            say_once(&mut problems);
            self.findings.extend(problems.into_iter().map(|p| Finding {
                severity,
                code,
                message: p.message,
                fix: p.fix,
            }));
            if !rest.is_empty() {
                let episodes: BTreeSet<usize> = rest.iter().flat_map(|problem| &problem.episodes).copied().collect();
                let episodes: Vec<usize> = episodes.into_iter().collect();
                let message = format!("{} more like these, in the episodes {}", rest.len(), ranges::list(&episodes));
                self.findings.push(Finding { severity, code, message, fix: None });
            }
        }
        let usable: Vec<usize> = selected.iter().copied().filter(|e| !self.unusable.contains(e)).collect();
        let unusable: Vec<usize> = self.unusable.into_iter().collect();
        if !unusable.is_empty() {
            let of = counted(selected.len(), "episode");
            let verb = if unusable.len() == 1 { "is" } else { "are" };
            self.findings.push(Finding {
                severity: Severity::Error,
                code: "unusable-episodes",
                message: format!("{} of {of} {verb} unusable: {}", unusable.len(), ranges::list(&unusable)),
                fix: (!usable.is_empty()).then(|| format!("data.episodes = {}", ranges::list(&usable))),
            });
        }
        (self.findings, unusable)
    }
}

/// Keeps a fix only where it first stands.
fn say_once(problems: &mut [Problem]) {
    let mut said = BTreeSet::new();
    for problem in problems {
        problem.fix = problem.fix.take().filter(|fix| said.insert(fix.clone()));
    }
}

/// A reader's error as a finding.
pub(super) fn finding(error: &DatasetError) -> Finding {
    Finding { severity: Severity::Error, code: code(error), message: chain(error), fix: error.hint() }
}

/// The message of an error with its causes.
pub(super) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut message = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        message.push_str(": ");
        message.push_str(&cause.to_string());
        source = cause.source();
    }
    message
}

/// The stable code of a reader's error.
fn code(error: &DatasetError) -> &'static str {
    match error {
        DatasetError::NotADataset { .. } => "not-a-dataset",
        DatasetError::LfsPointer { .. } => "lfs-pointer",
        DatasetError::Version { .. } => "version",
        DatasetError::Metadata { .. } => "metadata",
        DatasetError::Table { .. } => "table",
        DatasetError::Read { source, .. } if source.kind() == std::io::ErrorKind::NotFound => "missing-file",
        DatasetError::MissingFile { .. } => "missing-file",
        DatasetError::UnknownEpisode { .. } => "unknown-episode",
        DatasetError::Camera { .. } => "cameras",
        _ => "unreadable",
    }
}
