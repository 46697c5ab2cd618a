//! `${VAR}` and `${VAR:-default}` in scalars; `$${` is a literal `${`. Placeholders such as `<your-name>` are refused.

use super::error::{ConfigError, Place};
use super::node::{Entry, Node, Value};

/// Looks up an environment variable; injected, so that tests need no real ones.
pub(crate) type Env<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The node with every variable replaced; `name` is the key, for messages.
pub(crate) fn expand(node: &Node, name: &str, env: Env<'_>) -> Result<Node, Vec<ConfigError>> {
    let mut errors = Vec::new();
    let expanded = node_in(node, name, env, &mut errors);
    if errors.is_empty() { Ok(expanded) } else { Err(errors) }
}

fn node_in(node: &Node, name: &str, env: Env<'_>, errors: &mut Vec<ConfigError>) -> Node {
    let value = match &node.value {
        Value::Null => Value::Null,
        Value::Scalar { text, form } => {
            let text = match scalar(text, env) {
                Ok(text) => text,
                Err(problem) => {
                    errors.push(problem.at(&node.place, name, text));
                    text.clone()
                }
            };
            Value::Scalar { text, form: *form }
        }
        Value::List(items) => Value::List(items.iter().map(|item| node_in(item, name, env, errors)).collect()),
        Value::Map(entries) => Value::Map(
            entries
                .iter()
                .map(|entry| Entry { node: node_in(&entry.node, name, env, errors), ..entry.clone() })
                .collect(),
        ),
    };
    Node { value, place: node.place.clone() }
}

#[derive(Debug, PartialEq)]
enum Problem {
    Unset(String),
    Unclosed,
    BadName(String),
    Placeholder(String),
}

impl Problem {
    fn at(&self, place: &Place, name: &str, text: &str) -> ConfigError {
        let text = super::error::printable(text);
        let message = match self {
            Problem::Unset(variable) => format!(
                "{name}: the environment variable {variable} is not set; type: export {variable}=…  (or write ${{{variable}:-default}})"
            ),
            Problem::Unclosed => format!("{name}: \"{text}\" opens a ${{ without a }}; a literal one is written $${{"),
            Problem::BadName(variable) => {
                format!("{name}: \"{}\" is not a name of an environment variable", super::error::printable(variable))
            }
            Problem::Placeholder(part) => format!("{name}: {part} is a placeholder; write the real value in its place"),
        };
        ConfigError::at(place, message)
    }
}

fn scalar(text: &str, env: Env<'_>) -> Result<String, Problem> {
    if let Some(placeholder) = placeholder(text) {
        return Err(Problem::Placeholder(placeholder.to_string()));
    }
    let mut out = String::new();
    let mut rest = text;
    while let Some(dollar) = rest.find("${") {
        let (before, from) = rest.split_at(dollar);
        let after = from.get(2..).unwrap_or_default();
        if let Some(escaped) = before.strip_suffix('$') {
            out.push_str(escaped);
            out.push_str("${");
            rest = after;
            continue;
        }
        out.push_str(before);
        let Some((inside, behind)) = after.split_once('}') else { return Err(Problem::Unclosed) };
        out.push_str(&variable(inside, env)?);
        rest = behind;
    }
    out.push_str(rest);
    Ok(out)
}

/// The value of what stands between the braces. As in a shell, `:-` also steps in for an empty variable.
fn variable(inside: &str, env: Env<'_>) -> Result<String, Problem> {
    let (name, default) = match inside.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inside, None),
    };
    let valid = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.is_empty() || !name.chars().all(valid) || name.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(Problem::BadName(name.to_string()));
    }
    match (env(name), default) {
        (Some(value), _) if !value.is_empty() => Ok(value),
        (_, Some(default)) => Ok(default.to_string()),
        (Some(_) | None, None) => Err(Problem::Unset(name.to_string())),
    }
}

/// `<your-dataset>`: a word in angle brackets.
fn placeholder(text: &str) -> Option<&str> {
    text.match_indices('<').find_map(|(start, _)| {
        let inside = text.get(start + 1..)?;
        let end = inside.find('>')?;
        let word = inside.get(..end)?;
        let named = word.starts_with(|c: char| c.is_alphabetic()) && !word.contains('<');
        named.then(|| text.get(start..start + end + 2)).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn env(name: &str) -> Option<String> {
        match name {
            "SET" => Some("value".into()),
            "EMPTY" => Some(String::new()),
            _ => None,
        }
    }

    #[rstest]
    #[case("plain $HOME text", "plain $HOME text")]
    #[case("${SET}", "value")]
    #[case("a/${SET}/${SET}", "a/value/value")]
    #[case("${UNSET:-b c}", "b c")]
    #[case("${EMPTY:-b}", "b")]
    #[case("${UNSET:-}", "")]
    #[case("$${SET} ${SET}", "${SET} value")]
    #[case("3 < 4 > 2", "3 < 4 > 2")]
    fn variables_are_replaced(#[case] text: &str, #[case] expected: &str) {
        assert_eq!(scalar(text, &env).unwrap(), expected);
    }

    #[rstest]
    #[case("${UNSET}", Problem::Unset("UNSET".into()))]
    #[case("${EMPTY}", Problem::Unset("EMPTY".into()))]
    #[case("${SET", Problem::Unclosed)]
    #[case("${}", Problem::BadName("".into()))]
    #[case("${a-b}", Problem::BadName("a-b".into()))]
    #[case("/data/<user>/x", Problem::Placeholder("<user>".into()))]
    fn what_cannot_be_replaced_is_named(#[case] text: &str, #[case] expected: Problem) {
        assert_eq!(scalar(text, &env).unwrap_err(), expected);
    }
}
