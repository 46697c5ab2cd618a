//! The key table against the types, and what no input may do.

use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::Value as Json;

use super::keys::{Default, Effect, Key, Kind, Meaning, When};
use super::*;

fn no_env(_: &str) -> Option<String> {
    None
}

/// Resolves text without the checks of the whole.
fn resolve_text(vocabulary: Vocabulary, text: &str, arguments: &[String]) -> (Resolved, Vec<ConfigError>) {
    let file: Arc<str> = Arc::from("test");
    let node = read::parse(vocabulary, text, &file).unwrap_or_else(|errors| panic!("{text}: {errors:?}"));
    layers(&keys::TRAIN, vocabulary, node, None, arguments, &no_env)
}

fn argument(argument: String) -> (Values, Vec<Note>, Vec<ConfigError>) {
    let (resolved, mut errors) = resolve_text(Vocabulary::Yaml, "{}", &[argument]);
    errors.extend(resolved.errors);
    (resolved.values, resolved.notes, errors)
}

pub(super) fn leaves(prefix: &str, tree: &Json, out: &mut BTreeSet<String>) {
    match tree {
        Json::Object(map) if !matches!(prefix, "data.rename" | "policy.cameras") => {
            for (key, value) in map {
                let path = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
                leaves(&path, value, out);
            }
        }
        _ => {
            out.insert(prefix.to_string());
        }
    }
}

#[test]
fn the_table_names_every_field_and_no_other() {
    let (resolved, errors) = resolve_text(Vocabulary::Toml, "[model]\npreset = \"tiny\"", &[]);
    assert_eq!(errors, []);
    let mut fields = BTreeSet::new();
    leaves("", &serde_json::to_value(typed::<TrainConfig>(&resolved.values).unwrap()).unwrap(), &mut fields);
    let table: BTreeSet<String> =
        keys::TRAIN.all().filter(|key| key.is_field()).map(|key| key.toml.to_string()).collect();
    assert_eq!(fields, table);
}

#[test]
fn names_are_unique_and_rows_complete() {
    for table in [&keys::TRAIN, &keys::RUN] {
        rows_of(table);
    }
}

fn rows_of(table: &Table) {
    let mut seen = BTreeSet::new();
    for key in table.all() {
        assert!(key.is_field() || !key.yaml.is_empty());
        for name in [key.toml].into_iter().filter(|name| !name.is_empty()).chain(key.yaml.iter().map(|a| a.path)) {
            assert!(seen.insert(name), "{name} is listed twice");
        }
        match key.effect {
            Effect::Acts => assert!(key.is_field() && key.doc.ends_with('.'), "{}", key.toml),
            Effect::Nothing(why) => assert!(!why.is_empty(), "{key:?}"),
            Effect::Only { values, why } => assert!(!values.is_empty() && !why.is_empty(), "{key:?}"),
        }
    }
}

#[test]
fn every_default_is_a_value_of_its_key() {
    for (table, key) in
        [&keys::TRAIN, &keys::RUN].into_iter().flat_map(|table| table.all().map(move |key| (table, key)))
    {
        if !key.is_field() {
            continue;
        }
        for default in [key.default_in(Vocabulary::Toml), key.default_in(Vocabulary::Yaml)] {
            match default {
                Default::Is(text) => readable(key, text),
                Default::Follows(other) => assert!(table.field(other).is_some(), "{}", key.toml),
                Default::Absent => {}
            }
        }
    }
    for (toml, text) in keys::SMALL.iter().chain(keys::TINY).chain(keys::NO_OPTIM_PRESET) {
        readable(keys::TRAIN.field(toml).unwrap_or_else(|| panic!("{toml}")), text);
    }
}

fn readable(key: &Key, text: &str) {
    let node = read::toml::value(text, &Place::Argument(key.toml.into())).unwrap_or_else(|| panic!("{text}"));
    value::read(&key.kind, &node, key.toml, "").unwrap_or_else(|error| panic!("{error}"));
}

/// A value of the kind other than `now`, as an argument.
pub(super) fn another(kind: &Kind, now: &Json) -> String {
    match kind {
        Kind::Switch => (now != &Json::Bool(true)).to_string(),
        Kind::Count { .. } => (now.as_u64().unwrap_or(4) + 1).to_string(),
        Kind::Real(_) => (now.as_f64().unwrap_or(0.5) * 0.5 + 1e-3).to_string(),
        Kind::Text => "another".into(),
        Kind::Choice(choices) | Kind::Spelled(choices, _) => {
            choices.iter().find(|choice| now.as_str() != Some(choice)).map(ToString::to_string).unwrap()
        }
        Kind::Device => "cuda:1".into(),
        Kind::Texts => "[another, one]".into(),
        Kind::Choices(choices) => format!("[{}]", choices[0]),
        Kind::Episodes => "0:3".into(),
        Kind::Reals2(_) => "[0.25, 0.5]".into(),
        Kind::Counts2 => "[28, 28]".into(),
        Kind::Renames => "{a: b}".into(),
        Kind::CountOr(_) => (now.as_u64().unwrap_or(4) + 1).to_string(),
        Kind::Anything => "1".into(),
    }
}

