//! Measures commands and files in containers by the engines' own programs and over a link, a spawn on the host, and how
//! containers are made and removed, for `cargo xtask bench exec`.
//!
//! `link_bench OUT CORACLE ROUNDS ENGINE…` writes JSON to the file `OUT`. Everything takes its turn in every round, so
//! that what else happens on the machine meets all alike.
#![expect(clippy::unwrap_used, reason = "a measurement that fails is worth nothing")]
#![expect(clippy::print_stderr, reason = "progress for the user who waits")]

#[path = "../../engines/busybox.rs"]
mod busybox;
mod cases;
mod ending;
mod engine;
mod leftovers;
mod link;
mod memory;
mod tool;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use cases::{CASES, Case};
use engine::Engine;
use link::Transport;

/// Label of containers that are created here. The value is the id of this process.
const LABEL: &str = "coracle-bench.run";

/// The way to start a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// A static program on the host, as the lower bound.
    Spawn,
    /// The engine's own program.
    Engine,
    /// The link, by its transport.
    Link(Transport),
    /// The program `coracle`, for containers with or without a guest.
    Coracle { guest: bool },
}

impl Way {
    const ALL: [Self; 6] = [
        Self::Spawn,
        Self::Engine,
        Self::Link(Transport::Socket),
        Self::Link(Transport::Stream),
        Self::Coracle { guest: true },
        Self::Coracle { guest: false },
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Spawn => "spawn",
            Self::Engine => "engine",
            Self::Link(Transport::Socket) => "socket",
            Self::Link(Transport::Stream) => "stream",
            Self::Coracle { guest: true } => "guest",
            Self::Coracle { guest: false } => "plain",
        }
    }
}

/// Times of one case, one engine and one way.
struct Series {
    case: &'static Case,
    way: Way,
    /// The index of the engine; the host has one of its own.
    engine: usize,
    times: Vec<Duration>,
}

#[tokio::main]
async fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [out, coracle, rounds, names @ ..] = &words[..] else {
        panic!("usage: link_bench OUT CORACLE ROUNDS ENGINE…")
    };
    let (coracle, rounds) = (PathBuf::from(coracle), rounds.parse::<usize>().unwrap());
    ending::heed();
    let mut engines = Vec::new();
    for name in names {
        engines.push(Engine::open(name, &coracle).await);
    }
    let mut all = series(engines.len());
    for round in 0..rounds {
        let begun = Instant::now();
        for it in all.iter_mut().filter(|it| round % it.case.every == 0) {
            ending::go_on();
            for _ in 0..if it.way == Way::Engine { 1 } else { it.case.repeat } {
                it.times.extend(cases::measure(it.case, it.way, &engines[it.engine]).await);
            }
        }
        eprintln!("round {} of {rounds}: {:.1} s", round + 1, begun.elapsed().as_secs_f64());
    }
    let mut memory = Vec::new();
    for engine in &engines {
        memory.push(engine.memory().await);
    }
    std::fs::write(out, format!("{:#}\n", report(&engines, &all, &memory))).unwrap();
}

fn series(engines: usize) -> Vec<Series> {
    let mut all = Vec::new();
    for case in CASES {
        for engine in 0..engines {
            // The host is the same for all engines.
            let ways = Way::ALL.into_iter().filter(|it| *it != Way::Spawn || engine == 0);
            all.extend(ways.map(|way| Series { case, way, engine, times: Vec::new() }));
        }
    }
    all
}

fn report(engines: &[Engine], all: &[Series], memory: &[Value]) -> Value {
    let cases = CASES.iter().map(|it| json!({ "name": it.name, "label": it.label }));
    let named = engines.iter().map(|it| json!({ "name": it.name(), "version": it.version }));
    let measured = all.iter().filter(|it| !it.times.is_empty()).map(|it| {
        let engine = (it.way != Way::Spawn).then(|| engines[it.engine].name());
        let ns = it.times.iter().map(|it| u64::try_from(it.as_nanos()).unwrap());
        json!({ "case": it.case.name, "way": it.way.name(), "engine": engine, "ns": ns.collect::<Vec<_>>() })
    });
    json!({
        "cases": cases.collect::<Vec<_>>(),
        "engines": named.collect::<Vec<_>>(),
        "series": measured.collect::<Vec<_>>(),
        "memory": memory,
    })
}
