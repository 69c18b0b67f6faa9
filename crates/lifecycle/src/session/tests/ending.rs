//! The end of a session: by its word, or because its process is gone.

use super::*;

#[tokio::test]
async fn the_end_takes_all_of_one_session_and_it_has_no_rooms_any_more() {
    let bench = Bench::new();
    let (here, other) = (bench.process(), ContainerName::parse("s2").unwrap());
    here.room().await;
    here.ensure_of(&session(), RoomRole::Run).await.unwrap();
    here.ensure_of(&other, WS).await.unwrap();
    let over = here.ensure_of(&other, RoomRole::Run).await;
    assert!(matches!(over, Err(RoomError::NotMade(Error::LimitReached { limit: 3, .. }))));
    assert_eq!(bench.left().await, (3, 3, 3, 2));
    let ended = here.end(Saving::Discard).await;
    assert_eq!((ended.ended.len(), ended.failed.len()), (2, 0), "{ended:?}");
    assert_eq!(bench.left().await, (1, 1, 1, 1));
    assert!(matches!(here.ensure().await, Err(RoomError::Ended(_))));
    here.rooms.reopen(&session());
    assert_eq!(here.room().await.room.generation, 1);
}

#[tokio::test]
async fn what_an_end_left_over_is_finished_by_the_next_process() {
    let bench = Bench::new();
    let here = bench.process();
    here.room().await;
    bench.fake.fail_next(Verb::RemoveVolume);
    let ended = here.end(Saving::Discard).await;
    assert_eq!((ended.ended.len(), ended.failed.len()), (0, 1), "{ended:?}");
    assert!(matches!(bench.told().last(), Some(RoomDeed::CleanupFailed { .. })));
    let there = bench.process();
    assert!(matches!(there.ensure().await, Err(RoomError::Ended(_))));
    assert_eq!(there.recover(SignedDuration::ZERO).await.ended.len(), 1);
    assert_eq!(bench.left().await, (0, 0, 0, 0));
    assert_eq!(there.room().await.room.generation, 1);
}

#[tokio::test]
async fn work_is_saved_before_its_volume_goes_also_when_its_container_is_gone() {
    for gone in [false, true] {
        let bench = Bench::new();
        let here = bench.process();
        let ready = here.room().await;
        write(&here.root(&ready));
        if gone {
            bench.fake.disappear(id(&ready));
        }
        let tell = bench.tell();
        let keep = Saving::Keep(SaveLimits { max_bytes: 1 << 20, time: Duration::from_secs(10) });
        if gone {
            let kept_back = here.end(keep).await;
            assert!(matches!(kept_back.failed[..], [(.., RoomError::Lifecycle(Error::SaveFailed { .. }))]));
            assert_eq!(bench.volumes().await, 1, "nobody could read what is in it");
        }
        let plan = bench.plan().await.unwrap();
        let ending = Ending { reader: Some((&plan.guest, &plan.policy)), ..ending(keep, &tell) };
        let ended = here.rooms.end(&bench.engines(), &session(), &ending).await.unwrap();
        assert_eq!((ended.ended.len(), ended.saved.len(), ended.saved.first().map(|it| it.files)), (1, 1, Some(1)));
        assert_eq!(bench.left().await, (0, 0, 0, 0), "{ended:?}");
    }
}

#[tokio::test]
async fn a_session_goes_when_its_process_is_dead_and_its_lease_is_over() {
    let bench = Bench::new();
    let dead = ProcessId { pid: u32::MAX, ..ProcessId::current() };
    let (lived, next) = (Process { owner: Some(dead), ..bench.process() }, bench.process());
    lived.room().await;
    assert!(next.recover(SignedDuration::from_secs(119)).await.ended.is_empty());
    assert_eq!(next.recover(SignedDuration::from_secs(121)).await.ended.len(), 1);
    assert_eq!(bench.left().await, (0, 0, 0, 0));

    next.room().await;
    assert!(next.recover(SignedDuration::from_hours(9)).await.ended.is_empty(), "its process lives");
    next.end(Saving::Discard).await;
    let nobodys = Process { owner: None, ..bench.process() };
    nobodys.room().await;
    assert!(nobodys.recover(SignedDuration::from_hours(9)).await.ended.is_empty(), "it ends when it is told to");
}

#[tokio::test]
async fn a_lease_is_renewed_by_its_owner_and_taken_over_from_a_dead_one() {
    let bench = Bench::new();
    let dead = ProcessId { pid: u32::MAX, ..ProcessId::current() };
    let it = Process { owner: Some(dead), ..bench.process() };
    it.room().await;
    let before = bench.store().slots().unwrap().remove(0);
    it.rooms.renew(&ProcessId::current()).unwrap();
    let after = bench.store().slots().unwrap().remove(0);
    assert!(after.expires_at > before.expires_at && after.owner == Some(ProcessId::current()));
}
