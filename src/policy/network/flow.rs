//! Flow matching: t = 1 is noise, t = 0 is data.

use candle_core::{Device, Result, Tensor, bail};
use rand::Rng;
use rand_distr::{Beta, Distribution, StandardNormal};

use crate::policy::batch::Draw;
use crate::random::stream;

/// `t = scale·Beta(α, β) + offset`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TimeSampling {
    pub alpha: f64,
    pub beta: f64,
    pub scale: f64,
    pub offset: f64,
}

impl Default for TimeSampling {
    /// The published policies' values.
    fn default() -> Self {
        Self { alpha: 1.5, beta: 1.0, scale: 0.999, offset: 0.001 }
    }
}

/// Noise f32 `[batch, H, A]` and time f32 `[batch]`: a pure function of seed, step, micro-step and the position in
/// the micro-batch, so that resumption repeats it and nothing is stored.
pub fn draw(
    seed: u64,
    [step, micro_step]: [u64; 2],
    [batch, chunk, dims]: [usize; 3],
    sampling: &TimeSampling,
    device: &Device,
) -> Result<Draw> {
    let Ok(beta) = Beta::new(sampling.alpha, sampling.beta) else {
        bail!("flow time: Beta({}, {}) does not exist", sampling.alpha, sampling.beta)
    };
    let mut noise = Vec::with_capacity(batch * chunk * dims);
    let mut time = Vec::with_capacity(batch);
    for position in 0..batch as u64 {
        let counters = [step, micro_step, position];
        let mut random = stream(seed, "noise", &counters);
        noise.extend((0..chunk * dims).map(|_| -> f32 { StandardNormal.sample(&mut random) }));
        let t = beta.sample(&mut stream(seed, "flow-time", &counters));
        time.push((sampling.scale * t + sampling.offset) as f32);
    }
    Ok(Draw {
        noise: Tensor::from_vec(noise, (batch, chunk, dims), device)?,
        time: Tensor::from_vec(time, batch, device)?,
    })
}

/// The same draw with the first d actions of each row given, d uniform in 0 … `most` (training-time RTC): their flow
/// time is 0. `d` is a pure function of what [`draw()`] takes; `most` = 0 changes nothing at all.
pub fn give_prefix(draw: Draw, seed: u64, [step, micro_step]: [u64; 2], most: usize) -> Result<Draw> {
    if most == 0 {
        return Ok(draw);
    }
    let (rows, chunk, _) = draw.noise.dims3()?;
    let time = draw.time.to_vec1::<f32>()?;
    let given = |row: usize| stream(seed, "rtc-prefix", &[step, micro_step, row as u64]).random_range(0..=most);
    let times: Vec<f32> = time
        .iter()
        .enumerate()
        .flat_map(|(row, &time)| {
            let given = given(row);
            (0..chunk).map(move |at| if at < given { 0.0 } else { time })
        })
        .collect();
    Ok(Draw { time: Tensor::from_vec(times, (rows, chunk), draw.noise.device())?, ..draw })
}

/// The point on the way from actions to noise: `x_t = t·noise + (1 − t)·actions`.
pub fn interpolate(actions: &Tensor, draw: &Draw) -> Result<Tensor> {
    let t = if draw.time.rank() == 1 { draw.time.unsqueeze(1)? } else { draw.time.clone() }.unsqueeze(2)?;
    draw.noise.broadcast_mul(&t)? + actions.broadcast_mul(&t.affine(-1.0, 1.0)?)?
}

/// The velocity to predict: `u = noise − actions`.
pub fn velocity(actions: &Tensor, draw: &Draw) -> Result<Tensor> {
    &draw.noise - actions
}

/// The times of the sampler's steps: `1 + k·(−1/n)` in f64, as f32.
pub fn times(steps: usize) -> Vec<f32> {
    let dt = -1.0 / steps as f64;
    (0..steps).map(|k| (1.0 + k as f64 * dt) as f32).collect()
}

