//! Dots in character cells: 2×4 a cell in braille, 2×2 in block elements, one a cell in ASCII.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use crate::tui::capability::Glyphs;

/// What a dot belongs to; later ones are drawn over earlier ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Layer {
    Envelope,
    Faint,
    Held,
    Train,
}

/// A grid of dots over `columns`×`rows` cells. Dot (0, 0) is at the top left.
#[derive(Debug)]
pub struct Raster {
    glyphs: Glyphs,
    columns: usize,
    rows: usize,
    cells: Vec<Cell>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Cell {
    dots: u8,
    top: Option<Layer>,
}

/// Dots a cell is wide and high.
pub fn dots_per_cell(glyphs: Glyphs) -> (usize, usize) {
    match glyphs {
        Glyphs::Braille => (2, 4),
        Glyphs::Block => (2, 2),
        Glyphs::Ascii => (1, 1),
    }
}

/// The quadrants of a cell as bits: upper left 1, upper right 2, lower left 4, lower right 8.
const QUADRANTS: [char; 16] = [' ', '▘', '▝', '▀', '▖', '▌', '▞', '▛', '▗', '▚', '▐', '▜', '▄', '▙', '▟', '█'];

impl Raster {
    pub fn new(glyphs: Glyphs, columns: usize, rows: usize) -> Raster {
        Raster { glyphs, columns, rows, cells: vec![Cell::default(); columns * rows] }
    }

    /// Width in dots.
    pub fn width(&self) -> usize {
        self.columns * dots_per_cell(self.glyphs).0
    }

    /// Height in dots.
    pub fn height(&self) -> usize {
        self.rows * dots_per_cell(self.glyphs).1
    }

    /// Sets the dot at (`x`, `y`); outside the grid nothing happens.
    pub fn set(&mut self, x: usize, y: usize, layer: Layer) {
        let (wide, high) = dots_per_cell(self.glyphs);
        if x >= self.width() || y >= self.height() {
            return;
        }
        let Some(cell) = self.cells.get_mut(y / high * self.columns + x / wide) else { return };
        cell.dots |= bit(self.glyphs, x % wide, y % high);
        cell.top = cell.top.max(Some(layer));
    }

    /// A straight line between two dots, both included.
    pub fn line(&mut self, from: (usize, usize), to: (usize, usize), layer: Layer) {
        let (dx, dy) = (to.0 as f64 - from.0 as f64, to.1 as f64 - from.1 as f64);
        let steps = dx.abs().max(dy.abs()).max(1.0);
        for i in 0..=steps as usize {
            let t = i as f64 / steps;
            self.set((from.0 as f64 + dx * t).round() as usize, (from.1 as f64 + dy * t).round() as usize, layer);
        }
    }

    /// Every second dot of a column, so that an area reads as lighter than a line even without colour.
    pub fn shade(&mut self, x: usize, top: usize, bottom: usize, layer: Layer) {
        for y in top..=bottom.min(self.height().saturating_sub(1)) {
            if (x + y).is_multiple_of(2) {
                self.set(x, y, layer);
            }
        }
    }

    /// Writes the cells with dots into `buffer` at `area`, which must be as large as the grid.
    pub fn draw(&self, buffer: &mut Buffer, area: Rect, style: impl Fn(Layer) -> Style) {
        for row in 0..self.rows {
            for column in 0..self.columns {
                let Some(Cell { dots, top: Some(layer) }) = self.cells.get(row * self.columns + column).copied() else {
                    continue;
                };
                let character = match self.glyphs {
                    Glyphs::Braille => char::from_u32(0x2800 + u32::from(dots)).unwrap_or(' '),
                    Glyphs::Block => QUADRANTS[usize::from(dots & 15)],
                    Glyphs::Ascii => ascii(layer),
                };
                if let Some(cell) = buffer.cell_mut((area.x + column as u16, area.y + row as u16)) {
                    cell.set_char(character).set_style(style(layer));
                }
            }
        }
    }
}

fn ascii(layer: Layer) -> char {
    match layer {
        Layer::Envelope | Layer::Faint => '.',
        Layer::Train => '*',
        Layer::Held => 'o',
    }
}

fn bit(glyphs: Glyphs, x: usize, y: usize) -> u8 {
    /// Unicode numbers the dots of a braille cell down the columns, with the fourth row added later.
    const BRAILLE: [[u8; 2]; 4] = [[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]];
    match glyphs {
        Glyphs::Braille => BRAILLE[y % 4][x % 2],
        Glyphs::Block => 1 << (y % 2 * 2 + x % 2),
        Glyphs::Ascii => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(raster: &Raster) -> String {
        let area = Rect::new(0, 0, raster.columns as u16, raster.rows as u16);
        let mut buffer = Buffer::empty(area);
        raster.draw(&mut buffer, area, |_| Style::new());
        buffer.content().iter().map(|c| c.symbol().to_owned()).collect()
    }

    #[test]
    fn the_same_line_in_each_glyph_set() {
        for (glyphs, expected) in [(Glyphs::Braille, "⠑⢄"), (Glyphs::Block, "▚ "), (Glyphs::Ascii, "* ")] {
            let mut raster = Raster::new(glyphs, 2, 1);
            let end = if glyphs == Glyphs::Braille { 3 } else { 1 };
            let end = if glyphs == Glyphs::Ascii { 0 } else { end };
            raster.line((0, 0), (end, end), Layer::Train);
            assert_eq!(text(&raster), expected);
        }
    }

    #[test]
    fn dots_outside_and_empty_grids_are_harmless() {
        let mut raster = Raster::new(Glyphs::Braille, 0, 0);
        raster.line((0, 0), (9, 9), Layer::Held);
        raster.shade(0, 0, 5, Layer::Envelope);
        assert_eq!(raster.width() + raster.height(), 0);
        let mut raster = Raster::new(Glyphs::Block, 1, 1);
        raster.set(2, 2, Layer::Train);
        assert_eq!(text(&raster), " ");
    }
}
