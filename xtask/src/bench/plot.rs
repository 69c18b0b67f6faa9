//! The same as a picture: a bar for each median, a thin line on to the 99th percentile, on a logarithmic scale.

use std::fmt::Write as _;

use super::report::{Report, Series, number};

const LEFT: f64 = 270.0;
const RIGHT: f64 = 840.0;
const WIDTH: f64 = 900.0;
const BAR: f64 = 10.0;
const GAP: f64 = 10.0;

/// Colours that stand out from white and from black; words take that of the reader's background.
const STYLE: &str = "\
text{font:12px sans-serif;fill:#333}.grid{stroke:#8884}.far{stroke-width:2}\
.engine{fill:#d9822b;stroke:#d9822b}.socket{fill:#2f8f6b;stroke:#2f8f6b}.stream{fill:#4c8fd6;stroke:#4c8fd6}\
.guest{fill:#7b5cc4;stroke:#7b5cc4}.plain{fill:#8d9299;stroke:#8d9299}\
.spawn{fill:none;stroke:#c2467d;stroke-dasharray:4 3}.value{font-size:10px}\
@media(prefers-color-scheme:dark){text{fill:#ddd}}";

const WAYS: &[(&str, &str)] = &[
    ("engine", "the engine's own program"),
    ("socket", "link, socket"),
    ("stream", "link, stream"),
    ("guest", "coracle, with a guest"),
    ("plain", "without"),
];

/// Powers of ten of a millisecond at both ends.
struct Scale {
    low: i32,
    high: i32,
}

impl Scale {
    fn around(values: &[f64]) -> Self {
        let low = values.iter().copied().fold(1.0, f64::min).log10().floor() as i32;
        let high = values.iter().copied().fold(10.0, f64::max).log10().ceil() as i32;
        Self { low, high }
    }

    fn x(&self, ms: f64) -> f64 {
        let share = (ms.log10() - f64::from(self.low)) / f64::from(self.high - self.low);
        LEFT + (RIGHT - LEFT) * share.clamp(0.0, 1.0)
    }
}

pub(super) fn svg(report: &Report) -> String {
    let all: Vec<&Series> = rows(report).iter().flat_map(|row| row.bars.clone()).map(|(_, it)| it).collect();
    let ends: Vec<f64> = all.iter().copied().chain(report.spawn()).flat_map(|it| [it.median(), it.p99()]).collect();
    let scale = Scale::around(&ends);
    let (mut body, mut y) = (String::new(), 50.0);
    for row in rows(report) {
        let height = BAR * row.bars.len() as f64;
        let middle = y + height / 2.0 + 4.0;
        let _ = writeln!(body, r#"<text x="{}" y="{middle:.1}" text-anchor="end">{}</text>"#, LEFT - 8.0, row.label);
        for (way, series) in &row.bars {
            bar(&mut body, &scale, way, series, y);
            y += BAR;
        }
        y += GAP;
    }
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {:.0}\" role=\"img\">\n\
         <title>Commands and files in a container: milliseconds, less is better</title>\n<style>{STYLE}</style>\n",
        y + 30.0
    );
    axis(&mut svg, &scale, y);
    svg.push_str(&body);
    if let Some(spawn) = report.spawn() {
        let x = scale.x(spawn.median());
        let _ = writeln!(svg, r#"<line class="spawn" x1="{x:.1}" y1="44" x2="{x:.1}" y2="{y:.1}"/>"#);
    }
    legend(&mut svg);
    svg.push_str("</svg>\n");
    svg
}

struct Row<'a> {
    label: String,
    bars: Vec<(&'static str, &'a Series)>,
}

/// Of each case one row an engine, with what was measured.
fn rows(report: &Report) -> Vec<Row<'_>> {
    let mut rows = Vec::new();
    for case in &report.cases {
        for engine in &report.engines {
            let bars = WAYS.iter().filter_map(|(way, _)| Some((*way, report.of(&case.name, way, &engine.name)?)));
            let label = escaped(&format!("{}, {}", case.label.replace('`', ""), engine.name));
            rows.push(Row { label, bars: bars.collect() });
        }
    }
    rows.retain(|it| !it.bars.is_empty());
    rows
}

fn bar(svg: &mut String, scale: &Scale, way: &str, series: &Series, y: f64) {
    let (end, far) = (scale.x(series.median()), scale.x(series.p99()));
    let (width, height, middle) = (end - LEFT, BAR - 2.0, y + BAR / 2.0 - 1.0);
    let _ = writeln!(svg, r#"<rect class="{way}" x="{LEFT}" y="{y:.1}" width="{width:.1}" height="{height}"/>"#);
    let _ = writeln!(
        svg,
        r#"<line class="{way} far" x1="{end:.1}" y1="{middle:.1}" x2="{far:.1}" y2="{middle:.1}"/><text class="value" x="{:.1}" y="{:.1}">{}</text>"#,
        far + 4.0,
        y + BAR - 2.0,
        number(series.median())
    );
}

fn axis(svg: &mut String, scale: &Scale, bottom: f64) {
    for power in scale.low..=scale.high {
        let (ms, y) = (10_f64.powi(power), bottom + 16.0);
        let x = scale.x(ms);
        let _ = writeln!(
            svg,
            r#"<line class="grid" x1="{x:.1}" y1="44" x2="{x:.1}" y2="{bottom:.1}"/><text x="{x:.1}" y="{y:.1}" text-anchor="middle">{ms} ms</text>"#
        );
    }
}

fn legend(svg: &mut String) {
    let mut x = 20.0;
    for (way, word) in WAYS {
        let _ = writeln!(
            svg,
            r#"<rect class="{way}" x="{x}" y="14" width="12" height="8"/><text x="{}" y="22">{word}</text>"#,
            x + 18.0
        );
        x += 40.0 + 6.5 * word.len() as f64;
    }
    let _ = writeln!(
        svg,
        r#"<line class="spawn" x1="{x}" y1="18" x2="{}" y2="18"/><text x="{}" y="22">a spawn on the host</text>"#,
        x + 14.0,
        x + 20.0
    );
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::super::exec::tests::report;
    use super::*;

    #[test]
    fn ten_times_the_time_is_the_same_way_further() {
        let scale = Scale::around(&[0.02, 4000.0]);
        assert_eq!((scale.low, scale.high), (-2, 4));
        let step = (RIGHT - LEFT) / 6.0;
        assert!((scale.x(100.0) - scale.x(10.0) - step).abs() < 1e-9);
        assert_eq!((scale.x(0.01), scale.x(10_000.0)), (LEFT, RIGHT));
    }

    #[test]
    fn what_was_measured_has_a_bar_and_nothing_else_has() {
        let svg = svg(&report());
        let bars = |way: &str| svg.matches(&format!("<rect class=\"{way}\"")).count() - 1; // one is the legend's
        assert_eq!(["engine", "socket", "stream", "guest", "plain"].map(bars), [2, 1, 1, 1, 0]);
        assert!(svg.contains("true, docker") && !svg.contains("<all>"), "{svg}");
    }
}
