//! The gradient check of a run's first step.
//!
//! A cut graph is silent: the loss still falls while part of the network stands still. So the first backward pass
//! must have reached every trained parameter, and no frozen one.

use std::collections::BTreeMap;

use candle_core::Tensor;

use super::clip::{first, squared_norm};
use crate::adapter::plan::FirstGradient;
use crate::error::{Explain, Kind};

/// What the first gradients show.
#[derive(Debug, thiserror::Error)]
#[error("step 1: {}", complaints(.trained, .faults))]
pub struct FirstStepError {
    /// Trained tensors.
    pub trained: usize,
    /// What is wrong, worst first, with the tensors' names.
    pub faults: Vec<(Fault, Vec<String>)>,
}

/// One way in which a gradient is not what it must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// There is none.
    Missing,
    /// Zero everywhere, where the mathematics says otherwise.
    Zero,
    /// It holds an infinity or a NaN.
    NotFinite,
    /// Declared as never read, but not zero: the declaration is wrong.
    Undeclared,
    /// A gradient for a tensor that does not train.
    Frozen,
    /// The gradient cannot be read.
    Unreadable,
}

impl Explain for FirstStepError {
    fn kind(&self) -> Kind {
        match self.only_not_finite() {
            true => Kind::Input,
            false => Kind::Internal,
        }
    }
    fn hint(&self) -> Option<String> {
        Some(match self.only_not_finite() {
            true => "look for broken values with `vlash data check`, or lower optim.lr".to_string(),
            false => "this is a defect in vlash: please report it with run.json".to_string(),
        })
    }
}

impl FirstStepError {
    /// Values that overflow come from data or weights; everything else is ours.
    fn only_not_finite(&self) -> bool {
        self.faults.iter().all(|(fault, _)| *fault == Fault::NotFinite)
    }
}

fn complaints(trained: &usize, faults: &[(Fault, Vec<String>)]) -> String {
    let sentence = |(fault, names): &(Fault, Vec<String>)| {
        let (count, first) = (names.len(), first(names));
        match fault {
            Fault::Missing => format!(
                "{count} of {trained} trainable tensors received no gradient (first: {first}). The graph is cut \
                 between them and the loss."
            ),
            Fault::Zero => format!(
                "{count} of {trained} trainable tensors received a gradient of zeros (first: {first}). Something \
                 between them and the loss multiplies by zero or is detached."
            ),
            Fault::NotFinite => format!(
                "{count} of {trained} trainable tensors received a gradient that is not finite (first: {first})."
            ),
            Fault::Undeclared => format!(
                "{count} of {trained} trainable tensors were declared to receive no gradient and did (first: {first})."
            ),
            Fault::Frozen => format!("{count} tensors received a gradient but do not train (first: {first})."),
            Fault::Unreadable => format!("the gradients of {count} tensors cannot be read (first: {first})."),
        }
    };
    faults.iter().map(sentence).collect::<Vec<_>>().join(" ")
}

/// Holds `gradients` of the first step against what each trained parameter (the keys of `expected`) must receive.
pub fn check(
    expected: &BTreeMap<String, FirstGradient>,
    gradients: &BTreeMap<String, Tensor>,
) -> Result<(), FirstStepError> {
    let mut faults: BTreeMap<Fault, Vec<String>> = BTreeMap::new();
    for (name, expectation) in expected {
        if let Some(fault) = judge(*expectation, gradients.get(name)) {
            faults.entry(fault).or_default().push(name.clone());
        }
    }
    let frozen: Vec<String> = gradients.keys().filter(|name| !expected.contains_key(*name)).cloned().collect();
    if !frozen.is_empty() {
        faults.insert(Fault::Frozen, frozen);
    }
    match faults.is_empty() {
        true => Ok(()),
        false => Err(FirstStepError { trained: expected.len(), faults: faults.into_iter().collect() }),
    }
}

