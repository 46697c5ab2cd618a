//! Sets of episode numbers, as people write and read them.

/// Episodes as a list that works when pasted behind `data.episodes =`: `[2, 4]`, or
/// `"0..=16,18..=49"` where a list would be long.
pub fn episode_list(episodes: &[usize]) -> String {
    let runs = runs(episodes);
    if episodes.len() <= 12 || runs.iter().all(|(first, last)| first == last) {
        let numbers: Vec<String> = episodes.iter().map(usize::to_string).collect();
        return format!("[{}]", numbers.join(", "));
    }
    let runs: Vec<String> = runs
        .into_iter()
        .map(|(first, last)| if first == last { first.to_string() } else { format!("{first}..={last}") })
        .collect();
    format!("\"{}\"", runs.join(","))
}

/// Maximal runs of consecutive numbers, in the order given.
fn runs(episodes: &[usize]) -> Vec<(usize, usize)> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for &episode in episodes {
        match runs.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(episode) => *last = episode,
            _ => runs.push((episode, episode)),
        }
    }
    runs
}

/// The longest list that [`parse_numbers`] spells out.
const MOST_NUMBERS: usize = 10_000_000;

/// Reads numbers of episodes or frames: `2,4` and `0..16,18..49` (both ends included), in the order written; brackets and quotes around it are allowed.
pub fn parse_numbers(text: &str) -> Result<Vec<usize>, String> {
    let trimmed = text.trim().trim_matches(|c| matches!(c, '[' | ']' | '"')).trim();
    let mut numbers = Vec::new();
    for part in trimmed.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let number = |text: &str| {
            text.trim().parse::<usize>().map_err(|_| format!("{part:?} is neither a number nor a range a..b"))
        };
        let (first, last) = match part.split_once("..") {
            Some((first, last)) => (number(first)?, number(last.trim_start_matches('='))?),
            None => (number(part)?, number(part)?),
        };
        if last < first {
            return Err(format!("range {part} runs backwards"));
        }
        if last - first >= MOST_NUMBERS || numbers.len() + (last - first) >= MOST_NUMBERS {
            return Err(format!("range {part} names more than {MOST_NUMBERS}"));
        }
        numbers.extend(first..=last);
    }
    if numbers.is_empty() {
        return Err("the list is empty".into());
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn long_selections_are_written_as_ranges() {
        let all_but_17: Vec<usize> = (0..50).filter(|&e| e != 17).collect();
        assert_eq!(episode_list(&all_but_17), "\"0..=16,18..=49\"");
        assert_eq!(episode_list(&[4, 2]), "[4, 2]");
    }

    #[test]
    fn hostile_ranges_are_refused() {
        for text in ["", "a", "3..1", "0..99999999999", "1..2..3", "-1"] {
            assert!(parse_numbers(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(episodes in proptest::collection::vec(0usize..1000, 1..60)) {
            prop_assert_eq!(parse_numbers(&episode_list(&episodes)), Ok(episodes));
        }
    }
}
