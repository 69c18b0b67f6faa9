//! Measures creating and removing containers, by the engines' own programs and by `coracle`, for
//! `cargo xtask bench create`.
//!
//! `create_bench OUT CORACLE ROUNDS ENGINE…` writes JSON to the file `OUT`. All containers are of the image that the
//! first `create` of a purpose makes. Everything takes its turn in every round, so that what else happens on the machine
//! meets all alike.
#![expect(clippy::unwrap_used, reason = "a measurement that fails is worth nothing")]
#![expect(clippy::print_stderr, reason = "progress for the user who waits")]

mod agent;
#[path = "../../engines/busybox.rs"]
mod busybox;
#[expect(dead_code, reason = "shared with a measurement that uses all of it")]
#[path = "../engine_bench/embedded.rs"]
mod embedded;
#[path = "../link_bench/ending.rs"]
mod ending;
mod engine;
#[path = "../link_bench/leftovers.rs"]
mod leftovers;
#[path = "../list_bench/mcp.rs"]
mod mcp;
mod person;

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use agent::EmbeddedAgent;
use engine::Engine;

/// Label of containers that are created here. The value is the id of this process.
const LABEL: &str = "coracle-bench.run";

/// Times of one engine, by operation and way.
struct Series {
    engine: &'static str,
    case: &'static str,
    way: String,
    times: Vec<Duration>,
}

/// All measurements.
#[derive(Default)]
pub(crate) struct Measured {
    series: Vec<Series>,
    /// The machine's, of the last minute, before each round.
    load: Vec<f64>,
}

impl Measured {
    pub(crate) fn add(&mut self, engine: &'static str, case: &'static str, way: &str, took: Duration) {
        let mut all = self.series.iter_mut();
        match all.find(|it| it.engine == engine && it.case == case && it.way == way) {
            Some(series) => series.times.push(took),
            None => self.series.push(Series { engine, case, way: way.to_owned(), times: vec![took] }),
        }
    }

    fn report(&self, engines: &[Engine]) -> Value {
        let named = engines.iter().map(|it| json!({ "name": it.name, "version": it.version }));
        let agents = self.series.iter().filter(|it| it.case == "create_true" && it.way == "operation");
        let series = self.series.iter().map(|it| {
            let ns = it.times.iter().map(|it| u64::try_from(it.as_nanos()).unwrap());
            json!({ "case": it.case, "way": it.way, "engine": it.engine, "ns": ns.collect::<Vec<_>>() })
        });
        json!({
            "cases": [
                { "name": "create", "label": "make a container" },
                { "name": "destroy", "label": "remove it" },
            ],
            "engines": named.collect::<Vec<_>>(),
            "agents": agents.map(|it| it.engine).collect::<Vec<_>>(),
            "series": series.collect::<Vec<_>>(),
            "load": self.load,
        })
    }
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [out, coracle, rounds, names @ ..] = &words[..] else {
        panic!("usage: create_bench OUT CORACLE ROUNDS ENGINE…")
    };
    let rounds = rounds.parse::<usize>().unwrap();
    ending::heed();
    let mut measured = Measured::default();
    let coracle = Path::new(coracle);
    let embedded = names.iter().any(|it| it == "embedded").then(|| EmbeddedAgent::open(coracle));
    let programs = names.iter().filter(|it| *it != "embedded");
    let engines: Vec<_> = programs.map(|it| Engine::open(it, coracle, &mut measured)).collect();
    for round in 0..rounds {
        measured.load.push(load());
        let begun = Instant::now();
        for engine in &engines {
            ending::go_on();
            engine.round(round, &mut measured);
        }
        if let Some(embedded) = &embedded {
            embedded.round(&mut measured);
        }
        eprintln!("round {} of {rounds}: {:.1} s", round + 1, begun.elapsed().as_secs_f64());
    }
    std::fs::write(out, format!("{:#}\n", measured.report(&engines))).unwrap();
}

fn load() -> f64 {
    std::fs::read_to_string("/proc/loadavg").unwrap().split(' ').next().unwrap().parse().unwrap()
}
