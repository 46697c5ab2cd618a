//! Which of the two on-disk layouts a dataset has: the files decide, `codebase_version` confirms.

use std::fmt;
use std::path::Path;

use serde::Serialize;
use serde_json::Value;

use crate::dataset::error::DatasetError;
use crate::dataset::finding::{Finding, Severity};

/// How the files lie on disk. Closed on purpose: a next format version is a compile error at each place that
/// depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Layout {
    /// One parquet file and one video per camera for each episode; metadata in JSON lines.
    #[serde(rename = "v2.1")]
    V21,
    /// Many episodes a file; metadata in parquet.
    #[serde(rename = "v3.0")]
    V30,
}

impl Layout {
    /// The version that this layout stands for, as `info.json` writes it.
    pub fn version(self) -> &'static str {
        match self {
            Layout::V21 => "v2.1",
            Layout::V30 => "v3.0",
        }
    }

    fn evidence(self) -> &'static str {
        match self {
            Layout::V21 => "meta/episodes.jsonl",
            Layout::V30 => "meta/episodes/",
        }
    }

    fn other(self) -> Layout {
        match self {
            Layout::V21 => Layout::V30,
            Layout::V30 => Layout::V21,
        }
    }

    fn major_minor(self) -> (u32, u32) {
        match self {
            Layout::V21 => (2, 1),
            Layout::V30 => (3, 0),
        }
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.version())
    }
}

/// Decides the layout of the dataset at `root`, given the value of `codebase_version`, if there is one.
pub fn settle(root: &Path, field: Option<&Value>, findings: &mut Vec<Finding>) -> Result<Layout, DatasetError> {
    let refuse = |message: String, hint: String| DatasetError::Version { root: root.to_path_buf(), message, hint };
    let version = match field {
        None | Some(Value::Null) => None,
        Some(value) => Some(parse_version(value).ok_or_else(|| {
            refuse(
                format!("codebase_version {value} in meta/info.json is not a version"),
                "it should be \"v2.1\" or \"v3.0\"".into(),
            )
        })?),
    };
    let layout = match (found(root, Layout::V21), found(root, Layout::V30)) {
        (true, false) => Layout::V21,
        (false, true) => Layout::V30,
        (true, true) => match version {
            Some((3, _)) => Layout::V30,
            Some((2, _)) => Layout::V21,
            _ => {
                return Err(refuse(
                    "both layouts are here (meta/episodes.jsonl and meta/episodes/), and codebase_version does not decide".into(),
                    "set codebase_version in meta/info.json to the layout that is complete".into(),
                ));
            }
        },
        (false, false) => {
            return Err(DatasetError::NotADataset {
                path: root.to_path_buf(),
                why: "neither meta/episodes.jsonl (v2.1) nor meta/episodes/ (v3.0) exists".into(),
            });
        }
    };
    let Some(version) = version else { return infer(root, layout, findings).map_err(|(m, h)| refuse(m, h)) };
    match confirm(layout, version) {
        Verdict::Agreed => {}
        Verdict::NewerMinor => findings.push(Finding {
            severity: Severity::Warning,
            code: "version-newer-minor",
            message: format!(
                "info.json says v{}.{}; read as {layout}, what that does not know is ignored",
                version.0, version.1
            ),
            fix: None,
        }),
        Verdict::Refused(message, hint) => return Err(refuse(message, hint)),
    }
    Ok(layout)
}

fn found(root: &Path, layout: Layout) -> bool {
    match layout {
        Layout::V21 => root.join("meta/episodes.jsonl").is_file(),
        Layout::V30 => root.join("meta/episodes").is_dir(),
    }
}

/// `"v3.0"`, `"3.0"`, `"3"`, `3.0` and `3` are all version 3.0.
fn parse_version(value: &Value) -> Option<(u32, u32)> {
    let text = match value {
        Value::String(text) => text.trim().to_owned(),
        Value::Number(number) => number.to_string(),
        _ => return None,
    };
    let mut parts = text.strip_prefix(['v', 'V']).unwrap_or(&text).split('.');
    let major = parts.next()?.parse().ok()?;
    let minor = parts.next().map_or(Some(0), |part| part.parse().ok())?;
    parts.all(|part| part.parse::<u32>().is_ok()).then_some((major, minor))
}

enum Verdict {
    Agreed,
    NewerMinor,
    Refused(String, String),
}