#[test]
fn every_acting_key_changes_exactly_its_field_under_each_of_its_names() {
    for key in keys::TRAIN.all().filter(|key| matches!(key.effect, Effect::Acts)) {
        let names = key.names(Vocabulary::Toml).chain(key.names(Vocabulary::Yaml));
        for alias in names {
            let (before, _, _) = argument("seed=1000".into());
            let now = &before.get(key.toml).unwrap().0;
            let value = match alias.meaning {
                Meaning::Same => another(&key.kind, now),
                Meaning::Adds(_) => "true".into(),
                Meaning::Switch { on, .. } => (now.as_str() != Some(on)).to_string(),
            };
            let (after, _, errors) = argument(format!("{}={value}", alias.path));
            assert_eq!(errors, [], "{}", alias.path);
            assert_ne!(&after.get(key.toml).unwrap().0, now, "{}={value}", alias.path);
            let follows =
                |other: &str| matches!(keys::TRAIN.field(other).unwrap().default, Default::Follows(k) if k == key.toml);
            let implied = |other: &str| {
                other == "optim.preset"
                    || key.toml == "optim.preset"
                    || key.toml == "model.preset"
                    || alias.path.starts_with("peft.")
            };
            for (other, (json, _)) in &after {
                let same = json == &before.get(other).unwrap().0;
                assert!(
                    same || *other == key.toml || follows(other) || implied(other),
                    "{} changes {other}",
                    alias.path
                );
            }
            assert_ne!(typed::<TrainConfig>(&after).unwrap(), typed::<TrainConfig>(&before).unwrap(), "{}", alias.path);
        }
    }
}

#[test]
fn keys_without_effect_are_listed_once_and_change_nothing() {
    for key in keys::TRAIN.all() {
        let Effect::Nothing(why) = key.effect else { continue };
        for alias in key.yaml {
            let value = if key.is_field() { "pyav" } else { "1" };
            let (after, notes, errors) = argument(format!("{}={value}", alias.path));
            assert_eq!(errors, [], "{}", alias.path);
            assert_eq!(
                typed::<TrainConfig>(&after).unwrap(),
                typed::<TrainConfig>(&argument("seed=1000".into()).0).unwrap(),
                "{}",
                alias.path
            );
            let texts: Vec<&str> = notes.iter().map(|note| note.text.as_str()).collect();
            assert_eq!(texts, [format!("{} has no effect: {why}", alias.path)]);
        }
    }
}

#[test]
fn keys_of_which_only_some_values_are_true_refuse_the_others() {
    for key in keys::TRAIN.all() {
        let Effect::Only { values, why } = key.effect else { continue };
        for alias in key.yaml {
            for value in values {
                assert_eq!(argument(format!("{}={value}", alias.path)).2, [], "{}={value}", alias.path);
            }
            let errors = argument(format!("{}=other", alias.path)).2;
            assert_eq!(errors.len(), 1);
            assert!(errors[0].message.ends_with(&format!("\"other\" is refused: {why}")), "{}", errors[0]);
        }
    }
}

#[test]
fn of_two_optimizer_blocks_the_preset_chooses_and_the_other_is_noted() {
    let block = "optimizer: {lr: 1e-4}\npolicy: {optimizer_lr: 3e-5}\n";
    for (preset, lr, noted) in [(true, 3e-5, "optimizer.lr"), (false, 1e-4, "policy.optimizer_lr")] {
        let (resolved, errors) =
            resolve_text(Vocabulary::Yaml, &format!("{block}use_policy_training_preset: {preset}"), &[]);
        assert_eq!((errors, resolved.errors), (vec![], vec![]));
        assert_eq!(typed::<TrainConfig>(&resolved.values).unwrap().optim.lr, lr);
        assert!(resolved.notes.iter().any(|note| note.text.starts_with(&format!("{noted} has no effect"))));
    }
    let aliases = keys::TRAIN.field("optim.lr").unwrap().yaml;
    assert_eq!(aliases.iter().map(|alias| alias.when).collect::<Vec<_>>(), [When::NoPreset, When::Preset]);
}

