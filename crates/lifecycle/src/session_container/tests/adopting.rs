//! A slot that is known again without its record, and containers that only look like it.

use super::*;

/// All that tells a container from every other.
async fn seen(bench: &Bench, id: &ContainerId) -> coracle_runtime::Container {
    bench.fake.inspect(&Handle::from(id)).await.unwrap()
}

#[tokio::test]
async fn a_record_cut_at_any_byte_is_set_aside_and_its_container_found_again() {
    let bench = Bench::new();
    let first = bench.process().slot().await;
    let whole = std::fs::read(bench.file()).unwrap();
    for at in (0..whole.len() - 2).step_by(97).chain([whole.len() - 3]) {
        std::fs::write(bench.file(), &whole[..at]).unwrap();
        let again = bench.process().slot().await;
        assert_eq!((id(&again), again.made, reported(&again)), (id(&first), false, None), "cut at {at}");
    }
    // Without the other record there is what the engine shows.
    std::fs::write(bench.file(), "").unwrap();
    std::fs::remove_dir_all(bench.dir.path().join("containers")).unwrap();
    std::fs::create_dir(bench.dir.path().join("containers")).unwrap();
    let again = bench.process().slot().await;
    assert_eq!((id(&again), again.slot.generation), (id(&first), 1));
    // And without its container the volume.
    write(&bench.process().root(&again));
    std::fs::write(bench.file(), vec![b' '; 70 << 10]).unwrap();
    bench.fake.disappear(id(&first));
    let here = bench.process();
    let second = here.slot().await;
    assert!(has_file(&here.root(&second)) && second.made);
}

#[tokio::test]
async fn a_slot_that_an_earlier_version_wrote_is_read_and_no_longer_repeats_its_container() {
    let bench = Bench::new();
    let first = bench.process().slot().await;
    let is = |value: &str| serde_json::Value::from(value);
    let earlier = [
        ("container_id", is(id(&first).as_str())),
        ("image", is("of the slot")),
        ("image_id", is(first.slot.image_id.as_ref().unwrap().as_str())),
        ("workdir", is("/of/the/slot")),
        ("rootless", true.into()),
        ("last_used_at", is("2026-01-01T00:00:00Z")),
        ("renewed_at", is("2026-01-01T00:00:00Z")),
    ];
    let stored = || serde_json::from_slice::<serde_json::Value>(&std::fs::read(bench.file()).unwrap()).unwrap();
    let write_earlier = || {
        let mut value = stored();
        let fields = value.as_object_mut().unwrap();
        fields.remove("sum");
        fields.extend(earlier.clone().map(|(name, value)| (name.to_owned(), value)));
        std::fs::write(bench.file(), crate::record::summed_bytes(&value)).unwrap();
    };
    write_earlier();
    let again = bench.process().slot().await;
    assert_eq!((id(&again), again.made, &again.slot.image), (id(&first), false, &first.slot.image));
    assert_eq!((again.slot.rootless, &again.slot.workdir), (false, &first.slot.workdir));
    assert!(earlier.iter().all(|(name, _)| stored().get(name).is_none()), "{:#}", stored());
    drop((first, again));
    // What is known of a container that is gone stays with its slot.
    bench.process().sweep(later(1000, 1000)).await;
    write_earlier();
    let view = bench.process().slots.all().unwrap().remove(0);
    assert_eq!((view.container_id, &*view.image, view.workdir.as_str()), (None, "of the slot", "/of/the/slot"));
}

#[tokio::test]
async fn a_container_that_was_ready_when_its_maker_died_is_used_and_its_files_are_work() {
    let bench = Bench::new();
    let first = bench.process().slot().await;
    let view = first.slot.clone();
    bench.change(|claimed| {
        claimed.volume.filled = None;
        claimed.last =
            Some(record::LastContainer { image: String::new(), image_id: None, workdir: view.workdir.clone() });
    });
    let again = bench.process().slot().await;
    assert_eq!((id(&again), again.made, reported(&again), &again.slot.image), (id(&first), false, None, &view.image));
    assert!(bench.store().slots().unwrap()[0].volume.filled.is_some());
}

#[tokio::test]
async fn a_room_of_which_only_the_engine_knows_is_still_one_without_root() {
    let bench = Bench::new();
    let here = Process { user: Some(user()), ..bench.process() };
    let first = id(&here.slot().await).clone();
    for volume_only in [false, true] {
        std::fs::remove_file(bench.file()).unwrap();
        for record in bench.store().records().unwrap() {
            bench.store().forget(&record.name).unwrap();
        }
        if volume_only {
            bench.fake.disappear(&first);
        }
        let again = bench.process();
        assert!(again.slots.recall(&bench.engines(), SlotKey::new(&session(), WS)).await.unwrap());
        let slot = again.slots.all().unwrap().remove(0);
        assert_eq!((slot.rootless, slot.user), (true, user()), "{volume_only}");
        let owns = bench.store().records().unwrap().iter().map(|it| it.guest.clone().unwrap().own).collect::<Vec<_>>();
        assert_eq!(owns, if volume_only { vec![] } else { vec![Some(user())] });
    }
}

