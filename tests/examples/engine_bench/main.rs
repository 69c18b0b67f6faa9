//! Compares the embedded engine with `crun`, `podman run` and `docker run`, for `cargo xtask bench engine`.
//!
//! `engine_bench OUT CORACLE ROUNDS ENGINE…` writes JSON to the file `OUT`. In every round all engines take turns, so
//! that what else happens on the machine meets all alike. Then the embedded engine alone makes many containers.
#![expect(clippy::unwrap_used, reason = "a measurement that fails is worth nothing")]
#![expect(clippy::print_stderr, reason = "progress for the user who waits")]

#[path = "../../engines/busybox.rs"]
mod busybox;
mod crun;
mod embedded;
#[path = "../link_bench/ending.rs"]
mod ending;
mod forks;
mod many;
mod measured;
mod program;
mod unpack;

use std::panic::{AssertUnwindSafe, resume_unwind};
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;

use crun::Crun;
use embedded::Embedded;
use measured::Measured;
use program::Program;

/// Label of containers that are created here. The value is the id of this process.
const LABEL: &str = "coracle-bench.run";

/// An engine that is measured.
enum Contender {
    Embedded(Box<Embedded>),
    Crun(Crun),
    Program(Program),
}

/// The durations of one container.
struct Timing {
    /// Until its processes run.
    create: Duration,
    /// Until the first `true` has ended.
    first: Duration,
    /// A later `true`; the least of several, as each is short.
    exec: Duration,
    destroy: Duration,
}

impl Contender {
    /// `None` for one that cannot run here.
    async fn open(name: &str) -> Option<Self> {
        match name {
            "embedded" => Some(Self::Embedded(Box::new(Embedded::open().await))),
            "crun" => Crun::open().map(Self::Crun),
            _ => Some(Self::Program(Program::open(name).await)),
        }
    }

    fn name(&self) -> &str {
        match self {
            Self::Embedded(_) => "embedded",
            Self::Crun(_) => "crun",
            Self::Program(it) => it.name(),
        }
    }

    async fn version(&self) -> String {
        match self {
            Self::Embedded(_) => env!("CARGO_PKG_VERSION").to_owned(),
            Self::Crun(_) => program::version("crun"),
            Self::Program(it) => program::version(it.name()),
        }
    }

    /// Whether its containers can have a network here.
    fn connects(&self) -> bool {
        !matches!(self, Self::Crun(_))
    }

    /// Creates a container, with or without network access, waits for its first answer, and removes it.
    async fn one(&self, network: bool) -> Timing {
        match self {
            Self::Embedded(it) => timed(it, network).await,
            Self::Crun(it) => it.one(),
            Self::Program(it) => it.one(network),
        }
    }
}

/// Calls of which the quickest counts.
const EXECS: usize = 20;

async fn timed(engine: &Embedded, network: bool) -> Timing {
    let it = engine.answering(network).await;
    let mut quickest = Duration::MAX;
    for _ in 0..EXECS {
        quickest = quickest.min(it.answer().await);
    }
    let (create, first) = (it.created, it.answered);
    Timing { create, first, exec: quickest, destroy: engine.remove(it).await }
}

#[tokio::main]
async fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [out, _, rounds, names @ ..] = &words[..] else { panic!("usage: engine_bench OUT CORACLE ROUNDS ENGINE…") };
    let rounds = rounds.parse::<usize>().unwrap();
    ending::heed();
    let mut contenders = Vec::new();
    for name in names {
        contenders.extend(Contender::open(name).await);
    }
    let measuring = AssertUnwindSafe(measure(&contenders, rounds)).catch_unwind().await;
    for contender in &contenders {
        if let Contender::Embedded(it) = contender {
            it.remove_all().await;
        }
    }
    match measuring {
        Ok(measured) => std::fs::write(out, format!("{:#}\n", measured.report())).unwrap(),
        Err(panic) => resume_unwind(panic),
    }
}

async fn measure(contenders: &[Contender], rounds: usize) -> Measured {
    let mut measured = Measured::default();
    for contender in contenders {
        measured.engine(contender.name(), &contender.version().await);
        contender.one(false).await;
    }
    for round in 0..rounds {
        let begun = Instant::now();
        measured.look_at_load();
        for contender in contenders {
            for (network, way) in [(false, "alone"), (true, "network")] {
                ending::go_on();
                if network && !contender.connects() {
                    continue;
                }
                let it = contender.one(network).await;
                measured.add(contender.name(), "create", way, it.create);
                measured.add(contender.name(), "first", way, it.first);
                measured.add(contender.name(), "destroy", way, it.destroy);
                if !network {
                    measured.add(contender.name(), "exec", way, it.exec);
                }
            }
        }
        eprintln!("round {} of {rounds}: {:.1} s", round + 1, begun.elapsed().as_secs_f64());
    }
    for contender in contenders {
        if let Contender::Embedded(it) = contender {
            forks::measure(it, rounds, &mut measured).await;
            unpack::measure(it, rounds, &mut measured).await;
            many::measure(it, &mut measured).await;
        }
    }
    measured
}
