//! Measurements, and the parts that all pages share.

use std::fmt::{self, Write as _};

use anyhow::{Context as _, Result};
use serde_json::Value;

#[derive(Debug)]
pub(super) struct Report {
    pub(super) cases: Vec<Case>,
    pub(super) engines: Vec<Engine>,
    pub(super) series: Vec<Series>,
    /// Memory of guests, where it was measured.
    pub(super) memory: Vec<Memory>,
    /// Memory of processes, where it was measured.
    pub(super) sizes: Vec<Sizes>,
    /// The machine's, before each round, where it was looked at.
    pub(super) load: Vec<f64>,
}

#[derive(Debug)]
pub(super) struct Case {
    pub(super) name: String,
    /// Markdown.
    pub(super) label: String,
}

#[derive(Debug)]
pub(super) struct Engine {
    pub(super) name: String,
    version: String,
}

/// Times of one case by one way. `exec`: `spawn` on the host, the `engine`'s own program, the link by `socket` or
/// `stream`, the program `coracle` for a container with a `guest` or without one, `plain`. `create`: the `engine`'s own
/// program, `coracle` with nothing to put in (`bare`) or a person's all (`full`); of `step` the names of steps.
#[derive(Debug)]
pub(super) struct Series {
    pub(super) case: String,
    pub(super) way: String,
    engine: Option<String>,
    /// In ascending order, never empty.
    ns: Vec<u64>,
}

/// Memory of a guest, in KiB.
#[derive(Debug)]
pub(super) struct Memory {
    pub(super) engine: String,
    pub(super) idle: u64,
    pub(super) after: u64,
    pub(super) most: u64,
    /// Bytes that a command printed before `most` was read.
    pub(super) flood: u64,
}

/// Memory of processes of a kind, in KiB, in ascending order and never empty.
#[derive(Debug)]
pub(super) struct Sizes {
    pub(super) name: String,
    pub(super) engine: String,
    kib: Vec<u64>,
}

impl Sizes {
    pub(super) fn median(&self) -> f64 {
        self.kib[(self.kib.len() - 1) / 2] as f64
    }
}

impl Series {
    pub(super) fn median(&self) -> f64 {
        self.at(0.5)
    }

    /// The lower one and the upper one.
    pub(super) fn quartiles(&self) -> (f64, f64) {
        (self.at(0.25), self.at(0.75))
    }

    /// The 99th percentile; of fewer than 100 values the largest.
    pub(super) fn p99(&self) -> f64 {
        self.at(0.99)
    }

    pub(super) fn least(&self) -> f64 {
        self.at(0.0)
    }

    pub(super) fn is_of(&self, engine: &str) -> bool {
        self.engine.as_deref() == Some(engine)
    }

    pub(super) fn count(&self) -> usize {
        self.ns.len()
    }

    /// The value that this share of all does not exceed, in milliseconds.
    fn at(&self, share: f64) -> f64 {
        let rank = (self.ns.len() as f64 * share).ceil() as usize;
        self.ns[rank.saturating_sub(1)] as f64 / 1e6
    }
}

impl Report {
    pub(super) fn read(json: &Value) -> Result<Self> {
        let list = |name: &str| json[name].as_array().with_context(|| format!("no `{name}` was measured"));
        let text =
            |it: &Value, name: &str| it[name].as_str().map(str::to_owned).with_context(|| format!("no `{name}`"));
        let case = |it| Ok(Case { name: text(it, "name")?, label: text(it, "label")? });
        let engine = |it| Ok(Engine { name: text(it, "name")?, version: text(it, "version")? });
        let series = |it: &Value| {
            let times = it["ns"].as_array().filter(|it| !it.is_empty()).context("a series without times")?;
            let mut ns = times.iter().map(|it| it.as_u64().context("a time in ns")).collect::<Result<Vec<_>>>()?;
            ns.sort_unstable();
            Ok(Series { case: text(it, "case")?, way: text(it, "way")?, engine: text(it, "engine").ok(), ns })
        };
        let whole = |it: &Value, name: &str| it[name].as_u64().with_context(|| format!("no `{name}`"));
        let memory = |it: &Value| {
            let (idle, after, most) = (whole(it, "idle")?, whole(it, "after")?, whole(it, "most")?);
            Ok(Memory { engine: text(it, "engine")?, idle, after, most, flood: whole(it, "flood")? })
        };
        let sizes = |it: &Value| {
            let all = it["kib"].as_array().filter(|it| !it.is_empty()).context("no size")?;
            let mut kib = all.iter().map(|it| it.as_u64().context("a size in KiB")).collect::<Result<Vec<_>>>()?;
            kib.sort_unstable();
            Ok(Sizes { name: text(it, "name")?, engine: text(it, "engine")?, kib })
        };
        let some = |name: &str| json[name].as_array().into_iter().flatten();
        Ok(Self {
            cases: list("cases")?.iter().map(case).collect::<Result<_>>()?,
            engines: list("engines")?.iter().map(engine).collect::<Result<_>>()?,
            series: list("series")?.iter().map(series).collect::<Result<_>>()?,
            memory: some("memory").map(memory).collect::<Result<_>>()?,
            sizes: some("sizes").map(sizes).collect::<Result<_>>()?,
            load: some("load").map(|it| it.as_f64().context("a load")).collect::<Result<_>>()?,
        })
    }

    pub(super) fn of(&self, case: &str, way: &str, engine: &str) -> Option<&Series> {
        self.series.iter().find(|it| it.case == case && it.way == way && it.engine.as_deref() == Some(engine))
    }

