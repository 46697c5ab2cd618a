//! The sheet on which every chart is drawn: title, axes with their mesh, legend; and the pen that draws in it.

use plotters::backend::SVGBackend;
use plotters::chart::ChartBuilder;
use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, DrawingAreaErrorKind, IntoDrawingArea};
use plotters::element::{Circle, DashedPathElement, PathElement, Polygon, Rectangle, Text};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{BLACK, Color, IntoFont, RGBColor, ShapeStyle, TextStyle, WHITE};

use super::Frame;
use super::scale::Scale;

/// Pixels; the legend takes the right part.
const SIZE: (u32, u32) = (860, 420);
const LEGEND: u32 = 180;
const LEGEND_LINE: i32 = 22;
const FONT: &str = "sans-serif";
/// Characters of a title and of a name in the legend; what is longer is cut.
const TITLE_WIDTH: usize = 72;
const NAME_WIDTH: usize = 22;

/// Okabe and Ito's palette without its yellow, which is hard to see on white.
const PALETTE: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(40, 40, 40),
];

/// For budgets and misses.
pub const ALARM: RGBColor = RGBColor(170, 20, 40);

/// Length of dashes and gaps, pixels; none is a solid line.
type Dash = Option<(u32, u32)>;
const DASHES: [Dash; 4] = [None, Some((9, 4)), Some((2, 4)), Some((14, 3))];

pub type Point = (i32, i32);
pub type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

/// The shape at each of a series' points.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Marker {
    Disc,
    Square,
    Triangle,
    Diamond,
    Cross,
    /// Smaller than a disc, for clouds of points.
    Dot,
}

const MARKERS: [Marker; 5] = [Marker::Disc, Marker::Square, Marker::Triangle, Marker::Diamond, Marker::Cross];

/// How a series is drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Style {
    pub colour: RGBColor,
    pub dash: Dash,
    pub marker: Option<Marker>,
    /// Of its line, pixels; none at 0.
    pub width: u32,
}

impl Style {
    /// Of the series number `index`: no two of the first 140 are alike.
    pub fn of(index: usize) -> Style {
        Style {
            colour: PALETTE[index % PALETTE.len()],
            dash: DASHES[index % DASHES.len()],
            marker: Some(MARKERS[index % MARKERS.len()]),
            width: 2,
        }
    }

    /// A mark's: dashed across the chart.
    pub fn mark(index: usize) -> Style {
        let colour = if index == 0 { ALARM } else { PALETTE[(PALETTE.len() - index % PALETTE.len()) % PALETTE.len()] };
        Style { colour, dash: Some((6, 3 + (index as u32 % 3) * 3)), marker: None, width: 2 }
    }
}

/// A line of the legend.
pub struct Entry<'a> {
    pub name: &'a str,
    pub style: Style,
}

/// Draws in pixels; [`at`](Pen::at) tells where a value stands.
pub struct Pen<'a, 'b> {
    root: &'a DrawingArea<SVGBackend<'b>, Shift>,
    place: &'a dyn Fn(f64, f64) -> Point,
    pub x: &'a Scale,
    pub y: &'a Scale,
}

impl Pen<'_, '_> {
    pub fn at(&self, x: f64, y: f64) -> Point {
        (self.place)(x, y)
    }

    pub fn line(&self, points: Vec<Point>, style: &Style) -> Drawn {
        stroke(self.root, points, style)
    }

    /// At every point.
    pub fn markers(&self, points: &[Point], style: &Style) -> Drawn {
        let Some(shape) = style.marker else { return Ok(()) };
        points.iter().try_for_each(|point| marker(self.root, *point, shape, style.colour))
    }

    /// A closed outline, filled so thinly that what lies below stays visible.
    pub fn area(&self, outline: Vec<Point>, colour: RGBColor) -> Drawn {
        self.root.draw(&Polygon::new(outline, colour.mix(0.18).filled()))
    }

    pub fn bar(&self, corners: [Point; 2], colour: RGBColor) -> Drawn {
        self.root.draw(&Rectangle::new(corners, colour.mix(0.75).filled()))
    }
}

