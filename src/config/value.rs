//! A written value to the type of its key, as JSON; or what is wrong with it.

use serde_json::{Number, Value as Json, json};

use super::error::{ConfigError, Place, printable};
use super::keys::{Kind, Range};
use super::node::{Form, Node, Value};
use super::ranges::{self, RangeError};
use super::train::{DeviceKind, NotADevice};

/// Where and what: the caller adds the name of the key.
type Wrong = (Place, String);

/// Reads `node` as `kind`; `name` and `example` serve the message.
pub(crate) fn read(kind: &Kind, node: &Node, name: &str, example: &str) -> Result<Json, ConfigError> {
    typed(kind, node, example).map_err(|(place, problem)| ConfigError::at(&place, format!("{name}: {problem}")))
}

/// Reads a boolean in any of YAML 1.1's spellings but `y` and `n`.
pub(crate) fn switch(node: &Node) -> Result<bool, Wrong> {
    let wrong = || refuse(node, "is not true or false");
    match &node.value {
        Value::Scalar { text, form: Form::Plain | Form::Quoted | Form::Boolean } => {
            match text.trim().to_ascii_lowercase().as_str() {
                "true" | "yes" | "on" => Ok(true),
                "false" | "no" | "off" => Ok(false),
                _ => Err(wrong()),
            }
        }
        _ => Err(wrong()),
    }
}

fn typed(kind: &Kind, node: &Node, example: &str) -> Result<Json, Wrong> {
    match kind {
        Kind::Switch => switch(node).map(Json::from),
        Kind::Count { min } => count(node, *min, example).map(Json::from),
        Kind::Real(range) => real(node, range, example).map(Json::from),
        Kind::Text => text(node).map(Json::from),
        Kind::Choice(choices) => choice(node, choices, &[]).map(Json::from),
        Kind::Spelled(choices, others) => choice(node, choices, others).map(Json::from),
        Kind::Device => device(node),
        Kind::Texts => list(node, "a list of names (example: [q_proj, v_proj])", text),
        Kind::Choices(choices) => {
            list(node, &format!("a list of {}", choices.join(", ")), |item| choice(item, choices, &[]))
        }
        Kind::Episodes => episodes(node),
        Kind::Reals2(range) => pair(node, example, |item| real(item, range, "0.9")),
        Kind::Counts2 => pair(node, example, |item| count(item, 1, "224")),
        Kind::Renames => renames(node),
        Kind::CountOr(word) => match &node.value {
            Value::Scalar { text, .. } if text.trim().eq_ignore_ascii_case(word) => Ok(json!(word)),
            _ => count(node, 0, "4")
                .map(Json::from)
                .map_err(|(place, problem)| (place, format!("{problem} nor \"{word}\""))),
        },
        Kind::Anything => Ok(Json::Null),
    }
}

fn refuse(node: &Node, problem: &str) -> Wrong {
    (node.place.clone(), format!("{} {problem}", node.shown()))
}

/// The text of what may be a number: a quoted one counts, as PyYAML hands `5e-5` over as a string.
fn numeral(node: &Node) -> Option<&str> {
    match &node.value {
        Value::Scalar { text, form: Form::Plain | Form::Quoted | Form::Number } => Some(text.trim()),
        _ => None,
    }
}

fn count(node: &Node, min: u64, example: &str) -> Result<u64, Wrong> {
    let wrong = |text: &str| {
        let example = thousands(text).unwrap_or_else(|| example.to_string());
        refuse(node, &format!("is not a whole number (example: {example})"))
    };
    let text = numeral(node).ok_or_else(|| wrong(""))?;
    let below = || refuse(node, &format!("is too small, it must be at least {min}"));
    let number = match (text.replace('_', "").parse::<u64>(), number(text)) {
        (Ok(number), Some(_)) => number,
        (_, Some(number)) if number.fract() == 0.0 && number < 0.0 => return Err(below()),
        // 2⁵³: up to here every whole number is exact.
        (_, Some(number)) if number.fract() == 0.0 && number < 9_007_199_254_740_992.0 => number as u64,
        _ => return Err(wrong(text)),
    };
    if number < min { Err(below()) } else { Ok(number) }
}

/// `10k` → `10000`.
fn thousands(text: &str) -> Option<String> {
    let lower = text.to_ascii_lowercase();
    let (digits, factor) = match lower.strip_suffix('k') {
        Some(digits) => (digits, 1e3),
        None => (lower.strip_suffix('m')?, 1e6),
    };
    let value = number(digits)? * factor;
    (value.fract() == 0.0 && (1.0..1e15).contains(&value)).then(|| format!("{value:.0}"))
}