#[tokio::test]
async fn x19_a_sandbox_that_only_the_engine_knows_is_known_again() {
    let bench = Bench::new();
    let first = bench.process().ensure_of(&session(), SlotRole::Sandbox).await.unwrap();
    for dir in ["sessions", "containers"] {
        std::fs::remove_dir_all(bench.dir.path().join(dir)).unwrap();
        std::fs::create_dir(bench.dir.path().join(dir)).unwrap();
    }
    let (here, engines) = (bench.process(), bench.engines());
    assert_eq!(here.slots.forgotten(&engines, SlotRole::Sandbox).await.unwrap(), [session()]);
    assert_eq!(here.slots.forgotten(&engines, SlotRole::Run).await.unwrap(), []);
    assert!(here.slots.recall(&engines, SlotKey::new(&session(), SlotRole::Sandbox)).await.unwrap());
    assert_eq!(here.slots.forgotten(&engines, SlotRole::Sandbox).await.unwrap(), []);
    let again = here.ensure_of(&session(), SlotRole::Sandbox).await.unwrap();
    assert_eq!((id(&again), again.made), (id(&first), false));
}

#[tokio::test]
async fn one_that_is_not_ours_is_not_touched() {
    let bench = Bench::new();
    let here = bench.process();
    let first = here.slot().await;
    let foreign = CreateSpec::new(ContainerName::parse("foreign").unwrap(), ImageRef::parse(LOCAL_IMAGE).unwrap());
    let image = bench.plan().await.unwrap().image;
    let admitted = coracle_runtime::admit(foreign, &Policy::everything()).unwrap();
    let theirs =
        bench.fake.create(&admitted.with_image(image.id, coracle_runtime::NetworkAttachment::None)).await.unwrap();
    bench.fake.disappear(id(&first));
    let record = crate::Record::clone(&bench.store().records().unwrap()[0]);
    bench.store().save(&crate::Record { id: Some(theirs.clone()), ..record }).unwrap();
    let there = bench.process();
    let refused = there.ensure().await;
    assert!(matches!(refused, Err(SlotError::Lifecycle(Error::NotManaged { .. }))), "{:?}", refused.err());
    assert_eq!(bench.fake.inspect(&Handle::from(&theirs)).await.unwrap().status, ContainerStatus::Created);
    let ended = there.end(SavePolicy::Discard).await;
    assert!(ended.failed.is_empty() && !bench.file().exists(), "{ended:?}");
    assert!(bench.fake.inspect(&Handle::from(&theirs)).await.is_ok());
}

#[tokio::test]
async fn x07_a_container_with_our_labels_copied_is_left_alone_and_one_of_ours_is_used() {
    let sandbox = SlotRole::Sandbox;
    for (records, real) in [(true, true), (true, false), (false, true), (false, false)] {
        let what = format!("records: {records}, ours: {real}");
        let bench = Bench::new();
        let first = bench.process().ensure_of(&session(), sandbox).await.unwrap();
        write(&bench.fake.root(id(&first)).unwrap());
        let labels = seen(&bench, id(&first)).await.labels;
        let spec = CreateSpec::new(ContainerName::parse("copy").unwrap(), ImageRef::parse(LOCAL_IMAGE).unwrap());
        let admitted = coracle_runtime::admit(CreateSpec { labels, ..spec }, &Policy::everything()).unwrap();
        let image = bench.plan().await.unwrap().image;
        let copy =
            bench.fake.create(&admitted.with_image(image.id, coracle_runtime::NetworkAttachment::None)).await.unwrap();
        let before = seen(&bench, &copy).await;
        if !real {
            bench.fake.disappear(id(&first));
        }
        if !records {
            std::fs::write(bench.dir.path().join("sessions/s1/sandbox.json"), "").unwrap();
            std::fs::remove_dir_all(bench.dir.path().join("containers")).unwrap();
            std::fs::create_dir(bench.dir.path().join("containers")).unwrap();
        }
        let here = bench.process();
        let used = here.ensure_of(&session(), sandbox).await.unwrap();
        assert_eq!(id(&used) == id(&first), real, "{what}");
        assert_ne!(*id(&used), copy, "{what}");
        assert!(has_file(&here.root(&used)), "{what}: its files are there");
        assert_eq!(here.slots.forgotten(&bench.engines(), sandbox).await.unwrap(), [], "{what}");
        drop(used);
        here.end(SavePolicy::Discard).await;
        assert_eq!(here.slots.forgotten(&bench.engines(), sandbox).await.unwrap(), [], "{what}");
        assert!(!here.slots.recall(&bench.engines(), SlotKey::new(&session(), sandbox)).await.unwrap(), "{what}");
        assert_eq!(seen(&bench, &copy).await, before, "{what}");
        assert_eq!(bench.containers().await.len(), 1, "{what}");
    }
}

#[tokio::test]
async fn x07_a_sandbox_whose_container_is_not_ours_any_more_gets_a_fresh_one() {
    let bench = Bench::new();
    let first = bench.process().ensure_of(&session(), SlotRole::Sandbox).await.unwrap();
    // As another person's key would sign it.
    std::fs::write(bench.dir.path().join("key"), "0".repeat(32)).unwrap();
    let before = seen(&bench, id(&first)).await;
    let fresh = bench.process().ensure_of(&session(), SlotRole::Sandbox).await.unwrap();
    assert_ne!(id(&fresh), id(&first));
    assert_eq!(seen(&bench, id(&first)).await, before);
    assert_eq!(bench.volumes().await, 2, "the volume may be of another program, too");
}
