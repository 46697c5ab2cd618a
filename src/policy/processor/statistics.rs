//! Statistics made safe to divide by, before they are used and saved.
//!
//! A joint that never moved (std 0, q01 = q99) or hardly moved turns a small deviation at deployment into a huge
//! input: `(x − q01) / 1e-8`. The remedy is applied to the *saved statistics*, so that whoever reads the
//! checkpoint, LeRobot included, computes the same.

use std::collections::BTreeMap;

use super::error::ProcessorError;
use super::normalise::bounds;
use super::{ACTION, STATE};
use crate::config::train::{NormMode, NormalizationConfig};
use crate::dataset::finding::{Finding, Severity};
use crate::dataset::stats::{FeatureStats, Statistics};

/// Checks the statistics of state and action and widens, symmetrically, dimensions whose range is below
/// `normalization.min_range`: a constant then normalises to 0 and comes back as itself.
///
/// Range means q99−q01, q90−q10, max−min or 2·std by mode; only what the mode reads is changed. Constant dimensions
/// keep their place when `min_range` is 0 (the reference's behaviour) and are reported all the same.
/// `names`: dimension names by feature, for the messages; may be empty. Statistics of other features pass unchanged.
///
/// # Errors
/// Impossible statistics (NaN, negative std, upper bound below the lower, count 0), or none for the mode.
pub fn prepare_statistics(
    statistics: &Statistics,
    config: &NormalizationConfig,
    names: &BTreeMap<String, Vec<String>>,
) -> Result<(Statistics, Vec<Finding>), ProcessorError> {
    let mut prepared = statistics.clone();
    let mut findings = Vec::new();
    for (feature, mode) in [(STATE, config.state), (ACTION, config.action)] {
        if mode == NormMode::Identity {
            continue;
        }
        let stats = prepared.get_mut(feature);
        bounds(feature, mode, stats.as_deref())?;
        if let Some(stats) = stats {
            possible(feature, mode, stats)?;
            let names = names.get(feature).map(Vec::as_slice).unwrap_or_default();
            widen(feature, mode, stats, config.min_range, names, &mut findings);
        }
    }
    Ok((prepared, findings))
}

/// What the choice of modes means for a policy that reads its state from the prompt.
pub fn check_modes(config: &NormalizationConfig, state_in_prompt: bool) -> Option<Finding> {
    (state_in_prompt && config.state == NormMode::MeanStd).then(|| Finding {
        severity: Severity::Warning,
        code: "state-outside-bins",
        message: "the state goes through the prompt in 256 bins over [-1, 1], but is normalised by mean and standard \
                  deviation: about a third of the values lie outside and land in the outer bins"
            .into(),
        fix: Some("normalization.state=quantiles".into()),
    })
}

fn possible(feature: &str, mode: NormMode, stats: &FeatureStats) -> Result<(), ProcessorError> {
    let impossible =
        |problem: String| Err(ProcessorError::ImpossibleStatistics { feature: feature.to_owned(), problem });
    if stats.count == 0 {
        return impossible("count is 0".into());
    }
    let (lower, upper) = bounds(feature, mode, Some(stats))?;
    if lower.len() != upper.len() {
        return impossible(format!("{} and {} values", lower.len(), upper.len()));
    }
    for (at, (&a, &b)) in lower.iter().zip(upper).enumerate() {
        // Stored and used as f32: what is infinite there is infinite everywhere.
        if !(a as f32).is_finite() || !(b as f32).is_finite() {
            return impossible(format!("dimension {at} has {a} and {b}"));
        }
        match mode {
            NormMode::MeanStd if b < 0.0 => {
                return impossible(format!("dimension {at} has the standard deviation {b}"));
            }
            NormMode::MeanStd => {}
            _ if b < a => {
                return impossible(format!("dimension {at} has the lower bound {a} above the upper bound {b}"));
            }
            _ => {}
        }
    }
    Ok(())
}

