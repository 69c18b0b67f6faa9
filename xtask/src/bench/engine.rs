//! The page about the embedded engine, with a plot of a thousand containers.

use std::fmt::Write as _;

use super::report::Aim::{AtLeast, AtMost};
use super::report::Measure::Other;
use super::report::{Report, Series, Target, number};

/// The plot, beside the page.
pub(super) const PLOT: &str = "engine.svg";

/// The name in front of those of a person who is not root.
pub(super) const ROOTLESS: &str = "rootless ";

pub(super) fn page(report: &Report, machine: &str) -> String {
    let rounds = report.series.iter().filter(|it| it.case == "create").map(Series::count).max().unwrap_or_default();
    let mut page = format!(
        "# The embedded engine: times and memory\n\n\
         Written by `cargo xtask bench engine`. {machine}; {}{}.\n\n\
         Milliseconds: median and, in brackets, minimum of {rounds} rounds, in each of which all engines take turns. \
         `rootless` is the same run by an account that is not root. All containers are of one image, a static busybox.\n\n\
         - embedded: in the process that asks, with the guest as PID 1; commands over the open link, the quickest of 20\n\
         - crun: the program, with a bundle of the same files whose root is a directory; no overlay and no limits\n\
         - podman, docker: `run --detach IMAGE sleep`, `exec`, `rm --force`\n\
         - alone: without a network; network: the engine's usual one\n\n",
        report.versions(),
        report.load_range()
    );
    times(report, &mut page);
    ratios(report, &mut page);
    many(report, &mut page);
    forks(report, &mut page);
    unpack(report, &mut page);
    report.targets(&mut page, TARGETS);
    page
}

const COLUMNS: [(&str, &str, &str); 7] = [
    ("create", "alone", "create, alone"),
    ("first", "alone", "until `true` answered, alone"),
    ("create", "network", "create, network"),
    ("first", "network", "until `true` answered, network"),
    ("exec", "alone", "a later `true`"),
    ("destroy", "alone", "remove, alone"),
    ("destroy", "network", "remove, network"),
];

fn head(page: &mut String, first: &str) {
    let names: Vec<_> = COLUMNS.iter().map(|(_, _, label)| *label).collect();
    let _ = writeln!(page, "| {first} | {} |\n|---|{}", names.join(" | "), "--:|".repeat(names.len()));
}

fn times(report: &Report, page: &mut String) {
    head(page, "");
    for engine in &report.engines {
        let cells = COLUMNS.map(|(case, way, _)| least_cell(report.of(case, way, &engine.name)));
        let _ = writeln!(page, "| {} | {} |", engine.name, cells.join(" | "));
    }
}

/// Each engine's median divided by the embedded one's, of the same account.
fn ratios(report: &Report, page: &mut String) {
    page.push_str("\n## How many times as long as the embedded engine\n\n");
    head(page, "");
    for engine in report.engines.iter().filter(|it| !it.name.ends_with("embedded")) {
        let ours = if engine.name.starts_with(ROOTLESS) { "rootless embedded" } else { "embedded" };
        let cells = COLUMNS.map(|(case, way, _)| {
            let ratio = super::report::ratio(report.of(case, way, &engine.name), report.of(case, way, ours));
            ratio.map_or("–".to_owned(), number)
        });
        let _ = writeln!(page, "| {} | {} |", engine.name, cells.join(" | "));
    }
}

fn many(report: &Report, page: &mut String) {
    let _ = write!(
        page,
        "\n## A thousand resting containers\n\nEach is created alone and answers `true` before the next one. The plot has \
         the median of each twenty.\n\n![milliseconds until the first answer, from the 1st to the 1,000th]({PLOT})\n\n\
         | | embedded | rootless embedded |\n|---|--:|--:|\n"
    );
    let both = |cell: &dyn Fn(&str) -> String| ["embedded", "rootless embedded"].map(cell).join(" | ");
    let mut row = |label: &str, cell: &dyn Fn(&str) -> String| {
        let _ = writeln!(page, "| {label} | {} |", both(cell));
    };
    for (label, name) in [
        ("KiB of the machine's memory, each", "machine"),
        ("KiB of its guest's memory, proportional (PSS)", "pss"),
        ("KiB of its guest's memory, anonymous", "anonymous"),
        ("KiB missing in all when they are gone", "left"),
    ] {
        row(label, &|engine| {
            let sizes = report.sizes.iter().find(|it| it.name == name && it.engine == engine);
            sizes.map_or("–".to_owned(), |it| number(it.median()))
        });
    }
    for (label, step) in
        [("ms of the first 20, each", "20"), ("of the 20 up to the 100th", "100"), ("of the last 20", "1000")]
    {
        row(label, &|engine| least_cell(report.of("nth", step, engine)));
    }
    row("ms to remove one of them", &|engine| least_cell(report.of("destroy-resting", "alone", engine)));
    for workers in ["1", "2", "4"] {
        row(&format!("containers a second, {workers} at once"), &|engine| {
            report.of("at-once", workers, engine).map_or("–".to_owned(), |it| number(1e3 / it.median()))
        });
    }
}

fn forks(report: &Report, page: &mut String) {
    page.push_str(
        "\n## A fork of a running container\n\nUntil `true` answered in it. `many` are 5,000 files in 50 directories, 100 MB; \
         `few` are 20 files. The last columns: the longest `true` in the parent meanwhile.\n\n\
         | | few | many | parent, few | parent, many |\n|---|--:|--:|--:|--:|\n",
    );
    for engine in report.engines.iter().filter(|it| it.name.ends_with("embedded")) {
        let columns = [("fork", "few"), ("fork", "many"), ("fork-parent", "few"), ("fork-parent", "many")];
        let cells = columns.map(|(case, way)| least_cell(report.of(case, way, &engine.name)));
        let _ = writeln!(page, "| {} | {} |", engine.name, cells.join(" | "));
    }
}

