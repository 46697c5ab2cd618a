//! Loss, gradient norm and learning rate over steps or time.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::Line;
use ratatui::widgets::Paragraph;

use super::block;
use super::plot::{self, Column, Range, Scale};
use super::raster::{Layer, Raster, dots_per_cell};
use crate::tui::format;
use crate::tui::history::{Bucket, Series};
use crate::tui::state::{Axis, Look, Pane, Smoothing, State};

/// Columns for the labels of the vertical axis and a blank: rates are written with an exponent.
fn gutter_width(pane: Pane) -> u16 {
    if pane == Pane::LearningRate { 8 } else { 6 }
}

/// A chart ready to be drawn.
struct Chart {
    scale: Scale,
    range: Range,
    train: Vec<Column>,
    held: Vec<Column>,
    /// Columns with values that were not finite.
    broken: Vec<usize>,
    cursor: Option<usize>,
}

/// The series of a pane.
fn series(state: &State, pane: Pane) -> &Series {
    match pane {
        Pane::GradNorm => &state.run.grad_norm,
        Pane::LearningRate => &state.run.lr,
        _ => &state.run.loss,
    }
}

pub fn render(state: &State, frame: &mut Frame, pane: Pane, area: Rect, title: String) {
    let mut block = block(state, pane, format!("{title}{}", legend(state, pane)));
    if let (Some(step), true) = (state.look.cursor, pane == Pane::Loss) {
        block = block.title_bottom(Line::raw(format!(" {} ", readout(state, step))));
    }
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let with_axis = inner.height >= 5;
    let [plot_area, axis_area] =
        Layout::vertical([Constraint::Min(0), Constraint::Length(u16::from(with_axis))]).areas(inner);
    let [gutter, canvas] =
        Layout::horizontal([Constraint::Length(gutter_width(pane)), Constraint::Min(0)]).areas(plot_area);
    let Some(chart) = prepare(state, pane, canvas) else {
        let text = if series(state, pane).last().is_some() { "nothing to show on this axis" } else { "no values yet" };
        return frame.render_widget(Paragraph::new(text).style(state.theme().grey()), inner);
    };
    draw_labels(state, frame, &chart.range, pane, gutter);
    draw_canvas(state, frame, &chart, pane, canvas);
    if with_axis {
        draw_axis(state, frame, &chart.scale, canvas, axis_area);
    }
}

/// What the title says beside the name: the newest values with the letters of their lines, and how one looks at them.
fn legend(state: &State, pane: Pane) -> String {
    let last = |series: &Series, show: fn(f64) -> String| series.last().map_or_else(|| "n/a".into(), |p| show(p.value));
    let look = &state.look;
    match pane {
        Pane::LearningRate => format!("  {}", last(&state.run.lr, format::rate)),
        Pane::GradNorm => format!("  {}{}", last(&state.run.grad_norm, format::metric), spike(&state.run.grad_norm)),
        _ => {
            let held = state.run.validation.last().map(|p| format!("  B val {}", format::metric(p.value)));
            let mut text = format!("  A train {}{}", last(&state.run.loss, format::metric), held.unwrap_or_default());
            for (on, word) in [
                (look.log_scale, "log-y"),
                (look.recent, "recent"),
                (look.smoothing == Smoothing::Low, "smooth low"),
                (look.smoothing == Smoothing::High, "smooth high"),
            ] {
                if on {
                    text += &format!("  {word}");
                }
            }
            text
        }
    }
}

/// Names the highest value when it stands out: four times the mean or more.
fn spike(series: &Series) -> String {
    let finite = || series.full().iter().filter_map(|b| Some((b, b.mean()?)));
    let count = finite().count();
    let mean = finite().map(|(_, m)| m).sum::<f64>() / count.max(1) as f64;
    match finite().max_by(|a, b| a.0.max.total_cmp(&b.0.max)) {
        Some((top, _)) if count > 8 && top.max > 4.0 * mean => {
            format!("  max {} @{}", format::metric(top.max), format::count(top.start))
        }
        _ => String::new(),
    }
}