fn real(node: &Node, range: &Range, example: &str) -> Result<Number, Wrong> {
    let wrong = |text: &str| {
        let example = without_fraction(text).unwrap_or_else(|| example.to_string());
        refuse(node, &format!("is not a number (example: {example})"))
    };
    let text = numeral(node).ok_or_else(|| wrong(""))?;
    let number = number(text).ok_or_else(|| wrong(text))?;
    if !(range.holds)(number) {
        return Err(refuse(node, range.says));
    }
    Number::from_f64(number).ok_or_else(|| wrong(text))
}

/// `5e-5.0` → `5.0e-5`.
fn without_fraction(text: &str) -> Option<String> {
    let (mantissa, exponent) = text.split_once(['e', 'E'])?;
    let (exponent, fraction) = exponent.split_once('.')?;
    let mantissa = if mantissa.contains('.') { mantissa.to_string() } else { format!("{mantissa}.0") };
    let repaired = format!("{mantissa}e{exponent}");
    (fraction.bytes().all(|b| b == b'0') && number(&repaired).is_some()).then_some(repaired)
}

/// A finite decimal number in any usual spelling: `5e-5`, `.5`, `1_000`, `+1.0E3`.
fn number(text: &str) -> Option<f64> {
    let decimal = |c: char| c.is_ascii_digit() || matches!(c, '.' | '+' | '-' | 'e' | 'E' | '_');
    let digits = text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '.' | '+' | '-'));
    if !digits || !text.chars().all(decimal) {
        return None;
    }
    text.replace('_', "").parse::<f64>().ok().filter(|number| number.is_finite())
}

fn text(node: &Node) -> Result<String, Wrong> {
    match &node.value {
        Value::Scalar { text, form: Form::Plain | Form::Quoted } if !text.is_empty() => Ok(text.clone()),
        Value::Scalar { form: Form::Plain | Form::Quoted, .. } => {
            Err(refuse(node, "is empty; leave the key out instead"))
        }
        Value::Scalar { .. } => Err(refuse(node, "is not text; put it in quotes")),
        _ => Err(refuse(node, "is not text")),
    }
}

fn choice(node: &Node, choices: &[&str], others: &[(&str, &str)]) -> Result<String, Wrong> {
    let Value::Scalar { text, form: Form::Plain | Form::Quoted } = &node.value else {
        return Err(refuse(node, &format!("is not {}", one_of(choices))));
    };
    let word = text.trim().to_ascii_lowercase();
    let other = others.iter().find(|(spelling, _)| *spelling == word).map(|(_, means)| *means);
    match choices.iter().find(|choice| **choice == word).copied().or(other) {
        Some(choice) => Ok(choice.to_string()),
        None => Err(refuse(node, &format!("is not {}", one_of(choices)))),
    }
}

fn device(node: &Node) -> Result<Json, Wrong> {
    let wrong = |problem: NotADevice| refuse(node, &problem.to_string());
    let Value::Scalar { text, form: Form::Plain | Form::Quoted } = &node.value else { return Err(wrong(NotADevice)) };
    let kind: DeviceKind = text.trim().to_ascii_lowercase().parse().map_err(wrong)?;
    Ok(String::from(kind).into())
}

fn one_of(choices: &[&str]) -> String {
    match choices {
        [one] => (*one).to_string(),
        _ => format!("one of {}", choices.join(", ")),
    }
}

fn list<T: Into<Json>>(node: &Node, what: &str, item: impl Fn(&Node) -> Result<T, Wrong>) -> Result<Json, Wrong> {
    match &node.value {
        Value::List(items) => items.iter().map(|node| item(node).map(Into::into)).collect(),
        _ => Err(refuse(node, &format!("is not {what}"))),
    }
}

fn pair<T: Into<Json>>(node: &Node, example: &str, item: impl Fn(&Node) -> Result<T, Wrong>) -> Result<Json, Wrong> {
    match &node.value {
        Value::List(items) if items.len() == 2 => items.iter().map(|node| item(node).map(Into::into)).collect(),
        _ => Err(refuse(node, &format!("is not a list of two numbers (example: {example})"))),
    }
}

fn renames(node: &Node) -> Result<Json, Wrong> {
    let Value::Map(entries) = &node.value else {
        return Err(refuse(
            node,
            "is not a table of names (example: {\"observation.images.front\" = \"observation.images.base_0_rgb\"})",
        ));
    };
    let named = entries.iter().map(|entry| Ok((entry.key.clone(), json!(text(&entry.node)?))));
    named.collect::<Result<serde_json::Map<_, _>, Wrong>>().map(Json::Object)
}