fn unpack(report: &Report, page: &mut String) {
    page.push_str(
        "\n## An image of 5,000 files, 100 MB\n\nImporting it computes its digest, unpacks it into the store and forces it to \
         the disk.\n\n| | import | `tar -x` | `tar -x` and `sync` |\n|---|--:|--:|--:|\n",
    );
    for engine in report.engines.iter().filter(|it| it.name.ends_with("embedded")) {
        let cells = ["engine", "tar", "tar_sync"].map(|way| least_cell(report.of("unpack", way, &engine.name)));
        let _ = writeln!(page, "| {} | {} |", engine.name, cells.join(" | "));
    }
}

fn least_cell(series: Option<&Series>) -> String {
    series.map_or("–".to_owned(), |it| format!("{} ({})", number(it.median()), number(it.least())))
}

fn of(report: &Report, engine: &str, case: &str, way: &str) -> Option<f64> {
    report.of(case, way, engine).map(Series::median)
}

const TARGETS: &[Target] = &[
    Target(
        "until `true` answered, alone: ms",
        AtMost(15.0),
        Other(|it, engine| root(engine, of(it, engine, "first", "alone"))),
    ),
    Target(
        "the same, rootless: ms",
        AtMost(25.0),
        Other(|it, engine| if engine == "rootless embedded" { of(it, engine, "first", "alone") } else { None }),
    ),
    Target("remove, alone: ms", AtMost(6.0), Other(|it, engine| root(engine, of(it, engine, "destroy", "alone")))),
    Target(
        "fork with few files, until `true` answered: ms",
        AtMost(20.0),
        Other(|it, engine| root(engine, of(it, engine, "fork", "few"))),
    ),
    Target(
        "containers a second, 4 at once",
        AtLeast(60.0),
        Other(|it, engine| root(engine, of(it, engine, "at-once", "4").map(|it| 1e3 / it))),
    ),
    Target(
        "KiB of the machine's memory for each of 1,000",
        AtMost(1024.0),
        Other(|it, engine| {
            it.sizes.iter().find(|it| it.name == "machine" && it.engine == engine).map(super::report::Sizes::median)
        }),
    ),
    Target(
        "the last 20 of 1,000: times the first 20",
        AtMost(1.25),
        Other(|it, engine| Some(of(it, engine, "nth", "1000")? / of(it, engine, "nth", "20")?)),
    ),
    Target(
        "import: times `tar -x` and `sync`",
        AtMost(1.5),
        Other(|it, engine| Some(of(it, engine, "unpack", "engine")? / of(it, engine, "unpack", "tar_sync")?)),
    ),
];

fn root(engine: &str, value: Option<f64>) -> Option<f64> {
    value.filter(|_| engine == "embedded")
}

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 300.0;
const MARGIN: f64 = 40.0;

/// The curve of each account: number of the container, milliseconds.
pub(super) fn plot(report: &Report) -> String {
    let curves: Vec<(&str, Vec<(f64, f64)>)> = ["embedded", "rootless embedded"]
        .into_iter()
        .map(|engine| (engine, curve(report, engine)))
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

fn curve(report: &Report, engine: &str) -> Vec<(f64, f64)> {
    let steps = report.series.iter().filter(|it| it.case == "nth" && it.is_of(engine));
    let mut points: Vec<_> = steps.filter_map(|it| Some((it.way.parse().ok()?, it.median()))).collect();
    points.sort_by(|one: &(f64, f64), other| one.0.total_cmp(&other.0));
    points
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn measured() -> Report {
        let series = |case: &str, way: &str, engine: &str, ms: &[u64]| {
            json!({ "case": case, "way": way, "engine": engine,
            "ns": ms.iter().map(|it| it * 1_000_000).collect::<Vec<_>>() })
        };
        Report::read(&json!({
            "cases": [],
            "engines": [{ "name": "embedded", "version": "1" }, { "name": "docker", "version": "2" },
                { "name": "rootless embedded", "version": "1" }],
            "series": [
                series("first", "alone", "embedded", &[12, 10, 14]),
                series("first", "alone", "docker", &[300, 240, 360]),
                series("first", "alone", "rootless embedded", &[30]),
                series("at-once", "4", "embedded", &[20]),
                series("nth", "20", "embedded", &[10]),
                series("nth", "1000", "embedded", &[11]),
            ],
            "sizes": [{ "name": "machine", "engine": "embedded", "kib": [400] }],
            "load": [1.0],
        }))
        .expect("a report")
    }

    #[test]
    fn the_page_has_medians_minima_ratios_and_targets() {
        let page = page(&measured(), "a machine");
        assert!(page.contains("| embedded | – | 12.0 (10.0) | – |"), "{page}");
        assert!(page.contains("| docker | – | 25.0 | – |"), "{page}");
        assert!(page.contains("answered, alone: ms | at most 15 | 12.0, pass | – | – |"), "{page}");
        assert!(page.contains("rootless: ms | at most 25 | – | – | 30.0, fail |"), "{page}");
        assert!(page.contains("a second, 4 at once | at least 60 | 50.0, fail |"), "{page}");
        assert!(page.contains("each of 1,000 | at most 1024 | 400, pass |"), "{page}");
    }

    #[test]
    fn the_plot_has_a_line_through_the_steps() {
        let svg = plot(&measured());
        assert!(svg.contains("points=\"52.8,") && svg.ends_with("</svg>\n"), "{svg}");
        assert_eq!(svg.matches("<polyline").count(), 1);
    }
}
