//! Elementary functions in a form that compilers vectorise.

/// `eˣ` in f32, within 2 ulp for results that are neither subnormal nor overflowing; there it saturates
/// (about 1e-38 and 2e38). NaN stays NaN: a diverged run must stay visible.
///
/// Range reduction `x = n·ln2 + r`, |r| ≤ ½ln2, with n rounded by the 1.5·2²³ trick (no call, no cast), a Taylor
/// polynomial of degree 7 for `eʳ`, and 2ⁿ put together from bits.
#[inline(always)]
pub(super) fn exp(x: f32) -> f32 {
    const LOWEST: f32 = -87.3;
    const HIGHEST: f32 = 88.3;
    const ROUND: f32 = 12_582_912.0;
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    let x = if x < LOWEST { LOWEST } else { x };
    let x = if x > HIGHEST { HIGHEST } else { x };
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = (x - n * LN2_HIGH) - n * LN2_LOW;
    let tail = 1.0 / 5040.0;
    let tail = tail * r + 1.0 / 720.0;
    let tail = tail * r + 1.0 / 120.0;
    let tail = tail * r + 1.0 / 24.0;
    let tail = tail * r + 1.0 / 6.0;
    let tail = tail * r + 0.5;
    let e = (tail * r) * r + r + 1.0;
    e * f32::from_bits(shifted.to_bits().wrapping_add(127) << 23)
}

/// GELU in its tanh approximation, and its derivative.
///
/// `½x(1 + tanh u) = x·σ(2u)` with `u = √(2/π)(x + 0.044715x³)`.
#[inline(always)]
pub(super) fn gelu(x: f32) -> (f32, f32) {
    const TWICE_ROOT: f32 = 1.595_769_2; // 2·√(2/π)
    const CUBIC: f32 = 0.044_715;
    let square = x * x;
    let sigmoid = 1.0 / (1.0 + exp(-(TWICE_ROOT * x) * (1.0 + CUBIC * square)));
    let slope = TWICE_ROOT * (1.0 + 3.0 * CUBIC * square);
    (x * sigmoid, sigmoid + x * sigmoid * (1.0 - sigmoid) * slope)
}

/// Dot product with eight running sums, a fixed order that vectorises.
#[inline(always)]
pub(super) fn dot(a: &[f32], b: &[f32]) -> f32 {
    const LANES: usize = 8;
    let mut sums = [0.0f32; LANES];
    let (a_chunks, b_chunks) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let rest: f32 = a_chunks.remainder().iter().zip(b_chunks.remainder()).map(|(a, b)| a * b).sum();
    for (a, b) in a_chunks.zip(b_chunks) {
        for lane in 0..LANES {
            sums[lane] += a[lane] * b[lane];
        }
    }
    sums.iter().sum::<f32>() + rest
}

/// Sum with eight running sums.
#[inline(always)]
pub(super) fn sum(a: &[f32]) -> f32 {
    const LANES: usize = 8;
    let mut sums = [0.0f32; LANES];
    let chunks = a.chunks_exact(LANES);
    let rest: f32 = chunks.remainder().iter().sum();
    for a in chunks {
        for lane in 0..LANES {
            sums[lane] += a[lane];
        }
    }
    sums.iter().sum::<f32>() + rest
}

/// The largest element, −∞ of nothing; NaN elements are passed over.
#[inline(always)]
pub(super) fn highest(a: &[f32]) -> f32 {
    const LANES: usize = 8;
    let higher = |highest: f32, a: f32| if a > highest { a } else { highest };
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let chunks = a.chunks_exact(LANES);
    let rest = chunks.remainder().iter().fold(f32::NEG_INFINITY, |highest, &a| higher(highest, a));
    for a in chunks {
        for lane in 0..LANES {
            lanes[lane] = higher(lanes[lane], a[lane]);
        }
    }
    lanes.iter().fold(rest, |highest, &a| higher(highest, a))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_agrees_with_the_library_over_its_range() {
        let mut x = -87.0f32;
        while x < 88.0 {
            let (ours, theirs) = (exp(x), f64::from(x).exp());
            assert!((f64::from(ours) / theirs - 1.0).abs() < 2.5e-7, "exp({x}) = {ours}, wanted {theirs}");
            x += 0.0137;
        }
        assert_eq!(exp(0.0), 1.0);
        assert!(exp(-1e9) < 2e-38 && exp(1e9) > 1e38 && exp(f32::NAN).is_nan());
    }

    #[test]
    fn gelu_and_its_slope_agree_with_f64() {
        let exact =
            |x: f64| 0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh());
        for i in -400..400 {
            let x = f64::from(i) * 0.02;
            let (value, slope) = gelu(x as f32);
            assert!((f64::from(value) - exact(x)).abs() < 1e-6, "gelu({x})");
            let wanted = (exact(x + 1e-5) - exact(x - 1e-5)) / 2e-5;
            assert!((f64::from(slope) - wanted).abs() < 1e-5, "gelu'({x}) = {slope}, wanted {wanted}");
        }
    }

    #[test]
    fn sums_and_dots_reach_every_element() {
        let a: Vec<f32> = (1..=19).map(|v| v as f32).collect();
        assert_eq!(sum(&a), 190.0);
        assert_eq!(dot(&a, &a), 2470.0);
        assert_eq!((highest(&a), highest(&a[..3]), highest(&[])), (19.0, 3.0, f32::NEG_INFINITY));
        assert_eq!(highest(&[1.0, f32::NAN, 2.0]), 2.0);
    }
}