/// Sinusoids of the flow time: sines then cosines of `t·2π/period`, the periods in geometric progression from
/// `shortest` to `longest`; `width` numbers a time. Angles in f64: at the shortest period t = 1 is 250 turns.
pub fn sinusoid(time: &[f32], width: usize, shortest: f64, longest: f64) -> Vec<f64> {
    let half = width / 2;
    let angle = |t: f32, i: usize| {
        let fraction = i as f64 / (half.max(2) - 1) as f64;
        f64::from(t) * std::f64::consts::TAU / (shortest * (longest / shortest).powf(fraction))
    };
    time.iter()
        .flat_map(|&t| (0..half).map(move |i| angle(t, i).sin()).chain((0..half).map(move |i| angle(t, i).cos())))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use std::f64::consts::FRAC_1_SQRT_2;

    /// The formula's values at width 1024, angles in f64 as the references compute them.
    #[rstest]
    #[case(1.0, [0.0, -0.7832190, -0.2528857, -0.7999136, 1.0, 1.0, 0.9674962, 0.0])]
    #[case(0.5, [0.0, 0.9004849, -0.1274830, -0.4471492, FRAC_1_SQRT_2, 1.0, 0.9918408, FRAC_1_SQRT_2])]
    #[case(0.1, [0.0, -0.8585631, -0.9586452, -0.9755813, 0.1564345, 1.0, 0.2846038, 0.9876883])]
    #[case(0.001, [1.0, 0.9997776, 0.0499890, 0.0493183, 0.0015708, 0.0, 0.9987498, 0.9999988])]
    fn sinusoids_match_the_published_table(#[case] t: f64, #[case] wanted: [f64; 8]) {
        // The table is for t in f64; f32's nearest 0.1 lies 1.5e-9 beside it, a turn of 250 makes that 2e-6.
        let found = sinusoid(&[t as f32], 1024, 4e-3, 4.0);
        for (index, wanted) in [0, 1, 255, 256, 511, 512, 767, 1023].into_iter().zip(wanted) {
            assert!((found[index] - wanted).abs() < 5e-6, "e[{index}] = {}, wanted {wanted}", found[index]);
        }
    }

    #[test]
    fn draws_repeat_by_their_counters_and_follow_their_laws() -> Result<()> {
        let device = Device::Cpu;
        let sampling = TimeSampling::default();
        let one = |step, micro, batch| draw(5, [step, micro], [batch, 10, 32], &sampling, &device);
        let (a, b) = (one(3, 0, 64)?, one(3, 0, 4)?);
        let head = a.noise.narrow(0, 0, 4)?.flatten_all()?.to_vec1::<f32>()?;
        assert_eq!(head, b.noise.flatten_all()?.to_vec1::<f32>()?, "a sample's draw does not depend on the batch");
        for other in [one(4, 0, 4)?, one(3, 1, 4)?] {
            assert_ne!(other.time.to_vec1::<f32>()?, b.time.to_vec1::<f32>()?);
        }
        let noise = a.noise.flatten_all()?.to_vec1::<f32>()?;
        let mean = noise.iter().sum::<f32>() / noise.len() as f32;
        let square = noise.iter().map(|v| v * v).sum::<f32>() / noise.len() as f32;
        assert!(mean.abs() < 0.03 && (square - 1.0).abs() < 0.03, "mean {mean}, square {square}");
        let times = draw(5, [0, 0], [4000, 1, 1], &sampling, &device)?.time.to_vec1::<f32>()?;
        let mean = times.iter().sum::<f32>() / 4000.0;
        // The mean of Beta(1.5, 1) is 0.6, its deviation 0.26.
        assert!((mean - (0.999 * 0.6 + 0.001)).abs() < 0.02, "mean {mean}");
        assert!(times.iter().all(|t| (0.001..=1.0).contains(t)));
        Ok(())
    }

    #[test]
    fn the_ends_of_the_way_are_data_and_noise() -> Result<()> {
        let actions = Tensor::new(&[[[1f32, 2.]], [[3., 4.]]], &Device::Cpu)?;
        let noise = Tensor::new(&[[[0.5f32, -1.]], [[0., 7.]]], &Device::Cpu)?;
        let draw = Draw { noise, time: Tensor::new(&[0f32, 1.], &Device::Cpu)? };
        assert_eq!(interpolate(&actions, &draw)?.to_vec3::<f32>()?, [[[1., 2.]], [[0., 7.]]]);
        assert_eq!(velocity(&actions, &draw)?.to_vec3::<f32>()?, [[[-0.5, -3.]], [[-3., 3.]]]);
        assert_eq!(times(4), [1.0, 0.75, 0.5, 0.25]);
        Ok(())
    }
}
