//! What was measured, as a page for the book.

use std::fmt::Write as _;

use anyhow::{Context as _, Result};
use serde_json::Value;

#[derive(Debug)]
pub(super) struct Report {
    pub(super) cases: Vec<Case>,
    pub(super) engines: Vec<Engine>,
    series: Vec<Series>,
    memory: Vec<Memory>,
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

/// Times of one case by one way: `spawn` on the host, the `engine`'s own program, the link by `socket` or `stream`, the
/// program `coracle` for a container with a `guest` or without one, `plain`.
#[derive(Debug)]
pub(super) struct Series {
    case: String,
    way: String,
    engine: Option<String>,
    /// In ascending order, never empty.
    ns: Vec<u64>,
}

/// What a guest has of it, in KiB.
#[derive(Debug)]
struct Memory {
    engine: String,
    idle: u64,
    after: u64,
    most: u64,
    /// Bytes that a command printed before `most` was read.
    flood: u64,
}

impl Series {
    pub(super) fn median(&self) -> f64 {
        self.at(0.5)
    }

    /// Of fewer than 100 the slowest.
    pub(super) fn p99(&self) -> f64 {
        self.at(0.99)
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
        Ok(Self {
            cases: list("cases")?.iter().map(case).collect::<Result<_>>()?,
            engines: list("engines")?.iter().map(engine).collect::<Result<_>>()?,
            series: list("series")?.iter().map(series).collect::<Result<_>>()?,
            memory: list("memory")?.iter().map(memory).collect::<Result<_>>()?,
        })
    }

    pub(super) fn of(&self, case: &str, way: &str, engine: &str) -> Option<&Series> {
        self.series.iter().find(|it| it.case == case && it.way == way && it.engine.as_deref() == Some(engine))
    }

    pub(super) fn spawn(&self) -> Option<&Series> {
        self.series.iter().find(|it| it.way == "spawn")
    }

    pub(super) fn page(&self, machine: &str) -> String {
        let versions: Vec<_> = self.engines.iter().map(|it| format!("{} {}", it.name, it.version)).collect();
        let mut page = format!(
            "# Commands and files in a container: times\n\n\
             Written by `cargo xtask bench exec`. {machine}; {}.\n\n\
             Milliseconds, median and 99th percentile (of fewer than 100 calls: the slowest). All ways take turns in \
             each round. \"×\": how many times faster than the engine's own program in the same run. A program that is \
             to be run 1,000 times is run 50 times, and its mean counts. –: not measured.\n\n\
             ![The same as a plot](exec.svg)\n",
            versions.join(", ")
        );
        if let Some(spawn) = self.spawn() {
            let (median, p99) = (number(spawn.median()), number(spawn.p99()));
            let _ = writeln!(page, "\nThe host starts a static `true` and sees it end in {median} ({p99}).");
        }
        for engine in &self.engines {
            self.calls(&mut page, &engine.name);
        }
        self.containers(&mut page);
        self.memory(&mut page);
        self.targets(&mut page);
        page
    }

    /// Of which cases a table of those ways tells.
    fn cases_of(&self, ways: [&str; 2]) -> impl Iterator<Item = &Case> {
        self.cases
            .iter()
            .filter(move |case| self.series.iter().any(|it| it.case == case.name && ways.contains(&it.way.as_str())))
    }

    fn calls(&self, page: &mut String, engine: &str) {
        let _ = writeln!(page, "\n## {engine}\n\n| | `{engine} exec` | socket | × | stream | × |");
        page.push_str("|---|--:|--:|--:|--:|--:|\n");
        let ways = ["socket", "stream"];
        for case in self.cases_of(ways) {
            let own = self.of(&case.name, "engine", engine);
            let _ = write!(page, "| {} | {} |", case.label, cell(own));
            for way in ways {
                let link = self.of(&case.name, way, engine);
                let _ = write!(page, " {} | {} |", cell(link), times(ratio(own, link)));
            }
            page.push('\n');
        }
    }

    fn containers(&self, page: &mut String) {
        page.push_str(
            "\n## Containers\n\n\
             The engine's own `run --detach` and `rm --force` (Podman: `--time=0`), and a process `coracle call` with \
             `create` without a directory of the host, and `destroy`.\n\n\
             | | the engine | `coracle`, with a guest | `coracle`, without |\n|---|--:|--:|--:|\n",
        );
        for engine in &self.engines {
            for case in self.cases_of(["guest", "plain"]) {
                let of = |way| cell(self.of(&case.name, way, &engine.name));
                let (label, name) = (&case.label, &engine.name);
                let _ = writeln!(page, "| {name}: {label} | {} | {} | {} |", of("engine"), of("guest"), of("plain"));
            }
        }
    }

