//! Which way of drawing images the terminal knows: asked once, before anybody reads keys, for at most 200 ms.
//!
//! What a person types meanwhile is not lost: a stop key may be among it.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout};

use crate::tui::capability::{ColorLevel, Environment, Glyphs};

/// How long an answer is waited for. Terminals answer in a few milliseconds, through SSH in a round trip.
const PATIENCE: Duration = Duration::from_millis(200);
/// Kitty graphics, primary attributes (sixel), size of a cell, and a status report that every terminal answers last.
const QUESTION: &[u8] = b"\x1b_Gi=31,s=1,v=1,a=q,t=d,f=24;AAAA\x1b\\\x1b[c\x1b[16t\x1b[5n";
/// Longest answer that is read.
const LONGEST: usize = 4096;

/// How images are drawn; `cell` is a character's width and height in pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Graphics {
    Kitty {
        cell: (u16, u16),
    },
    Iterm2 {
        cell: (u16, u16),
    },
    Sixel {
        cell: (u16, u16),
    },
    /// Two pixels a character, in colour.
    HalfBlocks,
    /// Words only.
    None,
}

impl Graphics {
    /// Pixels of a character.
    pub fn cell(self) -> (u16, u16) {
        match self {
            Graphics::Kitty { cell } | Graphics::Iterm2 { cell } | Graphics::Sixel { cell } => cell,
            Graphics::HalfBlocks | Graphics::None => (1, 2),
        }
    }

    /// Whether an image is more than characters with colours, so that nothing may be drawn over it.
    pub fn is_pixels(self) -> bool {
        !matches!(self, Graphics::HalfBlocks | Graphics::None)
    }

    /// What can be told without asking: none without colour or with ASCII alone, else half blocks.
    pub fn without_asking(color: ColorLevel, glyphs: Glyphs) -> Graphics {
        let plain = matches!(color, ColorLevel::Never | ColorLevel::Ansi16) || glyphs == Glyphs::Ascii;
        if plain { Graphics::None } else { Graphics::HalfBlocks }
    }
}

/// What a terminal answered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answer {
    kitty: bool,
    sixel: bool,
    cell: Option<(u16, u16)>,
    /// The status report came: nothing more follows.
    complete: bool,
    /// Bytes that belong to no answer: keys.
    pub typed: Vec<u8>,
}

/// Whether it is wise to ask at all. Multiplexers pass questions on or not, and images hardly ever.
pub fn may_ask(env: Environment) -> bool {
    let term = env("TERM").unwrap_or_default();
    let multiplexed = env("TMUX").is_some() || env("STY").is_some();
    !(multiplexed
        || term.starts_with("tmux")
        || term.starts_with("screen")
        || term == "linux"
        || term.starts_with("vt"))
}

/// The best way that the answer and the environment name: kitty, iTerm2, sixel, then `fallback`.
pub fn choose(answer: &Answer, env: Environment, fallback: Graphics) -> Graphics {
    let Some(cell) = answer.cell else { return fallback };
    if fallback == Graphics::None {
        return Graphics::None;
    }
    let program = env("TERM_PROGRAM").unwrap_or_default();
    // These two answer for kitty's graphics without its placeholders.
    let halfway = program == "WezTerm" || env("KONSOLE_VERSION").is_some();
    let iterm = ["iTerm", "WezTerm", "mintty", "vscode"].iter().any(|name| program.contains(name));
    match answer {
        Answer { kitty: true, .. } if !halfway => Graphics::Kitty { cell },
        _ if iterm => Graphics::Iterm2 { cell },
        Answer { sixel: true, .. } if env("KONSOLE_VERSION").is_none() => Graphics::Sixel { cell },
        _ => fallback,
    }
}

