//! A plot of a thousand containers on the embedded engine.

use std::fmt::Write as _;

use serde_json::Value;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 300.0;
const MARGIN: f64 = 40.0;

/// The curve of each account: number of the container, milliseconds.
pub(super) fn plot(measured: &Value) -> String {
    let curves: Vec<(&str, Vec<(f64, f64)>)> = ["embedded", "rootless embedded"]
        .into_iter()
        .map(|engine| (engine, curve(measured, engine)))
        .filter(|(_, points)| !points.is_empty())
        .collect();
    let all = || curves.iter().flat_map(|(_, points)| points);
    let most = |of: fn(&(f64, f64)) -> f64| all().map(of).fold(1.0, f64::max);
    let (last, highest) = (most(|it| it.0), (most(|it| it.1) / 5.0).ceil() * 5.0);
    let x = |at: f64| MARGIN + at / last * (WIDTH - 2.0 * MARGIN);
    let y = |ms: f64| HEIGHT - MARGIN - ms / highest * (HEIGHT - 2.0 * MARGIN);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n"
    );
    for fifth in 0..=5 {
        let share = f64::from(fifth) / 5.0;
        let (at, ms) = (share * last, share * highest);
        let _ = writeln!(
            svg,
            "<line x1=\"{MARGIN}\" x2=\"{:.1}\" y1=\"{:.1}\" y2=\"{:.1}\" stroke=\"#ddd\"/>\n\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{ms:.0}</text>\n\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{at:.0}</text>",
            WIDTH - MARGIN,
            y(ms),
            y(ms),
            MARGIN - 6.0,
            y(ms) + 4.0,
            x(at),
            HEIGHT - MARGIN + 18.0,
        );
    }
    for ((name, points), color) in curves.iter().zip(["#1f5fbf", "#c2571a"]) {
        let line: Vec<_> = points.iter().map(|(at, ms)| format!("{:.1},{:.1}", x(*at), y(*ms))).collect();
        let _ = writeln!(
            svg,
            "<polyline fill=\"none\" stroke=\"{color}\" stroke-width=\"1.5\" points=\"{}\"/>",
            line.join(" ")
        );
        let top = 20.0 + if *name == "embedded" { 0.0 } else { 16.0 };
        let _ = writeln!(svg, "<text x=\"{:.1}\" y=\"{top}\" fill=\"{color}\">{name}</text>", MARGIN + 8.0);
    }
    let _ = writeln!(
        svg,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">containers that rest; ms until the first answer of one more</text>\n</svg>",
        WIDTH / 2.0,
        HEIGHT - 6.0
    );
    svg
}

fn curve(measured: &Value, engine: &str) -> Vec<(f64, f64)> {
    let series = measured["series"].as_array().into_iter().flatten();
    let point = |it: &Value| {
        let mut times: Vec<u64> = it["ns"].as_array()?.iter().filter_map(Value::as_u64).collect();
        times.sort_unstable();
        let median = times.get(times.len().saturating_sub(1) / 2)?;
        Some((it["way"].as_str()?.parse().ok()?, *median as f64 / 1e6))
    };
    let mut points: Vec<(f64, f64)> =
        series.filter(|it| it["case"] == "nth" && it["engine"] == engine).filter_map(point).collect();
    points.sort_by(|one, other| one.0.total_cmp(&other.0));
    points
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::plot;

    #[test]
    fn the_plot_has_a_line_through_the_steps() {
        let nth = |way: &str, ns: u64| json!({ "case": "nth", "way": way, "engine": "embedded", "ns": [ns] });
        let svg = plot(&json!({ "series": [nth("20", 10_000_000), nth("1000", 11_000_000)] }));
        assert!(svg.contains("points=\"52.8,") && svg.ends_with("</svg>\n"), "{svg}");
        assert_eq!(svg.matches("<polyline").count(), 1);
    }
}
