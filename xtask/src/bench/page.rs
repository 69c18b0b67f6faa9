//! Pages of `docs/bench`, from templates in `pages/` and what was measured.
//!
//! A template names a figure by an expression, such as `ms('create', 'full', engine)`. A figure that was not measured is `–`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Serde, merge_maps};
use minijinja::{Environment, Error, ErrorKind, State, Value, context};
use serde_json::Value as Json;

const NOT_MEASURED: &str = "not measured";
const DASH: &str = "–";

/// Fills a template with what was measured.
pub(crate) fn render(template: &str, measured: &Json, machine: &str) -> Result<String> {
    let report = Arc::new(Report::read(measured)?);
    let mut env = Environment::new();
    env.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    env.add_filter("number", number);
    env.add_filter("whole", whole);
    env.add_filter("scaled", |times: &Value, factor: f64| {
        Ok::<_, Error>(ascending(times)?.into_iter().map(|value| value * factor).collect::<Vec<_>>())
    });
    env.add_filter("median", |times: &Value| quantile(&ascending(times)?, 0.5));
    env.add_filter("p99", |times: &Value| quantile(&ascending(times)?, 0.99));
    env.add_filter("with_p99", |times: &Value| cell(times, &[0.5, 0.99]));
    env.add_filter("with_least", |times: &Value| cell(times, &[0.5, 0.0]));
    env.add_filter("quartiles", |times: &Value| cell(times, &[0.5, 0.25, 0.75]));
    let base = context! {
        machine, versions => report.versions(), load_range => report.load_range(), ..Value::from(Serde(measured))
    };
    add_functions(&mut env, &report, &base);
    env.render_str(template, base).map(|page| page.trim_end().to_owned() + "\n").context("fill the template")
}

/// The figures and tables of measured series.
fn add_functions(env: &mut Environment<'_>, report: &Arc<Report>, base: &Value) {
    let of = Arc::clone(report);
    env.add_function("times", move |case: &str, way: &str, engine: &str| {
        of.times(case, way, engine).map(<[f64]>::to_vec)
    });
    let of = Arc::clone(report);
    env.add_function("ms", move |case: &str, way: &str, engine: &str| quantile(of.times(case, way, engine)?, 0.5));
    let of = Arc::clone(report);
    env.add_function("kib", move |name: &str, engine: &str| quantile(of.times("", name, engine)?, 0.5));
    let of = Arc::clone(report);
    env.add_function("rounds", move |case: &str| {
        of.times.iter().filter(|(key, _)| key.0 == case).map(|(_, times)| times.len()).max().unwrap_or_default()
    });
    let of = Arc::clone(report);
    env.add_function("cases_of", move |cases: Vec<Value>, ways: Vec<String>| {
        let is_measured = |case: &Value| {
            let name = case.get_attr("name").map(|name| name.to_string()).unwrap_or_default();
            of.times.keys().any(|key| key.0 == name && ways.contains(&key.1))
        };
        cases.into_iter().filter(is_measured).collect::<Vec<Value>>()
    });
    let context = base.clone();
    env.add_function("row", move |state: &State<'_, '_>, cells: Vec<String>, names: Kwargs| {
        let cells = cells.iter().map(|cell| figure(state, cell, &context, &names, None));
        Ok::<_, Error>(cells.collect::<Result<Vec<_>, _>>()?.join(" | "))
    });
    let context = base.clone();
    env.add_function("each", move |state: &State<'_, '_>, items: Vec<Value>, cell: String, names: Kwargs| {
        let cells = items.into_iter().map(|item| figure(state, &cell, &context, &names, Some(item)));
        Ok::<_, Error>(cells.collect::<Result<Vec<_>, _>>()?.join(" | "))
    });
    let (of, context) = (Arc::clone(report), base.clone());
    env.add_function("targets", move |state: &State<'_, '_>, targets: Vec<Vec<Value>>| {
        of.targets(state, &context, &targets)
    });
}

/// A cell of a table: the value of an expression, in which `it` is an item.
fn figure(state: &State<'_, '_>, text: &str, base: &Value, names: &Kwargs, it: Option<Value>) -> Result<String, Error> {
    let names: BTreeMap<&str, Value> =
        names.args().map(|name| Ok((name, names.get(name)?))).collect::<Result<_, Error>>()?;
    let value = evaluate(state, text, merge_maps([base.clone(), Value::from_pairs(names), context! { it }]))?;
    Ok(value.map_or(DASH.to_owned(), |value| f64::try_from(value.clone()).map_or(value.to_string(), number)))
}

