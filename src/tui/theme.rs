//! Colours and characters. Meaning is always carried by text or symbol too; the palette is blue, orange and grey, which
//! colour-blind people tell apart, and its 256-colour and true-colour values read on black and on white.

use ratatui::style::{Color, Modifier, Style};
use ratatui::symbols::border;

use super::capability::{ColorLevel, Glyphs};
use crate::track::event::Level;

/// How far side information steps back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    Calm,
    Contrast,
}

impl Tone {
    pub const NAMES: [(&'static str, Tone); 2] = [("calm", Tone::Calm), ("contrast", Tone::Contrast)];
}

/// The styles and characters of one drawing.
#[derive(Debug, Clone, Copy)]
pub struct Theme {
    pub color: ColorLevel,
    pub glyphs: Glyphs,
    pub tone: Tone,
}

impl Theme {
    fn pick(&self, ansi16: Color, ansi256: u8, rgb: (u8, u8, u8)) -> Style {
        match self.color {
            ColorLevel::Never => Style::new(),
            ColorLevel::Ansi16 => Style::new().fg(ansi16),
            ColorLevel::Ansi256 => Style::new().fg(Color::Indexed(ansi256)),
            ColorLevel::True => Style::new().fg(Color::Rgb(rgb.0, rgb.1, rgb.2)),
        }
    }

    /// The run's own values: training loss, bars.
    pub fn blue(&self) -> Style {
        self.pick(Color::LightBlue, 33, (0, 135, 255))
    }

    /// What wants attention, and the second series.
    pub fn orange(&self) -> Style {
        self.pick(Color::Yellow, 166, (215, 95, 0))
    }

    /// Borders, labels, stale values.
    pub fn grey(&self) -> Style {
        match self.tone {
            Tone::Contrast => Style::new(),
            Tone::Calm => self.pick(Color::DarkGray, 244, (128, 128, 128)),
        }
    }

    /// A title or a state. Never the only sign of anything.
    pub fn strong(&self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// The chosen line of a list.
    pub fn selected(&self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    pub fn level(&self, level: Level) -> Style {
        match level {
            Level::Info => Style::new(),
            Level::Warn => self.orange(),
            Level::Error => self.orange().add_modifier(Modifier::BOLD),
        }
    }

    pub fn border(&self) -> border::Set<'static> {
        match self.glyphs {
            Glyphs::Ascii => border::Set {
                top_left: "+",
                top_right: "+",
                bottom_left: "+",
                bottom_right: "+",
                vertical_left: "|",
                vertical_right: "|",
                horizontal_top: "-",
                horizontal_bottom: "-",
            },
            _ => border::PLAIN,
        }
    }

    /// The sign of life in the header.
    pub fn dot(&self) -> &'static str {
        if self.glyphs == Glyphs::Ascii { "*" } else { "●" }
    }

    /// A bar of `share` (0 to 1) over `width` cells, in eighths of a cell where the glyphs allow.
    pub fn bar(&self, share: f64, width: usize) -> String {
        const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
        let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
        if self.glyphs == Glyphs::Ascii {
            return "#".repeat((share * width as f64).round() as usize);
        }
        let eighths = (share * width as f64 * 8.0).round() as usize;
        "█".repeat(eighths / 8) + EIGHTHS[eighths % 8]
    }
}

/// The symbol that goes with a level: `ok`-ish text needs none.
pub fn mark(level: Level) -> &'static str {
    match level {
        Level::Info => " ",
        Level::Warn => "!",
        Level::Error => "x",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn luminance((r, g, b): (u8, u8, u8)) -> f64 {
        let linear = |c: u8| {
            let c = f64::from(c) / 255.0;
            if c <= 0.03928 { c / 12.92 } else { ((c + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b)
    }

    /// Contrast ratio of WCAG 2.
    fn contrast(a: (u8, u8, u8), b: (u8, u8, u8)) -> f64 {
        let (a, b) = (luminance(a), luminance(b));
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    /// xterm's fixed colours from 16 on: a 6×6×6 cube, then 24 greys.
    fn indexed(index: u8) -> (u8, u8, u8) {
        let level = |v: u8| if v == 0 { 0 } else { 55 + 40 * v };
        match index {
            16..=231 => (level((index - 16) / 36), level((index - 16) / 6 % 6), level((index - 16) % 6)),
            232..=255 => [8 + 10 * (index - 232); 3].into(),
            _ => panic!("{index} depends on the terminal's settings"),
        }
    }

    #[test]
    fn the_palette_reads_on_black_and_on_white() {
        for color in [ColorLevel::Ansi256, ColorLevel::True] {
            let theme = Theme { color, glyphs: Glyphs::Braille, tone: Tone::Calm };
            for (name, style) in [("blue", theme.blue()), ("orange", theme.orange()), ("grey", theme.grey())] {
                let rgb = match style.fg.unwrap() {
                    Color::Indexed(i) => indexed(i),
                    Color::Rgb(r, g, b) => (r, g, b),
                    other => panic!("{other}"),
                };
                for background in [(0, 0, 0), (255, 255, 255)] {
                    let ratio = contrast(rgb, background);
                    assert!(ratio >= 3.0, "{name} at {color:?} on {background:?}: {ratio:.2}");
                }
            }
        }
    }

    #[test]
    fn bars_fill_by_eighths_and_clamp() {
        let theme = Theme { color: ColorLevel::Never, glyphs: Glyphs::Block, tone: Tone::Calm };
        assert_eq!(theme.bar(0.5, 5), "██▌");
        assert_eq!(theme.bar(7.0, 3), "███");
        assert_eq!(theme.bar(f64::NAN, 3), "");
        assert_eq!(Theme { glyphs: Glyphs::Ascii, ..theme }.bar(0.5, 4), "##");
    }
}