#[test]
fn layers_win_in_their_order_and_leave_their_origin() {
    let text = "policy: {type: pi05}\nmax_delay_steps: 4\nsteps: 7\nmodel: {preset: tiny}\n";
    let arguments = ["--steps=8".to_string(), "train.steps=9".to_string()];
    let (resolved, _) = resolve_text(Vocabulary::Yaml, text, &arguments);
    let shown = |key: &str| {
        let (json, origin) = resolved.values.get(key).unwrap();
        format!("{json} {origin}")
    };
    assert_eq!(shown("train.batch_size"), "8 default");
    assert_eq!(shown("model.chunk_size"), "10 preset tiny");
    assert_eq!(shown("model.n_action_steps"), "10 default: follows model.chunk_size");
    assert_eq!(shown("train.delay.max"), "4 test:2");
    assert_eq!(shown("train.steps"), "9 argument train.steps=9");
    let loaded = load_with(&Source::Embedded, Some(Preset::Tiny), &[], &no_env).unwrap();
    assert_eq!(loaded.origin("model.preset").unwrap().to_string(), "argument --preset tiny");
}

#[test]
fn the_clip_of_a_silent_file_follows_the_backend() {
    let clip = |backend: Option<&str>, text: &str| {
        let node = read::parse(Vocabulary::Yaml, text, &Arc::from("test")).unwrap();
        let env = |name: &str| backend.filter(|_| name == "TRAIN_BACKEND").map(String::from);
        let (resolved, _) = layers(&keys::TRAIN, Vocabulary::Yaml, node, None, &[], &env);
        let (json, origin) = resolved.values.get("optim.grad_clip_norm").unwrap().clone();
        (json.as_f64().unwrap(), origin.to_string())
    };
    let own = "use_policy_training_preset: false";
    assert_eq!(clip(None, own).0, 1.0);
    assert_eq!(clip(Some("deepspeed"), own).0, 1.0);
    assert_eq!(clip(Some("fsdp"), own), (10.0, "environment variable TRAIN_BACKEND".into()));
    assert_eq!(clip(Some("fsdp"), &format!("{own}\noptimizer: {{grad_clip_norm: 2}}")).0, 2.0);
    assert_eq!(clip(Some("fsdp"), "steps: 5").0, 1.0);
}

#[test]
fn variables_expand_where_a_value_is_used() {
    let text =
        "dataset: {repo_id: \"${REPO}\", root: \"${ROOT:-/data}\"}\nbatch_size: ${BATCH:-4}\nmodel: {preset: tiny}";
    let node = || read::parse(Vocabulary::Yaml, text, &Arc::from("a.yaml")).unwrap();
    let env = |name: &str| (name == "REPO").then(|| "lab/pick".to_string());
    let (resolved, _) = layers(&keys::TRAIN, Vocabulary::Yaml, node(), None, &[], &env);
    let config = typed::<TrainConfig>(&resolved.values).unwrap();
    assert_eq!(config.data.repo.as_deref(), Some("lab/pick"));
    assert_eq!((config.data.root, config.train.batch_size), (Some("/data".into()), 4));

    let (resolved, _) = layers(&keys::TRAIN, Vocabulary::Yaml, node(), None, &[], &no_env);
    assert_eq!(
        resolved.errors[0].to_string(),
        "a.yaml:1:20: dataset.repo_id: the environment variable REPO is not set; type: export REPO=…  (or write ${REPO:-default})"
    );
    let (resolved, _) = layers(&keys::TRAIN, Vocabulary::Yaml, node(), None, &["data.repo=x".into()], &no_env);
    assert_eq!(resolved.errors, []);
}

#[test]
fn anchors_and_merge_keys_of_yaml_are_followed() {
    let text = "optimizer: &o {lr: 1e-4, eps: 1e-7}\nuse_policy_training_preset: false\nscheduler: {peak_lr: 1e-4}\nenv: {<<: *o}\n";
    let (resolved, errors) = resolve_text(Vocabulary::Yaml, text, &[]);
    assert_eq!((errors, resolved.errors), (vec![], vec![]));
    let merged = "eval: &e {lr: 3e-4, eps: 1e-7}\nuse_policy_training_preset: false\noptimizer: {<<: *e, lr: 1e-4}\n";
    let (resolved, _) = resolve_text(Vocabulary::Yaml, merged, &[]);
    let config = typed::<TrainConfig>(&resolved.values).unwrap();
    assert_eq!((config.optim.lr, config.optim.eps), (1e-4, 1e-7));
}

