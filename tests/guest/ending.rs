//! Ends: of a command with all that it started, and of the container.

use std::time::Duration;

use coracle_types::{Error, Exec, Exit, Ids, LimitKind};
use tokio::time::Instant;

use super::{AGENT, argv, sh, total, until, zombies};
use crate::engines::{Lack, Running, with_a_guest, with_a_real_guest};

/// A number of seconds that no other process on this machine sleeps for: processes of the fake are the host's.
fn unlike_any_other() -> u32 {
    1_000_000 + u32::from_str_radix(&coracle_types::random_hex::<3>(), 16).unwrap()
}

/// Number of processes that sleep for that long.
async fn sleepers(running: &Running<'_>, seconds: u32) -> usize {
    let all = running.printed(sh("cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n'; true")).await;
    let lines: Vec<_> = all.lines().collect();
    lines.windows(2).filter(|it| it[0].ends_with("sleep") && it[1] == seconds.to_string()).count()
}

#[tokio::test]
async fn all_processes_of_a_command_end_within_3_s_of_its_limit() {
    with_a_real_guest(async |running| {
        let (n, others) = (unlike_any_other(), unlike_any_other());
        // Forked, forked twice, deaf to TERM, in a session of its own, without an environment to be known by.
        let away = format!(
            "trap '' TERM; echo so far; sleep {n} & (sleep {n} &) & setsid sleep {n} & env -i /bin/sleep {n} & \
             setsid env -i /bin/sh -c \"trap '' TERM; (sleep {n} & sleep {n}) & sleep {n}\" & sleep {n}; sleep {n}"
        );
        for user in [AGENT, Ids::ROOT] {
            let other = running.exec(Exec { limits: total(4000), ..sh(&format!("sleep {others}; echo no")) });
            let ending = async {
                let begun = Instant::now();
                let it = running.ran(Exec { user, limits: total(1000), ..sh(&away) }).await;
                let took = begun.elapsed();
                assert_eq!((it.exit, it.tree_ended), (Exit::TimedOut(LimitKind::Total), Some(true)));
                assert_eq!(it.stdout.text(), "so far\n");
                assert!(took < Duration::from_secs(1 + 3), "{took:?}");
                assert_eq!(sleepers(running, n).await, 0);
                assert_eq!(sleepers(running, others).await, 1, "another command is disturbed");
            };
            let (other, ()) = tokio::join!(other, ending);
            assert_eq!(other.unwrap().exit, Exit::TimedOut(LimitKind::Total));
        }
        assert_eq!(zombies(running), [""; 0]);
    })
    .await;
}

#[tokio::test]
async fn a_container_stops_at_once_when_its_commands_obey_term() {
    with_a_guest(async |running| {
        if running.case.lacks(Lack::Processes) {
            return;
        }
        let n = unlike_any_other();
        running.ran(sh(&format!("sleep {n} >/dev/null 2>&1 & (sleep {n} >/dev/null 2>&1 &)"))).await;
        let command = running.exec(sh(&format!("echo up; sleep {n}")));
        let stop = async {
            until("it runs", async || sleepers(running, n).await == 3).await;
            let begun = Instant::now();
            running.case.runtime.stop(&running.id, Duration::from_secs(10)).await.unwrap();
            begun.elapsed()
        };
        let (ended, took) = tokio::join!(command, stop);
        // Neither the guest's grace period of 2 s nor the engine's has to pass.
        assert!(took < Duration::from_millis(1500), "{took:?}");
        let Err(Error::NotRunning { output: Some(output), .. }) = ended else { panic!("{ended:?}") };
        assert_eq!(output.stdout.text(), "up\n");
        let seen = running.seen().await;
        assert!(!seen.running(), "{seen:?}");
        if running.case.is_real() {
            assert_eq!(seen.exit_code, Some(0), "PID 1 left by itself");
        }
    })
    .await;
}

#[tokio::test]
async fn orphans_are_taken_leave_of() {
    with_a_real_guest(async |running| {
        for _ in 0..20 {
            running.ran(sh("(sleep 0.01 & sleep 0.02 &) ; (true &) ; setsid sh -c 'true & true &'")).await;
        }
        until("no zombie is left", async || zombies(running).is_empty()).await;
        // A zombie of another parent shows that zombies are visible at all.
        let (n, script) = (unlike_any_other(), "true & exec sleep");
        let keeper = running.exec(Exec { limits: total(3000), ..argv(&["sh", "-c", &format!("{script} {n}")]) });
        let looks = async { until("there is one", async || zombies(running).len() == 1).await };
        tokio::join!(keeper, looks).0.unwrap();
        until("it is gone with its parent", async || zombies(running).is_empty()).await;
    })
    .await;
}
