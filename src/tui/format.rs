//! Numbers, durations and foreign text for a person: units always shown, ISO dates, `1h 23m`.

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// `45 s`, `12m 03s`, `5h 12m`, `3d 4h`.
pub fn duration(seconds: f64) -> String {
    if !seconds.is_finite() || seconds < 0.0 {
        return "n/a".into();
    }
    let s = seconds.round().min(1e12) as u64;
    match s {
        0..60 => format!("{s} s"),
        60..3600 => format!("{}m {:02}s", s / 60, s % 60),
        3600..86_400 => format!("{}h {:02}m", s / 3600, s % 3600 / 60),
        _ => format!("{}d {}h", s / 86_400, s % 86_400 / 3600),
    }
}

/// An age in steps that become coarser, so that an old age does not redraw every second: `3 s`, `40 s`, `12 min`, `5 h`.
pub fn age(seconds: f64) -> String {
    let s = seconds.max(0.0) as u64;
    match s {
        0..120 => format!("{s} s"),
        120..7200 => format!("{} min", s / 60),
        7200..172_800 => format!("{} h", s / 3600),
        _ => format!("{} d", s / 86_400),
    }
}

/// `950`, `12.4k`, `1.25M`.
pub fn count(n: u64) -> String {
    match n {
        0..10_000 => n.to_string(),
        10_000..1_000_000 => format!("{:.1}k", n as f64 / 1e3),
        _ => format!("{:.2}M", n as f64 / 1e6),
    }
}

