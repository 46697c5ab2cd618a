//! Layers to one value per key: defaults < presets < file < command line.

use std::collections::BTreeMap;

use serde_json::{Value as Json, json};

use super::Vocabulary;
use super::collect::{Assignment, Layer};
use super::error::{ConfigError, Place};
use super::expand::{Env, expand};
use super::keys::{self, Alias, Default, Effect, Key, Kind, Meaning, Table, When};
use super::node::{Node, Value};
use super::origin::{Note, Origin};
use super::read;
use super::value;

/// One value per field of the configuration, by TOML path.
pub(crate) type Values = BTreeMap<&'static str, (Json, Origin)>;

/// The result of [`resolve`]: everything found is kept, also beside errors.
pub(crate) struct Resolved {
    pub values: Values,
    pub notes: Vec<Note>,
    pub errors: Vec<ConfigError>,
    /// Fields whose written value could not be read; they stand at their defaults.
    pub broken: Vec<&'static str>,
}

/// An assignment that has been read.
struct Setting {
    key: &'static Key,
    alias: Alias,
    place: Place,
    layer: Layer,
    change: Result<Change, Vec<ConfigError>>,
    /// The error is of the kind that does not matter when a later layer sets the key: an unset variable.
    excusable: bool,
}

enum Change {
    Set(Json),
    /// Puts a member into a list, or takes it out.
    Member(&'static str, bool),
    /// Says what is so anyway.
    Nothing,
}

/// Resolves what was collected. `vocabulary` decides the defaults and the names in messages.
pub(crate) fn resolve(table: &Table, vocabulary: Vocabulary, assignments: &[Assignment], env: Env<'_>) -> Resolved {
    let mut notes = without_effect(assignments);
    let mut settings: Vec<Setting> =
        assignments.iter().filter_map(|assignment| setting(table, assignment, env)).collect();
    let preset = chosen(&settings, "model.preset").and_then(keys::preset);
    let plain = chosen(&settings, "optim.preset").is_some_and(|word| word == "none");
    settings.retain(|setting| applies(setting, plain, &mut notes));

    let mut values = defaults(table, vocabulary);
    if let Some((name, settings)) = preset {
        bundle(table, &mut values, settings, name);
    }
    if plain {
        bundle(table, &mut values, keys::NO_OPTIM_PRESET, "optim.preset = none");
    }
    let (errors, broken) = apply(&mut values, &settings);
    implied(&mut values, &settings, env, vocabulary == Vocabulary::Yaml && plain);
    if vocabulary == Vocabulary::Yaml {
        mode_of_overlap(&mut values, &settings);
    }
    follow(table, &mut values, vocabulary);
    Resolved { values, notes, errors, broken }
}

/// Reads an assignment; `None` when it says nothing (a null in a file).
fn setting(table: &Table, assignment: &Assignment, env: Env<'_>) -> Option<Setting> {
    let Assignment { key, alias, node, layer } = assignment;
    if says_nothing(assignment) {
        return None;
    }
    let (change, excusable) = match expand(node, alias.path, env) {
        Ok(node) => (read_as(table, key, alias, &node).map_err(|error| vec![error]), false),
        Err(_) if matches!(key.kind, Kind::Anything) && matches!(key.effect, Effect::Nothing(_)) => {
            (Ok(Change::Nothing), false)
        }
        Err(errors) => (Err(errors), true),
    };
    Some(Setting { key, alias: *alias, place: node.place.clone(), layer: *layer, change, excusable })
}

fn says_nothing(assignment: &Assignment) -> bool {
    assignment.node.is_null() && assignment.layer == Layer::File
}

/// One note per reason, with all keys that were set in vain.
fn without_effect(assignments: &[Assignment]) -> Vec<Note> {
    let mut reasons: Vec<(&str, &Place, Vec<&str>)> = Vec::new();
    for assignment in assignments.iter().filter(|assignment| !says_nothing(assignment)) {
        let Effect::Nothing(why) = assignment.key.effect else { continue };
        let name = assignment.alias.path;
        match reasons.iter_mut().find(|(reason, ..)| *reason == why) {
            Some((_, _, names)) if names.contains(&name) => {}
            Some((_, _, names)) => names.push(name),
            None => reasons.push((why, &assignment.node.place, vec![name])),
        }
    }
    reasons.into_iter().map(|(why, place, names)| Note::in_vain(place, &names, why)).collect()
}

fn read_as(table: &Table, key: &'static Key, alias: &Alias, node: &Node) -> Result<Change, ConfigError> {
    let name = alias.path;
    if let Effect::Only { values, why } = key.effect {
        return if is_one_of(node, values) {
            Ok(Change::Nothing)
        } else {
            Err(ConfigError::at(&node.place, format!("{name}: {} is refused: {why}", node.shown())))
        };
    }
    if !key.is_field() {
        return Ok(Change::Nothing);
    }
    if node.is_null() && key.default == Default::Absent {
        return Ok(Change::Set(Json::Null));
    }
    match alias.meaning {
        Meaning::Adds(member) => match value::switch(node) {
            Ok(inside) => Ok(Change::Member(member, inside)),
            Err((place, problem)) => Err(ConfigError::at(&place, format!("{name}: {problem}"))),
        },
        Meaning::Switch { on, off } => match value::switch(node) {
            Ok(true) => Ok(Change::Set(json!(on))),
            Ok(false) if off.is_empty() => Ok(Change::Set(Json::Null)),
            Ok(false) => Ok(Change::Set(json!(off))),
            Err(_) => value::read(&key.kind, node, name, example(table, key)).map(Change::Set),
        },
        Meaning::Same => value::read(&key.kind, node, name, example(table, key)).map(Change::Set),
    }
}

/// A value of the key that works: its default.
fn example(table: &Table, key: &Key) -> &'static str {
    match key.default {
        Default::Is(text) => text,
        Default::Absent => "16",
        Default::Follows(other) => table.field(other).map_or("16", |other| example(table, other)),
    }
}