fn confirm(layout: Layout, (major, minor): (u32, u32)) -> Verdict {
    let (own_major, own_minor) = layout.major_minor();
    if major == own_major && minor == own_minor {
        return Verdict::Agreed;
    }
    if major == own_major && minor > own_minor {
        return Verdict::NewerMinor;
    }
    if major > 3 {
        return Verdict::Refused(
            format!("info.json says v{major}.{minor}, which is newer than the v3 that is understood here"),
            "use a newer vlash, or a v3.0 copy of the dataset".into(),
        );
    }
    if major < 2 || (major, minor) == (2, 0) && layout == Layout::V21 {
        return Verdict::Refused(
            format!("info.json says v{major}.{minor}, which is older than v2.1"),
            "convert it with LeRobot's conversion script to v2.1 or v3.0".into(),
        );
    }
    Verdict::Refused(
        format!(
            "info.json says v{major}.{minor} but the files are laid out as {layout} (found {}, no {})",
            layout.evidence(),
            layout.other().evidence()
        ),
        format!("set codebase_version to \"{layout}\" in meta/info.json, or convert the dataset"),
    )
}

/// Without a version field: v2.0 differs from v2.1 in keeping its statistics in one file.
fn infer(root: &Path, layout: Layout, findings: &mut Vec<Finding>) -> Result<Layout, (String, String)> {
    let meta = root.join("meta");
    if layout == Layout::V21 && meta.join("stats.json").is_file() && !meta.join("episodes_stats.jsonl").is_file() {
        return Err((
            "info.json has no codebase_version, and meta/stats.json without meta/episodes_stats.jsonl is the layout of v2.0, \
             which is older than v2.1"
                .into(),
            "convert it with LeRobot's conversion script to v2.1 or v3.0".into(),
        ));
    }
    findings.push(Finding {
        severity: Severity::Warning,
        code: "version-missing",
        message: format!(
            "info.json has no codebase_version; taken as {layout} from the files (found {})",
            layout.evidence()
        ),
        fix: Some(format!("\"codebase_version\": \"{layout}\"")),
    });
    Ok(layout)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::json;
    use std::fs;

    fn tree(layout: Layout) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        match layout {
            Layout::V21 => {
                fs::create_dir(dir.path().join("meta")).unwrap();
                fs::write(dir.path().join("meta/episodes.jsonl"), "").unwrap();
            }
            Layout::V30 => fs::create_dir_all(dir.path().join("meta/episodes")).unwrap(),
        }
        dir
    }

    #[rstest]
    #[case(Layout::V30, json!("v3.0"), None)]
    #[case(Layout::V30, json!("3"), None)]
    #[case(Layout::V30, json!(3.0), None)]
    #[case(Layout::V30, json!(3), None)]
    #[case(Layout::V30, json!("v3.7"), Some("version-newer-minor"))]
    #[case(Layout::V30, json!(null), Some("version-missing"))]
    #[case(Layout::V21, json!("2.1"), None)]
    #[case(Layout::V21, json!(null), Some("version-missing"))]
    fn accepted(#[case] layout: Layout, #[case] field: Value, #[case] warning: Option<&str>) {
        let mut findings = Vec::new();
        assert_eq!(settle(tree(layout).path(), Some(&field), &mut findings).unwrap(), layout);
        assert_eq!(findings.first().map(|finding| finding.code), warning);
    }

    #[rstest]
    #[case(Layout::V21, json!("v2.0"), "older than v2.1")]
    #[case(Layout::V21, json!("v1.6"), "older than v2.1")]
    #[case(Layout::V30, json!("v1.6"), "older than v2.1")]
    #[case(Layout::V30, json!("v4.0"), "newer")]
    #[case(Layout::V21, json!("v3.0"), "info.json says v3.0 but the files are laid out as v2.1 (found meta/episodes.jsonl, no meta/episodes/)")]
    #[case(Layout::V30, json!("v2.1"), "laid out as v3.0")]
    #[case(Layout::V30, json!("latest"), "not a version")]
    #[case(Layout::V30, json!("v99999999999"), "not a version")]
    #[case(Layout::V30, json!([3]), "not a version")]
    fn refused(#[case] layout: Layout, #[case] field: Value, #[case] expected: &str) {
        let error = settle(tree(layout).path(), Some(&field), &mut Vec::new()).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
}
