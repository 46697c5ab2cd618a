//! H.264 by OpenH264.

use openh264::OpenH264API;
use openh264::decoder::{DecodedYUV, Decoder as OpenH264, DecoderConfig, Flush};
use openh264::formats::YUVSource as _;

use super::color::{ColorSpace, Picture, Plane};
use super::decoder::{Decoder, Fault, Sink, pixel_format_fault};
use super::index::StatedColor;

const START_CODE: [u8; 4] = [0, 0, 0, 1];

/// `nal_unit_type` of a slice of an instantaneous decoding refresh picture (ISO/IEC 14496-10 Table 7-1).
const IDR_SLICE: u8 = 5;

pub(super) struct H264Decoder {
    /// None before the first sample and after a flush.
    decoder: Option<OpenH264>,
    length_size: usize,
    parameter_sets: Vec<u8>,
    space: ColorSpace,
    /// The sample in Annex B form; kept for its capacity.
    annex_b: Vec<u8>,
}

impl H264Decoder {
    /// `length_size` 1…4; `parameter_sets` in Annex B form; `profile` is `profile_idc` (ISO/IEC 14496-10 Annex A).
    pub fn new(
        length_size: usize,
        parameter_sets: Vec<u8>,
        profile: u8,
        color: Option<StatedColor>,
    ) -> Result<H264Decoder, Fault> {
        match profile {
            110 => return Err(pixel_format_fault(10, "4:2:0")),
            122 => return Err(pixel_format_fault(10, "4:2:2")),
            44 | 244 => return Err(pixel_format_fault(8, "4:4:4")),
            _ => (),
        }
        let space = color.map_or(ColorSpace::UNSTATED, |color| ColorSpace::new(color.matrix.into(), color.full_range));
        Ok(H264Decoder { decoder: None, length_size, parameter_sets, space, annex_b: Vec::new() })
    }
}

impl Decoder for H264Decoder {
    fn push(&mut self, sample: &[u8], start: bool, sink: Sink<'_>) -> Result<(), Fault> {
        self.annex_b.clear();
        if start {
            self.annex_b.extend_from_slice(&self.parameter_sets);
        }
        let idr = append_annex_b(&mut self.annex_b, sample, self.length_size)?;
        if start && !idr {
            // OpenH264 would refuse it, or sort what comes out by the picture order of two unrelated runs.
            return Err(Fault::NoStart);
        }
        let decoder = match &mut self.decoder {
            Some(decoder) => decoder,
            empty => empty.insert(open()?),
        };
        match decoder.decode(&self.annex_b).map_err(told)? {
            Some(decoded) => sink(&picture(&decoded, self.space)),
            None => Ok(()),
        }
    }

    fn flush(&mut self, sink: Sink<'_>) -> Result<(), Fault> {
        // OpenH264 2.7 does not take back the buffers of pictures that it gives out in a flush, and runs out of them
        // after a few: the decoder ends here.
        let Some(mut decoder) = self.decoder.take() else { return Ok(()) };
        for decoded in decoder.flush_remaining().map_err(told)? {
            sink(&picture(&decoded, self.space))?;
        }
        Ok(())
    }
}

/// Flushing after each sample, the wrapper's default, loses frames of streams with B-frames and of short groups.
fn open() -> Result<OpenH264, Fault> {
    let config = DecoderConfig::new().flush_after_decode(Flush::NoFlush);
    OpenH264::with_api_config(OpenH264API::from_source(), config).map_err(told)
}

fn told(error: openh264::Error) -> Fault {
    format!("OpenH264: {error}").into()
}

fn picture<'a>(decoded: &'a DecodedYUV<'_>, space: ColorSpace) -> Picture<'a> {
    let (width, height) = decoded.dimensions();
    let (y, u, v) = decoded.strides();
    Picture {
        width,
        height,
        y: Plane { data: decoded.y(), stride: y },
        u: Plane { data: decoded.u(), stride: u },
        v: Plane { data: decoded.v(), stride: v },
        space,
    }
}

/// NAL units with their lengths before them (ISO/IEC 14496-15 §5.3) to NAL units with start codes. Returns whether
/// there is an IDR slice among them.
fn append_annex_b(annex_b: &mut Vec<u8>, mut sample: &[u8], length_size: usize) -> Result<bool, String> {
    let mut idr = false;
    while !sample.is_empty() {
        let cut_off = || format!("a NAL unit is cut off {} bytes before the sample's end", sample.len());
        let (length, rest) = sample.split_at_checked(length_size).ok_or_else(cut_off)?;
        let length = length.iter().fold(0usize, |value, byte| value << 8 | usize::from(*byte));
        let (unit, rest) = rest.split_at_checked(length).ok_or_else(cut_off)?;
        idr |= unit.first().is_some_and(|header| header & 0x1f == IDR_SLICE);
        annex_b.extend_from_slice(&START_CODE);
        annex_b.extend_from_slice(unit);
        sample = rest;
    }
    Ok(idr)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_become_start_codes() {
        let mut annex_b = vec![9];
        assert!(append_annex_b(&mut annex_b, &[0, 2, 7, 8, 0, 1, 0x65], 2).unwrap());
        assert_eq!(annex_b, [9, 0, 0, 0, 1, 7, 8, 0, 0, 0, 1, 0x65]);
        assert!(!append_annex_b(&mut annex_b, &[0, 1, 0x41], 2).unwrap());
        assert!(append_annex_b(&mut annex_b, &[0, 3, 7, 8], 2).is_err());
        assert!(append_annex_b(&mut annex_b, &[0], 2).is_err());
    }
}