/// `[2, 4]`, `3`, and the spellings of [`ranges::parse`].
fn episodes(node: &Node) -> Result<Json, Wrong> {
    let nodes = match &node.value {
        Value::List(items) => items.as_slice(),
        _ => std::slice::from_ref(node),
    };
    let mut numbers: Vec<usize> = Vec::new();
    for node in nodes {
        let wrong = |part: &str| {
            let part = printable(part.trim());
            format!("\"{part}\" is not an episode or a range of them (examples: [2, 4], \"0..15,18..49\")")
        };
        let text = numeral(node).ok_or_else(|| (node.place.clone(), wrong(&node.shown())))?;
        let more = ranges::parse(text).map_err(|error| match error {
            RangeError::Part(part) => (node.place.clone(), wrong(&part)),
            RangeError::TooMany => (node.place.clone(), format!("more than {} episodes", ranges::MOST)),
        })?;
        numbers.extend(more);
        if numbers.len() > ranges::MOST {
            return Err((node.place.clone(), format!("more than {} episodes", ranges::MOST)));
        }
    }
    let mut sorted = numbers.clone();
    sorted.sort_unstable();
    match sorted.windows(2).find(|pair| pair.first() == pair.last()) {
        Some(pair) => {
            Err((node.place.clone(), format!("episode {} is named twice", pair.first().copied().unwrap_or(0))))
        }
        None if numbers.is_empty() => {
            Err((node.place.clone(), "an empty list selects no episode; leave the key out for all".into()))
        }
        None => Ok(json!(numbers)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::keys::POSITIVE;
    use rstest::rstest;

    fn plain(text: &str) -> Node {
        Node::scalar(text, Form::Plain, &Place::Argument("test".into()))
    }

    #[rstest]
    #[case("1e-4", 1e-4)]
    #[case("5e-5", 5e-5)]
    #[case("5.0E-5", 5e-5)]
    #[case(".5", 0.5)]
    #[case("1_000", 1000.0)]
    #[case("+2", 2.0)]
    fn every_spelling_of_a_number_is_one(#[case] text: &str, #[case] expected: f64) {
        assert_eq!(real(&plain(text), &POSITIVE, "").unwrap().as_f64(), Some(expected));
    }

    #[rstest]
    #[case("5e-5.0", "\"5e-5.0\" is not a number (example: 5.0e-5)")]
    #[case("1e999", "inf is not a number (example: 0.1)")]
    #[case("nan", "NaN is not a number (example: 0.1)")]
    #[case("1,5", "\"1,5\" is not a number (example: 0.1)")]
    #[case("-1", "-1 must be above 0")]
    fn what_is_no_number_says_what_is(#[case] text: &str, #[case] message: &str) {
        let found = real(&plain(text), &POSITIVE, "0.1").unwrap_err().1;
        assert_eq!(found.to_lowercase(), message.to_lowercase().replace("inf is", "1e999 is"));
    }

    #[rstest]
    #[case("8", Ok(8))]
    #[case("1e5", Ok(100_000))]
    #[case("8.0", Ok(8))]
    #[case("18446744073709551615", Ok(u64::MAX))]
    #[case("10k", Err("\"10k\" is not a whole number (example: 10000)"))]
    #[case("1.5M", Err("\"1.5M\" is not a whole number (example: 1500000)"))]
    #[case("4.5", Err("4.5 is not a whole number (example: 7)"))]
    #[case("0", Err("0 is too small, it must be at least 1"))]
    #[case("-1", Err("-1 is too small, it must be at least 1"))]
    #[case("True", Err("\"True\" is not a whole number (example: 7)"))]
    fn whole_numbers(#[case] text: &str, #[case] expected: Result<u64, &str>) {
        assert_eq!(count(&plain(text), 1, "7").map_err(|(_, message)| message), expected.map_err(String::from));
    }

    #[rstest]
    #[case("0:3", &[0, 1, 2])]
    #[case("0..2, 5", &[0, 1, 2, 5])]
    #[case("4..=5,0:2", &[4, 5, 0, 1])]
    fn episodes_come_in_the_order_written(#[case] text: &str, #[case] expected: &[u64]) {
        assert_eq!(episodes(&plain(text)).unwrap(), json!(expected));
    }

    #[rstest]
    #[case("3:3")]
    #[case("5:2")]
    #[case("a")]
    #[case("-1")]
    #[case("")]
    #[case("0:2,1")]
    #[case("0:18446744073709551615")]
    #[case("0:999999999999")]
    fn impossible_episodes_are_refused(#[case] text: &str) {
        assert!(episodes(&plain(text)).is_err());
    }
}
