//! Memory of this process, as the operating system counts it.

/// Peak resident memory in bytes (`VmHWM`), 0 where the system does not tell.
pub fn peak_resident_bytes() -> u64 {
    std::fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|text| kib_field(&text, "VmHWM:"))
        .map_or(0, |kib| kib * 1024)
}

/// Bytes of memory of this machine, and of those that are available; none where the system does not tell.
pub fn total_and_available() -> Option<(u64, u64)> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let field = |name| kib_field(&text, name).map(|kib| kib * 1024);
    Some((field("MemTotal:")?, field("MemAvailable:")?))
}

fn kib_field(status: &str, field: &str) -> Option<u64> {
    status.lines().find_map(|line| line.strip_prefix(field)?.split_whitespace().next()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_a_peak() {
        assert!(peak_resident_bytes() > 1 << 20);
        assert!(total_and_available().is_none_or(|(total, available)| available <= total));
        assert_eq!(kib_field("VmHWM:\t  12 kB\n", "VmHWM:"), Some(12));
        assert_eq!(kib_field("VmRSS: 1 kB", "VmHWM:"), None);
    }
}
