//! What a report shows as pictures.

use super::grid::Method;
use super::report::{CellReport, Report};
use super::table::letter;
use crate::chart::{Axis, Frame, Series, lines};

/// Success by delay, with Wilson's intervals as bands.
pub fn success(report: &Report) -> String {
    let axes = (Axis::new("inference delay (control ticks)"), Axis::new("success (%)").at_least(0.0, 100.0));
    let frame = Frame::new(title(report, "Success by inference delay"), axes.0, axes.1);
    let all = series(report, |cell| {
        let success = &cell.success;
        Some((100.0 * success.rate(), Some([100.0 * success.low, 100.0 * success.high])))
    });
    lines(&frame, &all)
}

/// Mean completion time by delay, over successes.
pub fn time(report: &Report) -> String {
    let axes = (Axis::new("inference delay (control ticks)"), Axis::new("completion time (s)").at_least(0.0, 1.0));
    let frame = Frame::new(title(report, "Completion time by inference delay"), axes.0, axes.1);
    lines(&frame, &series(report, |cell| cell.time_mean_s.map(|time| (time, None))))
}

fn title(report: &Report, what: &str) -> String {
    format!("{what}, {} task, n = {}", report.variant, report.execute)
}

/// One series a policy and method, in the order of delays.
fn series(report: &Report, value: impl Fn(&CellReport) -> Option<(f64, Option<[f64; 2]>)>) -> Vec<Series> {
    let several = report.policies.len() > 1;
    let names = (0..report.policies.len()).flat_map(|policy| Method::ALL.map(|method| (policy, method)));
    let one = |(policy, method): (usize, Method)| {
        let mut cells: Vec<&CellReport> =
            report.cells.iter().filter(|cell| cell.policy == policy && cell.method == method).collect();
        cells.sort_by(|a, b| a.delay_ticks.total_cmp(&b.delay_ticks));
        let found: Vec<_> =
            cells.iter().filter_map(|cell| value(cell).map(|(y, band)| ([cell.delay_ticks, y], band))).collect();
        let name = if several { format!("{} {method}", letter(policy)) } else { method.to_string() };
        (!found.is_empty()).then(|| Series {
            name,
            points: found.iter().map(|(point, _)| *point).collect(),
            band: found.iter().map(|(_, band)| *band).collect(),
        })
    };
    names.filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::synthetic;
    use super::*;

    #[test]
    fn every_method_is_a_series_in_the_order_of_delays_with_its_interval() {
        let report = synthetic();
        let all = series(&report, |cell| Some((cell.success.rate(), Some([cell.success.low, cell.success.high]))));
        let names: Vec<&str> = all.iter().map(|series| series.name.as_str()).collect();
        assert_eq!(names, ["sync", "async", "vlash"]);
        assert_eq!(all[0].points, [[0.0, 1.0], [8.0, 1.0]]);
        assert_eq!(all[1].points, [[8.0, 0.5]]);
        assert!(all[1].band.as_ref().is_some_and(|band| band[0][0] > 0.1 && band[0][1] < 0.9));
        for svg in [success(&report), time(&report)] {
            assert!(svg.starts_with("<svg") && svg.contains("vlash"));
        }
    }
}
