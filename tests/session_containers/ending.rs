//! Unused session containers, and the end of their session.

use super::*;

#[tokio::test]
async fn w08_an_unused_container_is_removed_but_not_while_a_command_runs() {
    with_bench(async |bench| {
        let (here, other) = (bench.process(), bench.process());
        let first = here.slot().await;
        printed(&first, "echo kept > file").await;
        let link = first.link.clone();
        drop(first);
        let begun = link.start(sh("sleep 300"), None).await.unwrap();
        for process in [&here, &other] {
            process.sweep(1000).await;
            assert_eq!(bench.left().await, (1, 1, 1), "a command runs in it");
        }
        let job = coracle_types::JobId::parse(&begun.job).unwrap();
        link.cancel(&job, Duration::ZERO).await.unwrap();
        drop(link);
        bench.events();
        other.sweep(1000).await;
        assert_eq!(bench.left().await, (0, 1, 1));
        assert!(matches!(*bench.events(), [ContainerEvent::IdleCleanup { idle_seconds: 900.. }]));
        let second = here.slot().await;
        assert_eq!(news(&second), Some((Reason::Idle, 1, 2, false)));
        assert_eq!(printed(&second, "cat file").await, "kept\n");
        drop(second);
        // It is removed permanently after a long time.
        other.expire(30_000).await;
        assert_eq!(bench.left().await, (0, 0, 1));
        assert!(matches!(bench.events().last(), Some(ContainerEvent::Ended { reason: EndReason::Lifetime })));
        let third = here.slot().await;
        assert_eq!((news(&third), third.slot.generation), (Some((Reason::Lifetime, 2, 1, true)), 1));
        ran("W08", bench.case.engine());
    })
    .await;
}