fn widen(
    feature: &str,
    mode: NormMode,
    stats: &mut FeatureStats,
    min_range: f64,
    names: &[String],
    findings: &mut Vec<Finding>,
) {
    let count = stats.count;
    let (label, lower, upper) = match mode {
        NormMode::Quantiles => ("q99−q01", stats.q01.as_mut(), stats.q99.as_mut()),
        NormMode::Quantile10 => ("q90−q10", stats.q10.as_mut(), stats.q90.as_mut()),
        NormMode::MinMax => ("max−min", Some(&mut stats.min), Some(&mut stats.max)),
        NormMode::MeanStd => ("2·std", Some(&mut stats.mean), Some(&mut stats.std)),
        NormMode::Identity => return,
    };
    let (Some(lower), Some(upper)) = (lower, upper) else { return };
    for (at, (a, b)) in lower.iter_mut().zip(upper.iter_mut()).enumerate() {
        // In f32, as it is stored: two f64 quantiles may fall on one f32.
        let range = match mode {
            NormMode::MeanStd => f64::from(2.0 * *b as f32),
            _ => f64::from(*b as f32 - *a as f32),
        };
        let constant = range == 0.0;
        if range >= min_range && !constant {
            continue;
        }
        if min_range > 0.0 {
            match mode {
                NormMode::MeanStd => *b = min_range / 2.0,
                _ => {
                    let centre = (*a + *b) / 2.0;
                    // At large magnitudes a small floor would drown in f32's rounding.
                    let half = (min_range / 2.0).max(centre.abs() / 4096.0);
                    (*a, *b) = (centre - half, centre + half);
                }
            }
        }
        findings.push(Finding {
            severity: Severity::Warning,
            code: if constant { "constant-dimension" } else { "narrow-dimension" },
            message: describe(feature, at, names.get(at), label, range, count, min_range),
            fix: (min_range == 0.0).then(|| "normalization.min_range=0.02".to_owned()),
        });
    }
}

fn describe(
    feature: &str,
    at: usize,
    name: Option<&String>,
    label: &str,
    range: f64,
    count: u64,
    min_range: f64,
) -> String {
    let name = name.map(|name| format!(" ({name})")).unwrap_or_default();
    let amplification = if range == 0.0 {
        "any deviation at deployment becomes enormous".to_owned()
    } else {
        format!("a deviation normalises to ×{:.0}", 2.0 / range)
    };
    let remedy = if min_range > 0.0 {
        format!("using a floor of {min_range}")
    } else {
        "the floor is switched off (normalization.min_range=0)".to_owned()
    };
    format!("{feature}[{at}]{name}: {label} = {range:.6} over {count} frames; {amplification}; {remedy}")
}

#[cfg(test)]
mod tests {
    use super::super::normalise::Normaliser;
    use super::*;
    use rstest::rstest;

    fn stats(lower: &[f64], upper: &[f64]) -> FeatureStats {
        let (lower, upper) = (lower.to_vec(), upper.to_vec());
        FeatureStats {
            mean: lower.iter().zip(&upper).map(|(a, b)| (a + b) / 2.0).collect(),
            std: lower.iter().zip(&upper).map(|(a, b)| (b - a) / 2.0).collect(),
            min: lower.clone(),
            max: upper.clone(),
            count: 12_400,
            q01: Some(lower.clone()),
            q10: Some(lower),
            q50: None,
            q90: Some(upper.clone()),
            q99: Some(upper),
        }
    }

    fn both(feature: FeatureStats) -> Statistics {
        Statistics::from([(STATE.to_owned(), feature.clone()), (ACTION.to_owned(), feature)])
    }

    fn config(mode: NormMode, min_range: f64) -> NormalizationConfig {
        NormalizationConfig { state: mode, action: mode, min_range }
    }

    const ALL: [NormMode; 4] = [NormMode::Quantiles, NormMode::Quantile10, NormMode::MinMax, NormMode::MeanStd];

    #[rstest]
    fn a_constant_normalises_to_zero_and_back_to_itself(#[values(0, 1, 2, 3)] mode: usize) {
        let constants = [0.25, -1.5696, 0.0, 1000.0];
        let raw = both(stats(&constants, &constants));
        let (prepared, findings) = prepare_statistics(&raw, &config(ALL[mode], 0.02), &BTreeMap::new()).unwrap();
        assert_eq!(findings.len(), 8);
        assert!(findings.iter().all(|f| f.code == "constant-dimension"));
        let normaliser = Normaliser::new(ACTION, 4, ALL[mode], prepared.get(ACTION)).unwrap();
        let mut values = constants.map(|c| c as f32);
        normaliser.normalise(&mut values).unwrap();
        // f32 places the bounds of a constant of 1000 within 6e-5 of a half-width of 0.24.
        assert!(values.iter().all(|v| v.abs() < 5e-4), "{values:?}");
        normaliser.unnormalise(&mut values);
        for (value, constant) in values.iter().zip(constants) {
            assert!((f64::from(*value) - constant).abs() <= 1e-6 * constant.abs().max(1.0), "{value} {constant}");
        }
    }

