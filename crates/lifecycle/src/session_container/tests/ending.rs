//! The end of a session: by its word, or because its process is gone.

use super::*;

#[tokio::test]
async fn the_end_takes_all_of_one_session_and_it_has_no_rooms_any_more() {
    let bench = Bench::new();
    let (here, other) = (bench.process(), ContainerName::parse("s2").unwrap());
    here.slot().await;
    here.ensure_of(&session(), SlotRole::Run).await.unwrap();
    here.ensure_of(&other, WS).await.unwrap();
    let over = here.ensure_of(&other, SlotRole::Run).await;
    assert!(matches!(over, Err(SlotError::NotMade(Error::LimitReached { limit: 3, .. }))));
    assert_eq!(bench.left().await, (3, 3, 3, 2));
    let ended = here.end(SavePolicy::Discard).await;
    assert_eq!((ended.ended.len(), ended.failed.len()), (2, 0), "{ended:?}");
    assert_eq!(bench.left().await, (1, 1, 1, 1));
    assert!(matches!(here.ensure().await, Err(SlotError::Ended(_))));
    here.slots.reopen(&session());
    assert_eq!(here.slot().await.slot.generation, 1);
}

#[tokio::test]
async fn what_an_end_left_over_is_finished_by_the_next_process() {
    let bench = Bench::new();
    let here = bench.process();
    here.slot().await;
    bench.fake.fail_next(Verb::RemoveVolume);
    let ended = here.end(SavePolicy::Discard).await;
    assert_eq!((ended.ended.len(), ended.failed.len()), (0, 1), "{ended:?}");
    assert!(matches!(bench.take_events().last(), Some(ContainerEvent::CleanupFailed { .. })));
    let there = bench.process();
    assert!(matches!(there.ensure().await, Err(SlotError::Ended(_))));
    assert_eq!(there.recover(SignedDuration::ZERO).await.ended.len(), 1);
    assert_eq!(bench.left().await, (0, 0, 0, 0));
    assert_eq!(there.slot().await.slot.generation, 1);
}

#[tokio::test]
async fn what_cannot_be_ended_is_tried_again_later() {
    let bench = Bench::new();
    let here = bench.process();
    here.slot().await;
    bench.fake.fail_next(Verb::RemoveVolume);
    here.end(SavePolicy::Discard).await;
    let there = bench.process();
    bench.fake.fail_next(Verb::RemoveVolume);
    assert_eq!(there.recover(SignedDuration::ZERO).await.failed.len(), 1);
    let soon = there.recover(SignedDuration::from_secs(30)).await;
    assert_eq!((soon.ended.len(), soon.failed.len()), (0, 0), "{soon:?}");
    assert_eq!(there.recover(SignedDuration::from_secs(90)).await.ended.len(), 1);
}

#[tokio::test]
async fn those_that_the_time_does_not_reach_are_as_they_were() {
    let bench = Bench::new();
    let dead = ProcessId { pid: u32::MAX, ..ProcessId::current() };
    let (lived, there) = (Process { owner: Some(dead), ..bench.process() }, bench.process());
    for session in ["s1", "s2", "s3"] {
        drop(lived.ensure_of(&ContainerName::parse(session).unwrap(), WS).await.unwrap());
    }
    bench.fake.slow(Verb::Remove, Duration::from_secs(50));
    let observer = bench.observer();
    let ending = EndOptions { within: Duration::from_secs(2), ..ending(SavePolicy::Discard, &observer) };
    let done = there.slots.recover(&bench.engines(), &later(121, 121), &ending).await.unwrap();
    assert_eq!((done.ended.len(), done.failed.len()), (0, 1), "{done:?}");
    let marked = bench.store().slots().unwrap().into_iter().filter(|it| it.ending).count();
    assert_eq!(marked, 1, "the sessions of the others go on if their client comes back");
}

