//! Continuity of chunks on the reference policy, and against LeRobot's numbers.

use candle_core::{D, Device, Result, Tensor};
use serde::Deserialize;

use super::batch::Draw;
use super::continuity::{Guided, guidance_factor};
use super::network::fixture::{difference, inputs, policy};
use super::network::flow;
use super::segment::{Tape, Value, Walk};
use super::{Observed, Policy, StepOptions};
use crate::adapter::plan::{Everything, Frozen};
use crate::config::train::LossParity;

const STEPS: usize = 10;

/// The reference policy over the first observation of a case, with its noise.
fn observed() -> Result<(Policy, Observed, Tensor)> {
    let policy = policy(&Frozen)?;
    let (batch, _, draw) = inputs("case-a")?;
    let observed = policy.observe(&batch.select(&[0])?)?;
    Ok((policy, observed, draw.noise.narrow(0, 0, 1)?))
}

fn guided(weights: &[f32], max_weight: f64, full_jacobian: bool) -> Result<Guided> {
    let device = &Device::Cpu;
    // Any chunk that is not the policy's own.
    let leftover: Vec<f32> = (0..10 * 32).map(|at| ((at as f32) * 0.7).sin() * 0.5).collect();
    Ok(Guided {
        leftover: Tensor::from_vec(leftover, (10, 32), device)?,
        weights: Tensor::new(weights, device)?,
        max_weight,
        full_jacobian,
    })
}

const WEIGHTS: [f32; 10] = [1.0, 1.0, 1.0, 0.75, 0.5, 0.25, 0.0, 0.0, 0.0, 0.0];

#[test]
fn guidance_without_weight_is_plain_sampling() -> Result<()> {
    let (policy, observed, noise) = observed()?;
    let plain = policy.denoise(&observed, &noise, STEPS)?;
    for full_jacobian in [false, true] {
        let none = policy.denoise_guided(&observed, &noise, STEPS, &guided(&WEIGHTS, 0.0, full_jacobian)?)?;
        let blind = policy.denoise_guided(&observed, &noise, STEPS, &guided(&[0.0; 10], 10.0, full_jacobian)?)?;
        assert!(difference(&plain, &none)? < 1e-6 && difference(&plain, &blind)? < 1e-6);
    }
    Ok(())
}

#[test]
fn the_steps_that_will_have_passed_land_at_the_old_chunk_and_free_ones_do_not() -> Result<()> {
    let (policy, observed, noise) = observed()?;
    let plain = policy.denoise(&observed, &noise, STEPS)?;
    for full_jacobian in [false, true] {
        let guided = guided(&WEIGHTS, 10.0, full_jacobian)?;
        let chunk = policy.denoise_guided(&observed, &noise, STEPS, &guided)?;
        let far = |chunk: &Tensor, from: usize, steps: usize| {
            difference(&chunk.get(0)?.narrow(0, from, steps)?, &guided.leftover.narrow(0, from, steps)?)
        };
        let (free, held) = (far(&plain, 0, 3)?, far(&chunk, 0, 3)?);
        assert!(held < 0.2 * free, "full Jacobian {full_jacobian}: {held} against {free}");
        assert!(far(&chunk, 7, 3)? > 0.5 * far(&plain, 7, 3)?);
    }
    Ok(())
}

/// `⟨Jᵀr, u⟩ = ⟨r, J·u⟩`, the right side by finite differences of the predicted chunk along a direction u.
#[test]
fn the_full_jacobian_is_that_of_the_predicted_chunk() -> Result<()> {
    let (policy, observed, x_t) = observed()?;
    let (guided, time) = (guided(&WEIGHTS, 10.0, true)?, 0.6f32);
    let (velocity, pulled) = policy.guidance(&observed, &x_t, time, &guided)?;
    let error = guided.error(&x_t, &velocity, f64::from(time))?;
    let direction: Vec<f32> = (0..10 * 32).map(|at| ((at as f32) * 1.3).cos()).collect();
    let direction = Tensor::from_vec(direction, (1, 10, 32), &Device::Cpu)?;
    let predicted = |by: f64| {
        let x = (&x_t + (&direction * by)?)?;
        let mut tape = Tape::new(Walk::EVALUATE);
        let velocity = policy.velocity(&mut tape, &observed, &Value::constant(x.clone()), &[time])?.tensor;
        &x - (velocity * f64::from(time))?
    };
    let along = ((predicted(1e-2)? - predicted(-1e-2)?)? / 2e-2)?;
    let dot = |a: &Tensor, b: &Tensor| (a * b)?.sum_all()?.to_scalar::<f32>();
    let (found, wanted) = (dot(&pulled, &direction)?, dot(&error, &along)?);
    assert!((found - wanted).abs() < 1e-2 * wanted.abs().max(1.0), "{found} against {wanted}");
    // It is not the identity: the test would not see that otherwise.
    assert!((dot(&error, &direction)? - wanted).abs() > 5e-2 * wanted.abs().max(1.0));
    Ok(())
}

#[derive(Deserialize)]
struct Golden {
    time: f64,
    limit: f64,
    x_t: Vec<Vec<f32>>,
    v: Vec<Vec<f32>>,
    leftover: Vec<Vec<f32>>,
    weights: Vec<f32>,
    guided: Vec<Vec<f32>>,
}