fn prepare(state: &State, pane: Pane, canvas: Rect) -> Option<Chart> {
    let look = Look {
        // The rate has no noise to smooth away.
        smoothing: if pane == Pane::LearningRate { Smoothing::Off } else { state.look.smoothing },
        ..state.look
    };
    let (wide, _) = dots_per_cell(state.settings.glyphs);
    let width = usize::from(canvas.width) * wide;
    if canvas.is_empty() {
        return None;
    }
    let origin = origin(state);
    let buckets = plot::visible(series(state, pane), &look);
    let scale = plot::scale(&buckets, &look, origin, width);
    let train = plot::columns(&buckets, &look, origin, &scale);
    let held_look = Look { recent: false, smoothing: Smoothing::Off, ..look };
    let held = if pane == Pane::Loss {
        plot::columns(state.run.validation.full(), &held_look, origin, &scale)
    } else {
        Vec::new()
    };
    let held: Vec<Column> = held.into_iter().filter(|c| c.x < width).collect();
    let log = pane == Pane::Loss && look.log_scale;
    let roof = if pane == Pane::GradNorm { outlier_roof(&train) } else { f64::INFINITY };
    let values = train.iter().flat_map(|c| [c.min, c.max.min(roof), c.line.min(roof)]);
    let range = Range::around(values.chain(held.iter().map(|c| c.mean)), log)?;
    let broken = buckets
        .iter()
        .filter(|b| b.non_finite > 0)
        .filter_map(|b| scale.column(plot::position(b, &look, origin)))
        .collect();
    let cursor = look.cursor.and_then(|step| {
        let bucket = buckets.iter().rev().find(|b| b.start <= step)?;
        scale.column(plot::position(bucket, &look, origin))
    });
    Some(Chart { scale, range, train, held, broken, cursor })
}

/// Above this a gradient norm is an outlier that must not flatten all others: twice what 95 % of the columns stay
/// below. It is drawn at the upper edge, and the title names the highest.
fn outlier_roof(columns: &[Column]) -> f64 {
    let mut highest: Vec<f64> = columns.iter().map(|c| c.max).collect();
    highest.sort_by(f64::total_cmp);
    highest.get(highest.len() * 95 / 100).map_or(f64::INFINITY, |usual| 2.0 * usual)
}

/// The moment from which the time axis counts.
fn origin(state: &State) -> f64 {
    state.run.loss.full().first().map_or(0.0, |b| b.time)
}

fn draw_labels(state: &State, frame: &mut Frame, range: &Range, pane: Pane, gutter: Rect) {
    let show = if pane == Pane::LearningRate { format::rate } else { format::metric };
    let rows = gutter.height;
    let marks: &[f64] = if rows >= 7 { &[1.0, 0.5, 0.0] } else { &[1.0, 0.0] };
    for &share in marks {
        let row = ((1.0 - share) * f64::from(rows.saturating_sub(1))).round() as u16;
        let area = Rect { y: gutter.y + row, height: 1.min(rows), width: gutter.width.saturating_sub(1), ..gutter };
        let text = Line::styled(show(range.value_at(share)), state.theme().grey());
        frame.render_widget(Paragraph::new(text.right_aligned()), area);
    }
}

fn draw_canvas(state: &State, frame: &mut Frame, chart: &Chart, pane: Pane, canvas: Rect) {
    let theme = state.theme();
    let mut raster = Raster::new(state.settings.glyphs, usize::from(canvas.width), usize::from(canvas.height));
    let height = raster.height();
    let row = |value: f64| chart.range.row(value, height);
    let smoothed = state.look.smoothing != Smoothing::Off && pane != Pane::LearningRate;
    for column in &chart.train {
        if let (Some(top), Some(bottom)) = (row(column.max), row(column.min)) {
            raster.shade(column.x, top, bottom, Layer::Envelope);
        }
        if let (true, Some(y)) = (smoothed, row(column.mean)) {
            raster.set(column.x, y, Layer::Faint);
        }
    }
    for (columns, layer) in [(&chart.train, Layer::Train), (&chart.held, Layer::Held)] {
        let points: Vec<(usize, usize)> = columns.iter().filter_map(|c| Some((c.x, row(c.line)?))).collect();
        if let [only] = points[..] {
            raster.set(only.0, only.1, layer);
        }
        points.windows(2).for_each(|pair| raster.line(pair[0], pair[1], layer));
    }
    let style = |layer: Layer| match layer {
        Layer::Envelope | Layer::Faint => theme.grey(),
        Layer::Train => style_of_train(state),
        Layer::Held => theme.orange(),
    };
    draw_cursor(state, frame, chart, canvas);
    raster.draw(frame.buffer_mut(), canvas, style);
    draw_marks(state, frame, chart, pane, canvas, height);
}