#[tokio::test]
async fn one_that_another_call_is_ending_is_left_to_it() {
    let bench = Bench::new();
    let here = bench.process();
    here.slot().await;
    bench.fake.fail_next(Verb::RemoveVolume);
    here.end(SavePolicy::Discard).await;
    let (there, session) = (bench.process(), session());
    let held = bench.store().lock_slot(SlotKey::new(&session, WS)).await.unwrap();
    let left = there.recover(SignedDuration::ZERO).await;
    assert_eq!((left.ended.len(), left.failed.len()), (0, 0), "{left:?}");
    drop(held);
    assert_eq!(there.recover(SignedDuration::ZERO).await.ended.len(), 1);
}

#[tokio::test]
async fn a_session_that_the_person_could_not_end_goes_on() {
    let bench = Bench::new();
    let here = bench.process();
    write(&here.root(&here.slot().await));
    bench.fake.fail_next(Verb::RemoveVolume);
    let observer = bench.observer();
    let ending = EndOptions { reason: EndReason::Command, ..ending(SavePolicy::Discard, &observer) };
    let ended = here.slots.end(&bench.engines(), &session(), &ending).await.unwrap();
    assert_eq!((ended.ended.len(), ended.failed.len()), (0, 1), "{ended:?}");
    assert!(has_file(&here.root(&here.slot().await)), "its files are there to be taken out");
}

#[tokio::test]
async fn work_is_saved_before_its_volume_goes_also_when_its_container_is_gone() {
    if !coracle_skips::has_root() {
        return;
    }
    for gone in [false, true] {
        let bench = Bench::new();
        let here = bench.process();
        let ready = here.slot().await;
        write(&here.root(&ready));
        if gone {
            bench.fake.disappear(id(&ready));
        }
        let observer = bench.observer();
        let keep = SavePolicy::Keep(SaveLimits { max_bytes: 1 << 20, time: Duration::from_secs(10) });
        if gone {
            let unsaved = here.end(keep).await;
            assert!(matches!(unsaved.failed[..], [(.., SlotError::Lifecycle(Error::SaveFailed { .. }))]));
            assert_eq!(bench.volumes().await, 1, "without a container its files could not be read");
        }
        let plan = bench.plan().await.unwrap();
        let ending = EndOptions { reader: Some((&plan.guest, &plan.policy)), ..ending(keep, &observer) };
        let ended = here.slots.end(&bench.engines(), &session(), &ending).await.unwrap();
        assert_eq!((ended.ended.len(), ended.saved.len(), ended.saved.first().map(|it| it.files)), (1, 1, Some(1)));
        assert_eq!(bench.left().await, (0, 0, 0, 0), "{ended:?}");
    }
}

#[tokio::test]
async fn a_session_goes_when_its_process_is_dead_and_its_lease_is_over() {
    let bench = Bench::new();
    let dead = ProcessId { pid: u32::MAX, ..ProcessId::current() };
    let (lived, next) = (Process { owner: Some(dead), ..bench.process() }, bench.process());
    lived.slot().await;
    assert!(next.recover(SignedDuration::from_secs(119)).await.ended.is_empty());
    assert_eq!(next.recover(SignedDuration::from_secs(121)).await.ended.len(), 1);
    assert_eq!(bench.left().await, (0, 0, 0, 0));

    next.slot().await;
    assert!(next.recover(SignedDuration::from_hours(9)).await.ended.is_empty(), "its process lives");
    next.end(SavePolicy::Discard).await;
    let unowned = Process { owner: None, ..bench.process() };
    unowned.slot().await;
    assert!(unowned.recover(SignedDuration::from_hours(9)).await.ended.is_empty(), "it ends only on request");
}

#[tokio::test]
async fn a_lease_is_renewed_by_its_owner_and_taken_over_from_a_dead_one() {
    let bench = Bench::new();
    let dead = ProcessId { pid: u32::MAX, ..ProcessId::current() };
    let it = Process { owner: Some(dead), ..bench.process() };
    it.slot().await;
    let before = bench.store().slots().unwrap().remove(0);
    it.slots.renew(&ProcessId::current()).unwrap();
    let after = bench.store().slots().unwrap().remove(0);
    assert!(after.expires_at > before.expires_at && after.owner == Some(ProcessId::current()));
}
