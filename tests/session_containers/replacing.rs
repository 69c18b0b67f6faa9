//! Slots whose container was removed or stopped, whose record is lost, or whose container is foreign.

use super::*;

#[tokio::test]
async fn w05_a_killed_or_removed_container_is_replaced_with_its_files() {
    with_bench(async |bench| {
        let (here, there) = (bench.process(), bench.process());
        let first = here.slot().await;
        printed(&first, "echo kept > file; echo lost > /tmp/file").await;
        there.slot().await;
        bench.program(&["kill", id(&first)]).await;
        let second = here.slot().await;
        assert_eq!(news(&second), Some((Reason::Crashed, 1, 2, false)));
        assert_eq!(second.replacement.as_ref().unwrap().exit_code, Some(137));
        assert_eq!(printed(&second, "cat file; ls /tmp").await, "kept\n");
        for process in [&here, &there] {
            let again = process.slot().await;
            assert_eq!((news(&again), again.slot.generation, id(&again)), (None, 2, id(&second)));
        }
        bench.program(&["rm", "--force", id(&second)]).await;
        let third = there.slot().await;
        assert_eq!(news(&third), Some((Reason::Vanished, 2, 3, false)));
        assert_eq!(printed(&third, "cat file").await, "kept\n");
        bench.program(&["rm", "--force", id(&third)]).await;
        bench.program(&["volume", "rm", &bench.volumes().await[0]]).await;
        let fourth = here.slot().await;
        assert_eq!(news(&fourth), Some((Reason::Vanished, 3, 4, true)));
        assert_eq!(printed(&fourth, "ls").await, "");
        assert_eq!(bench.left().await, (1, 1, 1));
        bench.program(&["kill", id(&fourth)]).await;
        let refused = here.ensure().await;
        assert!(matches!(refused, Err(SlotError::CrashLoop { reason: Reason::Crashed, .. })), "{refused:?}");
        ran("W05", bench.case.engine());
    })
    .await;
}

#[tokio::test]
async fn files_of_a_former_user_stay_with_their_container_and_nothing_is_removed_for_another() {
    with_bench(async |bench| {
        let here = bench.process();
        let first = here.slot().await;
        let (its_id, before) = (id(&first).to_owned(), bench.left().await);
        drop(first);
        let (observer, session) = (here.observer(), session());
        let user = Ids { uid: USER.uid + 1, gid: USER.gid + 1 };
        let rootless = here.plan.capabilities == Capabilities::None;
        let ask = EnsureRequest {
            session: &session,
            role: WS,
            spec_hash: "b",
            user,
            rootless,
            owner: None,
            observer: &observer,
        };
        let refused = here.slots.ensure(&*here.engines, ask, |runtime| here.plan.template(runtime)).await;
        let Err(SlotError::OtherUser { before: was, now, .. }) = refused else { panic!("{refused:?}") };
        assert_eq!((was, now), (USER, user));
        assert_eq!(bench.left().await, before);
        assert_eq!(id(&here.slot().await), its_id, "it is there as it was");
    })
    .await;
}

#[tokio::test]
async fn w07_a_paused_or_stopped_container_is_resumed_or_replaced() {
    with_bench(async |bench| {
        let here = bench.process();
        let first = here.slot().await;
        if !bench.case.lacks(Lack::Pause) {
            bench.program(&["pause", id(&first)]).await;
        }
        let again = here.slot().await;
        assert_eq!((news(&again), again.made, id(&again)), (None, false, id(&first)));
        assert_eq!(printed(&again, "echo on").await, "on\n");
        bench.program(&["stop", id(&first)]).await;
        let second = here.slot().await;
        assert_eq!(news(&second), Some((Reason::Crashed, 1, 2, false)));
        here.slots.discard(&*here.engines, SlotKey::new(&session(), WS), Reason::Timeout, None).await.unwrap();
        assert_eq!(bench.left().await, (0, 1, 1));
        assert_eq!(news(&here.slot().await), Some((Reason::Timeout, 2, 3, false)));
        ran("W07", bench.case.engine());
    })
    .await;
}

