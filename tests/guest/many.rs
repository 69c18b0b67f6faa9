//! Many commands.

use coracle_types::Exit;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{MIB, argv, memory, until, zombies};
use crate::engines::{Running, with_a_real_guest};

/// At once.
const LANES: usize = 16;

async fn run(running: &Running<'_>, count: usize) {
    let mut lanes = JoinSet::new();
    for _ in 0..LANES {
        let link = running.link().clone();
        lanes.spawn(async move {
            for _ in 0..count / LANES {
                let it = link.exec(argv(&["true"])).await.unwrap();
                assert_eq!((it.exit, it.left_running, it.retried), (Exit::Code(0), 0, false));
            }
        });
    }
    while let Some(done) = lanes.join_next().await {
        done.unwrap();
    }
}

#[tokio::test]
async fn thousands_of_commands_leave_no_zombie_and_no_memory_behind() {
    with_a_real_guest(async |running| {
        // The retained output of the last jobs is available after the first ones.
        run(running, 1600).await;
        let (before, begun) = (memory(running.pid1()), Instant::now());
        let count = 4000;
        run(running, count).await;
        let (took, grown) = (begun.elapsed(), memory(running.pid1()).saturating_sub(before));
        eprintln!("{count} commands in {took:?}, {} KiB more", grown >> 10);
        assert!(grown < 8 * MIB, "{} KiB", grown >> 10);
        until("no zombie is left", async || zombies(running).is_empty()).await;
        assert_eq!(
            running.link().jobs().await.unwrap(),
            [],
            "a command that was reported and left no process is no job"
        );
    })
    .await;
}
