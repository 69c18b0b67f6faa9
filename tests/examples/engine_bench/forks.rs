//! Forks of a container that runs, with few and with many files of its own.

use std::time::Duration;

use crate::embedded::{Answering, Embedded};
use crate::ending;
use crate::measured::Measured;

/// Directories, and files of 20 kB in each.
const SIZES: [(&str, u32, u32); 2] = [("few", 1, 20), ("many", 50, 100)];

pub(crate) async fn measure(engine: &Embedded, rounds: usize, measured: &mut Measured) {
    for (way, directories, files) in SIZES {
        let parent = engine.answering(false).await;
        parent.script(&filling(directories, files)).await;
        for _ in 0..rounds {
            ending::go_on();
            let fork = engine.forked(&parent).await;
            measured.add("embedded", "fork", way, fork.answered);
            engine.remove(fork).await;
            let (fork, longest) = fork_while_asking(engine, &parent).await;
            measured.add("embedded", "fork-parent", way, longest);
            engine.remove(fork).await;
        }
        engine.remove(parent).await;
    }
}

fn filling(directories: u32, files: u32) -> String {
    format!(
        "head -c 20000 /bin/busybox >/tmp/x; for d in $(seq {directories}); do mkdir -p /data/$d; \
         for f in $(seq {files}); do cat /tmp/x >/data/$d/$f; done; done"
    )
}

/// The longest duration of a command in the parent during the fork.
async fn fork_while_asking(engine: &Embedded, parent: &Answering) -> (Answering, Duration) {
    let (mut longest, mut fork) = (Duration::ZERO, std::pin::pin!(engine.forked(parent)));
    loop {
        let (made, took) = tokio::join!(tokio::time::timeout(Duration::ZERO, &mut fork), parent.answer());
        longest = longest.max(took);
        if let Ok(made) = made {
            return (made, longest);
        }
    }
}
