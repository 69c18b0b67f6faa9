//! An unused slot, and one whose lifetime is over.

use super::*;

fn after(seconds: u64) -> ClockReading {
    later(i64::try_from(seconds).unwrap(), seconds)
}

#[tokio::test]
async fn w08_an_unused_container_is_removed_and_its_files_stay() {
    let bench = Bench::new();
    let here = bench.process();
    let first = here.slot().await;
    write(&here.root(&first));
    here.sweep(later(3600, 3600)).await;
    assert_eq!(bench.containers().await.len(), 1, "a call is in it");
    drop(first);
    for (now, why) in [
        (later(899, 899), "not long enough"),
        (later(7200, 60), "the clock was set forward"),
        (later(60, 7200), "the clock was set back"),
    ] {
        here.sweep(now).await;
        assert_eq!(bench.containers().await.len(), 1, "{why}");
    }
    bench.take_events();
    bench.process().sweep(later(901, 901)).await;
    assert_eq!(bench.left().await, (0, 1, 0, 1));
    assert!(matches!(*bench.take_events(), [ContainerEvent::IdleCleanup { idle_seconds: 900.. }]));
    let second = here.slot().await;
    assert_eq!(reported(&second), Some((Reason::Idle, 1, 2, false)));
    assert!(has_file(&here.root(&second)));
    here.slots.discard(&bench.engines(), SlotKey::new(&session(), WS), Reason::Timeout, None).await.unwrap();
    assert_eq!(bench.left().await, (0, 1, 0, 1));
    assert_eq!(reported(&here.slot().await), Some((Reason::Timeout, 2, 3, false)));
}

#[tokio::test]
async fn an_unused_sandbox_is_stopped_and_not_removed() {
    let bench = Bench::new();
    let one = bench.process();
    let first_id = id(&one.ensure_of(&session(), SlotRole::Sandbox).await.unwrap()).clone();
    one.sweep(later(1000, 1000)).await;
    let status = async || bench.fake.inspect(&Handle::from(&first_id)).await.unwrap().status;
    assert_eq!(status().await, ContainerStatus::Running, "it is not idle for as long as that");
    one.sweep(later(3700, 3700)).await;
    assert_eq!(status().await, ContainerStatus::Exited);
    assert!(matches!(bench.take_events().last(), Some(ContainerEvent::IdleCleanup { .. })));
    one.sweep(later(9000, 9000)).await;
    assert_eq!(bench.take_events(), [], "it is stopped once");
    let again = one.ensure_of(&session(), SlotRole::Sandbox).await.unwrap();
    assert_eq!((id(&again), reported(&again)), (&first_id, Some((Reason::Idle, 1, 2, false))));
}

#[tokio::test]
async fn one_that_was_there_long_enough_goes_with_its_files_and_the_next_is_a_first_one() {
    if !coracle_skips::has_root() {
        return;
    }
    for swept in [false, true] {
        let bench = Bench::new();
        let here = bench.process();
        let first = here.slot().await;
        write(&here.root(&first));
        here.expire(later(30_000, 30_000)).await;
        assert_eq!(bench.containers().await.len(), 1, "a call is in it");
        drop(first);
        here.expire(later(28_000, 28_000)).await;
        here.expire(later(30_000, 60)).await;
        assert_eq!(bench.containers().await.len(), 1, "not long enough by both clocks");
        if swept {
            here.sweep(later(1000, 1000)).await;
        }
        bench.take_events();
        bench.process().expire(later(30_000, 30_000)).await;
        assert_eq!(bench.left().await, (0, 0, 0, 1));
        let events = bench.take_events();
        let [ContainerEvent::Saved { files: 1, .. }, ContainerEvent::Ended { reason: EndReason::Lifetime }] = &*events
        else {
            panic!("{events:?}")
        };
        bench.process().expire(later(60_000, 60_000)).await;
        assert_eq!(bench.take_events(), [], "it ends once");
        let next = here.slot().await;
        assert_eq!((reported(&next), next.slot.generation), (Some((Reason::Lifetime, 1, 1, true)), 1));
        assert!(!has_file(&here.root(&next)));
        assert_eq!(reported(&here.slot().await), None, "it is reported once");
        assert_eq!(bench.left().await, (1, 1, 1, 1));
    }
}

