//! A decoded camera image.

/// RGB, 8 bits a channel, rows from the top, `data.len() == height * width * 3` (HWC).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RgbFrame {
    pub height: usize,
    pub width: usize,
    pub data: Vec<u8>,
}