#[tokio::test]
async fn w08_an_unused_container_with_a_proxy_is_removed_but_not_while_a_command_runs() {
    with_bench(async |bench| {
        if bench.case.lacks(Lack::Stream) {
            return;
        }
        let mut here = bench.process();
        here.plan.by_stream = true;
        let first = here.slot().await;
        if first.link.transport() != Some(Transport::Stream) {
            return bench.case.left_out(); // an engine that is played runs no commands of its own
        }
        // The process that runs its proxy has the link as long as it lives.
        let (link, container) = (first.link.clone(), id(&first).to_owned());
        drop(first);
        let mut other_exec = engine_program(bench.case.engine().as_str());
        let mut other_exec = other_exec.args(["exec", &container, "sleep", "4"]).spawn().unwrap();
        let sees = async |execs: usize| {
            let begun = std::time::Instant::now();
            while bench.containers().await[0].execs != execs {
                assert!(begun.elapsed() < Duration::from_secs(20), "{execs} are not seen");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        sees(2).await;
        here.sweep(1000).await;
        assert_eq!(bench.left().await, (1, 1, 1), "a command runs in it");
        assert!(other_exec.wait().await.unwrap().success());
        sees(1).await;
        assert_eq!(link.transport(), Some(Transport::Stream), "a status query closes no proxy");
        here.sweep(1000).await;
        assert_eq!(bench.left().await, (0, 1, 1));
        drop(link);
        ran("W08", bench.case.engine());
    })
    .await;
}

#[tokio::test]
async fn w09_a_command_of_15_minutes_or_a_clock_change_removes_no_container() {
    const IDLE: u64 = 15 * 60;
    const JUMP: i64 = 2 * 60 * 60;
    with_bench(async |bench| {
        let (here, other) = (bench.process(), bench.process());
        let link = here.slot().await.link.clone();
        let command = link.start(sh("echo $$ > command; sleep 3000"), None).await.unwrap();
        for process in [&here, &other] {
            for (wall, up) in [(IDLE as i64, IDLE), (JUMP, 60), (JUMP + IDLE as i64, IDLE + 1), (-JUMP, IDLE + 1)] {
                process.sweep_by(wall, up).await;
                assert_eq!(bench.left().await, (1, 1, 1), "a command runs in it: {wall} s, {up} s");
            }
        }
        let running = here.slot().await;
        assert_eq!((news(&running), running.made), (None, false));
        printed(&running, "kill -0 $(cat command)").await;
        let job = coracle_types::JobId::parse(&command.job).unwrap();
        link.cancel(&job, Duration::ZERO).await.unwrap();
        drop((running, link));
        // Nothing runs, but only one of the two clocks shows a long time.
        for process in [&here, &other] {
            for (wall, up) in [(JUMP, 60), (-JUMP, IDLE + 1), (60, IDLE + 1)] {
                process.sweep_by(wall, up).await;
                assert_eq!(bench.left().await, (1, 1, 1), "a clock jumped: {wall} s, {up} s");
            }
        }
        // The same sweep, once both do.
        other.sweep_by(JUMP + IDLE as i64, IDLE + 60).await;
        assert_eq!(bench.left().await, (0, 1, 1));
        ran("W09", bench.case.engine());
    })
    .await;
}

#[tokio::test]
async fn w10_the_end_takes_everything_and_keeps_work() {
    with_bench(async |bench| {
        let here = bench.process();
        let ready = here.slot().await;
        printed(&ready, "mkdir -p src && echo work > src/file").await;
        let begun = std::time::Instant::now();
        let ended = here.end().await;
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
        assert_eq!((ended.ended.len(), ended.failed.len()), (1, 0), "{ended:?}");
        assert_eq!(ended.saved.iter().map(|it| it.files).collect::<Vec<_>>(), [1]);
        assert_eq!(bench.left().await, (0, 0, 0));
        assert!(matches!(here.ensure().await, Err(SlotError::Ended(_))));
        ran("W10", bench.case.engine());
    })
    .await;
}

#[tokio::test]
async fn w11_the_next_process_ends_what_a_dead_one_left() {
    with_bench(async |bench| {
        let dead = ProcessId { pid: u32::MAX, ..ProcessId::current() };
        for gone in [false, true] {
            let lived = Process { owner: Some(dead.clone()), ..bench.process() };
            let ready = lived.slot().await;
            printed(&ready, "echo work > file").await;
            if gone {
                // Even if it was not used, the content of the volume is work.
                bench.program(&["rm", "--force", id(&ready)]).await;
            }
            let next = bench.process();
            assert!(next.recover(SignedDuration::from_secs(100)).await.ended.is_empty(), "its lease is not over");
            let ended = next.recover(SignedDuration::from_secs(130)).await;
            assert_eq!((ended.ended.len(), ended.failed.len()), (1, 0), "{ended:?}");
            assert_eq!(ended.saved.iter().map(|it| it.files).collect::<Vec<_>>(), [1], "gone: {gone}");
            assert_eq!(bench.left().await, (0, 0, 0));
        }
        ran("W11", bench.case.engine());
    })
    .await;
}

#[tokio::test]
async fn r15_the_next_process_ends_the_snippets_of_a_dead_one_and_keeps_nothing_of_them() {
    with_bench(async |bench| {
        let dead = ProcessId { pid: u32::MAX, ..ProcessId::current() };
        for role in [None, Some(WS)] {
            let lived = Process { owner: Some(dead.clone()), role: SlotRole::Run, ..bench.process() };
            printed(&lived.slot().await, "echo fetched > file").await;
            if let Some(role) = role {
                printed(&Process { role, ..lived }.slot().await, "echo work > file").await;
            }
            let next = bench.process();
            assert!(next.recover(SignedDuration::from_secs(100)).await.ended.is_empty(), "its lease is not over");
            let ended = next.recover(SignedDuration::from_secs(130)).await;
            let roles = 1 + role.iter().count();
            assert_eq!((ended.ended.len(), ended.failed.len()), (roles, 0), "{ended:?}");
            assert_eq!(ended.saved.len(), role.iter().count(), "only the workspace is work: {ended:?}");
            assert_eq!(bench.left().await, (0, 0, 0));
        }
        ran("R15", bench.case.engine());
    })
    .await;
}
