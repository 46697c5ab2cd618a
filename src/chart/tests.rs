use proptest::prelude::*;
use rstest::rstest;

use super::scale::Scale;
use super::*;

fn series(name: &str, points: &[[f64; 2]]) -> Series {
    Series { name: name.into(), points: points.to_vec(), band: None }
}

fn frame() -> Frame {
    Frame::new("success by delay", Axis::new("delay (ticks)").with_ticks([0.0, 1.0, 2.0]), Axis::new("success (%)"))
}

/// Every kind of chart of the same numbers.
fn all(frame: &Frame, values: &[f64]) -> [String; 4] {
    let points: Vec<[f64; 2]> = values.iter().zip(values.iter().rev()).map(|(x, y)| [*x, *y]).collect();
    let band = Some(points.iter().map(|[x, y]| [*y, *x]).collect());
    let both = [Series { name: "a".into(), points: points.clone(), band }, series("b", &points)];
    let marks: Vec<Mark> = values.iter().take(2).map(|at| Mark { name: "budget".into(), at: *at }).collect();
    let chunk = |v: &f64| Chunk { launched: *v, arrived: (*v < 1.0).then_some(v + 1.0), executed: Some([*v, v + 2.0]) };
    let chunks: Vec<Chunk> = values.iter().map(chunk).collect();
    [
        lines(frame, &both),
        scatter(frame, &both, &marks),
        histogram(frame, values, &marks),
        timeline(frame, &chunks, values),
    ]
}

/// A minimal reader: tags close in order, text holds no bare `&` or `<`.
fn well_formed(svg: &str) -> Result<(), String> {
    let mut open = Vec::new();
    for piece in svg.split('<').skip(1) {
        let (tag, text) = piece.split_once('>').ok_or_else(|| format!("unclosed tag: {piece}"))?;
        let name = tag.split_whitespace().next().unwrap_or_default().trim_end_matches('/');
        match tag {
            _ if tag.starts_with('/') => {
                let closed = open.pop();
                (closed == Some(&name[1..])).then_some(()).ok_or_else(|| format!("{closed:?} closed by {tag}"))?;
            }
            _ if tag.ends_with('/') || tag.starts_with(['?', '!']) => {}
            _ => open.push(name),
        }
        let entities = ["&lt;", "&gt;", "&amp;", "&quot;", "&apos;"];
        for (at, _) in text.match_indices('&') {
            entities
                .iter()
                .any(|e| text[at..].starts_with(e))
                .then_some(())
                .ok_or_else(|| format!("bare & in {text}"))?;
        }
    }
    if open.is_empty() && svg.starts_with("<svg") { Ok(()) } else { Err(format!("left open: {open:?}")) }
}