fn style_of_train(state: &State) -> Style {
    if state.is_stale() { state.theme().grey() } else { state.theme().blue() }
}

fn draw_cursor(state: &State, frame: &mut Frame, chart: &Chart, canvas: Rect) {
    let (wide, _) = dots_per_cell(state.settings.glyphs);
    let Some(column) = chart.cursor.map(|x| (x / wide) as u16).filter(|&c| c < canvas.width) else { return };
    for y in canvas.top()..canvas.bottom() {
        if let Some(cell) = frame.buffer_mut().cell_mut((canvas.x + column, y)) {
            cell.set_symbol(state.theme().border().vertical_left);
        }
    }
}

/// Letters at the ends of lines, circles at validations, crosses over values that were not finite.
fn draw_marks(state: &State, frame: &mut Frame, chart: &Chart, pane: Pane, canvas: Rect, height: usize) {
    let theme = state.theme();
    let (wide, high) = dots_per_cell(state.settings.glyphs);
    let mut put = |x: usize, y: usize, symbol: &str, style: Style| {
        let (column, row) = ((x / wide) as u16, (y / high) as u16);
        let inside = column < canvas.width && row < canvas.height;
        let cell = frame.buffer_mut().cell_mut((canvas.x + column, canvas.y + row));
        if let Some(cell) = cell.filter(|_| inside) {
            cell.set_symbol(symbol).set_style(style);
        }
    };
    for column in &chart.held {
        if let Some(y) = chart.range.row(column.line, height) {
            put(column.x, y, "o", theme.orange());
        }
    }
    if pane == Pane::Loss {
        for (columns, letter, style) in [(&chart.held, "B", theme.orange()), (&chart.train, "A", style_of_train(state))]
        {
            if let Some((x, y)) = columns.last().and_then(|c| Some((c.x, chart.range.row(c.line, height)?))) {
                put(x, y, letter, style);
            }
        }
    }
    for &x in &chart.broken {
        put(x, 0, "x", theme.orange());
    }
}

fn draw_axis(state: &State, frame: &mut Frame, scale: &Scale, canvas: Rect, area: Rect) {
    let (wide, _) = dots_per_cell(state.settings.glyphs);
    let show = |position: f64| match state.look.axis {
        Axis::Steps => format::count(position.max(0.0).round() as u64),
        Axis::Time => format::duration(position),
    };
    // Far enough apart for the widest label and a blank.
    let columns = usize::from(canvas.width) * wide;
    for (column, position) in scale.ticks(10 * wide, columns) {
        let text = show(position);
        let (cell, width) = ((column / wide) as u16, text.chars().count() as u16);
        if cell + width <= canvas.width {
            let place = Rect::new(canvas.x + cell, area.y, width, 1.min(area.height));
            frame.render_widget(Paragraph::new(text).style(state.theme().grey()), place);
        }
    }
}

/// The exact values at `step`, as text.
pub fn readout(state: &State, step: u64) -> String {
    let run = &state.run;
    let value = |series: &Series, show: fn(f64) -> String| at(series, step).map(|v| v.text(show));
    let mut parts = vec![format!("step {step}")];
    for (name, text) in [
        ("loss", value(&run.loss, format::metric)),
        ("gnorm", value(&run.grad_norm, format::metric)),
        ("lr", value(&run.lr, format::rate)),
    ] {
        if let Some(text) = text {
            parts.push(format!("{name} {text}"));
        }
    }
    parts.join("  ")
}

/// A value under the cursor: exact, or what is known of its bucket.
enum Value {
    Exact(f64),
    Spread(Bucket),
}

impl Value {
    fn text(&self, show: fn(f64) -> String) -> String {
        match self {
            Value::Exact(value) => show(*value),
            Value::Spread(bucket) => match bucket.mean() {
                None => "not finite".into(),
                Some(mean) if bucket.min == bucket.max => show(mean),
                Some(mean) => format!("{} ({}..{})", show(mean), show(bucket.min), show(bucket.max)),
            },
        }
    }
}

fn at(series: &Series, step: u64) -> Option<Value> {
    if let Some(point) = series.recent().rev().find(|p| p.step == step) {
        return Some(Value::Exact(point.value));
    }
    let bucket = series.full().iter().rev().find(|b| b.start <= step)?;
    Some(Value::Spread(*bucket))
}
