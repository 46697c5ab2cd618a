//! Whether the process behind a run is still there.

use std::fs;

use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::Pid;

/// Whether process `pid` of `host` lives; none when that is not the host that this is (`here`).
pub fn is_alive(pid: u32, host: &str, here: &str) -> Option<bool> {
    if here != host {
        return None;
    }
    let number = Pid::from_raw(i32::try_from(pid).ok().filter(|&pid| pid > 0)?);
    match kill(number, None) {
        // It answers to signals even when it is dead and only waits to be collected.
        Ok(()) => Some(!is_zombie(pid)),
        Err(Errno::ESRCH) => Some(false),
        Err(_) => Some(true),
    }
}

fn is_zombie(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The command name may contain brackets and spaces: the state follows its closing bracket.
    stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with(['Z', 'X']))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_living_the_dead_and_those_elsewhere() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        // Dead but not collected: a zombie until `wait`.
        while !is_zombie(child.id()) {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(is_alive(child.id(), "here", "here"), Some(false));
        child.wait().unwrap();
        assert_eq!(is_alive(std::process::id(), "here", "here"), Some(true));
        assert_eq!(is_alive(1, "there", "here"), None);
        assert_eq!(is_alive(0, "here", "here"), None);
        assert_eq!(is_alive(u32::MAX, "here", "here"), None);
    }
}
