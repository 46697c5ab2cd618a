//! Sets of episodes or frames, as people write and read them: `[2, 4]`, `"0..16,18..49"`.
//!
//! Two habits meet here. `a..b` and `a..=b` name both their ends, which is how messages print what to paste;
//! `a:b` leaves `b` out, as Python and the predecessors' YAML do.

/// The longest list that [`parse`] spells out.
pub const MOST: usize = 1_000_000;

/// Why a text is not a list of numbers.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RangeError {
    /// A part, as written, that is no number and no range, or a range of nothing.
    #[error(
        "\"{0}\" is not a number or a range of them (examples: 4 · 0..16, both ends included · 0:17, without its end)"
    )]
    Part(String),
    #[error("more than {MOST} numbers")]
    TooMany,
}

/// Reads numbers and ranges between commas, in the order written; brackets and quotes around them are allowed.
pub fn parse(text: &str) -> Result<Vec<usize>, RangeError> {
    let inner = text.trim().trim_matches(|c| matches!(c, '[' | ']' | '"')).trim();
    let mut numbers = Vec::new();
    for part in inner.split(',').map(str::trim) {
        let (first, last) = ends(part).ok_or_else(|| RangeError::Part(part.into()))?;
        if last - first >= MOST - numbers.len() {
            return Err(RangeError::TooMany);
        }
        numbers.extend(first..=last);
    }
    Ok(numbers)
}

/// First and last of a range, or a single number twice; `None` also for a range of nothing.
fn ends(part: &str) -> Option<(usize, usize)> {
    let bound = |text: &str| text.trim().parse::<usize>().ok();
    let (first, last) = if let Some((first, last)) = part.split_once("..") {
        (bound(first)?, bound(last.strip_prefix('=').unwrap_or(last))?)
    } else if let Some((first, end)) = part.split_once(':') {
        (bound(first)?, bound(end)?.checked_sub(1)?)
    } else {
        (bound(part)?, bound(part)?)
    };
    (first <= last).then_some((first, last))
}

/// Numbers as a list that works when pasted behind `data.episodes =`: `[2, 4]`, or `"0..16,18..49"` where a list
/// would be long. [`parse`] reads both.
pub fn list(numbers: &[usize]) -> String {
    let runs = runs(numbers);
    if numbers.len() <= 12 || runs.iter().all(|(first, last)| first == last) {
        let numbers: Vec<String> = numbers.iter().map(usize::to_string).collect();
        return format!("[{}]", numbers.join(", "));
    }
    let runs: Vec<String> = runs
        .into_iter()
        .map(|(first, last)| if first == last { first.to_string() } else { format!("{first}..{last}") })
        .collect();
    format!("\"{}\"", runs.join(","))
}

/// Maximal runs of consecutive numbers, in the order given.
fn runs(numbers: &[usize]) -> Vec<(usize, usize)> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for &number in numbers {
        match runs.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(number) => *last = number,
            _ => runs.push((number, number)),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rstest::rstest;

    #[test]
    fn long_selections_are_written_as_in_ff_02() {
        let all_but_17: Vec<usize> = (0..50).filter(|&e| e != 17).collect();
        assert_eq!(list(&all_but_17), "\"0..16,18..49\"");
        assert_eq!(list(&[4, 2]), "[4, 2]");
    }

    #[rstest]
    #[case("0:3", &[0, 1, 2])]
    #[case("0..2", &[0, 1, 2])]
    #[case("0..=2", &[0, 1, 2])]
    #[case("3..3", &[3])]
    #[case(" [4..=5 , 0:2, 9] ", &[4, 5, 0, 1, 9])]
    fn every_spelling_keeps_its_order_and_its_ends(#[case] text: &str, #[case] expected: &[usize]) {
        assert_eq!(parse(text).unwrap(), expected);
    }

    #[rstest]
    #[case("", "")]
    #[case("a", "a")]
    #[case("-1", "-1")]
    #[case("0,3..1", "3..1")]
    #[case("3:3", "3:3")]
    #[case("0:0", "0:0")]
    #[case("1..2..3", "1..2..3")]
    #[case("1..==2", "1..==2")]
    #[case("1,,2", "")]
    fn what_is_no_range_is_shown(#[case] text: &str, #[case] part: &str) {
        assert_eq!(parse(text), Err(RangeError::Part(part.into())));
    }

    #[test]
    fn a_range_costs_nothing_before_it_is_known_to_be_short() {
        for text in ["0..18446744073709551615", "0:999999999999", "0..999998,0,0"] {
            assert_eq!(parse(text), Err(RangeError::TooMany), "{text}");
        }
        assert_eq!(parse("0:1000000").unwrap().len(), MOST);
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(numbers in proptest::collection::vec(0usize..1000, 1..60)) {
            prop_assert_eq!(parse(&list(&numbers)), Ok(numbers));
        }
    }
}
