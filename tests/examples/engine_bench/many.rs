//! The cost of a thousand idle containers in time and memory, and of creating several concurrently.

use std::sync::Arc;
use std::time::Instant;

use crate::embedded::{Answering, Embedded};
use crate::ending;
use crate::measured::Measured;

const RESTING: usize = 1000;

/// Containers of one step of the curve.
const STEP: usize = 20;

/// Number of containers that are created with each number of workers.
const AT_ONCE: usize = 120;

pub(crate) async fn measure(engine: &Embedded, measured: &mut Measured) {
    for workers in [1, 2, 4] {
        at_once(engine, workers, measured).await;
    }
    resting(engine, measured).await;
}

/// The time is the whole divided by their number. They are removed when all are there.
async fn at_once(engine: &Embedded, workers: usize, measured: &mut Measured) {
    let permits = Arc::new(tokio::sync::Semaphore::new(workers));
    let mut made: Vec<Answering> = Vec::new();
    let begun = Instant::now();
    let futures = (0..AT_ONCE).map(|_| {
        let permits = Arc::clone(&permits);
        async move {
            let _permit = permits.acquire_owned().await.unwrap();
            engine.answering(false).await
        }
    });
    made.extend(futures_util::future::join_all(futures).await);
    let each = begun.elapsed() / u32::try_from(AT_ONCE).unwrap();
    measured.add("embedded", "at-once", &workers.to_string(), each);
    for it in made {
        engine.remove(it).await;
    }
}

async fn resting(engine: &Embedded, measured: &mut Measured) {
    let before = available();
    let mut all = Vec::new();
    for number in 0..RESTING {
        ending::go_on();
        let it = engine.answering(false).await;
        let step = (number / STEP + 1) * STEP;
        measured.add("embedded", "nth", &step.to_string(), it.answered);
        all.push(it);
    }
    eprintln!("{RESTING} containers rest");
    let each = before.saturating_sub(available()) / u64::try_from(RESTING).unwrap();
    measured.size("machine", vec![each]);
    let (mut pss, mut anonymous) = (Vec::new(), Vec::new());
    for it in all.iter().step_by(20) {
        let rollup = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", engine.pid(it).await)).unwrap();
        pss.push(field(&rollup, "Pss:"));
        anonymous.push(field(&rollup, "Anonymous:"));
    }
    measured.size("pss", pss);
    measured.size("anonymous", anonymous);
    for it in all {
        let took = engine.remove(it).await;
        measured.add("embedded", "destroy-resting", "alone", took);
    }
    let left = before.saturating_sub(available());
    measured.size("left", vec![left]);
}

/// Available memory of the machine, in KiB.
fn available() -> u64 {
    field(&std::fs::read_to_string("/proc/meminfo").unwrap(), "MemAvailable:")
}

fn field(text: &str, name: &str) -> u64 {
    let value = text.lines().find_map(|it| it.strip_prefix(name)).unwrap();
    value.trim().trim_end_matches(" kB").trim().parse().unwrap()
}
