//! A process that is killed at any step of an operation: the next call repairs everything.
//!
//! `strace` kills a process at the entry of a chosen system call, counted in each of its threads: so every state is met that
//! lies between two calls that change something.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test ends where its expectation is not met")]

mod case;
mod operation;
mod reboot;
mod remains;
mod strace;

use case::Case;
use operation::{Operation, VICTIM};
use strace::KillPoint;

/// Kills for each operation, evenly spread over its system calls: more than 200 in all. `CORACLE_CRASH_ALL` asks for each.
const KILLS: usize = 29;

/// Not a test by itself: what the killed process runs.
#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::disallowed_methods, reason = "the variable marks a process of the test")]
async fn victim() {
    let Ok(words) = std::env::var(VICTIM) else { return };
    operation::run(&words).await;
}

async fn check(operation: Operation) {
    if !rustix::process::geteuid().is_root() {
        return coracle_skips::skip(coracle_skips::NEEDS_ROOT);
    }
    if coracle_host::find_program::find_program("strace").is_err() {
        return coracle_skips::skip(coracle_skips::NEEDS_STRACE);
    }
    let case = Case::new().await;
    let prepared = case.prepare(operation).await;
    let all = strace::kill_points(&prepared).await;
    case.finish(&prepared).await;
    assert!(all.len() > 10, "{operation:?}: {all:?}");
    let chosen = spread(all);
    for point in chosen {
        let prepared = case.prepare(operation).await;
        strace::kill_at(&prepared, &point).await;
        case.check(&prepared, &point).await;
    }
}

#[expect(clippy::disallowed_methods, reason = "set by the user who runs the test")]
fn spread(all: Vec<KillPoint>) -> Vec<KillPoint> {
    if std::env::var_os("CORACLE_CRASH_ALL").is_some() || all.len() <= KILLS {
        return all;
    }
    (0..KILLS).map(|it| all[it * all.len() / KILLS].clone()).collect()
}

#[tokio::test]
async fn killed_while_it_creates() {
    check(Operation::Create).await;
}

#[tokio::test]
async fn killed_while_it_starts() {
    check(Operation::Start).await;
}

#[tokio::test]
async fn killed_while_it_commits() {
    check(Operation::Commit).await;
}

#[tokio::test]
async fn killed_while_it_forks() {
    check(Operation::Fork).await;
}

#[tokio::test]
async fn killed_while_it_copies_an_image() {
    check(Operation::CopyImage).await;
}

#[tokio::test]
async fn killed_while_it_stops() {
    check(Operation::Stop).await;
}

#[tokio::test]
async fn killed_while_it_removes() {
    check(Operation::Remove).await;
}

#[tokio::test]
async fn killed_while_it_changes_networks_and_volumes() {
    check(Operation::NetworksAndVolumes).await;
}
