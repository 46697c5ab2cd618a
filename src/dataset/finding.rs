//! What a check found, in a form for people, scripts and the terminal interface alike.

use serde::Serialize;

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    Note,
    Warning,
    /// Training could not start.
    Error,
}

/// One line of a report: what, where, and what to do.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    pub severity: Severity,
    /// Stable, kebab-case: `missing-file`, `frame-count`, `constant-dimension`, …
    pub code: &'static str,
    /// What was found against what was expected, with file, episode, row, camera where there are any.
    pub message: String,
    /// A command or configuration line that works when pasted.
    pub fix: Option<String>,
}