#[test]
fn aliases_of_aliases_end_in_an_error() {
    let mut text = String::from("a: &a0 [x, x, x, x, x, x, x, x]\n");
    for level in 1..12 {
        let item = format!("*a{}", level - 1);
        text += &format!("b{level}: &a{level} [{}]\n", vec![item; 8].join(", "));
    }
    let errors = read::parse(Vocabulary::Yaml, &text, &Arc::from("bomb.yaml")).unwrap_err();
    assert!(errors[0].message.contains("too many values"), "{}", errors[0]);
}

#[test]
fn the_reference_file_is_not_stale() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/configs/train/reference.toml");
    let reference = print::reference();
    if std::env::var_os("VLASH_BLESS").is_some() {
        std::fs::write(path, &reference).unwrap();
    }
    let committed = std::fs::read_to_string(path).unwrap();
    assert!(committed == reference, "reference.toml is stale; VLASH_BLESS=1 cargo test --lib config:: writes it anew");
    // Its values are the defaults.
    let (from_file, errors) = resolve_text(Vocabulary::Toml, &reference, &[]);
    assert_eq!(errors, []);
    let (defaults, _) = resolve_text(Vocabulary::Toml, "[model]", &[]);
    assert_eq!(typed::<TrainConfig>(&from_file.values).unwrap(), typed::<TrainConfig>(&defaults.values).unwrap());
}

#[test]
fn the_printed_configuration_loads_as_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("printed.toml");
    let arguments: Vec<String> = [
        "data.repo=a \"quoted\"\\ path $${HOME}\t\u{1}é",
        "data.rename={\"observation.images.x\" = \"observation.images.y\"}",
        "data.episodes=0:3,7",
        "optim.lr=3.3333333333333335e-5",
        "seed=18446744073709551615",
        "model.freeze=[vision]",
        "data.cameras=['a.b', c]",
    ]
    .map(String::from)
    .to_vec();
    let first = load_with(&Source::Embedded, None, &arguments, &no_env).unwrap();
    assert!(first.value.data.repo.as_deref().unwrap().contains("${HOME}"));
    std::fs::write(&path, print::resolved(&first)).unwrap();
    let again = load_with(&Source::File(path), None, &[], &no_env).unwrap();
    assert_eq!(again.value, first.value);
}

#[test]
fn what_is_allowed_and_rarely_meant_is_said() {
    let arguments = ["optim.lr=1e-6".to_string(), "schedule.peak_lr=1e-3".into(), "schedule.decay_lr=1e-2".into()];
    let loaded = load_with(&Source::Embedded, None, &arguments, &no_env).unwrap();
    let notes: Vec<String> = loaded.notes.iter().map(ToString::to_string).collect();
    assert!(notes.iter().any(|note| note.starts_with("argument schedule.peak_lr=1e-3: ")), "{notes:?}");
    assert!(notes.iter().any(|note| note.ends_with("the learning rate rises to the end")), "{notes:?}");
    let arguments = ["schedule.kind=constant".to_string()];
    let loaded = load_with(&Source::Embedded, None, &arguments, &no_env).unwrap();
    let said =
        "schedule.warmup_steps, schedule.decay_steps, schedule.decay_lr have no effect: the schedule is constant";
    assert!(loaded.notes.iter().any(|note| note.text == said), "{:?}", loaded.notes);
}

#[test]
fn a_wrong_file_ends_in_a_bounded_message() {
    let text: String = (0..9_000).map(|i| format!("key_{i}: 1\n")).collect();
    let (_, errors) = resolve_text(Vocabulary::Yaml, &text, &[]);
    assert_eq!(errors.len(), 9_000);
    let message = ConfigErrors::input(errors).to_string();
    assert_eq!(message.lines().count(), 102);
    assert!(message.ends_with("… and 8900 more"), "{message}");
}

fn any_text() -> impl Strategy<Value = String> {
    let pieces = prop_oneof![
        Just("policy"),
        Just("type"),
        Just("steps"),
        Just("train"),
        Just(": "),
        Just("\n"),
        Just("  "),
        Just("- "),
        Just("["),
        Just("]"),
        Just("{"),
        Just("}"),
        Just("="),
        Just("\""),
        Just("'"),
        Just("&a"),
        Just("*a"),
        Just("<<"),
        Just("#"),
        Just("5e-5"),
        Just("${"),
        Just("\t"),
        Just("---\n"),
        Just("|"),
        Just("é"),
        Just("data.episodes"),
        Just("0:9"),
        Just(","),
    ];
    prop_oneof![any::<String>(), prop::collection::vec(pieces, 0..40).prop_map(|pieces| pieces.concat())]
}