    #[test]
    fn a_narrow_joint_gets_the_floor_and_a_message_with_the_amplification() {
        let raw = both(stats(&[-1.0, 1.5686], &[1.0, 1.5696]));
        let names = BTreeMap::from([(ACTION.to_owned(), vec!["shoulder".to_owned(), "joint_5".to_owned()])]);
        let (prepared, findings) = prepare_statistics(&raw, &config(NormMode::Quantiles, 0.02), &names).unwrap();
        assert_eq!(
            findings[1].message,
            "action[1] (joint_5): q99−q01 = 0.001000 over 12400 frames; a deviation normalises to ×2000; using a floor of 0.02"
        );
        assert!(findings[0].message.starts_with("observation.state[1]: "));
        let action = &prepared[ACTION];
        let (q01, q99) = (action.q01.as_ref().unwrap(), action.q99.as_ref().unwrap());
        assert_eq!((q01[0], q99[0]), (-1.0, 1.0));
        assert!((q99[1] - q01[1] - 0.02).abs() < 1e-12 && ((q01[1] + q99[1]) / 2.0 - 1.5691).abs() < 1e-12);
        assert_eq!(action.min, raw[ACTION].min, "what the mode does not read stays");
        // The deployed value of the field report: 0.0 is 157 floors away, not 3137 ranges.
        let normaliser = Normaliser::new(ACTION, 2, NormMode::Quantiles, Some(action)).unwrap();
        let mut value = [0.0, 0.0];
        normaliser.normalise(&mut value).unwrap();
        assert!(value[1].abs() < 160.0);
    }

    #[test]
    fn with_the_floor_off_statistics_are_the_references_and_constants_still_reported() {
        let raw = both(stats(&[0.5, 0.0], &[0.5, 1e-4]));
        let (prepared, findings) =
            prepare_statistics(&raw, &config(NormMode::Quantiles, 0.0), &BTreeMap::new()).unwrap();
        assert_eq!(prepared, raw);
        assert_eq!(findings.iter().map(|f| f.code).collect::<Vec<_>>(), ["constant-dimension"; 2]);
        assert_eq!(findings[0].fix.as_deref(), Some("normalization.min_range=0.02"));
    }

    #[rstest]
    #[case::nan(NormMode::Quantiles, |s: &mut FeatureStats| s.q99 = Some(vec![f64::NAN]))]
    #[case::infinite(NormMode::MinMax, |s: &mut FeatureStats| s.max = vec![f64::INFINITY])]
    #[case::infinite_as_f32(NormMode::MinMax, |s: &mut FeatureStats| s.max = vec![1e300])]
    #[case::negative_std(NormMode::MeanStd, |s: &mut FeatureStats| s.std = vec![-0.1])]
    #[case::no_frames(NormMode::MeanStd, |s: &mut FeatureStats| s.count = 0)]
    #[case::turned_round(NormMode::Quantiles, |s: &mut FeatureStats| s.q01 = Some(vec![2.0]))]
    #[case::lengths(NormMode::Quantiles, |s: &mut FeatureStats| s.q01 = Some(vec![0.0, 0.0]))]
    fn impossible_statistics_are_refused_with_the_way_to_recompute(
        #[case] mode: NormMode,
        #[case] spoil: fn(&mut FeatureStats),
    ) {
        use crate::error::Explain;
        let mut feature = stats(&[0.0], &[1.0]);
        spoil(&mut feature);
        let error = prepare_statistics(&both(feature), &config(mode, 0.02), &BTreeMap::new()).unwrap_err();
        assert!(matches!(error, ProcessorError::ImpossibleStatistics { .. }), "{error}");
        assert!(error.hint().unwrap().contains("recomputed"));
    }

    #[test]
    fn absent_quantiles_are_named() {
        let mut feature = stats(&[0.0], &[1.0]);
        feature.q01 = None;
        let error =
            prepare_statistics(&both(feature), &config(NormMode::Quantiles, 0.02), &BTreeMap::new()).unwrap_err();
        assert!(error.to_string().contains("q01 and q99"), "{error}");
        let error =
            prepare_statistics(&Statistics::new(), &config(NormMode::Quantiles, 0.02), &BTreeMap::new()).unwrap_err();
        assert!(matches!(error, ProcessorError::MissingStatistics { .. }));
    }

    #[test]
    fn mean_and_std_with_the_state_in_the_prompt_is_a_warning() {
        assert_eq!(check_modes(&config(NormMode::MeanStd, 0.0), true).unwrap().code, "state-outside-bins");
        assert_eq!(check_modes(&config(NormMode::MeanStd, 0.0), false), None);
        assert_eq!(check_modes(&config(NormMode::Quantiles, 0.0), true), None);
    }
}