#[tokio::test]
async fn w12_a_damaged_record_is_rebuilt_from_its_container() {
    with_bench(async |bench| {
        let first = bench.process().slot().await;
        printed(&first, "echo kept > file").await;
        let file = bench.state.path().join("sessions/s1/workspace.json");
        for cut in [0, 100, 700] {
            let whole = std::fs::read(&file).unwrap();
            std::fs::write(&file, &whole[..cut.min(whole.len() - 3)]).unwrap();
            if cut == 100 {
                let containers = bench.state.path().join("containers");
                std::fs::remove_dir_all(&containers).unwrap();
                std::fs::create_dir(containers).unwrap();
            }
            let again = bench.process().slot().await;
            assert_eq!((id(&again), again.made, news(&again)), (id(&first), false, None), "cut at {cut}");
            assert_eq!(printed(&again, "cat file").await, "kept\n");
        }
        let ended = bench.process().end().await;
        assert_eq!((ended.ended.len(), bench.left().await.0), (1, 0), "{ended:?}");
        ran("W12", bench.case.engine());
    })
    .await;
}

#[tokio::test]
async fn a_container_with_foreign_labels_is_not_touched() {
    with_bench(async |bench| {
        let first = bench.process().slot().await;
        // Signed with another user's key.
        std::fs::write(bench.state.path().join("key"), random_hex::<16>()).unwrap();
        let refused = bench.process().ensure().await;
        let not_managed = matches!(refused, Err(SlotError::Lifecycle(coracle_lifecycle::Error::NotManaged { .. })));
        assert!(not_managed, "{refused:?}");
        let there = bench.case.runtime.inspect(&Handle::parse(id(&first)).unwrap()).await.unwrap();
        assert_eq!(there.status, ContainerStatus::Running);
    })
    .await;
}

#[tokio::test]
async fn x07_a_container_with_our_labels_copied_is_left_alone_and_one_of_ours_is_used() {
    with_bench(async |bench| {
        let sandbox = || Process { role: SlotRole::Sandbox, owner: None, ..bench.process() };
        let first = sandbox().slot().await;
        printed(&first, "echo kept > file").await;
        let ours = bench.containers().await.remove(0);
        let name = bench.case.name("copy").to_string();
        let labels = ours.labels.iter().map(|(key, value)| format!("--label={key}={value}"));
        let words: Vec<String> = ["run", "--detach", "--network=none", "--name", &name].map(str::to_owned).into();
        let words: Vec<_> = words.into_iter().chain(labels).chain([IMAGE, "sleep", "600"].map(str::to_owned)).collect();
        bench.program(&words.iter().map(String::as_str).collect::<Vec<_>>()).await;
        let copy = async || bench.case.runtime.inspect(&Handle::parse(&name).unwrap()).await.unwrap();
        let before = copy().await;
        assert_eq!((&before.labels, before.status), (&ours.labels, ContainerStatus::Running));
        let lose = || {
            std::fs::write(bench.state.path().join("sessions/s1/sandbox.json"), "").unwrap();
            let containers = bench.state.path().join("containers");
            std::fs::remove_dir_all(&containers).unwrap();
            std::fs::create_dir(containers).unwrap();
        };
        let used = async |what: &str, ours: bool| {
            let used = sandbox().slot().await;
            assert_eq!(id(&used) == id(&first), ours, "{what}");
            assert_ne!(id(&used), before.id.as_str(), "{what}");
            assert_eq!(printed(&used, "cat file").await, "kept\n", "{what}");
            assert_eq!(copy().await, before, "{what}");
            id(&used).to_owned()
        };
        used("all is there", true).await;
        lose();
        used("the records are lost", true).await;
        bench.case.runtime.remove(&ours.id).await.unwrap();
        let second = used("its container is gone", false).await;
        lose();
        bench.program(&["rm", "--force", &second]).await;
        used("records and container are gone", false).await;
        let ended = sandbox().end().await;
        assert_eq!((ended.ended.len(), ended.failed.len()), (1, 0), "{ended:?}");
        let (containers, volumes, _) = bench.left().await;
        assert_eq!((copy().await, containers, volumes), (before, 1, 0));
        ran("X07", bench.case.engine());
    })
    .await;
}
