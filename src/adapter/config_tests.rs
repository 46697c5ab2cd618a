use super::*;
use crate::adapter::select::plan_for;
use crate::adapter::select::tests::{GEMMA, lora, tiny};
use crate::config::train::Freeze;
use proptest::prelude::*;

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/lora");

fn parse(text: &str) -> Result<PeftConfig, AdapterError> {
    PeftConfig::parse(text.as_bytes(), Path::new("adapter_config.json"))
}

#[test]
fn peft_s_own_files_come_back_as_they_were() {
    for adapter in ["adapter-all-linear", "adapter-lerobot-default"] {
        let source = Path::new(FIXTURES).join(adapter);
        let config = PeftConfig::read(&source).unwrap();
        assert_eq!(config.spec("action_in_proj"), LoraSpec { rank: 8, scale: 2.0, dropout: 0.0 });
        assert_eq!(config.base_model(), Some("pi05-tiny"));
        let dir = tempfile::tempdir().unwrap();
        config.write(dir.path()).unwrap();
        let text = |path: &Path| std::fs::read_to_string(path.join(CONFIG_FILE)).unwrap();
        assert_eq!(text(dir.path()).trim(), text(&source).trim());
    }
}

/// What we write for the run that made a fixture differs from PEFT's own file in nothing but the order of a list.
#[test]
fn a_new_configuration_has_peft_s_fields() {
    let (modules, parameters) = tiny();
    let ask = AdapterConfig {
        rank: 8,
        ..lora(&["gate_proj", "v_proj", "k_proj", "o_proj", "up_proj", "q_proj", "down_proj"], &[])
    };
    let plan = plan_for(&ask, &[], 0, &modules, &parameters).unwrap();
    let ours = PeftConfig::for_plan(&ask, &plan, &modules, PolicyKind::Pi05, Some(("pi05-tiny", None))).unwrap();
    let theirs = PeftConfig::read(&Path::new(FIXTURES).join("adapter-all-linear")).unwrap();
    assert_eq!(ours.fields, theirs.fields);
    let keys = |config: &PeftConfig| config.fields.keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&ours), keys(&theirs), "in PEFT's order");
}

#[test]
fn names_are_written_whole_where_peft_would_select_others() {
    let (modules, parameters) = tiny();
    let written = |targets: &[&str], extras: &[&str], freeze: &[Freeze]| {
        let ask = lora(targets, extras);
        let plan = plan_for(&ask, freeze, 0, &modules, &parameters).unwrap();
        PeftConfig::for_plan(&ask, &plan, &modules, PolicyKind::Pi05, None).unwrap()
    };
    let list = |config: &PeftConfig, key: &str| -> Vec<String> {
        serde_json::from_value(config.field(key).unwrap().clone()).unwrap()
    };
    assert_eq!(list(&written(&GEMMA, &[], &[]), "target_modules"), GEMMA);
    let pattern = ".*gemma_expert.*_proj";
    assert_eq!(written(&[pattern], &[], &[]).field("target_modules").unwrap(), pattern);
    let no_vision = list(&written(&["q_proj"], &[], &[Freeze::Vision]), "target_modules");
    assert!(no_vision.len() == 6 && no_vision.iter().all(|n| n.starts_with("model.paligemma_with_expert.")));
    assert_eq!(list(&written(&["all-linear"], &[], &[]), "target_modules").len(), modules.len());
    let extras = written(&["q_proj"], &["action_in_proj"], &[]);
    assert_eq!(list(&extras, "modules_to_save"), ["model.action_in_proj"]);
    assert_eq!(extras.field("base_model_name_or_path"), Some(&Value::Null));
}

