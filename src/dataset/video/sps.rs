//! The colours that an H.264 stream states: the end of its sequence parameter set (ISO/IEC 14496-10 §7.3.2.1.1, E.1.1).

use super::index::StatedColor;

/// `profile_idc` values whose parameter sets state the chroma format.
const HIGH_PROFILES: [u32; 13] = [44, 83, 86, 100, 110, 118, 122, 128, 134, 135, 138, 139, 244];
const EXTENDED_SAR: u32 = 255;
/// Matrix coefficients that mean "not stated".
const UNSPECIFIED: u16 = 2;

/// Matrix and range out of a sequence parameter set (a NAL unit with its header); none where nothing is stated or the
/// unit ends early.
pub(super) fn stated_color(unit: &[u8]) -> Option<StatedColor> {
    let payload = without_emulation_prevention(unit.get(1..)?);
    let mut bits = Bits { bytes: &payload, at: 0 };
    skip_to_vui(&mut bits)?;
    if !bits.flag()? {
        return None;
    }
    if bits.flag()? && bits.take(8)? == EXTENDED_SAR {
        bits.take(32)?;
    }
    if bits.flag()? {
        bits.flag()?; // overscan_appropriate
    }
    if !bits.flag()? {
        return None;
    }
    bits.take(3)?; // video_format
    let full_range = bits.flag()?;
    let matrix = if bits.flag()? {
        bits.take(16)?; // primaries, transfer
        bits.take(8)? as u16
    } else {
        UNSPECIFIED
    };
    Some(StatedColor { matrix, full_range })
}

fn skip_to_vui(bits: &mut Bits<'_>) -> Option<()> {
    let profile = bits.take(8)?;
    bits.take(16)?; // constraints, level
    bits.unsigned()?; // id
    if HIGH_PROFILES.contains(&profile) {
        let chroma_format = bits.unsigned()?;
        if chroma_format == 3 {
            bits.flag()?;
        }
        bits.unsigned()?; // luma depth
        bits.unsigned()?; // chroma depth
        bits.flag()?; // transform bypass
        if bits.flag()? {
            skip_scaling_lists(bits, if chroma_format == 3 { 12 } else { 8 })?;
        }
    }
    bits.unsigned()?; // log2_max_frame_num
    match bits.unsigned()? {
        0 => drop(bits.unsigned()?),
        1 => {
            bits.flag()?;
            bits.unsigned()?; // offset_for_non_ref_pic, signed, of the same length
            bits.unsigned()?; // offset_for_top_to_bottom_field
            for _ in 0..bits.unsigned()? {
                bits.unsigned()?;
            }
        }
        _ => (),
    }
    bits.unsigned()?; // reference frames
    bits.flag()?; // gaps
    bits.unsigned()?; // width
    bits.unsigned()?; // height
    if !bits.flag()? {
        bits.flag()?; // mb_adaptive_frame_field
    }
    bits.flag()?; // direct_8x8_inference
    if bits.flag()? {
        for _ in 0..4 {
            bits.unsigned()?; // cropping
        }
    }
    Some(())
}

fn skip_scaling_lists(bits: &mut Bits<'_>, lists: usize) -> Option<()> {
    for list in 0..lists {
        if !bits.flag()? {
            continue;
        }
        let (mut last, mut next) = (8, 8);
        for _ in 0..if list < 6 { 16 } else { 64 } {
            if next != 0 {
                next = i32::wrapping_add(last, bits.signed()?).rem_euclid(256);
            }
            last = if next == 0 { last } else { next };
        }
    }
    Some(())
}

/// Drops the 3 of every 0 0 3, which only keeps start codes from appearing inside a unit.
fn without_emulation_prevention(unit: &[u8]) -> Vec<u8> {
    let mut zeros = 0;
    let kept = unit.iter().copied().filter(|byte| {
        let dropped = zeros >= 2 && *byte == 3;
        zeros = if *byte == 0 { zeros + 1 } else { 0 };
        !dropped
    });
    kept.collect()
}

/// Bits from the highest of each byte.
struct Bits<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Bits<'_> {
    fn flag(&mut self) -> Option<bool> {
        let byte = self.bytes.get(self.at / 8)?;
        let bit = byte >> (7 - self.at % 8) & 1;
        self.at += 1;
        Some(bit == 1)
    }

    /// At most 32 bits.
    fn take(&mut self, count: usize) -> Option<u32> {
        let mut value = 0;
        for _ in 0..count {
            value = value << 1 | u32::from(self.flag()?);
        }
        Some(value)
    }

    /// Exponential Golomb code (§9.1).
    fn unsigned(&mut self) -> Option<u32> {
        let mut zeros = 0;
        while !self.flag()? {
            zeros += 1;
        }
        // 32 bits suffice for every field; longer codes are damage.
        if zeros > 31 {
            return None;
        }
        Some((1u32 << zeros) - 1 + self.take(zeros)?)
    }

    fn signed(&mut self) -> Option<i32> {
        let code = i64::from(self.unsigned()?);
        let value = if code % 2 == 1 { code / 2 + 1 } else { -(code / 2) };
        i32::try_from(value).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(hex: &str) -> Vec<u8> {
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
    }

    // Parameter sets that x264 wrote (High profile); FFmpeg names the colours in the comment.
    #[test]
    fn colours_of_x264_streams_are_read() {
        let told = |hex| stated_color(&unit(hex)).map(|color| (color.matrix, color.full_range));
        // bt709, tv
        assert_eq!(told("6764000aace4109a6a04040280000003008000001e07891289"), Some((1, false)));
        // smpte170m, pc
        assert_eq!(told("6764000aace4109a6e04040c80000003008000001e07891289"), Some((6, true)));
        // LeRobot's encoder and others that state nothing
        assert_eq!(told("6764000aace4083684000003000400000300a03c489448"), None);
        assert_eq!(told("6764000aacd94d6840000003004000000f03c4896580"), None);
    }

    #[test]
    fn exponential_golomb_codes_are_read() {
        // 1 | 010 | 011 | 00100 | 00111, then the end.
        let mut bits = Bits { bytes: &[0b1010_0110, 0b0100_0011, 0b1000_0000], at: 0 };
        assert_eq!([(); 3].map(|()| bits.unsigned()), [Some(0), Some(1), Some(2)]);
        assert_eq!([(); 2].map(|()| bits.signed()), [Some(2), Some(-3)]);
        assert_eq!(bits.unsigned(), None);
    }

    #[test]
    fn a_cut_unit_states_nothing() {
        let whole = unit("6764000aace4109a6a04040280000003008000001e07891289");
        assert!(stated_color(&whole).is_some());
        for length in 0..8 {
            assert_eq!(stated_color(&whole[..length]), None);
        }
    }
}