/// The value of an expression, unless it was not measured.
fn evaluate(state: &State<'_, '_>, text: &str, names: Value) -> Result<Option<Value>, Error> {
    match state.env().compile_expression(text)?.eval(names) {
        Ok(value) if value.is_undefined() || value.is_none() => Ok(None),
        Ok(value) => Ok(Some(value)),
        Err(error) if error.detail() == Some(NOT_MEASURED) || error.kind() == ErrorKind::UndefinedError => Ok(None),
        Err(error) => Err(error),
    }
}

/// Times in milliseconds and sizes in KiB, in ascending order.
struct Report {
    engines: Vec<(String, String)>,
    /// By case, way and engine; sizes by an empty case, their name and the engine.
    times: BTreeMap<(String, String, String), Vec<f64>>,
    load: Vec<f64>,
}

impl Report {
    fn read(measured: &Json) -> Result<Self> {
        let list = |name: &str| measured[name].as_array().into_iter().flatten();
        let text = |it: &Json, name: &str| it[name].as_str().unwrap_or_default().to_owned();
        let mut times = BTreeMap::new();
        for (part, case, way, values, unit) in
            [("series", "case", "way", "ns", 1e6), ("sizes", "case", "name", "kib", 1.0)]
        {
            for it in list(part) {
                let values = it[values].as_array().with_context(|| format!("`{part}` without `{values}`"))?;
                let mut values: Vec<f64> = values.iter().filter_map(Json::as_f64).map(|value| value / unit).collect();
                values.sort_by(f64::total_cmp);
                times.insert((text(it, case), text(it, way), text(it, "engine")), values);
            }
        }
        let engines = list("engines").map(|it| (text(it, "name"), text(it, "version"))).collect();
        Ok(Self { engines, times, load: list("load").filter_map(Json::as_f64).collect() })
    }

    fn times(&self, case: &str, way: &str, engine: &str) -> Result<&[f64], Error> {
        let found = self.times.get(&(case.to_owned(), way.to_owned(), engine.to_owned()));
        found.map(Vec::as_slice).ok_or_else(|| Error::new(ErrorKind::InvalidOperation, NOT_MEASURED))
    }

    fn versions(&self) -> String {
        self.engines.iter().map(|(name, version)| format!("{name} {version}")).collect::<Vec<_>>().join(", ")
    }

    /// The load of the machine, which shows whether other programs ran.
    fn load_range(&self) -> String {
        let bounds = self.load.iter().copied().reduce(f64::min).zip(self.load.iter().copied().reduce(f64::max));
        bounds.map_or_else(String::new, |(least, most)| {
            format!("; load of the last minute before the rounds {least} to {most}")
        })
    }

    /// A table of targets, each with a label, an aim, its limit and an expression about `engine`.
    fn targets(&self, state: &State<'_, '_>, base: &Value, targets: &[Vec<Value>]) -> Result<String, Error> {
        let names: Vec<&str> = self.engines.iter().map(|(name, _)| name.as_str()).collect();
        let mut table =
            format!("## Targets\n\n| | target | {} |\n|---|---|{}", names.join(" | "), "--:|".repeat(names.len()));
        for target in targets {
            let [label, aim, limit, text] = &target[..] else {
                return Err(Error::new(ErrorKind::InvalidOperation, "a target has four parts"));
            };
            let _ = write!(table, "\n| {label} | {aim} {limit} |");
            let most = f64::try_from(limit.clone())?;
            for engine in names.iter().copied() {
                let names = context! { engine, ..base.clone() };
                let Some(value) = evaluate(state, &text.to_string(), names)? else {
                    let _ = write!(table, " {DASH} |");
                    continue;
                };
                let value = f64::try_from(value)?;
                let is_met = match aim.to_string().as_str() {
                    "at least" => value >= most,
                    "at most" => value <= most,
                    _ => value < most,
                };
                let _ = write!(table, " {}, {} |", number(value), if is_met { "pass" } else { "fail" });
            }
        }
        Ok(table)
    }
}

fn ascending(times: &Value) -> Result<Vec<f64>, Error> {
    let mut all = times.try_iter()?.map(f64::try_from).collect::<Result<Vec<_>, _>>()?;
    all.sort_by(f64::total_cmp);
    Ok(all)
}

/// The value that this share of all does not exceed.
fn quantile(ascending: &[f64], share: f64) -> Result<f64, Error> {
    let rank = (ascending.len() as f64 * share).ceil() as usize;
    let value = ascending.get(rank.saturating_sub(1)).copied();
    value.ok_or_else(|| Error::new(ErrorKind::InvalidOperation, NOT_MEASURED))
}