    pub(super) fn spawn(&self) -> Option<&Series> {
        self.series.iter().find(|it| it.way == "spawn")
    }

    pub(super) fn versions(&self) -> String {
        let versions: Vec<_> = self.engines.iter().map(|it| format!("{} {}", it.name, it.version)).collect();
        versions.join(", ")
    }

    /// The load of the machine, which shows whether other programs ran.
    pub(super) fn load_range(&self) -> String {
        let bounds = self.load.iter().copied().reduce(f64::min).zip(self.load.iter().copied().reduce(f64::max));
        bounds.map_or_else(String::new, |(least, most)| {
            format!("; load of the last minute before the rounds {least} to {most}")
        })
    }

    /// The cases that have a measurement of one of those ways.
    pub(super) fn cases_of(&self, ways: &[&str]) -> impl Iterator<Item = &Case> {
        self.cases
            .iter()
            .filter(move |case| self.series.iter().any(|it| it.case == case.name && ways.contains(&it.way.as_str())))
    }

    /// A row for each engine and case, with a cell for each of the ways.
    pub(super) fn rows(&self, page: &mut String, cases: &[&Case], ways: &[&str], cell: fn(Option<&Series>) -> String) {
        for engine in &self.engines {
            for case in cases {
                let _ = write!(page, "| {}: {} |", engine.name, case.label);
                for way in ways {
                    let _ = write!(page, " {} |", cell(self.of(&case.name, way, &engine.name)));
                }
                page.push('\n');
            }
        }
    }

    /// Targets, and whether they are met.
    pub(super) fn targets(&self, page: &mut String, targets: &[Target]) {
        page.push_str("\n## Targets\n\n| | target |");
        let _ = self.engines.iter().try_for_each(|it| write!(page, " {} |", it.name));
        page.push_str("\n|---|---|");
        page.push_str(&"--:|".repeat(self.engines.len()));
        page.push('\n');
        for Target(what, aim, measure) in targets {
            let _ = write!(page, "| {what} | {aim} |");
            for engine in &self.engines {
                let reached = measure.value(self, &engine.name);
                let mark = reached.map(|it| if aim.is_met(it) { "pass" } else { "fail" });
                let value = reached.map_or("–".to_owned(), number);
                let _ = write!(page, " {value}{} |", mark.map(|it| format!(", {it}")).unwrap_or_default());
            }
            page.push('\n');
        }
    }
}

/// What is measured, the aim, and how the value is computed.
pub(super) struct Target(pub(super) &'static str, pub(super) Aim, pub(super) Measure);

#[derive(Clone, Copy)]
pub(super) enum Aim {
    AtLeast(f64),
    AtMost(f64),
    Below(f64),
}

impl Aim {
    fn is_met(self, value: f64) -> bool {
        match self {
            Self::AtLeast(limit) => value >= limit,
            Self::AtMost(limit) => value <= limit,
            Self::Below(limit) => value < limit,
        }
    }
}

impl fmt::Display for Aim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtLeast(limit) => write!(f, "at least {limit}"),
            Self::AtMost(limit) => write!(f, "at most {limit}"),
            Self::Below(limit) => write!(f, "below {limit}"),
        }
    }
}

/// Case and way of a series.
type Key = (&'static str, &'static str);

/// A value of one engine.
pub(super) enum Measure {
    /// In milliseconds.
    Median(Key),
    /// The first median divided by the second.
    Ratio(Key, Key),
    /// The first median minus the second.
    Beyond(Key, Key),
    Other(fn(&Report, &str) -> Option<f64>),
}

impl Measure {
    fn value(&self, report: &Report, engine: &str) -> Option<f64> {
        let of = |(case, way): Key| report.of(case, way, engine);
        match *self {
            Self::Median(it) => of(it).map(Series::median),
            Self::Ratio(one, other) => ratio(of(one), of(other)),
            Self::Beyond(one, other) => Some(of(one)?.median() - of(other)?.median()),
            Self::Other(measure) => measure(report, engine),
        }
    }
}

pub(super) fn ratio(one: Option<&Series>, other: Option<&Series>) -> Option<f64> {
    Some(one?.median() / other?.median())
}

/// Rounds to about three digits.
pub(crate) fn number(it: f64) -> String {
    let digits = if it.abs() < 1.0 { 3 } else { 2_usize.saturating_sub(it.abs().log10() as usize) };
    format!("{it:.digits$}")
}

/// Median and quartiles, in the format of the pages.
pub(super) fn cell(series: Option<&Series>) -> String {
    series.map_or("–".to_owned(), |it| {
        let (lower, upper) = it.quartiles();
        format!("{} ({} to {})", number(it.median()), number(lower), number(upper))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_those_that_were_measured() {
        let series = |count: u64| Series {
            case: String::new(),
            way: String::new(),
            engine: None,
            ns: (1..=count).map(|it| it * 1_000_000).collect(),
        };
        let both = |it: Series| (it.median(), it.p99());
        assert_eq!(both(series(1)), (1.0, 1.0));
        assert_eq!(both(series(4)), (2.0, 4.0));
        assert_eq!(both(series(200)), (100.0, 198.0));
        assert_eq!(series(1).quartiles(), (1.0, 1.0));
        assert_eq!(series(12).quartiles(), (3.0, 9.0));
    }

    #[test]
    fn numbers_have_about_three_digits() {
        assert_eq!([0.0416, 4.0, 56.78, 123.4, 1234.5].map(number), ["0.042", "4.00", "56.8", "123", "1234"]);
    }
}
