//! A slot whose container is lost, or is not what is wanted any more.

use super::*;

#[tokio::test]
async fn a_failed_container_is_replaced_with_its_files_and_reported_once() {
    type Fault = fn(&FakeRuntime, &ContainerId);
    let cases: [(Fault, Reason, Option<i64>); 3] = [
        (FakeRuntime::crash, Reason::Crashed, Some(137)),
        (FakeRuntime::run_out_of_memory, Reason::Oom, Some(137)),
        (FakeRuntime::disappear, Reason::Vanished, None),
    ];
    for (fault, reason, exit_code) in cases {
        let bench = Bench::new();
        let (here, there) = (bench.process(), bench.process());
        let first = here.slot().await;
        write(&here.root(&first));
        there.slot().await;
        fault(&bench.fake, id(&first));
        bench.take_events();
        let second = here.slot().await;
        assert_eq!((reported(&second), second.made), (Some((reason, 1, 2, false)), true));
        assert_eq!(second.replacement.as_ref().unwrap().exit_code, exit_code);
        assert!(has_file(&here.root(&second)) && id(&first) != id(&second), "{reason:?}");
        let oom = reason == Reason::Oom;
        let expected = ContainerEvent::RecreatedAfterFailure { reason, exit_code, oom, from: 1, to: 2 };
        assert_eq!(bench.take_events()[0], expected);
        for process in [&here, &there] {
            let again = process.slot().await;
            assert_eq!((reported(&again), again.slot.generation, id(&again)), (None, 2, id(&second)));
        }
        assert_eq!(bench.left().await, (1, 1, 1, 1));
    }
}

#[tokio::test]
async fn one_that_stands_still_goes_on() {
    let bench = Bench::new();
    let (here, there) = (bench.process(), bench.process());
    let first = here.slot().await;
    bench.fake.pause(id(&first));
    let again = here.slot().await;
    assert_eq!((reported(&again), again.made, id(&again)), (None, false, id(&first)));
    // As a process leaves it that is killed between two steps.
    bench.fake.stop(id(&first), Duration::ZERO).await.unwrap();
    let second = there.slot().await;
    assert_eq!(reported(&second), Some((Reason::Crashed, 1, 2, false)));
}

#[tokio::test]
async fn a_guest_that_fell_silent_is_given_up() {
    let bench = Bench::new();
    let here = bench.process();
    let first = here.slot().await;
    bench.fake.silence(id(&first));
    let second = here.slot().await;
    assert_eq!(reported(&second), Some((Reason::Crashed, 1, 2, false)));
    assert_eq!(bench.left().await, (1, 1, 1, 1));
}

#[tokio::test]
async fn a_volume_that_is_gone_too_is_reported() {
    let bench = Bench::new();
    let here = bench.process();
    let first = here.slot().await;
    bench.fake.disappear(id(&first));
    for volume in bench.fake.list_volumes(&LabelFilter::default()).await.unwrap() {
        bench.fake.remove_volume(&volume.name).await.unwrap();
    }
    let second = here.slot().await;
    assert_eq!(reported(&second), Some((Reason::Vanished, 1, 2, true)));
    assert_eq!(bench.left().await, (1, 1, 1, 1));
}

#[tokio::test]
async fn x04_a_sandbox_that_ended_is_started_again_with_all_that_it_had() {
    let bench = Bench::new();
    let one = bench.process();
    let first = one.ensure_of(&session(), SlotRole::Sandbox).await.unwrap();
    let (root, first_id) = (one.root(&first), id(&first).clone());
    std::fs::write(root.join("installed"), "").unwrap();
    drop(first);
    bench.fake.stop(&first_id, Duration::ZERO).await.unwrap();
    let again = one.ensure_of(&session(), SlotRole::Sandbox).await.unwrap();
    assert_eq!((id(&again), reported(&again)), (&first_id, Some((Reason::Restarted, 1, 2, false))));
    assert!(root.join("installed").exists());
    assert_eq!(one.ensure_of(&session(), SlotRole::Sandbox).await.unwrap().slot.generation, 2);
}

#[tokio::test]
async fn other_settings_replace_an_unused_container() {
    let bench = Bench::new();
    let here = bench.process();
    let first = here.slot().await;
    let changed = Process { spec_hash: "b", slots: here.slots.clone(), ..bench.process() };
    assert_eq!(id(&changed.slot().await), id(&first), "a call is in it");
    let old = id(&first).clone();
    drop(first);
    let second = changed.slot().await;
    assert_eq!(reported(&second), Some((Reason::SpecChanged, 1, 2, false)));
    assert_ne!(*id(&second), old);
    assert_eq!(bench.left().await, (1, 1, 1, 1));
}