/// `512 B`, `1.4 GiB`.
pub fn bytes(n: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = n as f64;
    let mut unit = UNITS[0];
    for next in UNITS.iter().skip(1) {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    if unit == "B" { format!("{n} B") } else { format!("{value:.1} {unit}") }
}

/// A loss or norm in about four characters of precision: `0.312`, `12.4`, `3.1e-5`, `NaN`.
pub fn metric(value: f64) -> String {
    let magnitude = value.abs();
    if !value.is_finite() {
        value.to_string()
    } else if magnitude == 0.0 {
        "0".into()
    } else if !(1e-3..1e5).contains(&magnitude) {
        short_exponent(value)
    } else if magnitude >= 100.0 {
        format!("{value:.0}")
    } else if magnitude >= 10.0 {
        format!("{value:.1}")
    } else if magnitude >= 1.0 {
        format!("{value:.2}")
    } else {
        format!("{value:.3}")
    }
}

/// A learning rate: `1.92e-5`.
pub fn rate(value: f64) -> String {
    if value == 0.0 { "0".into() } else { short_exponent(value) }
}

fn short_exponent(value: f64) -> String {
    let text = format!("{value:.2e}");
    match text.split_once('e') {
        Some((mantissa, exponent)) => {
            let mantissa =
                if mantissa.contains('.') { mantissa.trim_end_matches('0').trim_end_matches('.') } else { mantissa };
            format!("{mantissa}e{exponent}")
        }
        None => text,
    }
}

/// `150 ms`, `3.21 s`.
pub fn seconds(value: f64) -> String {
    if !value.is_finite() {
        "n/a".into()
    } else if value < 1.0 {
        format!("{:.0} ms", value * 1e3)
    } else {
        format!("{value:.2} s")
    }
}

/// `14:02:11` in `zone`.
pub fn clock(time: f64, zone: &TimeZone) -> String {
    let moment = (time.is_finite() && time.abs() < 1e11).then(|| Timestamp::from_second(time as i64).ok()).flatten();
    moment.map_or_else(|| "--:--:--".into(), |t| t.to_zoned(zone.clone()).strftime("%H:%M:%S").to_string())
}

/// `2026-03-01 14:02:11` in `zone`.
pub fn date(time: f64, zone: &TimeZone) -> String {
    let moment = (time.is_finite() && time.abs() < 1e11).then(|| Timestamp::from_second(time as i64).ok()).flatten();
    moment.map_or_else(|| "n/a".into(), |t| t.to_zoned(zone.clone()).strftime("%Y-%m-%d %H:%M:%S").to_string())
}

/// How many lines `text` takes when it is wrapped at blanks to `width` columns, and within words that are longer.
pub fn wrapped_lines(text: &str, width: usize) -> usize {
    // None: nothing is on the line yet. Blanks before the first word count.
    let (mut lines, mut column) = (1, None);
    for word in text.split(' ') {
        let length = word.chars().count();
        let needed = column.map_or(length, |column: usize| column + 1 + length);
        if needed <= width || width == 0 {
            column = Some(needed);
        } else {
            lines += usize::from(column.is_some_and(|column| column > 0)) + length.saturating_sub(1) / width;
            column = if length == 0 { None } else { Some((length - 1) % width + 1) };
        }
    }
    lines
}

/// Longest text taken over from a run, in characters.
const MAX_TEXT: usize = 2000;

/// Text from a file as it may be shown: no control characters (a run must not steer the terminal), bounded length.
pub fn clean(text: &str) -> String {
    let mut result = String::with_capacity(text.len().min(MAX_TEXT));
    let mut characters = text.chars();
    let mut taken = 0;
    while let Some(c) = characters.next() {
        if taken == MAX_TEXT {
            result.push_str("...");
            break;
        }
        match c {
            '\u{1b}' => skip_escape(&mut characters),
            '\t' => result.push_str("  "),
            c if c.is_control() || is_direction_override(c) => {}
            c => result.push(c),
        }
        taken += 1;
    }
    result
}

/// Passes over the rest of `ESC [ … letter`; other escapes lose their introducer only.
fn skip_escape(characters: &mut std::str::Chars<'_>) {
    let mut ahead = characters.clone();
    if ahead.next() == Some('[') {
        for c in ahead.by_ref() {
            if ('\u{40}'..='\u{7e}').contains(&c) {
                break;
            }
        }
        *characters = ahead;
    }
}

/// Characters that reorder what follows them on a bidirectional terminal.
fn is_direction_override(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well_at_every_magnitude() {
        assert_eq!(
            [0.0, 0.3124, 4.56, 12.34, 123.4, 2e-5, 3.14e7].map(metric),
            ["0", "0.312", "4.56", "12.3", "123", "2e-5", "3.14e7"]
        );
        assert_eq!(metric(f64::NAN), "NaN");
        assert_eq!([999, 12_400, 1_250_000].map(count), ["999", "12.4k", "1.25M"]);
        assert_eq!([512, 1536, 3 << 30].map(bytes), ["512 B", "1.5 KiB", "3.0 GiB"]);
        assert_eq!(bytes(u64::MAX), "16384.0 PiB");
        assert_eq!(rate(1.92e-5), "1.92e-5");
        assert_eq!(rate(5e-5), "5e-5");
    }

    #[test]
    fn durations_show_two_units() {
        assert_eq!([3.2, 63.0, 5000.0, 100_000.0].map(duration), ["3 s", "1m 03s", "1h 23m", "1d 3h"]);
        assert_eq!(duration(f64::INFINITY), "n/a");
        assert_eq!([61.0, 600.0, 7300.0, 2e5].map(age), ["61 s", "10 min", "2 h", "2 d"]);
    }

    #[test]
    fn wrapping_is_foreseen() {
        for (text, width, lines) in [
            ("", 5, 1),
            ("one two", 7, 1),
            ("one two", 6, 2),
            ("one abcdefghij", 5, 3),
            ("abcdefghij", 5, 2),
            ("anything", 0, 1),
        ] {
            assert_eq!(wrapped_lines(text, width), lines, "{text:?} in {width}");
        }
    }

    #[test]
    fn blanks_at_the_beginning_take_room_too() {
        assert_eq!([wrapped_lines("   four five", 12), wrapped_lines("   four five", 11)], [1, 2]);
        assert_eq!([wrapped_lines("", 5), wrapped_lines("abcdefgh", 4), wrapped_lines("ab cdefgh", 4)], [1, 2, 3]);
    }

    #[test]
    fn clocks_survive_any_number() {
        assert_eq!(clock(0.0, &TimeZone::UTC), "00:00:00");
        for time in [f64::NAN, f64::INFINITY, -1e300, 1e300] {
            assert_eq!(clock(time, &TimeZone::UTC), "--:--:--");
            assert_eq!(date(time, &TimeZone::UTC), "n/a");
        }
    }

    #[test]
    fn foreign_text_cannot_steer_the_terminal() {
        assert_eq!(clean("a\u{1b}[31mred\u{1b}[0m\u{7}\r\n\tb\u{202e}c"), "ared  bc");
        assert_eq!(clean("\u{1b}]52;c;x"), "]52;c;x");
        assert_eq!(clean(&"x".repeat(5000)).len(), MAX_TEXT + 3);
    }
}
