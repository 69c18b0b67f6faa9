//! Checkpoints of containers that run. They need root, and a static busybox.

use std::time::Duration;

use coracle_runtime::{ChangeKind, CheckpointOutcome, CheckpointRequest, Checkpoints as _, ContainerRuntime as _};
use coracle_types::{ContainerId, Error};

use crate::container::find;
use crate::container::fork::tests::{Fixture, is_prefix};
use crate::tree_history::begin_rewind;

impl Fixture {
    async fn checkpoint(&self, id: &ContainerId) -> u64 {
        let request = CheckpointRequest { note: "a note".into(), ..CheckpointRequest::default() };
        match self.runtime.checkpoint(id, &request).await.unwrap() {
            CheckpointOutcome::Saved(saved) => saved.number,
            other => panic!("{other:?}"),
        }
    }

    async fn rewind(&self, id: &ContainerId, number: u64) {
        self.runtime.stop(id, Duration::ZERO).await.unwrap();
        self.runtime.rewind(id, number).await.unwrap();
        self.runtime.start(id).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_goes_back_to_each_of_its_states() {
    let Some(it) = Fixture::open().await else { return };
    let id = it.start().await;
    assert_eq!(it.runtime.checkpoints(&id).await.unwrap(), []);
    assert_eq!(it.checkpoint(&id).await, 1);
    let unchanged = it.runtime.checkpoint(&id, &CheckpointRequest::default()).await.unwrap();
    assert_eq!(unchanged, CheckpointOutcome::Unchanged(1));
    it.print(&id, "echo one >/data/file; rm /data/of-image; mkdir /new; echo x >/new/x").await;
    assert_eq!(it.checkpoint(&id).await, 2);
    it.print(&id, "rm -rf /data /new /bin/seq; echo broken >/bin/echo.txt").await;
    assert_eq!(it.checkpoint(&id).await, 3);

    let refused = it.runtime.rewind(&id, 2).await;
    assert!(matches!(refused, Err(Error::Engine { .. })), "it runs: {refused:?}");
    it.rewind(&id, 2).await;
    assert_eq!(it.print(&id, "cat /data/file /new/x; ls /data; seq 1").await, "one\nx\nfile\n1");
    it.rewind(&id, 1).await;
    assert_eq!(it.print(&id, "ls /data; ls -d /new 2>/dev/null || echo none").await, "of-image\nnone");
    it.rewind(&id, 3).await;
    assert_eq!(it.print(&id, "ls -d /data 2>/dev/null || cat /bin/echo.txt").await, "broken");

    let listed = it.runtime.checkpoints(&id).await.unwrap();
    let shown: Vec<_> = listed.iter().map(|it| (it.number, it.parent, it.is_current)).collect();
    assert_eq!(shown, [(1, None, false), (2, Some(1), false), (3, Some(2), true)]);
    assert_eq!(listed[2].note, "a note");
    let differs: Vec<_> = it
        .runtime
        .checkpoint_diff(&id, 1, 2)
        .await
        .unwrap()
        .into_iter()
        .map(|change| (change.path, change.kind, change.bytes))
        .collect();
    let expected = [
        ("/data/file", ChangeKind::Added, 4),
        ("/data/of-image", ChangeKind::Removed, 0),
        ("/new", ChangeKind::Added, 0),
        ("/new/x", ChangeKind::Added, 2),
    ];
    // `/data` and `/bin` are directories of the image, and only what is in them has changed.
    let differs: Vec<_> = differs.iter().map(|(path, kind, bytes)| (path.as_str(), *kind, *bytes)).collect();
    assert_eq!(differs.iter().map(|it| (it.0, it.1)).collect::<Vec<_>>(), expected.map(|it| (it.0, it.1)));
    assert_eq!((differs[0].2, differs[3].2), (4, 2));
    let missing = it.runtime.checkpoint_diff(&id, 1, 9).await;
    assert!(matches!(missing, Err(Error::Engine { .. })), "{missing:?}");
    assert!(it.runtime.remove_checkpoint(&id, 3).await.is_err(), "the current one");
    it.runtime.remove_checkpoint(&id, 1).await.unwrap();
    it.rewind(&id, 2).await;
    assert_eq!(it.print(&id, "cat /data/file").await, "one");
    it.remove(&[&id]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_containers_exchange_their_files() {
    let Some(it) = Fixture::open().await else { return };
    let id = it.start().await;
    it.print(&id, "echo one >/data/file; rm /bin/seq").await;
    let number = it.checkpoint(&id).await;
    let copy = it.runtime.branch(&id, number, &it.spec()).await.unwrap();
    it.runtime.start(&copy).await.unwrap();
    it.print(&copy, "echo two >/data/file; mkdir /new").await;
    let runs = it.runtime.exchange_files(&id, &copy).await;
    assert!(matches!(runs, Err(Error::Engine { .. })), "{runs:?}");
    for container in [&id, &copy] {
        it.runtime.stop(container, Duration::ZERO).await.unwrap();
    }
    assert!(it.runtime.exchange_files(&id, &id).await.is_err());
    it.runtime.exchange_files(&id, &copy).await.unwrap();
    let changed = it.checkpoint(&id).await;
    let changes = it.runtime.checkpoint_diff(&id, number, changed).await.unwrap();
    let paths = changes.iter().map(|it| it.path.as_str());
    let paths: Vec<_> = paths.filter(|it| it.starts_with("/data") || *it == "/new").collect();
    assert_eq!(paths, ["/data/file", "/new"]);
    for container in [&id, &copy] {
        it.runtime.start(container).await.unwrap();
    }
    assert_eq!(it.print(&id, "cat /data/file; ls -d /new /bin/seq 2>/dev/null || true").await, "two\n/new");
    assert_eq!(it.print(&copy, "cat /data/file; ls -d /new 2>/dev/null || true").await, "one");
    it.rewind(&id, number).await;
    assert_eq!(it.print(&id, "cat /data/file").await, "one");
    it.remove(&[&id, &copy]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_checkpoint_of_a_writing_container_has_one_moment() {
    let Some(it) = Fixture::open().await else { return };
    let id = it.start().await;
    let writer = "cd /data; i=0; exec 3>>log; while true; do i=$((i+1)); echo $i >&3; sleep 0.001; done";
    it.print(&id, &format!("({writer}) >/dev/null 2>&1 &")).await;
    it.print(&id, "while ! [ -s /data/log ]; do sleep 0.01; done").await;
    let mut numbers = Vec::new();
    for _ in 0..5 {
        numbers.push(it.checkpoint(&id).await);
    }
    let branch = it.runtime.branch(&id, numbers[4], &it.spec()).await.unwrap();
    it.runtime.start(&branch).await.unwrap();
    let of_branch = is_prefix(&it.print(&branch, "cat /data/log").await);
    let mut seen = 0;
    for number in &numbers {
        it.rewind(&id, *number).await;
        let lines = is_prefix(&it.print(&id, "cat /data/log").await);
        assert!(lines > seen, "{lines} after {seen}");
        seen = lines;
    }
    assert_eq!(of_branch, seen);
    it.remove(&[&id, &branch]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_rewind_is_finished_by_the_next_start() {
    let Some(it) = Fixture::open().await else { return };
    let id = it.start().await;
    it.print(&id, "echo one >/data/file").await;
    it.checkpoint(&id).await;
    it.print(&id, "rm /data/file; echo two >/data/other").await;
    it.checkpoint(&id).await;
    it.runtime.stop(&id, Duration::ZERO).await.unwrap();
    let container = find(it.runtime.engine(), &(&id).into()).unwrap();
    begin_rewind(&container.dir.checkpoints(), 1).unwrap();
    std::fs::remove_file(container.dir.upper().join("data/other")).unwrap();
    it.runtime.start(&id).await.unwrap();
    assert_eq!(it.print(&id, "cat /data/*").await, "one");
    it.remove(&[&id]).await;
}