#[test]
fn patterns_set_rank_and_alpha_of_single_modules() {
    let config = parse(
        r#"{"peft_type": "LORA", "r": 8, "lora_alpha": 16, "use_rslora": false, "lora_dropout": 0.1,
            "rank_pattern": {"layers\\.0\\.self_attn\\.q_proj": 2, "q_proj": 4}, "alpha_pattern": {"q_proj": 1}}"#,
    )
    .unwrap();
    let spec = |module: &str| (config.spec(module).rank, config.spec(module).scale);
    assert_eq!(spec("x.layers.0.self_attn.q_proj"), (2, 0.5));
    assert_eq!(spec("x.layers.1.self_attn.q_proj"), (4, 0.25));
    assert_eq!(spec("x.layers.1.self_attn.new_q_proj"), (8, 2.0));
    assert_eq!(config.spec("v_proj").dropout, 0.1);
}

#[test]
fn rslora_divides_by_the_root_of_the_rank() {
    let config = parse(r#"{"peft_type": "LORA", "r": 4, "lora_alpha": 16, "use_rslora": true}"#).unwrap();
    assert_eq!(config.spec("q_proj").scale, 8.0);
}

#[test]
fn switches_that_change_the_arithmetic_are_refused_by_name() {
    for (field, value, told) in [
        ("use_dora", "true", "use_dora"),
        ("fan_in_fan_out", "true", "fan_in_fan_out"),
        ("bias", "\"lora_only\"", "bias \"lora_only\""),
        (
            "init_lora_weights",
            "\"pissa_niter_4\"",
            "init_lora_weights \"pissa_niter_4\", which changes the base weights",
        ),
        ("target_parameters", "[\"experts.weight\"]", "target_parameters"),
        ("peft_type", "\"LOHA\"", "peft_type LOHA"),
    ] {
        let error = parse(&format!(r#"{{"peft_type": "LORA", "{field}": {value}}}"#)).unwrap_err();
        assert_eq!(error.to_string(), format!("adapter_config.json asks for {told}, which is not supported"));
    }
    for fine in ["\"init_lora_weights\": \"gaussian\"", "\"target_parameters\": []", "\"a_new_field\": {\"x\": 1}"] {
        parse(&format!(r#"{{"peft_type": "LORA", {fine}}}"#)).unwrap();
    }
}

#[test]
fn wrong_types_and_ranks_are_told_with_what_was_found() {
    for (text, told) in [
        (r#"{"peft_type": "LORA", "r": "8"}"#, "r is \"8\", expected a number"),
        (r#"{"peft_type": "LORA", "r": 0}"#, "r is 0, expected a whole number of at least 1"),
        (r#"{"peft_type": "LORA", "use_rslora": 1}"#, "use_rslora is 1, expected true or false"),
        (r#"{"peft_type": "LORA", "rank_pattern": {"q": "x"}}"#, "expected an object of numbers"),
        (r#"{"peft_type": "LORA", "rank_pattern": {"(": 1}}"#, "keys are regular expressions"),
        ("[]", "it is not a JSON object"),
        ("{", "EOF"),
    ] {
        let error = parse(text).unwrap_err().to_string();
        assert!(error.contains(told), "{error}");
    }
}

proptest! {
    #[test]
    fn no_content_of_the_file_panics(
        key in prop::sample::select(vec![
            "peft_type", "r", "lora_alpha", "lora_dropout", "use_rslora", "rank_pattern", "alpha_pattern", "bias",
            "init_lora_weights", "modules_to_save", "target_modules", "use_dora",
        ]),
        value in prop_oneof![
            Just("null".to_string()), Just("true".to_string()), Just("-1e300".to_string()), Just("[[]]".to_string()),
            Just("{\"q\": -1}".to_string()), Just("{\"q\": 1e300}".to_string()), any::<f64>().prop_map(|f| f.to_string()),
            "[ -~]{0,12}".prop_map(|s| serde_json::to_string(&s).unwrap()),
        ],
        cut in 0usize..200,
    ) {
        let text = format!(r#"{{"peft_type": "LORA", "{key}": {value}}}"#);
        if let Ok(config) = parse(&text) {
            let spec = config.spec("paligemma_with_expert.q_proj");
            prop_assert!(spec.rank >= 1);
        }
        let _ = parse(text.get(..cut).unwrap_or(&text));
    }
}