fn judge(expectation: FirstGradient, gradient: Option<&Tensor>) -> Option<Fault> {
    let Some(gradient) = gradient else {
        return match expectation {
            FirstGradient::Never(_) => None,
            FirstGradient::NonZero | FirstGradient::ZeroAtFirst(_) => Some(Fault::Missing),
        };
    };
    let Ok(squares) = squared_norm(gradient) else {
        return Some(Fault::Unreadable);
    };
    match expectation {
        _ if !squares.is_finite() => Some(Fault::NotFinite),
        FirstGradient::NonZero if squares == 0.0 => Some(Fault::Zero),
        FirstGradient::Never(_) if squares != 0.0 => Some(Fault::Undeclared),
        // A run that resumes or starts from an adapter is past its first zeros.
        FirstGradient::NonZero | FirstGradient::ZeroAtFirst(_) | FirstGradient::Never(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::Device;

    const BEHIND_B: FirstGradient = FirstGradient::ZeroAtFirst("lora_B is zero");
    const UNREAD: FirstGradient = FirstGradient::Never("nothing reads it");

    fn run(expected: &[(&str, FirstGradient)], found: &[(&str, f32)]) -> Result<(), FirstStepError> {
        let expected = expected.iter().map(|(n, e)| (n.to_string(), *e)).collect();
        let tensor = |value| Tensor::new(&[0f32, value], &Device::Cpu).unwrap();
        check(&expected, &found.iter().map(|(n, v)| (n.to_string(), tensor(*v))).collect())
    }

    #[test]
    fn what_the_mathematics_allows_passes() {
        let expected = [("a", FirstGradient::NonZero), ("b", BEHIND_B), ("c", UNREAD), ("d", UNREAD), ("e", BEHIND_B)];
        run(&expected, &[("a", 1e-30), ("b", 0.0), ("c", 0.0), ("e", 1.0)]).unwrap();
    }

    #[test]
    fn missing_gradients_are_counted_and_named_as_in_ff_09() {
        let names: Vec<String> = (0..5).map(|i| format!("layers.{i}.q_proj.lora_B.weight")).collect();
        let expected: Vec<(&str, FirstGradient)> = names.iter().map(|n| (n.as_str(), FirstGradient::NonZero)).collect();
        let error = run(&expected, &[("layers.3.q_proj.lora_B.weight", 1.0)]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "step 1: 4 of 5 trainable tensors received no gradient (first: layers.0.q_proj.lora_B.weight, \
             layers.1.q_proj.lora_B.weight, layers.2.q_proj.lora_B.weight, …). The graph is cut between them and the \
             loss."
        );
        assert_eq!(error.kind(), Kind::Internal);
        assert!(error.hint().unwrap().contains("run.json"));
    }

    #[test]
    fn every_other_fault_is_told_apart() {
        let fault = |expectation, value| run(&[("a", expectation)], &[("a", value)]).unwrap_err().faults[0].0;
        assert_eq!(fault(FirstGradient::NonZero, 0.0), Fault::Zero);
        assert_eq!(fault(FirstGradient::NonZero, f32::NAN), Fault::NotFinite);
        assert_eq!(fault(BEHIND_B, f32::INFINITY), Fault::NotFinite);
        assert_eq!(fault(UNREAD, f32::NAN), Fault::NotFinite);
        assert_eq!(fault(UNREAD, 1.0), Fault::Undeclared);
        assert_eq!(run(&[("a", BEHIND_B)], &[]).unwrap_err().faults[0].0, Fault::Missing);
        assert_eq!(run(&[], &[("z", 0.0)]).unwrap_err().faults, [(Fault::Frozen, vec!["z".to_string()])]);
    }

    #[test]
    fn overflow_alone_is_the_user_s_to_mend_and_all_faults_are_listed_at_once() {
        let both = [("a", FirstGradient::NonZero), ("b", FirstGradient::NonZero)];
        assert_eq!(run(&both, &[("a", f32::NAN), ("b", 1.0)]).unwrap_err().kind(), Kind::Input);
        let error = run(&both, &[("a", f32::NAN)]).unwrap_err();
        assert_eq!(error.kind(), Kind::Internal);
        let text = error.to_string();
        assert!(text.contains("no gradient (first: b)") && text.contains("not finite (first: a)"), "{text}");
    }
}