fn is_one_of(node: &Node, values: &[&str]) -> bool {
    match &node.value {
        Value::Null => values.contains(&"null"),
        Value::Scalar { text, .. } => values.iter().any(|value| value.eq_ignore_ascii_case(text.trim())),
        _ => false,
    }
}

/// The word that the last readable setting of a key chooses.
fn chosen<'a>(settings: &'a [Setting], toml: &str) -> Option<&'a str> {
    settings.iter().rev().find_map(|setting| match &setting.change {
        Ok(Change::Set(Json::String(word))) if setting.key.toml == toml => Some(word.as_str()),
        _ => None,
    })
}

/// LeRobot reads one of two blocks, by `use_policy_training_preset`. What stands on the command line is always meant.
fn applies(setting: &Setting, plain: bool, notes: &mut Vec<Note>) -> bool {
    let why = match setting.alias.when {
        When::NoPreset if !plain => "use_policy_training_preset is true (which is its default)",
        When::Preset if plain => "use_policy_training_preset is false",
        _ => return true,
    };
    if setting.layer == Layer::File {
        notes.push(Note::at(&setting.place, format!("{} has no effect: {why}", setting.alias.path)));
        return false;
    }
    true
}

/// A TOML literal of the key table as the key's type. A test reads every one.
fn literal(key: &Key, text: &str) -> Json {
    let place = Place::Argument(key.toml.into());
    let node = read::toml::value(text, &place);
    node.and_then(|node| value::read(&key.kind, &node, key.toml, "").ok()).unwrap_or(Json::Null)
}

fn defaults(table: &Table, vocabulary: Vocabulary) -> Values {
    let fields = table.all().filter(|key| key.is_field());
    let value = |key: &Key| match key.default_in(vocabulary) {
        Default::Is(text) => literal(key, text),
        Default::Absent | Default::Follows(_) => Json::Null,
    };
    fields.map(|key| (key.toml, (value(key), Origin::Default))).collect()
}

