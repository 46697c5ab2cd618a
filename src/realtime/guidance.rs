//! How much each step of a new chunk is pulled to the old one (real-time chunking, arXiv 2506.07339).

use super::policy::GuidanceSchedule;

/// Weights f32 in 0…1 of the `chunk` steps of a new chunk: 1 for the `delay` steps that will have passed when it
/// arrives, then falling by `schedule` up to `horizon`, 0 from there on. A delay beyond the horizon counts as the horizon.
///
/// Source: the weights of LeRobot 0.6's `RTCProcessor` and of the authors' research code.
pub fn weights(schedule: GuidanceSchedule, delay: usize, horizon: usize, chunk: usize) -> Vec<f32> {
    let horizon = horizon.min(chunk);
    let delay = delay.min(horizon);
    let between = (horizon - delay + 1) as f64;
    let falling = |step: usize| {
        let linear = 1.0 - (step - delay + 1) as f64 / between;
        match schedule {
            GuidanceSchedule::Zeros => 0.0,
            GuidanceSchedule::Ones => 1.0,
            GuidanceSchedule::Linear => linear,
            GuidanceSchedule::Exponential => linear * linear.exp_m1() / (std::f64::consts::E - 1.0),
        }
    };
    let weight = |step: usize| match step {
        passed if passed < delay => 1.0,
        near if near < horizon => falling(near),
        _ => 0.0,
    };
    (0..chunk).map(|step| weight(step) as f32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    /// By hand: delay 2, horizon 5, six steps; linear 3/4, 2/4, 1/4, and w·(e^w − 1)/(e − 1) of those.
    #[rstest]
    #[case(GuidanceSchedule::Zeros, [1.0, 1.0, 0.0, 0.0, 0.0, 0.0])]
    #[case(GuidanceSchedule::Ones, [1.0, 1.0, 1.0, 1.0, 1.0, 0.0])]
    #[case(GuidanceSchedule::Linear, [1.0, 1.0, 0.75, 0.5, 0.25, 0.0])]
    #[case(GuidanceSchedule::Exponential, [1.0, 1.0, 0.48755, 0.18877, 0.041324, 0.0])]
    fn weights_are_those_of_the_formula(#[case] schedule: GuidanceSchedule, #[case] wanted: [f32; 6]) {
        let found = weights(schedule, 2, 5, 6);
        assert!(found.iter().zip(wanted).all(|(a, b)| (a - b).abs() < 2e-6), "{found:?}");
    }

    #[test]
    fn delays_and_horizons_beyond_the_chunk_are_the_chunk() {
        assert_eq!(weights(GuidanceSchedule::Linear, 9, 4, 6), [1.0, 1.0, 1.0, 1.0, 0.0, 0.0]);
        assert_eq!(weights(GuidanceSchedule::Linear, 0, 99, 3), [0.75, 0.5, 0.25]);
        assert_eq!(weights(GuidanceSchedule::Ones, 0, 0, 2), [0.0, 0.0]);
        assert!(weights(GuidanceSchedule::Linear, 1, 1, 0).is_empty());
    }

    #[derive(serde::Deserialize)]
    struct Golden {
        schedule: String,
        delay: usize,
        horizon: usize,
        leftover: Vec<Vec<f32>>,
        weights: Vec<f32>,
    }

    #[test]
    fn weights_are_lerobots() {
        let text = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/rtc/guided.json"));
        let cases: Vec<Golden> = serde_json::from_str(text).unwrap();
        assert_eq!(cases.len(), 16);
        for case in cases {
            let schedule = match case.schedule.as_str() {
                "zeros" => GuidanceSchedule::Zeros,
                "ones" => GuidanceSchedule::Ones,
                "linear" => GuidanceSchedule::Linear,
                "exp" => GuidanceSchedule::Exponential,
                other => panic!("{other}"),
            };
            // What is left of the old chunk bounds the horizon.
            let found = weights(schedule, case.delay, case.horizon.min(case.leftover.len()), case.weights.len());
            let close = found.iter().zip(&case.weights).all(|(a, b)| (a - b).abs() < 1e-6);
            assert!(close && found.len() == 6, "{}: {found:?} against {:?}", case.schedule, case.weights);
        }
    }
}