fn any_number() -> impl Strategy<Value = f64> {
    prop_oneof![
        4 => -1e3..1e3f64,
        2 => any::<u64>().prop_map(f64::from_bits),
        1 => prop_oneof![Just(0.0), Just(-0.0), Just(f64::NAN), Just(f64::INFINITY), Just(1e12), Just(-1e12), Just(1e-300)],
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_numbers_and_any_text_give_a_document(
        values in prop::collection::vec(any_number(), 0..12),
        least in prop::option::of([any_number(), any_number()]),
        ticks in prop::collection::vec(any_number(), 0..4),
        label in any::<String>(),
    ) {
        let axis = Axis { label: label.clone(), at_least: least, ticks };
        let frame = Frame::new(label, axis.clone(), axis);
        for svg in all(&frame, &values) {
            prop_assert_eq!(well_formed(&svg), Ok(()));
        }
    }

    #[test]
    fn an_axis_holds_its_values_between_few_and_different_ticks(
        values in prop::collection::vec(any_number(), 0..12),
        whole in any::<bool>(),
    ) {
        let scale = Scale::covering(&Axis::default(), values.clone(), if whole { 1.0 } else { 0.0 });
        prop_assert!(scale.low < scale.high);
        for value in values.into_iter().filter(|v| v.abs() <= 1e12) {
            let slack = (scale.high - scale.low) * 1e-6;
            prop_assert!(scale.low - slack <= value && value <= scale.high + slack, "{value} in {scale:?}");
        }
        prop_assert!((2..=25).contains(&scale.ticks.len()), "{scale:?}");
        prop_assert!(scale.ticks.windows(2).all(|pair| pair[0] < pair[1]), "{scale:?}");
    }

    #[test]
    fn a_histogram_counts_every_value_once(values in prop::collection::vec(-1e12..1e12f64, 1..50)) {
        let bars = histogram::Bars::of(&values);
        prop_assert_eq!(bars.map(|b| b.counts.iter().sum::<usize>()), Some(values.len()));
    }
}

#[rstest]
#[case([0.0, 6.0], &["0", "1", "2", "3", "4", "5", "6"])]
#[case([0.0, 0.3], &["0.00", "0.05", "0.10", "0.15", "0.20", "0.25", "0.30"])]
#[case([-0.5, 1.0], &["-0.5", "0.0", "0.5", "1.0"])]
#[case([98.0, 412.0], &["0", "100", "200", "300", "400", "500"])]
fn ticks_are_round_numbers(#[case] values: [f64; 2], #[case] wanted: &[&str]) {
    let scale = Scale::covering(&Axis::default(), values, 0.0);
    let written: Vec<String> = scale.ticks.iter().map(|t| scale.written(*t)).collect();
    assert_eq!(written, wanted);
}

#[test]
fn text_is_escaped_and_cut() {
    let long = "x".repeat(200);
    let frame = Frame::new("a < b & \"c\"\u{1}", Axis::new(long.clone()), Axis::new("y"));
    let svg = lines(&frame, &[series("<script>", &[[0.0, 1.0]])]);
    assert!(svg.contains("a &lt; b &amp; &quot;c&quot;\n") && svg.contains("&lt;script&gt;"), "{svg}");
    assert!(!svg.contains("<script>") && !svg.contains(&long) && svg.contains("xx…"), "{svg}");
}

#[test]
fn nothing_to_show_is_said() {
    for svg in all(&frame(), &[]).into_iter().chain(all(&frame(), &[f64::NAN])) {
        assert!(svg.contains("no data"), "{svg}");
    }
    assert!(!lines(&frame(), &[series("a", &[[1.0, 1.0]])]).contains("no data"));
}

#[test]
fn a_missing_point_leaves_a_gap() {
    let line = |middle: f64| {
        let points = [[0.0, 1.0], [1.0, 2.0], [2.0, middle], [3.0, 2.0], [4.0, 1.0]];
        let svg = lines(&frame(), &[series("a", &points)]);
        // Of solid lines in the first series' colour; the legend holds one.
        svg.matches("<polyline fill=\"none\" opacity=\"1\" stroke=\"#0072B2\"").count()
    };
    assert_eq!([line(3.0), line(f64::NAN)], [2, 3]);
}

#[test]
fn a_cloud_of_very_many_points_keeps_its_extremes() {
    let mut points: Vec<[f64; 2]> = (0..20_000).map(|i| [f64::from(i), 0.0]).collect();
    points[12_345][1] = 7.0;
    let svg = scatter(&frame(), &[series("period", &points)], &[]);
    let circles: Vec<&str> = svg.lines().filter(|l| l.starts_with("<circle")).collect();
    assert!(circles.len() < 3_100, "{}", circles.len());
    let height = |l: &&str| l.split("cy=\"").nth(1).and_then(|l| l.split('"').next()).map(str::to_owned);
    let heights: std::collections::HashSet<_> = circles.iter().map(height).collect();
    // The floor, the one peak and the legend's sample.
    assert_eq!(heights.len(), 3);
}

#[test]
fn series_differ_by_more_than_colour() {
    let styles: Vec<_> = (0..20).map(sheet::Style::of).collect();
    for (i, a) in styles.iter().enumerate() {
        for b in &styles[i + 1..] {
            assert!(a.dash != b.dash || a.marker != b.marker, "{a:?} and {b:?}");
        }
    }
}

#[test]
fn a_small_chart() {
    let band = Some(vec![[85.0, 95.0], [80.0, 92.0], [60.0, 75.0]]);
    let vlash = Series { name: "vlash".into(), points: vec![[0.0, 90.0], [1.0, 88.0], [2.0, 68.0]], band };
    insta::assert_snapshot!(lines(&frame(), &[vlash, series("sync", &[[0.0, 91.0], [1.0, f64::NAN], [2.0, 40.0]])]));
}