    fn memory(&self, page: &mut String) {
        page.push_str(
            "\n## Memory of a guest\n\n\
             Resident, in MiB: on its first connection, after all calls above, and the most there ever was, a command \
             with a flood of output included.\n\n\
             | | idle | after | most | of the flood |\n|---|--:|--:|--:|--:|\n",
        );
        for it in &self.memory {
            let [idle, after, most] = [it.idle, it.after, it.most].map(|kib| number(kib as f64 / 1024.0));
            let flood = it.flood as f64 / f64::from(1 << 20);
            let _ = writeln!(page, "| {} | {idle} | {after} | {most} | {} |", it.engine, number(flood));
        }
    }

    /// What is to be reached.
    fn targets(&self, page: &mut String) {
        page.push_str("\n## Targets\n\n| | target |");
        let _ = self.engines.iter().try_for_each(|it| write!(page, " {} |", it.name));
        page.push_str("\n|---|---|");
        page.push_str(&"--:|".repeat(self.engines.len()));
        page.push('\n');
        for target in TARGETS {
            let _ = write!(page, "| {} | {} |", target.what, target.aim);
            for engine in &self.engines {
                let reached = (target.measured)(self, &engine.name);
                let mark = reached.map(|it| if (target.met)(it) { "yes" } else { "no" });
                let value = reached.map_or("–".to_owned(), number);
                let _ = write!(page, " {value}{} |", mark.map(|it| format!(", {it}")).unwrap_or_default());
            }
            page.push('\n');
        }
    }
}

struct Target {
    what: &'static str,
    aim: &'static str,
    measured: fn(&Report, &str) -> Option<f64>,
    met: fn(f64) -> bool,
}

const TARGETS: &[Target] = &[
    Target {
        what: "`true` on a held link, socket: times faster than the engine",
        aim: "60",
        measured: |it, engine| ratio(it.of("true", "engine", engine), it.of("true", "socket", engine)),
        met: |it| it >= 60.0,
    },
    Target {
        what: "the same in spawns on the host",
        aim: "at most 2",
        measured: |it, engine| ratio(it.of("true", "socket", engine), it.spawn()),
        met: |it| it <= 2.0,
    },
    Target {
        what: "the same, 99th percentile, ms",
        aim: "at most 10",
        measured: |it, engine| it.of("true", "socket", engine).map(Series::p99),
        met: |it| it <= 10.0,
    },
    Target {
        what: "`true` on a held link, stream: times faster than the engine",
        aim: "40",
        measured: |it, engine| ratio(it.of("true", "engine", engine), it.of("true", "stream", engine)),
        met: |it| it >= 40.0,
    },
    Target {
        what: "the same in spawns on the host",
        aim: "at most 3",
        measured: |it, engine| ratio(it.of("true", "stream", engine), it.spawn()),
        met: |it| it <= 3.0,
    },
    Target {
        what: "the same, 99th percentile, ms",
        aim: "at most 10",
        measured: |it, engine| it.of("true", "stream", engine).map(Series::p99),
        met: |it| it <= 10.0,
    },
    Target {
        what: "a process `coracle exec`, socket: share of the engine's time",
        aim: "at most 0.25",
        measured: |it, engine| ratio(it.of("one-shot", "socket", engine), it.of("one-shot", "engine", engine)),
        met: |it| it <= 0.25,
    },
    Target {
        what: "a process `coracle exec`, stream: ms more than the engine",
        aim: "at most 25",
        measured: |it, engine| {
            let (ours, own) = (it.of("one-shot", "stream", engine)?, it.of("one-shot", "engine", engine)?);
            Some(ours.median() - own.median())
        },
        met: |it| it <= 25.0,
    },
    Target {
        what: "1,000 × `true` at once, socket: a second",
        aim: "1,000",
        measured: |it, engine| it.of("at-once", "socket", engine).map(|it| 1e3 / it.median()),
        met: |it| it >= 1000.0,
    },
    Target {
        what: "make a container: ms more than 1.3 × the engine",
        aim: "at most 150",
        measured: |it, engine| {
            let (ours, own) = (it.of("create", "guest", engine)?, it.of("create", "engine", engine)?);
            Some(ours.median() - 1.3 * own.median())
        },
        met: |it| it <= 150.0,
    },
    Target {
        what: "the same: ms more than without a guest",
        aim: "at most 40",
        measured: |it, engine| {
            let (guest, plain) = (it.of("create", "guest", engine)?, it.of("create", "plain", engine)?);
            Some(guest.median() - plain.median())
        },
        met: |it| it <= 40.0,
    },
    Target {
        what: "remove it: share of the engine's time",
        aim: "at most 1.5",
        measured: |it, engine| ratio(it.of("destroy", "guest", engine), it.of("destroy", "engine", engine)),
        met: |it| it <= 1.5,
    },
    Target {
        what: "memory of a guest under a flood: MiB more than idle",
        aim: "at most 64",
        measured: |it, engine| {
            let memory = it.memory.iter().find(|it| it.engine == engine)?;
            Some(memory.most.saturating_sub(memory.idle) as f64 / 1024.0)
        },
        met: |it| it <= 64.0,
    },
];

fn ratio(one: Option<&Series>, other: Option<&Series>) -> Option<f64> {
    Some(one?.median() / other?.median())
}

fn cell(series: Option<&Series>) -> String {
    series.map_or("–".to_owned(), |it| format!("{} ({})", number(it.median()), number(it.p99())))
}

fn times(ratio: Option<f64>) -> String {
    ratio.map_or("–".to_owned(), number)
}

/// To about three digits.
pub(super) fn number(it: f64) -> String {
    let digits = if it.abs() < 1.0 { 3 } else { 2_usize.saturating_sub(it.abs().log10() as usize) };
    format!("{it:.digits$}")
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::*;

    pub(in crate::bench) fn report() -> Report {
        let ms = |it: &[u64]| it.iter().map(|it| it * 1_000_000).collect::<Vec<_>>();
        Report::read(&json!({
            "cases": [
                { "name": "true", "label": "`true`" },
                { "name": "one-shot", "label": "one & <all>" },
                { "name": "create", "label": "make" },
            ],
            "engines": [{ "name": "docker", "version": "1.2" }],
            "series": [
                { "case": "true", "way": "spawn", "engine": null, "ns": ms(&[1]) },
                { "case": "true", "way": "engine", "engine": "docker", "ns": ms(&[100, 300, 200]) },
                { "case": "true", "way": "socket", "engine": "docker", "ns": ms(&[4]) },
                { "case": "one-shot", "way": "stream", "engine": "docker", "ns": ms(&[50]) },
                { "case": "create", "way": "engine", "engine": "docker", "ns": ms(&[100]) },
                { "case": "create", "way": "guest", "engine": "docker", "ns": ms(&[150]) },
            ],
            "memory": [{ "engine": "docker", "idle": 2048, "after": 3072, "most": 4096, "flood": 1 << 20 }],
        }))
        .expect("a report")
    }

    #[test]
    fn the_page_has_medians_ratios_and_targets() {
        let page = report().page("a machine");
        assert!(page.contains("| `true` | 200 (300) | 4.00 (4.00) | 50.0 | – | – |"), "{page}");
        assert!(page.contains("| one & <all> | – | – | – | 50.0 (50.0) | – |"), "{page}");
        assert!(page.contains("| docker: make | 100 (100) | 150 (150) | – |"), "{page}");
        assert!(!page.contains("| make |") && !page.contains("docker: `true`"), "{page}");
        assert!(page.contains("more than 1.3 × the engine | at most 150 | 20.0, yes |"), "{page}");
        assert!(page.contains("| docker | 2.00 | 3.00 | 4.00 | 1.00 |"), "{page}");
        assert!(page.contains("times faster than the engine | 60 | 50.0, no |"), "{page}");
        assert!(page.contains("99th percentile, ms | at most 10 | 4.00, yes |"), "{page}");
        assert!(page.contains("a machine; docker 1.2."), "{page}");
    }

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
    }

    #[test]
    fn numbers_have_about_three_digits() {
        assert_eq!([0.0416, 4.0, 56.78, 123.4, 1234.5].map(number), ["0.042", "4.00", "56.8", "123", "1234"]);
    }
}
