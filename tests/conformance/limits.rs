//! Commands that are ended before their end: by a limit, by the caller, with their container.

use std::time::{Duration, Instant};

use coracle_types::{Chunk, Error, Exec, ExecLimits, Exit, LimitKind, Stream};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::sh;
use crate::engines::{Running, WITHOUT_WAITING, in_every_way, in_every_way_into_a_shared_one, ran as scenario_ran};

/// A number of seconds that no other process on this machine sleeps for: processes of the fake are the host's.
fn unlike_any_other() -> u32 {
    1_000_000 + u32::from_str_radix(&coracle_types::random_hex::<3>(), 16).unwrap()
}

/// Number of processes inside that sleep for that long.
async fn sleepers(running: &Running<'_>, seconds: u32) -> usize {
    let all = running.printed(sh("cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n'; true")).await;
    let lines: Vec<_> = all.lines().collect();
    lines.windows(2).filter(|it| it[0].ends_with("sleep") && it[1] == seconds.to_string()).count()
}

fn total(ms: u64) -> ExecLimits {
    ExecLimits { total: Some(Duration::from_millis(ms)), ..ExecLimits::default() }
}

fn silence(ms: u64) -> ExecLimits {
    ExecLimits { silence: Some(Duration::from_millis(ms)), ..ExecLimits::default() }
}

#[tokio::test]
async fn s57_a_total_limit_ends_the_whole_tree_and_keeps_the_output() {
    in_every_way_into_a_shared_one(async |running| {
        let n = unlike_any_other();
        let script = format!("echo a; sleep {n} & setsid sleep {n} & sleep {n}");
        let begun = Instant::now();
        let it = running.ran(Exec { limits: total(1000), ..sh(&script) }).await;
        // A guest signals the group; a process that left it is killed after the grace of 2 s.
        assert!(begun.elapsed() < WITHOUT_WAITING, "{:?}", begun.elapsed());
        assert_eq!((it.exit, it.tree_ended), (Exit::TimedOut(LimitKind::Total), Some(true)));
        assert_eq!(it.stdout.text(), "a\n");
        assert!(it.duration >= Duration::from_secs(1));
        assert_eq!(sleepers(running, n).await, 0);
        assert!(running.seen().await.running());
        scenario_ran("s57", running.case.engine());
    })
    .await;
}

#[tokio::test]
async fn a_child_that_left_its_session_and_ignores_term_is_ended_too() {
    in_every_way_into_a_shared_one(async |running| {
        let n = unlike_any_other();
        let stubborn = format!("trap \"\" TERM; echo ready; sleep {n}; sleep {n}");
        let script = format!("setsid sh -c '{stubborn}' & (sleep {n} &) ; sleep {n}");
        let limits = ExecLimits { grace: Duration::from_millis(500), ..total(1000) };
        let it = running.ran(Exec { limits, ..sh(&script) }).await;
        assert_eq!((it.stdout.text().as_str(), it.tree_ended), ("ready\n", Some(true)));
        assert_eq!(sleepers(running, n).await, 0);
    })
    .await;
}

#[tokio::test]
async fn only_the_command_is_ended_and_others_go_on() {
    in_every_way_into_a_shared_one(async |running| {
        let n = unlike_any_other();
        running.ran(sh(&format!("sleep {n} >/dev/null 2>&1 &"))).await;
        let it = running.ran(Exec { limits: total(300), ..sh("sleep 300") }).await;
        assert_eq!(it.exit, Exit::TimedOut(LimitKind::Total));
        assert_eq!(sleepers(running, n).await, 1);
    })
    .await;
}

#[tokio::test]
async fn a_command_may_catch_term_and_say_a_last_word() {
    in_every_way_into_a_shared_one(async |running| {
        let script = "trap 'echo bye; exit 0' TERM; echo up; while true; do sleep 0.1; done";
        let it = running.ran(Exec { limits: total(500), ..sh(script) }).await;
        assert_eq!((it.exit, it.stdout.text().as_str()), (Exit::TimedOut(LimitKind::Total), "up\nbye\n"));
    })
    .await;
}

#[tokio::test]
async fn silence_ends_a_silent_command_and_no_other() {
    in_every_way_into_a_shared_one(async |running| {
        let prints = "for i in 1 2 3 4 5 6; do echo $i >&2; sleep 0.4; done";
        assert_eq!(running.ran(Exec { limits: silence(1500), ..sh(prints) }).await.exit, Exit::Code(0));
        let it = running.ran(Exec { limits: silence(700), ..sh("echo once; sleep 300") }).await;
        assert_eq!((it.exit, it.tree_ended), (Exit::TimedOut(LimitKind::Silence), Some(true)));
        assert_eq!(it.stdout.text(), "once\n");
    })
    .await;
}

#[tokio::test]
async fn a_command_that_ends_in_time_is_not_touched() {
    in_every_way_into_a_shared_one(async |running| {
        let it = running.ran(Exec { limits: total(60_000), ..sh("echo done; exit 124") }).await;
        assert_eq!((it.exit, it.tree_ended, it.stdout.text().as_str()), (Exit::Code(124), None, "done\n"));
    })
    .await;
}

#[tokio::test]
async fn processes_left_by_a_command_do_not_delay_its_end() {
    in_every_way_into_a_shared_one(async |running| {
        let (n, begun) = (unlike_any_other(), Instant::now());
        let it = running.ran(sh(&format!("sleep {n} & echo up"))).await;
        assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
        assert_eq!((it.exit, it.stdout.text().as_str(), it.tree_ended), (Exit::Code(0), "up\n", None));
        // Only a guest counts the output and limits it.
        assert_eq!((it.left_running, it.job.is_some()), (u32::from(running.has_guest()), running.has_guest()));
        assert_eq!(sleepers(running, n).await, 1);
    })
    .await;
}

/// Runs a command, calls `act` after its first output, and returns the result.
async fn act_at_first_output(
    running: &Running<'_>,
    mut exec: Exec,
    act: impl AsyncFnOnce(),
) -> coracle_types::Result<coracle_types::ExecOutput> {
    let (sender, mut chunks) = mpsc::channel::<Chunk>(8);
    exec.live = Some(sender);
    let acting = async {
        let first = chunks.recv().await.unwrap();
        assert_eq!((first.stream, first.bytes.as_slice()), (Stream::Stdout, &b"up\n"[..]));
        act().await;
    };
    tokio::join!(running.exec(exec), acting).0
}

#[tokio::test]
async fn a_cancel_ends_the_tree_and_keeps_the_output() {
    in_every_way_into_a_shared_one(async |running| {
        let (n, cancel) = (unlike_any_other(), CancellationToken::new());
        let exec = Exec { cancel: cancel.clone(), ..sh(&format!("echo up; sleep {n} & sleep {n}")) };
        let it = act_at_first_output(running, exec, async || cancel.cancel()).await.unwrap();
        assert_eq!((it.exit, it.tree_ended), (Exit::Cancelled, Some(true)));
        assert_eq!(it.stdout.text(), "up\n");
        assert_eq!(sleepers(running, n).await, 0);
    })
    .await;
}

#[tokio::test]
async fn a_command_whose_container_is_stopped_tells_so_and_gives_its_output() {
    in_every_way(async |running| {
        let stop = async || running.case.runtime.stop(&running.id, Duration::from_secs(10)).await.unwrap();
        let it = act_at_first_output(running, sh("echo up; sleep 300"), stop).await;
        let Err(Error::NotRunning { output: Some(output), .. }) = it else { panic!("{it:?}") };
        assert_eq!(output.stdout.text(), "up\n");
    })
    .await;
}