#[tokio::test]
async fn a_container_with_root_is_replaced_by_a_rootless_one_even_if_in_use() {
    let bench = Bench::new();
    let here = bench.process();
    let first = here.slot().await;
    assert!(!first.slot.rootless);
    let (slots, strict) = (here.slots.clone(), Some(user()));
    let strict = Process { spec_hash: "b", slots, user: strict, ..bench.process() };
    let second = strict.slot().await;
    assert_ne!(id(&second), id(&first), "a call is in it");
    assert_eq!((second.slot.rootless, second.slot.user, second.spec_pending), (true, user(), false));
    assert_eq!(reported(&second), Some((Reason::SpecChanged, 1, 2, false)));
    // Another process, which has seen neither.
    let third = bench.process().slot().await;
    assert_eq!((third.slot.rootless, reported(&third)), (false, Some((Reason::SpecChanged, 2, 3, false))));
}

#[tokio::test]
async fn files_whose_owner_cannot_be_changed_stay_with_their_container() {
    let bench = Bench::new();
    let here = bench.process();
    let first = here.slot().await;
    let stranger = Some(Ids { uid: 1001, gid: 1001 });
    let strict = Process { spec_hash: "b", slots: here.slots.clone(), user: stranger, ..bench.process() };
    for lost in [false, true] {
        if lost {
            bench.fake.crash(id(&first));
        }
        let refused = strict.ensure().await.unwrap_err();
        let SlotError::OtherUser { before, now, .. } = refused else { panic!("{refused:?}") };
        assert_eq!((before, Some(now)), (user(), stranger));
        assert_eq!(bench.left().await, (1, 1, 1, 1), "nothing was removed");
    }
    // Where nothing is left of them, nothing is reported as lost.
    bench.fake.disappear(id(&first));
    for volume in bench.fake.list_volumes(&LabelFilter::default()).await.unwrap() {
        bench.fake.remove_volume(&volume.name).await.unwrap();
    }
    assert!(!matches!(strict.ensure().await, Err(SlotError::OtherUser { .. })));
}

#[tokio::test]
async fn a_changed_user_is_refused_before_anything_is_removed() {
    let bench = Bench::new();
    let here = bench.process();
    let first = here.slot().await;
    let its_id = id(&first).clone();
    drop(first);
    let (observer, session) = (bench.observer(), session());
    let user = Ids { uid: 1001, gid: 1001 };
    let request = EnsureRequest { user, spec_hash: "b", ..ensure_request(&session, &observer) };
    let refused = here.slots.ensure(&bench.engines(), request, async |_| bench.plan().await).await;
    assert!(matches!(refused, Err(SlotError::OtherUser { now, .. }) if now == user), "{refused:?}");
    assert_eq!((bench.left().await, id(&here.slot().await)), ((1, 1, 1, 1), &its_id));
}

#[tokio::test]
async fn a_links_directory_is_not_reused_while_commands_run_or_before_a_first_connection() {
    if !rustix::process::geteuid().is_root() {
        return coracle_skips::skip(coracle_skips::NEEDS_ROOT);
    }
    type Fault = fn(&FakeRuntime, &ContainerId);
    let faults: [Fault; 2] = [
        |fake, id| {
            fake.pause(id);
            fake.fail_next(Verb::Start);
        },
        |fake, id| {
            fake.crash(id);
            fake.fail_next(Verb::Start);
        },
    ];
    for fault in faults {
        let bench = Bench::new();
        let here = Process { user: Some(user()), ..bench.process() };
        let first = here.ensure_of(&session(), SlotRole::Sandbox).await.unwrap();
        let lent = || {
            let record = bench.store().records().unwrap().remove(0);
            std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(bench.store().link_dir(&record)).unwrap()) != 0
        };
        assert!(!lent());
        fault(&bench.fake, id(&first));
        let mut slot = bench.store().slots().unwrap().remove(0);
        let looked = here.slots.inspect(&bench.fake, &mut slot).await.unwrap();
        assert!(matches!(looked, inspect::Liveness::Lost(_)), "{looked:?}");
        assert!(!lent());
    }
}

#[tokio::test]
async fn after_four_failures_nothing_is_made_for_a_minute() {
    let bench = Bench::new();
    let here = bench.process();
    for _ in 0..4 {
        let ready = here.slot().await;
        bench.fake.crash(id(&ready));
    }
    for _ in 0..2 {
        let refused = here.ensure().await;
        let Err(SlotError::CrashLoop { reason: Reason::Crashed, retry_after }) = refused else {
            panic!("it is refused: {:?}", refused.err())
        };
        assert!(retry_after <= Duration::from_secs(60) && retry_after > Duration::from_secs(50), "{retry_after:?}");
        assert_eq!(bench.containers().await.len(), 0);
    }
    bench.change(|record| record.refused_until = Some(Timestamp::now()));
    assert_eq!(reported(&here.slot().await), Some((Reason::Crashed, 4, 5, false)));
}
