//! `key=value` arguments, with or without leading dashes, in either vocabulary.

use std::sync::Arc;

use super::error::Place;
use super::node::{Form, Node, Value};
use super::read;

/// An override as typed: `--optimizer.lr=1e-4`, `train.steps=500`.
pub(crate) struct Override {
    pub path: String,
    pub node: Node,
}

/// Takes an argument apart; `None` when it holds no `=`.
pub(crate) fn parse(argument: &str) -> Option<Override> {
    let (path, value) = argument.split_once('=')?;
    let place = Place::Argument(Arc::from(argument));
    Some(Override { path: path.trim_start_matches('-').to_string(), node: value_of(value, &place) })
}

/// A setting that stands behind an option of its own, which `typed` shows.
pub(crate) fn named(path: &str, word: &str, typed: &str) -> Override {
    Override { path: path.to_string(), node: Node::scalar(word, Form::Plain, &Place::Argument(Arc::from(typed))) }
}

/// Lists and tables as TOML or YAML writes them; everything else is a word whose meaning the key decides.
fn value_of(text: &str, place: &Place) -> Node {
    let trimmed = text.trim();
    if trimmed.starts_with(['[', '{', '"', '\'']) {
        let parsed = read::toml::value(trimmed, place).or_else(|| read::yaml::value(trimmed, place));
        if let Some(node) = parsed {
            return node;
        }
    }
    match trimmed {
        "null" | "~" => Node { value: Value::Null, place: place.clone() },
        _ => Node::scalar(text, Form::Plain, place),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_notations_of_a_list_are_one() {
        let texts = |argument: &str| match parse(argument).unwrap().node.value {
            Value::List(items) => items.into_iter().map(|item| item.shown()).collect::<Vec<_>>(),
            other => panic!("{other:?}"),
        };
        assert_eq!(texts("a=[x, y]"), texts("--a=[\"x\", 'y']"));
    }

    #[test]
    fn a_value_may_hold_anything() {
        for argument in ["a=", "a==", "a=[", "a={", "a=\"", "a=b: c # d", "=x"] {
            assert!(parse(argument).is_some(), "{argument}");
        }
        assert!(parse("a").is_none());
    }
}
