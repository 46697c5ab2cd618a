//! Series over two axes: as lines with bands, as clouds of points.

use super::scale::{Scale, shown};
use super::sheet::{Drawn, Entry, Marker, Pen, Point, Style, sheet};
use super::{Frame, Mark, Series};

/// More points than this are thinned out: a file of a million circles opens nowhere.
const MOST_POINTS: usize = 3000;

/// Lines with their bands and a marker at each point: success by delay, errors by horizon.
pub fn lines(frame: &Frame, series: &[Series]) -> String {
    let limits = series.iter().flat_map(|s| s.band.iter().flatten().flatten());
    let ys = series.iter().flat_map(|s| s.points.iter().map(|p| p[1])).chain(limits.copied());
    let scales = [Scale::covering(&frame.x, xs(series), 0.0), Scale::covering(&frame.y, ys, 0.0)];
    sheet(frame, scales, &entries(series, &[]), any(series), |pen| {
        // Bands first, so that none covers a line.
        for (index, series) in series.iter().enumerate() {
            bands(pen, series, &Style::of(index))?;
        }
        for (index, series) in series.iter().enumerate() {
            let style = Style::of(index);
            for run in series.points.split(|p| !p.iter().all(|v| shown(*v))) {
                let points: Vec<Point> = run.iter().map(|[x, y]| pen.at(*x, *y)).collect();
                if points.len() > 1 {
                    pen.line(points.clone(), &style)?;
                }
                pen.markers(&points, &style)?;
            }
        }
        Ok(())
    })
}

/// Points alone, and named levels of y: the control period over time and its goal. Of very many points only the lowest
/// and the highest of each stretch are drawn.
pub fn scatter(frame: &Frame, series: &[Series], marks: &[Mark]) -> String {
    let ys = series.iter().flat_map(|s| s.points.iter().map(|p| p[1])).chain(marks.iter().map(|m| m.at));
    let scales = [Scale::covering(&frame.x, xs(series), 0.0), Scale::covering(&frame.y, ys, 0.0)];
    let legend: Vec<Entry> = entries(series, marks)
        .into_iter()
        .enumerate()
        .map(|(index, entry)| if index < series.len() { Entry { style: dots(index), ..entry } } else { entry })
        .collect();
    sheet(frame, scales, &legend, any(series), |pen| {
        for (index, series) in series.iter().enumerate() {
            let points: Vec<Point> = thinned(&series.points).iter().map(|[x, y]| pen.at(*x, *y)).collect();
            pen.markers(&points, &dots(index))?;
        }
        for (index, mark) in marks.iter().enumerate().filter(|(_, mark)| shown(mark.at)) {
            let ends = vec![pen.at(pen.x.low, mark.at), pen.at(pen.x.high, mark.at)];
            pen.line(ends, &Style::mark(index))?;
        }
        Ok(())
    })
}

/// A series without a line.
fn dots(index: usize) -> Style {
    let style = Style::of(index);
    let marker = if index == 0 { Some(Marker::Dot) } else { style.marker };
    Style { width: 0, dash: None, marker, ..style }
}

fn xs(series: &[Series]) -> impl Iterator<Item = f64> {
    series.iter().flat_map(|s| s.points.iter().map(|p| p[0]))
}

fn any(series: &[Series]) -> bool {
    series.iter().flat_map(|s| &s.points).any(|p| p.iter().all(|v| shown(*v)))
}

fn entries<'a>(series: &'a [Series], marks: &'a [Mark]) -> Vec<Entry<'a>> {
    let series = series.iter().enumerate().map(|(i, s)| Entry { name: &s.name, style: Style::of(i) });
    series.chain(marks.iter().enumerate().map(|(i, m)| Entry { name: &m.name, style: Style::mark(i) })).collect()
}

fn bands(pen: &Pen<'_, '_>, series: &Series, style: &Style) -> Drawn {
    let Some(band) = &series.band else { return Ok(()) };
    let limits: Vec<[f64; 3]> = series.points.iter().zip(band).map(|([x, _], [low, high])| [*x, *low, *high]).collect();
    for run in limits.split(|l| !l.iter().all(|v| shown(*v))) {
        match run {
            [] => {}
            // A single point's band has no area: it becomes a stroke.
            [[x, low, high]] => {
                pen.line(vec![pen.at(*x, *low), pen.at(*x, *high)], &Style { dash: None, ..*style })?;
            }
            run => {
                let back = run.iter().rev().map(|[x, low, _]| pen.at(*x, *low));
                pen.area(run.iter().map(|[x, _, high]| pen.at(*x, *high)).chain(back).collect(), style.colour)?;
            }
        }
    }
    Ok(())
}

/// What can be shown; of more than [`MOST_POINTS`], the lowest and the highest of each stretch of equally many.
fn thinned(points: &[[f64; 2]]) -> Vec<[f64; 2]> {
    let points: Vec<[f64; 2]> = points.iter().copied().filter(|p| p.iter().all(|v| shown(*v))).collect();
    if points.len() <= MOST_POINTS {
        return points;
    }
    let stretch = points.len().div_ceil(MOST_POINTS / 2);
    let by_y = |a: &&[f64; 2], b: &&[f64; 2]| a[1].total_cmp(&b[1]);
    points.chunks(stretch).flat_map(|c| [c.iter().min_by(by_y), c.iter().max_by(by_y)]).flatten().copied().collect()
}
