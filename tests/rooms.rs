//! The table of rooms in `ARCHITECTURE.md` against the code: who uses whom, and who knows of tensors.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Rooms that must build, start and run without tensors.
const WITHOUT_TENSORS: [&str; 3] = ["config", "track", "tui"];
/// What `policy` may take from `dataset`: plain types.
const PLAIN: [&str; 5] = ["sample", "frame", "stats", "finding", "meta::Tasks"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Room → the rooms that it may use; none: everything.
fn table() -> BTreeMap<String, Option<BTreeSet<String>>> {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let words = |cell: &str| cell.split('`').skip(1).step_by(2).map(String::from).collect::<BTreeSet<_>>();
    text.lines()
        .filter_map(|line| {
            let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
            let [room, _, uses] = cells.as_slice() else { return None };
            let room = room.strip_prefix('`')?.strip_suffix("/`")?;
            let uses = if *uses == "everything" { None } else { Some(words(uses)) };
            Some((room.to_string(), uses))
        })
        .collect()
}

/// Code lines (no comments) of the Rust files below `directory`.
fn code(directory: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(code(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
            found.extend(lines.map(|line| (path.clone(), line.to_string())));
        }
    }
    found
}

/// What follows `prefix` in `line`, wherever it occurs.
fn after<'a>(line: &'a str, prefix: &'a str) -> impl Iterator<Item = &'a str> {
    line.match_indices(prefix).filter_map(move |(at, _)| line.get(at + prefix.len()..))
}

#[test]
fn every_room_has_a_row_and_uses_only_what_its_row_names() {
    let table = table();
    let rooms: BTreeSet<String> = fs::read_dir(root().join("src"))
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.path().is_dir())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    assert_eq!(rooms, table.keys().cloned().collect());
    for (room, uses) in &table {
        let Some(uses) = uses else { continue };
        for (path, line) in code(&root().join("src").join(room)) {
            for rest in after(&line, "crate::") {
                let used: String = rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
                let allowed = used == *room || uses.contains(&used) || !rooms.contains(&used);
                assert!(allowed, "{} uses {used}, which its row does not name: {line}", path.display());
            }
        }
    }
}

#[test]
fn some_rooms_know_nothing_of_tensors() {
    for room in WITHOUT_TENSORS {
        for (path, line) in code(&root().join("src").join(room)) {
            assert!(!line.contains("candle"), "{}: {line}", path.display());
        }
    }
}

#[test]
fn the_policy_takes_plain_types_from_the_dataset() {
    for (path, line) in code(&root().join("src/policy")) {
        for rest in after(&line, "crate::dataset::") {
            assert!(PLAIN.iter().any(|plain| rest.starts_with(plain)), "{}: {line}", path.display());
        }
    }
}