fn bundle(table: &Table, values: &mut Values, settings: &[(&'static str, &str)], name: &'static str) {
    for (toml, text) in settings {
        if let Some(key) = table.field(toml) {
            values.insert(key.toml, (literal(key, text), Origin::Preset(name)));
        }
    }
}

fn apply(values: &mut Values, settings: &[Setting]) -> (Vec<ConfigError>, Vec<&'static str>) {
    let mut errors = Vec::new();
    let mut broken = Vec::new();
    for (index, setting) in settings.iter().enumerate() {
        let later = settings.get(index + 1..).unwrap_or_default();
        match &setting.change {
            Ok(Change::Nothing) => {}
            Ok(Change::Set(json)) => {
                errors.extend(contradiction(setting, json, later));
                values.insert(setting.key.toml, (json.clone(), Origin::Set(setting.place.clone())));
            }
            Ok(Change::Member(member, inside)) => {
                if let Some((Json::Array(members), origin)) = values.get_mut(setting.key.toml) {
                    members.retain(|present| present != member);
                    if *inside {
                        members.push(json!(member));
                    }
                    *origin = Origin::Set(setting.place.clone());
                }
            }
            Err(_) if setting.excusable && later.iter().any(|other| other.key.toml == setting.key.toml) => {}
            Err(found) => {
                errors.extend(found.iter().cloned());
                broken.push(setting.key.toml);
            }
        }
    }
    (errors, broken)
}

/// Two names of one key in the same file, with different values.
fn contradiction(setting: &Setting, json: &Json, later: &[Setting]) -> Option<ConfigError> {
    let other = later.iter().find(|other| {
        other.key.toml == setting.key.toml
            && (setting.layer, other.layer) == (Layer::File, Layer::File)
            && matches!(&other.change, Ok(Change::Set(value)) if value != json)
    })?;
    let message = format!(
        "{} and {} (at {}) set the same thing to different values; keep one",
        other.alias.path, setting.alias.path, setting.place
    );
    Some(ConfigError::at(&other.place, message))
}

/// What a predecessor's file means without saying it.
fn implied(values: &mut Values, settings: &[Setting], env: Env<'_>, own_optimizer: bool) {
    let sets = |toml: &str| settings.iter().any(|setting| setting.key.toml == toml);
    // LeRobot has no switch for its PEFT block: its presence is the switch. PEFT's own alpha is 8.
    if let Some(peft) = settings.iter().find(|setting| setting.alias.path.starts_with("peft.")) {
        let origin = Origin::Set(peft.place.clone());
        if !sets("adapter.enabled") {
            values.insert("adapter.enabled", (json!(true), origin));
        }
        if !sets("adapter.alpha") {
            values.insert("adapter.alpha", (json!(8.0), Origin::Preset("peft")));
        }
    }
    // The predecessors' backends clip differently where the file is silent: DeepSpeed at 1, FSDP at 10.
    let fsdp = || env("TRAIN_BACKEND").is_some_and(|backend| backend == "fsdp");
    if own_optimizer && !sets("optim.grad_clip_norm") && fsdp() {
        values.insert("optim.grad_clip_norm", (json!(10.0), Origin::Environment("TRAIN_BACKEND")));
    }
}

/// VLASH has no word for the mode of a rollout: an overlap is the switch.
fn mode_of_overlap(values: &mut Values, settings: &[Setting]) {
    const OVERLAP: &str = "control.overlap";
    if settings.iter().any(|setting| setting.key.toml == "control.mode") {
        return;
    }
    if let Some((overlap, _)) = values.get(OVERLAP) {
        let mode = if overlap == &json!(0) { "sync" } else { "vlash" };
        values.insert("control.mode", (json!(mode), Origin::Follows(OVERLAP)));
    }
}

/// Gives keys that nobody set the value of the key that they follow.
fn follow(table: &Table, values: &mut Values, vocabulary: Vocabulary) {
    for key in table.all() {
        let Default::Follows(other) = key.default_in(vocabulary) else { continue };
        if !matches!(values.get(key.toml), Some((_, Origin::Default))) {
            continue;
        }
        if let Some((json, _)) = values.get(other).cloned() {
            values.insert(key.toml, (json, Origin::Follows(other)));
        }
    }
}