proptest! {
    #[test]
    fn no_text_is_a_panic(text in any_text(), argument in any_text()) {
        for vocabulary in [Vocabulary::Toml, Vocabulary::Yaml] {
            if let Ok(node) = read::parse(vocabulary, &text, &Arc::from("any")) {
                let (resolved, errors) = layers(&keys::TRAIN, vocabulary, node, None, std::slice::from_ref(&argument), &no_env);
                // What resolves must fit the types, also beside errors.
                prop_assert!(typed::<TrainConfig>(&resolved.values).is_ok());
                for error in errors.iter().chain(&resolved.errors) {
                    prop_assert!(!error.to_string().contains('\n'), "{error}");
                }
            }
        }
    }

    #[test]
    fn whatever_a_value_holds_it_survives_printing(
        text in any::<String>().prop_filter("placeholders are refused", |text| !text.is_empty() && !text.contains('<')),
        lr in prop::num::f64::POSITIVE | prop::num::f64::SUBNORMAL,
        seed in any::<u64>(),
    ) {
        let mut loaded = load_with(&Source::Embedded, None, &[], &no_env).unwrap();
        loaded.value.data.repo = Some(text.clone());
        loaded.value.data.cameras = Some(vec![text.clone(), "${HOME}".into()]);
        loaded.value.data.rename = [(text.clone(), text)].into();
        loaded.value.optim.lr = lr.abs();
        loaded.value.run.seed = seed;
        let (resolved, errors) = resolve_text(Vocabulary::Toml, &print::resolved(&loaded), &[]);
        prop_assert!(errors.is_empty() && resolved.errors.is_empty(), "{errors:?} {:?}", resolved.errors);
        prop_assert_eq!(typed::<TrainConfig>(&resolved.values).unwrap(), loaded.value);
    }

    #[test]
    fn no_value_of_a_key_is_a_panic(index in 0usize..200, value in any_text()) {
        let key = keys::TRAIN.all().nth(index % keys::TRAIN.all().count()).unwrap();
        let name = key.name(Vocabulary::Yaml);
        let (resolved, _) = resolve_text(Vocabulary::Yaml, "{}", &[format!("{name}={value}")]);
        prop_assert!(typed::<TrainConfig>(&resolved.values).is_ok());
    }
}

/// What a slip of the keyboard asks for: more memory than there is anywhere, and products that overflow.
#[test]
fn absurd_sizes_are_refused_in_the_vocabulary_of_the_file() {
    let refused = |settings: &[&str]| {
        let settings: Vec<String> = settings.iter().map(ToString::to_string).collect();
        load_with(&Source::Embedded, None, &settings, &|_| None).map(|_| ()).map_err(|errors| errors.to_string())
    };
    let largest = usize::MAX.to_string();
    for (key, most) in [
        ("train.delay.max", 1024),
        ("model.tokenizer_max_length", 8192),
        ("adapter.rank", 4096),
        ("train.batch_size", 1 << 20),
    ] {
        assert_eq!(refused(&[&format!("{key}={most}")]), Ok(()));
        for value in [&(most + 1).to_string(), &largest] {
            let error = refused(&[&format!("{key}={value}")]).unwrap_err();
            assert!(
                error.contains(key) && error.contains(&format!("{value} is absurdly large, {most} is the most")),
                "{error}"
            );
        }
    }
    let error = refused(&[&format!("train.batch_size={largest}"), "train.grad_accum=2"]).unwrap_err();
    assert!(error.contains("train.batch_size × train.grad_accum"), "{error}");
    // A rank that nothing uses is nobody's memory.
    assert_eq!(refused(&["adapter.enabled=false", "adapter.rank=100000"]), Ok(()));
}

/// LeRobot's name acts, and something of a chunk must be left to predict.
#[test]
fn given_actions_are_fewer_than_a_chunk() {
    let text = "policy: {type: pi05, rtc_training_max_delay: 4}\n";
    let (resolved, errors) = resolve_text(Vocabulary::Yaml, text, &[]);
    assert!(errors.is_empty());
    assert_eq!(resolved.values.get("train.rtc_max_delay").unwrap().0, 4);
    let load = |given: &str| load_with(&Source::Embedded, Some(Preset::Tiny), &[given.to_string()], &no_env);
    assert_eq!(load("train.rtc_max_delay=9").unwrap().value.train.rtc_max_delay, 9);
    let error = load("train.rtc_max_delay=10").unwrap_err().to_string();
    assert!(error.contains("nothing of a chunk") && error.contains("train.rtc_max_delay"), "{error}");
}