/// Asks the terminal on standard output and reads what standard input brings.
pub fn ask() -> io::Result<Answer> {
    let mut out = io::stdout();
    out.write_all(QUESTION)?;
    out.flush()?;
    let stdin = io::stdin();
    let deadline = Instant::now() + PATIENCE;
    let mut bytes = Vec::new();
    loop {
        let answer = interpret(&bytes);
        let left = deadline.saturating_duration_since(Instant::now());
        if answer.complete || left.is_zero() || bytes.len() > LONGEST {
            return Ok(answer);
        }
        let mut fds = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
        let wait = PollTimeout::from(u8::try_from(left.as_millis()).unwrap_or(u8::MAX));
        match nix::poll::poll(&mut fds, wait) {
            Ok(0) | Err(nix::errno::Errno::EINTR) => continue,
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        let mut part = [0; 256];
        match nix::unistd::read(stdin.as_fd(), &mut part)? {
            0 => return Ok(answer),
            count => bytes.extend_from_slice(part.get(..count).unwrap_or_default()),
        }
    }
}

/// Takes answers and keys apart.
fn interpret(bytes: &[u8]) -> Answer {
    let mut answer = Answer::default();
    let mut rest = bytes;
    while let Some((&first, after)) = rest.split_first() {
        rest = match (first, after.first()) {
            (0x1b, Some(b'[')) => control_sequence(after.get(1..).unwrap_or_default(), &mut answer),
            (0x1b, Some(b'_')) => graphics_reply(after.get(1..).unwrap_or_default(), &mut answer),
            _ => {
                answer.typed.push(first);
                after
            }
        };
    }
    answer
}

/// `ESC [ parameters letter`; returns what follows.
fn control_sequence<'a>(bytes: &'a [u8], answer: &mut Answer) -> &'a [u8] {
    let Some(end) = bytes.iter().position(|b| (0x40..=0x7e).contains(b)) else { return &[] };
    let (parameters, rest) = bytes.split_at(end);
    let text = String::from_utf8_lossy(parameters);
    let numbers: Vec<u16> = text.trim_start_matches('?').split(';').filter_map(|n| n.parse().ok()).collect();
    match (rest.first(), numbers.as_slice()) {
        (Some(b'c'), attributes) => answer.sixel = attributes.contains(&4),
        (Some(b't'), [6, height, width]) if (1..=200).contains(height) && (1..=200).contains(width) => {
            answer.cell = Some((*width, *height));
        }
        (Some(b'n'), [0 | 3]) => answer.complete = true,
        _ => {}
    }
    rest.get(1..).unwrap_or_default()
}

/// `ESC _ G…;OK ESC \`; returns what follows.
fn graphics_reply<'a>(bytes: &'a [u8], answer: &mut Answer) -> &'a [u8] {
    let end = bytes.windows(2).position(|pair| pair == b"\x1b\\");
    let Some((reply, rest)) = end.and_then(|end| bytes.split_at_checked(end)) else { return &[] };
    answer.kitty |= reply.starts_with(b"Gi=31") && reply.ends_with(b";OK");
    rest.get(2..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FALLBACK: Graphics = Graphics::HalfBlocks;

    fn nothing(_: &str) -> Option<String> {
        None
    }

    #[test]
    fn answers_of_terminals() {
        let kitty = interpret(b"\x1b_Gi=31;OK\x1b\\\x1b[?62;c\x1b[6;20;10t\x1b[0n");
        assert!(kitty.complete && kitty.typed.is_empty());
        assert_eq!(choose(&kitty, &nothing, FALLBACK), Graphics::Kitty { cell: (10, 20) });
        let foot = interpret(b"\x1b[?62;4;22c\x1b[6;18;9t\x1b[0n");
        assert_eq!(choose(&foot, &nothing, FALLBACK), Graphics::Sixel { cell: (9, 18) });
        let wezterm = |name: &str| (name == "TERM_PROGRAM").then(|| "WezTerm".to_owned());
        assert_eq!(choose(&kitty, &wezterm, FALLBACK), Graphics::Iterm2 { cell: (10, 20) });
        let xterm = interpret(b"\x1b[?64;1;2c\x1b[0n");
        assert_eq!(choose(&xterm, &nothing, FALLBACK), FALLBACK);
        assert_eq!(choose(&kitty, &nothing, Graphics::None), Graphics::None);
        assert_eq!(choose(&Answer::default(), &nothing, FALLBACK), FALLBACK);
    }

    #[test]
    fn keys_between_answers_are_kept() {
        let answer = interpret(b" \x1b[?62cE\x1b[0n");
        assert_eq!((answer.typed.as_slice(), answer.complete), (&b" E"[..], true));
    }

    #[test]
    fn multiplexers_and_consoles_are_not_asked() {
        let term = |value: &'static str| move |name: &str| (name == "TERM").then(|| value.to_owned());
        assert!(may_ask(&term("xterm-kitty")));
        assert!(!may_ask(&term("tmux-256color")) && !may_ask(&term("screen")) && !may_ask(&term("linux")));
        assert!(!may_ask(&|name: &str| (name == "TMUX").then(|| "/tmp/x".to_owned())));
    }

    proptest! {
        #[test]
        fn any_bytes_are_taken_apart(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            prop_assert!(interpret(&bytes).typed.len() <= bytes.len());
        }
    }
}
