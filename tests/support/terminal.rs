//! `vlash` in a pseudo-terminal: keys in, bytes out, and whether the terminal is given back as it was.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::pty::{OpenptyResult, Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::{Termios, tcgetattr};
use nix::unistd::Pid;

pub const ENTER: &str = "\x1b[?1049h";
pub const LEAVE: &str = "\x1b[?1049l";
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Waits for `what`, which `found` reports.
pub fn wait_until(what: &str, mut found: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !found() {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A text without control sequences and blanks: a screen that is drawn anew jumps over what is blank.
pub fn letters(text: &str) -> String {
    let mut letters = String::new();
    let mut rest = text.chars();
    while let Some(letter) = rest.next() {
        match letter {
            '\x1b' => drop(rest.by_ref().skip(1).find(|end| ('@'..='~').contains(end))),
            ' ' => {}
            _ => letters.push(letter),
        }
    }
    letters
}

pub fn terminal() -> OpenptyResult {
    let pair = openpty(Some(&Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 }), None).unwrap();
    // A child that inherits the other end would keep its own terminal from hanging up.
    for end in [&pair.master, &pair.slave] {
        fcntl(end, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).unwrap();
    }
    pair
}

/// `vlash` on a terminal of its own.
pub struct Session {
    pub child: Child,
    keyboard: File,
    pub terminal: OwnedFd,
    pub before: Termios,
    output: Arc<Mutex<Vec<u8>>>,
    pub state: tempfile::TempDir,
}

impl Session {
    pub fn start<A: AsRef<OsStr>>(arguments: &[A], environment: &[(&str, &str)]) -> Session {
        let OpenptyResult { master, slave } = terminal();
        let before = tcgetattr(&slave).unwrap();
        let state = tempfile::tempdir().unwrap();
        let end = || Stdio::from(slave.try_clone().unwrap());
        let child = Command::new(env!("CARGO_BIN_EXE_vlash"))
            .args(arguments)
            .env_clear()
            .env("TERM", "xterm-256color")
            .env("LANG", "C.UTF-8")
            .env("XDG_STATE_HOME", state.path())
            .envs(environment.iter().copied())
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .unwrap();
        let output = Arc::new(Mutex::new(Vec::new()));
        let mut reader = File::from(master.try_clone().unwrap());
        let sink = output.clone();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = reader.read(&mut bytes) {
                sink.lock().unwrap().extend_from_slice(&bytes[..count]);
            }
        });
        Session { child, keyboard: File::from(master), terminal: slave, before, output, state }
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.output.lock().unwrap()).into_owned()
    }

    /// Waits until `wanted` was put out `times` times.
    pub fn wait_for(&self, wanted: &str, times: usize) {
        wait_until(wanted, || self.text().matches(wanted).count() >= times);
    }

    /// Makes it draw the whole screen anew (as after a stop), and returns what is put out until `wanted` is in it.
    pub fn redrawn(&self, wanted: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mark = self.mark();
            kill(self.pid(), Signal::SIGCONT).unwrap();
            std::thread::sleep(Duration::from_millis(250));
            let text = self.since(mark);
            if letters(&text).contains(&letters(wanted)) {
                return text;
            }
            assert!(Instant::now() < deadline, "waited in vain for {wanted} in {text}");
        }
    }

    /// What was put out since `mark` bytes.
    pub fn since(&self, mark: usize) -> String {
        String::from_utf8_lossy(&self.output.lock().unwrap()[mark..]).into_owned()
    }

    pub fn mark(&self) -> usize {
        self.output.lock().unwrap().len()
    }

    pub fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).unwrap())
    }

    pub fn press(&mut self, keys: &[u8]) {
        self.keyboard.write_all(keys).unwrap();
    }

    pub fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        wait_until("the end of the process", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        // What was written last may still be on its way to the reading thread.
        std::thread::sleep(Duration::from_millis(100));
        status.unwrap()
    }

    pub fn modes(&self) -> Termios {
        tcgetattr(&self.terminal).unwrap()
    }

    /// As [`assert_given_back`](Self::assert_given_back), after the screen was left `times` times.
    pub fn assert_restored(&self, times: usize) {
        self.assert_given_back();
        assert_eq!(self.text().matches(LEAVE).count(), times);
    }

    /// The terminal is as it was, and every sequence that borrowed something has exactly one that gave it back.
    pub fn assert_given_back(&self) {
        assert_eq!(self.modes(), self.before, "the line discipline is not as it was");
        let text = self.text();
        for (on, off) in [(ENTER, LEAVE), ("\x1b[?2004h", "\x1b[?2004l"), ("\x1b[?1000h", "\x1b[?1000l")] {
            assert_eq!(text.matches(on).count(), text.matches(off).count(), "{on:?} and {off:?} in {text:?}");
        }
        let after = &text[text.rfind(LEAVE).unwrap()..];
        assert!(after.contains("\x1b[?25h") && !after.contains("\x1b[?25l"), "the cursor stays hidden: {after:?}");
        assert!(!after.contains("\x1b[?2026h"), "a frame was drawn on the normal screen: {after:?}");
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