#[tokio::test]
async fn a_sandbox_is_old_after_seven_days_by_both_clocks_unless_in_use() {
    const WEEK: u64 = 7 * 24 * 60 * 60;
    let bench = Bench::new();
    let here = bench.process();
    let old = async |now: ClockReading| here.slots.old_sandboxes(&bench.engines(), &now).await.unwrap();
    let still = async || here.slots.is_old_sandbox(&bench.engines(), &session(), &after(WEEK + 9)).await.unwrap();
    assert!(!still().await, "there is none");
    let first = here.ensure_of(&session(), SlotRole::Sandbox).await.unwrap();
    assert_eq!(old(after(WEEK + 9)).await, [], "a call is in it");
    assert!(!still().await, "a call is in it");
    drop(first);
    let week = i64::try_from(WEEK).unwrap();
    for (wall, up) in [(week - 60, WEEK - 60), (week + 9, 60), (60, WEEK + 9)] {
        assert_eq!(old(later(wall, up)).await, [], "{wall} {up}");
    }
    assert_eq!(old(after(WEEK + 9)).await, [session()]);
    assert!(still().await);
    bench.process().expire(after(WEEK + 9)).await;
    assert_eq!(bench.containers().await.len(), 1, "it goes by who saves its work");
    // That could not be: it is tried again, and each time later.
    let mut at = WEEK + 9;
    for pause in [60, 120, 240] {
        here.slots.put_off(SlotKey::new(&session(), SlotRole::Sandbox), &after(at)).unwrap();
        assert_eq!(old(after(at + pause - 2)).await, [], "{pause}");
        at += pause + 2;
        assert_eq!(old(after(at)).await, [session()], "{pause}");
    }
    for _ in 0..40 {
        here.slots.put_off(SlotKey::new(&session(), SlotRole::Sandbox), &after(at)).unwrap();
    }
    assert_eq!(old(after(at + 6 * 3600 + 2)).await, [session()], "at least four times a day");
}

#[tokio::test]
async fn an_old_room_that_cannot_be_ended_is_tried_again_after_a_pause_that_grows() {
    let bench = Bench::new();
    drop(bench.process().slot().await);
    let fails = async |at: u64| {
        bench.take_events();
        bench.fake.fail_next(Verb::RemoveVolume);
        bench.process().expire(after(at)).await;
        bench.take_events().iter().any(|it| matches!(it, ContainerEvent::CleanupFailed { .. }))
    };
    assert!(fails(30_000).await);
    assert!(!fails(30_050).await);
    assert!(fails(30_065).await);
    assert!(!fails(30_170).await);
    assert!(fails(30_190).await);
}

#[tokio::test]
async fn old_ones_have_one_time_together_and_those_that_are_not_reached_are_not_put_off() {
    let bench = Bench::new();
    let here = bench.process();
    for session in ["s1", "s2", "s3"] {
        drop(here.ensure_of(&ContainerName::parse(session).unwrap(), WS).await.unwrap());
    }
    bench.take_events();
    bench.fake.slow(Verb::Remove, Duration::from_secs(50));
    let (there, observer) = (bench.process(), bench.observer());
    let ending = EndOptions { within: Duration::from_millis(300), ..ending(SavePolicy::Discard, &observer) };
    there.slots.expire(&bench.engines(), &after(30_000), &ending).await.unwrap();
    let events = bench.take_events();
    assert!(matches!(&*events, [ContainerEvent::CleanupFailed { .. }]), "{events:?}");
    bench.fake.slow(Verb::Remove, Duration::ZERO);
    bench.process().expire(after(30_001)).await;
    assert_eq!(bench.containers().await.len(), 1, "the one that was tried is put off");
}
