//! The parity suite on the CPU: everything against the reference implementations' golden numbers.

#[path = "mod.rs"]
mod parity;

use std::path::Path;

use candle_core::{Device, Error, Result};
use parity::record::Record;
use parity::training::Mode;
use parity::{adapters, end_to_end, network, shared_observation, state_condition, take_fixtures_from, training};
use rstest::rstest;

/// Runs a comparison on the CPU and fails when something is beyond its tolerance.
fn held(compare: impl FnOnce(&Device, &mut Record) -> Result<()>) -> Result<()> {
    take_fixtures_from(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures")));
    let mut record = Record::default();
    compare(&Device::Cpu, &mut record)?;
    record.check().map_err(Error::Msg)
}

#[rstest]
#[case("case-a")]
#[case("case-b")]
fn the_network_agrees_in_every_tensor(#[case] case: &str) -> Result<()> {
    held(|device, record| network::every_tensor(device, case, record))
}

#[test]
fn conditioning_on_the_state_agrees_with_vlash() -> Result<()> {
    held(state_condition::agrees_with_vlash)
}

#[test]
fn a_new_state_branch_changes_nothing_and_says_what_to_expect() -> Result<()> {
    held(state_condition::a_new_branch_changes_nothing)
}

#[rstest]
#[case(shared_observation::agrees_with_the_packed_sequence)]
#[case(shared_observation::branches_together_are_branches_alone)]
#[case(shared_observation::a_branch_that_does_not_count_changes_nothing)]
fn delays_over_one_prefix(#[case] compare: fn(&Device, &mut Record) -> Result<()>) -> Result<()> {
    held(compare)
}

#[rstest]
#[case(adapters::ALL_LINEAR)]
#[case(adapters::LEROBOT_DEFAULT)]
fn the_network_with_an_adapter_agrees_in_every_tensor(#[case] name: &str) -> Result<()> {
    held(|device, record| adapters::every_tensor(device, name, record))
}

#[rstest]
#[case(adapters::ALL_LINEAR)]
#[case(adapters::LEROBOT_DEFAULT)]
fn without_the_adapter_it_is_the_base(#[case] name: &str) -> Result<()> {
    held(|device, record| adapters::without_the_adapter_it_is_the_base(device, name, record))
}

#[test]
fn a_merged_network_acts_as_the_one_with_the_adapter() -> Result<()> {
    held(adapters::merged_it_acts_alike)
}

#[test]
fn dataset_items_become_the_references_actions() -> Result<()> {
    held(end_to_end::agrees)
}

#[rstest]
#[case(Mode::Full)]
#[case(Mode::Expert)]
#[case(Mode::Lora)]
fn twenty_steps_follow_the_reference(#[case] mode: Mode) -> Result<()> {
    held(|device, record| training::follows_the_reference(device, mode, record))
}

mod records {
    use super::Record;

    #[test]
    fn the_worst_of_a_kind_is_kept_and_named() {
        let mut record = Record::default();
        record.hold("loss", "step 1", 2e-6, 1e-5);
        record.hold("loss", "step 2", 8e-6, 1e-5);
        record.hold("v_t", "", 1e-5, 1e-4);
        assert_eq!(record.worst().map(|d| (d.what.as_str(), d.at.as_str())), Some(("loss", "step 2")));
        assert!(record.check().is_ok());
        record.hold("v_t", "row 7", 2e-4, 1e-4);
        assert_eq!(record.check().unwrap_err(), "v_t (row 7): 2.000e-4, allowed 1.000e-4");
    }

    #[test]
    fn not_a_number_exact_zeros_and_nothing_at_all_are_judged() {
        assert!(Record::default().check().is_err());
        let hold = |found: f64, tolerance: f64| {
            let mut record = Record::default();
            record.hold("bits", "", found, tolerance);
            record.check().is_ok()
        };
        assert!(hold(0.0, 0.0));
        assert!(!hold(1e-30, 0.0));
        assert!(!hold(f64::NAN, 1.0));
    }
}
