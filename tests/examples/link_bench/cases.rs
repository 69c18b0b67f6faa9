//! The measured cases.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::{JoinSet, block_in_place};

use crate::Way;
use crate::engine::{Container, Engine, spawn};
use crate::link::{Held, Transport};
use crate::tool::Frontend;

/// A measured case.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// Markdown, for people.
    pub(crate) label: &'static str,
    act: Act,
    /// It is measured in every nth round.
    pub(crate) every: usize,
    /// Calls in a round; more for a short call.
    pub(crate) repeat: usize,
}

#[derive(Clone, Copy, Debug)]
enum Act {
    /// Runs a command that prints that.
    Run(&'static [&'static str], &'static str),
    /// Reads a file of so many bytes.
    Read(usize),
    /// Writes a file of so many bytes.
    Write(usize),
    /// Many calls of `true`. The time is that of one.
    InTurn,
    /// `true`, all at once. The time is the whole divided by their number.
    AtOnce,
    /// `true` in a new container, including opening the link.
    First,
    /// `true` by a program of its own for each call.
    OneShot(Frontend),
    /// Creates a container.
    Create,
    /// Removes the container of `Create`.
    Destroy,
}

const fn case(name: &'static str, label: &'static str, act: Act) -> Case {
    Case { name, label, act, every: 1, repeat: 20 }
}

pub(crate) const CASES: &[Case] = &[
    case("true", "`true`", Act::Run(&["true"], "")),
    case("echo", "`sh -c 'echo hi'`", Act::Run(&["sh", "-c", "echo hi"], "hi\n")),
    case("read-4k", "read 4 KiB", Act::Read(4 << 10)),
    case("write-4k", "write 4 KiB", Act::Write(4 << 10)),
    Case { repeat: 3, ..case("read-10m", "read 10 MiB", Act::Read(10 << 20)) },
    Case { repeat: 3, ..case("write-10m", "write 10 MiB", Act::Write(10 << 20)) },
    Case { every: 10, repeat: 1, ..case("in-turn", "1,000 × `true` in turn, each", Act::InTurn) },
    Case { every: 10, repeat: 1, ..case("at-once", "1,000 × `true` at once, each", Act::AtOnce) },
    Case { every: 5, repeat: 1, ..case("first", "first `true` after `create`", Act::First) },
    Case { repeat: 1, ..case("one-shot", "`true` by a process `coracle exec`", Act::OneShot(Frontend::Words)) },
    Case { repeat: 1, ..case("one-shot-call", "`true` by a process `coracle call`", Act::OneShot(Frontend::Json)) },
    Case { repeat: 1, ..case("create", "make a container", Act::Create) },
    Case { repeat: 1, ..case("destroy", "remove it", Act::Destroy) },
];

/// Calls of a case that makes many.
const MANY: u32 = 1000;

/// Calls by a program: 1,000 would take minutes, and each takes as long as the others.
const MANY_PROGRAMS: u32 = 50;

/// The duration of one call; `None` where this way is not available.
pub(crate) async fn measure(case: &Case, way: Way, engine: &Engine) -> Option<Duration> {
    match way {
        Way::Spawn => match case.act {
            Act::Run(["true"], _) => Some(block_in_place(spawn)),
            _ => None,
        },
        Way::Engine => Some(by_program(case.act, engine).await),
        Way::Link(transport) => by_link(case.act, transport, engine).await,
        Way::Coracle { guest } => match case.act {
            Act::Create => Some(block_in_place(|| engine.tool(guest).create())),
            Act::Destroy => Some(block_in_place(|| engine.tool(guest).destroy())),
            _ => None,
        },
    }
}

async fn by_program(act: Act, engine: &Engine) -> Duration {
    match act {
        Act::Create => return block_in_place(|| engine.create()),
        Act::Destroy => return block_in_place(|| engine.destroy()),
        _ => {}
    }
    let fresh = if let Act::First = act { Some(engine.container().await) } else { None };
    block_in_place(|| {
        let (it, mut calls) = (fresh.as_ref().unwrap_or(&engine.held), 1);
        let begun = Instant::now();
        match act {
            Act::Run(words, expected) => assert_eq!(it.exec(words), expected.as_bytes()),
            Act::Read(bytes) => assert_eq!(it.exec(&["cat", &file(bytes)]).len(), bytes),
            Act::Write(bytes) => it.feed(&["sh", "-c", "cat > /tmp/written"], &engine.data[..bytes]),
            Act::InTurn => {
                calls = MANY_PROGRAMS;
                (0..calls).for_each(|_| drop(it.exec(&["true"])));
            }
            Act::AtOnce => {
                calls = MANY_PROGRAMS;
                it.exec_at_once(&["true"], calls);
            }
            Act::First | Act::OneShot(_) => drop(it.exec(&["true"])),
            Act::Create | Act::Destroy => unreachable!("they are no commands"),
        }
        begun.elapsed() / calls
    })
}

async fn by_link(act: Act, transport: Transport, engine: &Engine) -> Option<Duration> {
    match act {
        Act::First => {
            let fresh = engine.container().await;
            let begun = Instant::now();
            engine.hold(&fresh, transport).await.exec(&["true"]).await;
            Some(begun.elapsed())
        }
        Act::OneShot(mouth) => Some(block_in_place(|| engine.one_shot(mouth, transport))),
        Act::Create | Act::Destroy => None,
        _ => {
            let begun = Instant::now();
            let calls = over(engine.link(transport), act, engine).await;
            Some(begun.elapsed() / calls)
        }
    }
}

/// The number of calls.
async fn over(held: &Arc<Held>, act: Act, engine: &Engine) -> u32 {
    match act {
        Act::Run(words, expected) => assert_eq!(held.exec(words).await, expected.as_bytes()),
        Act::Read(bytes) => assert_eq!(held.read(&file(bytes)).await.len(), bytes),
        Act::Write(bytes) => held.write("/tmp/written", &engine.data[..bytes]).await,
        Act::InTurn => {
            for _ in 0..MANY {
                held.exec(&["true"]).await;
            }
            return MANY;
        }
        Act::AtOnce => {
            let mut calls = JoinSet::new();
            for _ in 0..MANY {
                let held = held.clone();
                calls.spawn(async move { held.exec(&["true"]).await });
            }
            calls.join_all().await;
            return MANY;
        }
        Act::First | Act::OneShot(_) | Act::Create | Act::Destroy => {
            unreachable!("a held link is not what they measure")
        }
    }
    1
}

/// A file of that length, in every container.
fn file(bytes: usize) -> String {
    format!("/tmp/{bytes}")
}

/// Creates the files to read.
pub(crate) fn prepare(container: &Container) {
    for case in CASES {
        if let Act::Read(bytes) = case.act {
            container.exec(&["sh", "-c", &format!("head -c {bytes} /dev/zero > {}", file(bytes))]);
        }
    }
}
