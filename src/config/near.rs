//! The nearest valid name to one that is unknown.

use super::Vocabulary;
use super::keys::{Key, Table};

/// Longer names are no typing errors, and comparing them costs time.
const LONGEST: usize = 64;

/// The name of the key that `unknown` most likely means, in this vocabulary.
///
/// Names of both vocabularies and what other programs call the key are compared, across sections:
/// `lora.rnak` is near `adapter.rank`, which a YAML file calls `lora.r`.
pub(crate) fn key(table: &Table, vocabulary: Vocabulary, unknown: &str) -> Option<&'static str> {
    if unknown.chars().count() > LONGEST {
        return None;
    }
    let scored = table.all().filter_map(|key| Some((distance(key, unknown)?, key)));
    scored.min_by_key(|(distance, _)| *distance).map(|(_, key)| key.name(vocabulary))
}

/// A word of `choices` that differs from `unknown` by few letters.
pub(crate) fn word<'a>(unknown: &str, choices: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    if unknown.chars().count() > LONGEST {
        return None;
    }
    let scored = choices.map(|choice| (strsim::osa_distance(unknown, choice), choice));
    scored.filter(|(distance, _)| *distance <= allowed(unknown)).min_by_key(|(distance, _)| *distance).map(|(_, c)| c)
}

/// The section that `unknown` most likely means.
pub(crate) fn section(table: &Table, vocabulary: Vocabulary, unknown: &str) -> Option<&'static str> {
    let names = table.all().flat_map(|key| key.names(vocabulary));
    word(unknown, names.filter_map(|name| name.path.rsplit_once('.').map(|(section, _)| section)))
}

/// How many letters may differ.
fn allowed(word: &str) -> usize {
    match word.chars().count() {
        0..=2 => 0,
        3 => 1,
        4..=7 => 2,
        _ => 3,
    }
}

/// Twice the differing letters of the last part, plus one where the section differs as well.
fn distance(key: &Key, unknown: &str) -> Option<usize> {
    let (section, leaf) = split(unknown);
    let aliases = key.yaml.iter().map(|alias| alias.path);
    let names = || std::iter::once(key.toml).chain(aliases.clone()).filter(|name| !name.is_empty());
    let letters = names()
        .chain(key.also.iter().copied())
        .map(|name| strsim::osa_distance(leaf, split(name).1).min(strsim::osa_distance(unknown, name)))
        .min()?;
    let elsewhere = names().all(|name| split(name).0 != section);
    (letters <= allowed(leaf)).then_some(2 * letters + usize::from(elsewhere))
}

fn split(name: &str) -> (&str, &str) {
    name.rsplit_once('.').unwrap_or(("", name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::keys::TRAIN;
    use rstest::rstest;

    #[rstest]
    #[case("lora.rnak", "lora.r", "adapter.rank")]
    #[case("learning_rate", "optimizer.lr", "optim.lr")]
    #[case("batchsize", "batch_size", "train.batch_size")]
    #[case("train.batch_size", "batch_size", "train.batch_size")]
    #[case("gradient_accumulation_steps", "grad_accum_steps", "train.grad_accum")]
    #[case("optimizer.weight_deacy", "optimizer.weight_decay", "optim.weight_decay")]
    #[case("policy.chunksize", "policy.chunk_size", "model.chunk_size")]
    #[case("validation.fractoin", "validation.fraction", "validation.fraction")]
    fn a_slip_finds_its_key_in_the_vocabulary_of_the_file(
        #[case] unknown: &str,
        #[case] yaml: &str,
        #[case] toml: &str,
    ) {
        assert_eq!(key(&TRAIN, Vocabulary::Yaml, unknown), Some(yaml));
        assert_eq!(key(&TRAIN, Vocabulary::Toml, unknown), Some(toml));
    }

    #[test]
    fn nothing_near_is_nothing() {
        assert_eq!(key(&TRAIN, Vocabulary::Yaml, "quux_zzz_factor"), None);
        assert_eq!(key(&TRAIN, Vocabulary::Yaml, &"x".repeat(100_000)), None);
    }
}
