//! As much of an ELF file as tells which libraries it asks the loader for.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const PT_LOAD: u64 = 1;
const PT_DYNAMIC: u64 = 2;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;
const DT_STRSZ: u64 = 10;

pub struct Dynamic {
    /// The libraries that must be there for the program to start.
    pub needed: BTreeSet<String>,
    /// The newest version of glibc whose functions are used, `(2, 34)`.
    pub glibc: (u32, u32),
}

/// Reads a 64-bit little-endian ELF file.
pub fn dynamic(path: &Path) -> Dynamic {
    let file = fs::read(path).unwrap();
    assert_eq!(file[..6], [0x7f, b'E', b'L', b'F', 2, 1], "{}", path.display());
    let number = |at: u64, size: u64| -> u64 {
        let bytes = &file[at as usize..(at + size) as usize];
        bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
    };
    let (table, entry, count) = (number(32, 8), number(54, 2), number(56, 2));
    // Type, place in the file, place in memory, size in the file.
    let segments: Vec<[u64; 4]> = (0..count)
        .map(|index| table + index * entry)
        .map(|at| [number(at, 4), number(at + 8, 8), number(at + 16, 8), number(at + 32, 8)])
        .collect();
    let [_, start, _, size] = *segments.iter().find(|segment| segment[0] == PT_DYNAMIC).unwrap();
    let entries: Vec<(u64, u64)> =
        (0..size / 16).map(|index| start + index * 16).map(|at| (number(at, 8), number(at + 8, 8))).collect();
    let value = |tag| entries.iter().find(|entry| entry.0 == tag).unwrap().1;
    let (address, length) = (value(DT_STRTAB), value(DT_STRSZ));
    let [_, offset, base, _] = *segments
        .iter()
        .find(|[kind, _, base, size]| *kind == PT_LOAD && (*base..base + size).contains(&address))
        .unwrap();
    let at = (address - base + offset) as usize;
    let strings = &file[at..at + length as usize];
    let string = |at: u64| -> String {
        let bytes = strings[at as usize..].split(|byte| *byte == 0).next().unwrap();
        String::from_utf8(bytes.to_vec()).unwrap()
    };
    let versions = strings.split(|byte| *byte == 0).filter_map(|bytes| {
        let (major, minor) = std::str::from_utf8(bytes).ok()?.strip_prefix("GLIBC_")?.split_once('.')?;
        Some((major.parse().ok()?, minor.split('.').next()?.parse().ok()?))
    });
    Dynamic {
        glibc: versions.max().unwrap_or_default(),
        needed: entries.iter().filter(|entry| entry.0 == DT_NEEDED).map(|entry| string(entry.1)).collect(),
    }
}
