//! What the terminal can show, from flags and environment; decided once, pure.

/// How many colours to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColorLevel {
    Never,
    Ansi16,
    Ansi256,
    True,
}

impl ColorLevel {
    pub const NAMES: [(&'static str, ColorLevel); 4] = [
        ("never", ColorLevel::Never),
        ("16", ColorLevel::Ansi16),
        ("256", ColorLevel::Ansi256),
        ("true", ColorLevel::True),
    ];
}

/// Which characters charts and borders are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Glyphs {
    Braille,
    Block,
    Ascii,
}

impl Glyphs {
    pub const NAMES: [(&'static str, Glyphs); 3] =
        [("braille", Glyphs::Braille), ("block", Glyphs::Block), ("ascii", Glyphs::Ascii)];
}

/// `--color`: a level, or what the environment suggests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum ColorChoice {
    #[default]
    Auto,
    Never,
    #[value(name = "16")]
    Ansi16,
    #[value(name = "256")]
    Ansi256,
    True,
}

/// `--glyphs`: a set, or what the environment suggests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum GlyphChoice {
    #[default]
    Auto,
    Braille,
    Block,
    Ascii,
}

/// What was found out about the terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capability {
    pub color: ColorLevel,
    pub glyphs: Glyphs,
    /// Over SSH: fewer frames.
    pub remote: bool,
    /// The terminal may take text for the clipboard (OSC 52).
    pub clipboard: bool,
}

/// Reads an environment variable; empty counts as unset.
pub type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

impl Capability {
    /// Flags win, then `NO_COLOR`, then the environment.
    pub fn detect(color: ColorChoice, glyphs: GlyphChoice, env: Environment) -> Capability {
        let term = env("TERM").unwrap_or_default();
        Capability {
            color: match color {
                ColorChoice::Auto => color_of(&term, env),
                ColorChoice::Never => ColorLevel::Never,
                ColorChoice::Ansi16 => ColorLevel::Ansi16,
                ColorChoice::Ansi256 => ColorLevel::Ansi256,
                ColorChoice::True => ColorLevel::True,
            },
            glyphs: match glyphs {
                GlyphChoice::Auto => glyphs_of(&term, env),
                GlyphChoice::Braille => Glyphs::Braille,
                GlyphChoice::Block => Glyphs::Block,
                GlyphChoice::Ascii => Glyphs::Ascii,
            },
            remote: env("SSH_CONNECTION").is_some(),
            clipboard: !is_console(&term),
        }
    }
}

/// The text console of a machine without a graphical terminal.
fn is_console(term: &str) -> bool {
    term == "linux" || term.starts_with("vt")
}

fn color_of(term: &str, env: Environment) -> ColorLevel {
    let truecolor = env("COLORTERM").is_some_and(|v| v == "truecolor" || v == "24bit");
    if env("NO_COLOR").is_some() || term == "dumb" || term.starts_with("vt") {
        ColorLevel::Never
    } else if truecolor {
        ColorLevel::True
    } else if is_console(term) || term.ends_with("-16color") || term == "ansi" {
        ColorLevel::Ansi16
    } else {
        ColorLevel::Ansi256
    }
}

fn glyphs_of(term: &str, env: Environment) -> Glyphs {
    // POSIX: the first that is set decides.
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].iter().find_map(|name| env(name)).unwrap_or_default().to_lowercase();
    if !(locale.contains("utf-8") || locale.contains("utf8")) {
        Glyphs::Ascii
    } else if is_console(term) {
        Glyphs::Block
    } else {
        Glyphs::Braille
    }
}

/// The environment of this process.
pub fn process_environment(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Why the full-screen interface cannot run here; nothing when it can.
pub fn obstacle(stdin: bool, stdout: bool, env: Environment) -> Option<&'static str> {
    if !stdout {
        Some("standard output is not a terminal")
    } else if !stdin {
        Some("standard input is not a terminal, so keys could not be read")
    } else if env("TERM").is_none_or(|term| term == "dumb") {
        Some("TERM names no terminal that can address the cursor")
    } else if env("CI").is_some() {
        Some("CI is set")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn detect(pairs: &[(&str, &str)]) -> Capability {
        let find = |name: &str| pairs.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
        Capability::detect(ColorChoice::Auto, GlyphChoice::Auto, &find)
    }

    #[test]
    fn colours_follow_the_environment_and_flags_win() {
        assert_eq!(detect(&[("TERM", "xterm-256color")]).color, ColorLevel::Ansi256);
        assert_eq!(detect(&[("TERM", "xterm"), ("COLORTERM", "truecolor")]).color, ColorLevel::True);
        assert_eq!(detect(&[("TERM", "linux")]).color, ColorLevel::Ansi16);
        assert_eq!(detect(&[("TERM", "vt100")]).color, ColorLevel::Never);
        assert_eq!(
            detect(&[("TERM", "xterm"), ("NO_COLOR", "1"), ("COLORTERM", "truecolor")]).color,
            ColorLevel::Never
        );
        let forced = Capability::detect(ColorChoice::True, GlyphChoice::Block, &|_| None);
        assert_eq!((forced.color, forced.glyphs), (ColorLevel::True, Glyphs::Block));
    }

    #[test]
    fn glyphs_follow_the_locale() {
        assert_eq!(detect(&[]).glyphs, Glyphs::Ascii);
        assert_eq!(detect(&[("LANG", "en_US.UTF-8")]).glyphs, Glyphs::Braille);
        assert_eq!(detect(&[("LANG", "en_US.UTF-8"), ("LC_ALL", "C")]).glyphs, Glyphs::Ascii);
        assert_eq!(detect(&[("LANG", "C.utf8"), ("TERM", "linux")]).glyphs, Glyphs::Block);
    }

    #[test]
    fn where_no_screen_can_be_drawn_the_reason_is_told() {
        let xterm = |name: &str| (name == "TERM").then(|| "xterm".to_owned());
        assert_eq!(obstacle(true, true, &xterm), None);
        assert!(obstacle(true, false, &xterm).unwrap().contains("output"));
        assert!(obstacle(false, true, &xterm).unwrap().contains("input"));
        assert!(obstacle(true, true, &|_| None).unwrap().contains("TERM"));
        assert!(obstacle(true, true, &|_| Some("1".into())).unwrap().contains("CI"));
    }
}