/// The first quantile, and the others in brackets.
fn cell(times: &Value, shares: &[f64]) -> Result<String, Error> {
    let ascending = ascending(times)?;
    let values = shares.iter().map(|share| Ok(number(quantile(&ascending, *share)?)));
    let values = values.collect::<Result<Vec<_>, Error>>()?;
    Ok(format!("{} ({})", values[0], values[1..].join(" to ")))
}

/// Rounds to about three digits.
pub(crate) fn number(value: f64) -> String {
    let digits = if value.abs() < 1.0 { 3 } else { 2_usize.saturating_sub(value.abs().log10() as usize) };
    format!("{value:.digits$}")
}

/// With a comma before each three digits.
pub(crate) fn whole(value: f64) -> String {
    let digits = format!("{value:.0}");
    let first = digits.len() % 3;
    let mut groups: Vec<&str> = digits.get(..first).filter(|group| !group.is_empty()).into_iter().collect();
    groups.extend((first..digits.len()).step_by(3).map(|at| &digits[at..at + 3]));
    groups.join(",")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ms(times: &[u64]) -> Vec<u64> {
        times.iter().map(|time| time * 1_000_000).collect()
    }

    fn series(case: &str, way: &str, engine: &str, times: &[u64]) -> Json {
        json!({ "case": case, "way": way, "engine": engine, "ns": ms(times) })
    }

    fn page(name: &str, measured: &Json) -> String {
        let template = crate::bench::BENCHES.iter().find(|bench| bench.name == name).expect("a bench").page;
        render(template, measured, "a machine").expect("the template fits")
    }

    fn assert_lines(page: &str, lines: &[&str]) {
        for line in lines {
            assert!(page.contains(line), "{line}: {page}");
        }
    }

    #[test]
    fn a_page_has_medians_quartiles_and_targets() {
        let page = page(
            "create",
            &json!({
                "cases": [{ "name": "create", "label": "make" }, { "name": "destroy", "label": "remove" }],
                "engines": [{ "name": "docker", "version": "1.2" }, { "name": "podman", "version": "3.4" }],
                "series": [
                    series("first", "full", "docker", &[150_000]),
                    series("create", "engine", "docker", &[100, 400, 200, 300]),
                    series("create", "bare", "docker", &[300]),
                    series("create", "full", "docker", &[420]),
                    series("create", "full", "podman", &[500]),
                    series("create", "bare", "podman", &[300]),
                    series("step", "forward_git", "docker", &[7]),
                ],
                "load": [1.5, 0.25, 1.0],
            }),
        );
        assert_lines(
            &page,
            &[
                "a machine; docker 1.2, podman 3.4; load of the last minute before the rounds 0.25 to 1.5.",
                "quartiles of 4 rounds",
                "| docker: make | 200 (100 to 300) | – | 300 (300 to 300) | – | 420 (420 to 420) |",
                "before the rounds: docker 150 s. No",
                "| `forward_git` | 7.00 (7.00 to 7.00) | – |",
                "than 1.3 × the engine | at most 150 | 160, fail | – |",
                "than a bare one | at most 150 | 120, pass | 200, fail |",
            ],
        );
    }

    #[test]
    fn a_page_has_ratios_to_the_engine_and_to_the_host() {
        let page = page(
            "exec",
            &json!({
                "cases": [{ "name": "true", "label": "`true`" }, { "name": "create", "label": "make" }],
                "engines": [{ "name": "docker", "version": "1.2" }],
                "series": [
                    { "case": "true", "way": "spawn", "engine": null, "ns": ms(&[1]) },
                    series("true", "engine", "docker", &[100, 300, 200]),
                    series("true", "socket", "docker", &[4]),
                    series("create", "engine", "docker", &[100]),
                    series("create", "guest", "docker", &[150]),
                ],
                "memory": [{ "engine": "docker", "idle": 2048, "after": 3072, "most": 4096, "flood": 1 << 20 }],
            }),
        );
        assert_lines(
            &page,
            &[
                "| `true` | 200 (300) | 4.00 (4.00) | 50.0 | – | – |",
                "| docker: make | 100 (100) | 150 (150) | – |",
                "| docker | 2.00 | 3.00 | 4.00 | 1.00 |",
                "times faster than the engine | at least 60 | 50.0, fail |",
                "in spawns on the host | at most 2 | 4.00, fail |",
                "more than idle | at most 64 | 2.00, pass |",
            ],
        );
    }

    #[test]
    fn every_template_fits_what_its_bench_measures() {
        let engines = json!([{ "name": "embedded", "version": "1" }, { "name": "docker", "version": "2" }]);
        let sizes = json!([{ "name": "guest", "engine": "docker", "kib": [2048, 2560, 9999] }]);
        let series = [series("first", "alone", "embedded", &[12, 10, 14]), series("first", "alone", "docker", &[300])];
        let cases = json!([{ "name": "read", "label": "read" }]);
        let measured = json!({ "cases": cases, "engines": engines, "series": series, "sizes": sizes, "load": [1.0] });
        for bench in crate::bench::BENCHES {
            assert!(page(bench.name, &measured).contains("## Targets"), "{}", bench.name);
        }
        assert_lines(&page("engine", &measured), &["| embedded | – | 12.0 (10.0) | – |", "| docker | – | 25.0 | – |"]);
        assert_lines(&page("workflows", &measured), &["| docker | 2.50 | – |"]);
    }

    #[test]
    fn clients_and_libraries_are_compared_by_the_fastest() {
        let page = render(crate::bench::clients::PAGE, &json!({
            "many": {
                "engine": "embedded", "count": 7, "client_kib": 2048,
                "steps": [{ "name": "create", "seconds": 3.5, "failures": 1 }],
                "server": {
                    "rest_kib": 1024, "full_kib": 4096, "peak_kib": 5120, "open_files": 9, "threads": 3,
                    "processor": [1.5, 2.5],
                },
            },
            "calls": [
                { "engine": "embedded", "ms": [1.0, 2.0, 3.0], "own_ms": [], "processor_ms": [0.25, 0.25] },
                { "engine": "docker", "ms": [2.0], "own_ms": [50.0], "processor_ms": [0.5, 0.5] },
            ],
            "peers": {
                "megabytes": 10,
                "versions": { "docker-py": "7.2.0", "SWE-ReX": "1.4.0" },
                "seconds": {
                    "coracle": { "create": [0.25], "exec": [0.002], "write": [0.01], "read": [0.01], "destroy": [0.1] },
                    "docker-py": { "create": [0.5], "exec": [0.05], "write": [0.09], "read": [0.09], "destroy": [0.2] },
                    "SWE-ReX": { "create": [1.5], "exec": [0.004], "write": [0.02], "destroy": [0.3] },
                },
            },
        }), "a machine").expect("the template fits");
        assert_lines(
            &page,
            &[
                "## 7 containers of one client process",
                "| create all | 3.50 | 1 |",
                "| memory with all containers, MiB | 4.00 |",
                "(user + system) | 1.50 + 2.50 |",
                "| embedded | 2.00 (3.00) | – | – | 0.500 |",
                "| docker | 2.00 (2.00) | 50.0 (50.0) | 25.0 | 1.00 |",
                "| step | Coracle | SWE-ReX | docker-py | × |",
                "| create | 250 (250) | 1500 (1500) | 500 (500) | 2.00 |",
                "| read | 10.0 (10.0) | – | 90.0 (90.0) | 9.00 |",
            ],
        );
    }

    #[test]
    fn the_page_of_agents_sums_what_was_played() {
        let run = |toolset: &str, failed: Option<&str>, calls: u32| {
            json!({ "task": "write", "toolset": toolset, "habit": "careful", "failed": failed, "calls": calls,
                "tokens": 10 * calls, "seconds": 1.5 })
        };
        let runs = [run("classic", Some("stuck"), 4), run("agent", None, 2), run("agent", None, 1)];
        let measured = json!({ "engine": "docker", "lists": [{ "toolset": "agent", "tokens": 1800 }], "runs": runs });
        let page = render(crate::bench::agents::PAGE, &measured, "a machine").expect("the template fits");
        assert_lines(
            &page,
            &[
                "| careful, before (single tool) | 0/1 | 4 | 40 | 2 |",
                "| careful, after (small tools) | 2/2 | 3 | 30 | 3 |",
                "| agent | 1800 |",
                "| write | 4 | 2 | 40 | 20 |",
            ],
        );
    }

    #[test]
    fn a_quantile_is_a_value_that_was_measured() {
        let values: Vec<f64> = (1..=12).map(f64::from).collect();
        let all = [0.0, 0.25, 0.5, 0.75, 0.99].map(|share| quantile(&values, share).expect("there are values"));
        assert_eq!(all, [1.0, 3.0, 6.0, 9.0, 12.0]);
        assert!(quantile(&[], 0.5).is_err());
    }

    #[test]
    fn numbers_have_about_three_digits_or_groups_of_three() {
        assert_eq!([0.0416, 4.0, 56.78, 123.4, 1234.5].map(number), ["0.042", "4.00", "56.8", "123", "1234"]);
        assert_eq!([7.0, 123.0, 1234.0, 100_000.0].map(whole), ["7", "123", "1,234", "100,000"]);
    }
}
