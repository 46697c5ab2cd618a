//! Letters of 5 × 7 pixels, to label video frames.

use crate::dataset::frame::RgbFrame;

/// Pixels of a letter with the gap behind it, and of a line with the gap below it.
pub const ADVANCE: usize = 6;
pub const LINE: usize = 9;

/// Rows from the top, five bits each, the leftmost highest.
fn glyph(character: char) -> [u8; 7] {
    match character.to_ascii_uppercase() {
        'A' => [14, 17, 17, 31, 17, 17, 17],
        'B' => [30, 17, 17, 30, 17, 17, 30],
        'C' => [14, 17, 16, 16, 16, 17, 14],
        'D' => [28, 18, 17, 17, 17, 18, 28],
        'E' => [31, 16, 16, 30, 16, 16, 31],
        'F' => [31, 16, 16, 30, 16, 16, 16],
        'G' => [14, 17, 16, 23, 17, 17, 15],
        'H' => [17, 17, 17, 31, 17, 17, 17],
        'I' => [14, 4, 4, 4, 4, 4, 14],
        'J' => [7, 2, 2, 2, 2, 18, 12],
        'K' => [17, 18, 20, 24, 20, 18, 17],
        'L' => [16, 16, 16, 16, 16, 16, 31],
        'M' => [17, 27, 21, 21, 17, 17, 17],
        'N' => [17, 25, 21, 19, 17, 17, 17],
        'O' => [14, 17, 17, 17, 17, 17, 14],
        'P' => [30, 17, 17, 30, 16, 16, 16],
        'Q' => [14, 17, 17, 17, 21, 18, 13],
        'R' => [30, 17, 17, 30, 20, 18, 17],
        'S' => [15, 16, 16, 14, 1, 1, 30],
        'T' => [31, 4, 4, 4, 4, 4, 4],
        'U' => [17, 17, 17, 17, 17, 17, 14],
        'V' => [17, 17, 17, 17, 17, 10, 4],
        'W' => [17, 17, 17, 21, 21, 27, 17],
        'X' => [17, 17, 10, 4, 10, 17, 17],
        'Y' => [17, 17, 10, 4, 4, 4, 4],
        'Z' => [31, 1, 2, 4, 8, 16, 31],
        '0' => [14, 17, 19, 21, 25, 17, 14],
        '1' => [4, 12, 4, 4, 4, 4, 14],
        '2' => [14, 17, 1, 6, 8, 16, 31],
        '3' => [31, 2, 4, 2, 1, 17, 14],
        '4' => [2, 6, 10, 18, 31, 2, 2],
        '5' => [31, 16, 30, 1, 1, 17, 14],
        '6' => [6, 8, 16, 30, 17, 17, 14],
        '7' => [31, 1, 2, 4, 8, 8, 8],
        '8' => [14, 17, 17, 14, 17, 17, 14],
        '9' => [14, 17, 17, 15, 1, 2, 12],
        '.' => [0, 0, 0, 0, 0, 12, 12],
        ',' => [0, 0, 0, 0, 12, 4, 8],
        ':' => [0, 12, 12, 0, 12, 12, 0],
        '-' => [0, 0, 0, 31, 0, 0, 0],
        '+' => [0, 4, 4, 31, 4, 4, 0],
        '=' => [0, 0, 31, 0, 31, 0, 0],
        '/' => [1, 1, 2, 4, 8, 16, 16],
        '%' => [24, 25, 2, 4, 8, 19, 3],
        '(' => [2, 4, 8, 8, 8, 4, 2],
        ')' => [8, 4, 2, 2, 2, 4, 8],
        ' ' => [0; 7],
        // A box: a letter that is not there shows that it is not.
        _ => [31, 17, 17, 17, 17, 17, 31],
    }
}

/// Writes `text` with its upper left corner at `(x, y)`, each pixel as a square of `scale`; what lies outside is cut.
pub fn write(frame: &mut RgbFrame, text: &str, (x, y): (usize, usize), scale: usize, colour: [u8; 3]) {
    for (place, character) in text.chars().enumerate() {
        for (row, bits) in glyph(character).into_iter().enumerate() {
            for column in (0..5).filter(|column| bits >> (4 - column) & 1 == 1) {
                let corner = (x + (place * ADVANCE + column) * scale, y + row * scale);
                fill(frame, corner, (scale, scale), colour);
            }
        }
    }
}

/// Fills a rectangle; what lies outside is cut.
pub fn fill(frame: &mut RgbFrame, (x, y): (usize, usize), (width, height): (usize, usize), colour: [u8; 3]) {
    let (from, to) = (x.min(frame.width), (x + width).min(frame.width));
    for row in y..(y + height).min(frame.height) {
        let start = row * frame.width;
        let Some(pixels) = frame.data.get_mut((start + from) * 3..(start + to) * 3) else { return };
        pixels.chunks_exact_mut(3).for_each(|pixel| pixel.copy_from_slice(&colour));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_stand_where_they_are_put_and_are_cut_at_the_edge() {
        let blank = || RgbFrame { height: 9, width: 14, data: vec![0; 9 * 14 * 3] };
        let drawn = |frame: &RgbFrame| -> String {
            let dots: Vec<char> =
                frame.data.chunks(3).map(|pixel| if pixel == [255, 0, 9] { '#' } else { '.' }).collect();
            dots.chunks(14).map(|row| row.iter().collect::<String>() + "\n").collect()
        };
        let mut frame = blank();
        write(&mut frame, "Tl", (1, 1), 1, [255, 0, 9]);
        assert_eq!(
            drawn(&frame),
            "..............\n\
             .#####.#......\n\
             ...#...#......\n\
             ...#...#......\n\
             ...#...#......\n\
             ...#...#......\n\
             ...#...#......\n\
             ...#...#####..\n\
             ..............\n"
        );
        let mut frame = blank();
        write(&mut frame, "WWW", (8, 5), 3, [255, 0, 9]);
        fill(&mut frame, (100, 100), (5, 5), [255, 0, 9]);
        assert_eq!(frame.data.len(), 9 * 14 * 3);
        assert!(drawn(&frame).contains('#'));
    }
}