/// A whole chart. `data` draws in the axes; without `any` data the chart says that there are none.
pub fn sheet(
    frame: &Frame,
    [x, y]: [Scale; 2],
    legend: &[Entry<'_>],
    any: bool,
    data: impl FnOnce(&Pen<'_, '_>) -> Drawn,
) -> String {
    let mut svg = String::new();
    match draw(&mut svg, frame, [&x, &y], legend, any, data) {
        Ok(()) => svg,
        // Nothing that is written to memory fails; should it yet, the reader of the report sees why.
        Err(error) => {
            let mut note = String::new();
            let mut told = || -> Drawn {
                let root = SVGBackend::with_string(&mut note, SIZE).into_drawing_area();
                let style = text_style(14, BLACK);
                root.draw(&Text::new(printable(&format!("not drawn: {error}"), TITLE_WIDTH), (20, 20), style))?;
                root.present()
            };
            told().map_or_else(|_| String::new(), |()| note)
        }
    }
}

fn draw(
    svg: &mut String,
    frame: &Frame,
    [x, y]: [&Scale; 2],
    legend: &[Entry<'_>],
    any: bool,
    data: impl FnOnce(&Pen<'_, '_>) -> Drawn,
) -> Drawn {
    let root = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption(printable(&frame.title, TITLE_WIDTH), (FONT, 18))
        .margin(12)
        .margin_right(if legend.is_empty() { 24 } else { LEGEND })
        .x_label_area_size(44)
        .y_label_area_size(66)
        .build_cartesian_2d(x.clone(), y.clone())?;
    chart
        .configure_mesh()
        .x_desc(printable(&frame.x.label, TITLE_WIDTH))
        .y_desc(printable(&frame.y.label, TITLE_WIDTH / 2))
        .x_label_formatter(&|v| x.written(*v))
        .y_label_formatter(&|v| y.written(*v))
        .label_style((FONT, 13))
        .axis_desc_style((FONT, 14))
        .bold_line_style(BLACK.mix(0.12))
        .draw()?;
    let place = |x: f64, y: f64| chart.backend_coord(&(x, y));
    let pen = Pen { root: &root, place: &place, x, y };
    if any {
        data(&pen)?;
    } else {
        let middle = pen.at((x.low + x.high) / 2.0, (y.low + y.high) / 2.0);
        let style = text_style(16, RGBColor(110, 110, 110)).pos(Pos::new(HPos::Center, VPos::Center));
        root.draw(&Text::new("no data", middle, style))?;
    }
    let left = SIZE.0 as i32 - LEGEND as i32 + 16;
    for (row, entry) in legend.iter().enumerate() {
        legend_line(&root, (left, 52 + row as i32 * LEGEND_LINE), entry)?;
    }
    root.present()
}

fn legend_line(root: &DrawingArea<SVGBackend<'_>, Shift>, (x, y): Point, entry: &Entry<'_>) -> Drawn {
    if entry.style.width > 0 {
        stroke(root, vec![(x, y), (x + 30, y)], &entry.style)?;
    }
    if let Some(shape) = entry.style.marker {
        marker(root, (x + 15, y), shape, entry.style.colour)?;
    }
    let style = text_style(13, BLACK).pos(Pos::new(HPos::Left, VPos::Center));
    root.draw(&Text::new(printable(entry.name, NAME_WIDTH), (x + 38, y), style))
}

fn stroke(root: &DrawingArea<SVGBackend<'_>, Shift>, points: Vec<Point>, style: &Style) -> Drawn {
    let line = ShapeStyle { color: style.colour.to_rgba(), filled: false, stroke_width: style.width };
    match style.dash {
        None => root.draw(&PathElement::new(points, line)),
        Some((dash, gap)) => root.draw(&DashedPathElement::new(points, dash, gap, line)),
    }
}

fn marker(root: &DrawingArea<SVGBackend<'_>, Shift>, (x, y): Point, shape: Marker, colour: RGBColor) -> Drawn {
    let polygon = |corners: &[Point]| {
        let corners: Vec<Point> = corners.iter().map(|(dx, dy)| (x + dx, y + dy)).collect();
        root.draw(&Polygon::new(corners, colour.filled()))
    };
    match shape {
        Marker::Disc => root.draw(&Circle::new((x, y), 4, colour.filled())),
        Marker::Dot => root.draw(&Circle::new((x, y), 2, colour.filled())),
        Marker::Square => polygon(&[(-4, -4), (4, -4), (4, 4), (-4, 4)]),
        Marker::Triangle => polygon(&[(0, -5), (5, 4), (-5, 4)]),
        Marker::Diamond => polygon(&[(0, -6), (5, 0), (0, 6), (-5, 0)]),
        Marker::Cross => {
            let line = colour.stroke_width(2);
            root.draw(&PathElement::new(vec![(x - 4, y - 4), (x + 4, y + 4)], line))?;
            root.draw(&PathElement::new(vec![(x - 4, y + 4), (x + 4, y - 4)], line))
        }
    }
}

fn text_style(size: u32, colour: RGBColor) -> TextStyle<'static> {
    let style = TextStyle::from((FONT, size).into_font());
    TextStyle { color: colour.to_backend_color(), ..style }
}

/// Text that XML can hold (the backend escapes it, but control characters have no form there), cut to `width` characters.
fn printable(text: &str, width: usize) -> String {
    let allowed = |c: &char| !c.is_control() && !matches!(c, '\u{fffe}' | '\u{ffff}');
    let mut found: String = text.chars().filter(allowed).take(width + 1).collect();
    if found.chars().count() > width {
        found = found.chars().take(width.saturating_sub(1)).chain(['…']).collect();
    }
    found
}
