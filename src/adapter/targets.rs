//! PEFT's ways of naming modules.
//!
//! PEFT matches the names of the wrapped model in memory, which for LeRobot's policies begin with `model.`; here
//! that prefix is put before a canonical name where a rule looks at the whole of it.
//! Source: `check_target_module_exists` in PEFT's `tuners/tuners_utils.py`.

use std::collections::BTreeSet;

use regex::Regex;

use super::error::AdapterError;

/// What LeRobot's policies call the wrapped network.
pub const IN_MEMORY: &str = "model.";

/// How many near misses a message offers.
const NEAREST: usize = 3;

/// The modules that LoRA adapts.
#[derive(Debug, Clone)]
pub enum Targets {
    /// PEFT's `all-linear`.
    AllLinear,
    /// A single string that is a regular expression; it must match the whole name in memory.
    Pattern(Pattern),
    /// Each entry is a module's whole name or the end of it from a dot on.
    Names(Vec<String>),
}

/// A regular expression over whole module names, with Python's `re.fullmatch` in mind.
#[derive(Debug, Clone)]
pub struct Pattern {
    text: String,
    regex: Regex,
}

impl Pattern {
    /// Compiles `text`; `key` is the configuration key for the message.
    pub fn new(text: &str, key: &'static str) -> Result<Self, AdapterError> {
        match Regex::new(&format!(r"\A(?:{text})\z")) {
            Ok(regex) => Ok(Self { text: text.to_string(), regex }),
            Err(source) => Err(AdapterError::Pattern { key, pattern: text.to_string(), source: Box::new(source) }),
        }
    }

    /// The expression as it was given.
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl PartialEq for Targets {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Targets::AllLinear, Targets::AllLinear) => true,
            (Targets::Pattern(a), Targets::Pattern(b)) => a.text == b.text,
            (Targets::Names(a), Targets::Names(b)) => a == b,
            _ => false,
        }
    }
}

impl Targets {
    /// The configuration's list. A list of one entry that cannot be a module name is what a peer's configuration
    /// gives as a plain string: `all-linear`, or a regular expression.
    pub fn from_config(entries: &[String]) -> Result<Self, AdapterError> {
        match entries {
            [only] if is_all_linear(only) => Ok(Targets::AllLinear),
            [only] if !could_be_a_name(only) => Ok(Targets::Pattern(Pattern::new(only, "targets")?)),
            names => Ok(Targets::Names(names.to_vec())),
        }
    }

    /// The adapted modules among the linears `modules` (canonical names).
    ///
    /// # Errors
    /// [`AdapterError::NoMatch`] for a pattern or an entry that matches none of them. Entries that are parts of a
    /// differently configured policy ([`is_part_of_another_variant`]) may match none.
    pub fn select<'a>(&self, modules: &'a [String]) -> Result<BTreeSet<&'a str>, AdapterError> {
        let all = || modules.iter().map(String::as_str);
        match self {
            Targets::AllLinear => Ok(all().collect()),
            Targets::Pattern(pattern) => {
                let found: BTreeSet<&str> =
                    all().filter(|module| pattern.regex.is_match(&format!("{IN_MEMORY}{module}"))).collect();
                match found.is_empty() {
                    true => Err(no_match("targets", pattern.text(), "linear layer", &[])),
                    false => Ok(found),
                }
            }
            Targets::Names(names) => {
                let mut found = BTreeSet::new();
                for name in names {
                    let matches: Vec<&str> = all().filter(|module| names_module(name, module)).collect();
                    if matches.is_empty() && !is_part_of_another_variant(name) {
                        return Err(no_match("targets", name, "linear layer", modules));
                    }
                    found.extend(matches);
                }
                Ok(found)
            }
        }
    }
}

/// Whether PEFT's target `name` means the module with the canonical name `module`.
pub fn names_module(name: &str, module: &str) -> bool {
    let in_memory = format!("{IN_MEMORY}{module}");
    in_memory == name || in_memory.strip_suffix(name).is_some_and(|rest| rest.ends_with('.'))
}

/// The parameters whose full name in memory contains `fragment`, in any case of letters.
///
/// # Errors
/// [`AdapterError::NoMatch`] when there are none and `fragment` is not a part of another variant.
pub fn parameters_containing<'a>(fragment: &str, parameters: &'a [String]) -> Result<Vec<&'a str>, AdapterError> {
    let wanted = fragment.to_lowercase();
    let found: Vec<&str> = parameters
        .iter()
        .filter(|parameter| format!("{IN_MEMORY}{parameter}").to_lowercase().contains(&wanted))
        .map(String::as_str)
        .collect();
    match found.is_empty() && !is_part_of_another_variant(fragment) {
        true => Err(no_match("also_train", fragment, "parameter", parameters)),
        false => Ok(found),
    }
}

/// Whether `name` is a part that only another variant of the policy has: π₀'s heads, π₀.₅'s, or those of the state
/// condition. The peers' example files and LeRobot's default pattern name all of them for every policy.
pub fn is_part_of_another_variant(name: &str) -> bool {
    const HEADS: [&str; 7] = [
        "state_proj",
        "state_mlp_in",
        "state_mlp_out",
        "time_mlp_in",
        "time_mlp_out",
        "action_time_mlp_in",
        "action_time_mlp_out",
    ];
    HEADS.contains(&name.strip_prefix(IN_MEMORY).unwrap_or(name))
}

/// The module that owns a parameter.
pub fn owner(parameter: &str) -> &str {
    parameter.rsplit_once('.').map_or(parameter, |(module, _)| module)
}

/// Whether PEFT's `all-linear` is meant; it takes the word in any case.
pub fn is_all_linear(text: &str) -> bool {
    text.eq_ignore_ascii_case("all-linear")
}

fn could_be_a_name(text: &str) -> bool {
    text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-'))
}

fn no_match(key: &'static str, entry: &str, what: &'static str, names: &[String]) -> AdapterError {
    AdapterError::NoMatch { key, entry: entry.to_string(), what, nearest: nearest(entry, names) }
}

/// The path components of `names` that look most like the last component of `entry`.
fn nearest(entry: &str, names: &[String]) -> Vec<String> {
    let wanted = entry.rsplit('.').next().unwrap_or(entry).to_lowercase();
    let components: BTreeSet<&str> =
        names.iter().flat_map(|name| name.split('.')).filter(|c| !c.chars().all(|c| c.is_ascii_digit())).collect();
    let mut scored: Vec<(f64, &str)> =
        components.into_iter().map(|component| (strsim::jaro_winkler(&wanted, component), component)).collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0));
    scored.into_iter().take_while(|(score, _)| *score > 0.7).take(NEAREST).map(|(_, c)| c.to_string()).collect()
}