#[test]
fn one_guided_velocity_is_lerobots() -> Result<()> {
    let text = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/rtc/guided.json"));
    let cases: Vec<Golden> = serde_json::from_str(text).expect("the fixture is JSON");
    assert_eq!(cases.len(), 16);
    let device = &Device::Cpu;
    for case in cases {
        let chunk = |rows: &[Vec<f32>]| {
            let padded = (0..6).flat_map(|row| {
                (0..3).map(move |column| rows.get(row).and_then(|row| row.get(column)).copied().unwrap_or(0.0))
            });
            Tensor::from_vec(padded.collect::<Vec<f32>>(), (6, 3), device)
        };
        let guided = Guided {
            leftover: chunk(&case.leftover)?,
            weights: Tensor::new(&case.weights[..], device)?,
            max_weight: case.limit,
            full_jacobian: false,
        };
        let (x_t, velocity) = (chunk(&case.x_t)?.unsqueeze(0)?, chunk(&case.v)?.unsqueeze(0)?);
        let error = guided.error(&x_t, &velocity, case.time)?;
        let found = guided.corrected(&velocity, &error, case.time)?;
        let worst = difference(&found.squeeze(0)?, &chunk(&case.guided)?)?;
        assert!(worst < 2e-5, "time {} limit {}: {worst}", case.time, case.limit);
    }
    Ok(())
}

#[test]
fn the_factor_is_limited_and_has_its_known_values() {
    assert_eq!(guidance_factor(1.0, 10.0), 10.0);
    // τ = 1/2: 1 · (1/4 + 1/4)/(1/4) = 2.
    assert!((guidance_factor(0.5, 10.0) - 2.0).abs() < 1e-12);
    assert_eq!(guidance_factor(0.5, 1.5), 1.5);
    assert!((guidance_factor(0.1, 100.0) - 0.1 / 0.9 * 82.0).abs() < 1e-9);
}

#[test]
fn given_actions_stay_as_they_are_and_the_rest_follows_them() -> Result<()> {
    let (policy, observed, noise) = observed()?;
    let leftover = guided(&WEIGHTS, 1.0, false)?.leftover;
    let plain = policy.denoise(&observed, &noise, STEPS)?;
    let given = leftover.narrow(0, 0, 3)?;
    let chunk = policy.denoise_given(&observed, &noise, STEPS, &given)?;
    assert_eq!(difference(&chunk.get(0)?.narrow(0, 0, 3)?, &given)?, 0.0);
    assert!(difference(&chunk.narrow(1, 3, 7)?, &plain.narrow(1, 3, 7)?)? > 1e-3, "the expert attends to them");
    let none = policy.denoise_given(&observed, &noise, STEPS, &leftover.narrow(0, 0, 0)?)?;
    assert_eq!(difference(&none, &plain)?, 0.0);
    assert!(policy.denoise_given(&observed, &noise, STEPS, &leftover).is_err(), "nothing would be left");
    Ok(())
}

/// A time of each step that is the same for all of a row is the row's time: losses and every gradient agree.
#[test]
fn equal_times_by_step_are_the_rows_time() -> Result<()> {
    let policy = policy(&Everything)?;
    let (batch, targets, draw) = inputs("case-a")?;
    let options = StepOptions { parity: LossParity::Valid, recompute: false, dropout_key: None, loss_scale: 1.0 };
    let by_row = policy.gradients(&batch, &targets, &draw, &options)?;
    let times = draw.time.unsqueeze(D::Minus1)?.broadcast_as((draw.time.dim(0)?, 10))?.contiguous()?;
    let draw = Draw { time: times, ..draw };
    for recompute in [false, true] {
        let by_step = policy.gradients(&batch, &targets, &draw, &StepOptions { recompute, ..options })?;
        assert!((by_row.loss - by_step.loss).abs() < 1e-6, "{} {}", by_row.loss, by_step.loss);
        assert_eq!(by_row.gradients.len(), by_step.gradients.len());
        for (name, gradient) in &by_row.gradients {
            let worst = difference(gradient, &by_step.gradients[name])?;
            assert!(worst < 1e-5, "{name}: {worst}");
        }
    }
    Ok(())
}

/// What is predicted for given steps is in no loss, and they enter clean: their noise does not matter.
#[test]
fn given_steps_are_clean_and_in_no_loss() -> Result<()> {
    let policy = policy(&Frozen)?;
    let (batch, targets, draw) = inputs("case-a")?;
    let given = flow::give_prefix(draw.clone(), 3, [5, 0], 6)?;
    let mask = given.given()?;
    let (rows, chunk) = given.time.dims2()?;
    let delays: Vec<usize> = mask.chunks(chunk).map(|row| row.iter().filter(|&&given| given).count()).collect();
    assert!(delays.iter().all(|&delay| delay <= 6) && delays.iter().any(|&delay| delay > 0), "{delays:?}");
    assert!(mask.chunks(chunk).zip(&delays).all(|(row, &delay)| row[..delay].iter().all(|&given| given)));
    let losses = |draw: &Draw| policy.losses(&batch, &targets, draw, LossParity::Valid);
    let found = losses(&given)?;
    let counted: usize = found.rows.iter().map(|row| row.elements).sum();
    assert_eq!(counted, (rows * chunk - delays.iter().sum::<usize>()) * targets.action_dim);
    let keep: Vec<f32> = mask.iter().map(|&given| if given { 5.0 } else { 1.0 }).collect();
    let louder = Tensor::from_vec(keep, (rows, chunk, 1), &Device::Cpu)?;
    let other = Draw { noise: given.noise.broadcast_mul(&louder)?, ..given.clone() };
    assert_eq!(losses(&other)?.loss, found.loss);
    // The same key gives the same; no prefix leaves the draw as it was.
    assert_eq!(flow::give_prefix(draw.clone(), 3, [5, 0], 6)?.given()?, mask);
    assert_ne!(flow::give_prefix(draw.clone(), 3, [6, 0], 6)?.given()?, mask);
    assert_eq!(flow::give_prefix(draw.clone(), 3, [5, 0], 0)?.time.id(), draw.time.id());
    Ok(())
}
