use coracle_runtime::labels::Signer;
use coracle_runtime::{CreateSpec, FakeRuntime, ImageCommit, ImageStore as _, NetworkAttachment, Policy, admit};
use coracle_types::{ContainerId, ContainerName, Ids, LabelNamespace, Secret};
use jiff::Timestamp;
use tempfile::TempDir;

use super::*;
use crate::profile::Purpose;

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

struct World {
    fake: FakeRuntime,
    state: TempDir,
}

fn name(text: &str) -> SnapshotName {
    SnapshotName::parse(text).unwrap()
}

impl World {
    fn new() -> Self {
        Self { fake: FakeRuntime::new(), state: tempfile::tempdir().unwrap() }
    }

    fn snapshots_of(&self, key: u8) -> Snapshots {
        let namespace = LabelNamespace::parse("coracle").unwrap();
        Snapshots {
            signer: Signer::new(namespace, Secret::new(vec![key; 32]), 1000),
            locks: self.state.path().join("locks"),
            version: "0.1.0".into(),
        }
    }

    async fn container(&self, container: &str, image: Option<&Image>) -> ContainerId {
        let local = ImageRef::parse(coracle_runtime::fake::LOCAL_IMAGE).unwrap();
        let found = self.fake.find_images(std::slice::from_ref(&local)).await.unwrap();
        let mut labels = image.map(|it| it.labels.clone()).unwrap_or_default();
        labels.extend([("coracle.name".into(), container.into()), ("coracle.exec_user".into(), "0:0".into())]);
        labels.insert("team".into(), "blue".into());
        self.snapshots_of(1).signer.sign(self.fake.kind(), &mut labels);
        let spec =
            CreateSpec { exec_user: Ids::ROOT, ..CreateSpec::new(ContainerName::parse(container).unwrap(), local) };
        let admitted = admit(spec, &Policy::everything()).unwrap().labelled(labels);
        let placed =
            admitted.with_image(image.map_or_else(|| found[0].id.clone(), |it| it.id.clone()), NetworkAttachment::None);
        self.fake.create(&placed).await.unwrap()
    }

    async fn take_by(
        &self,
        key: u8,
        as_name: &str,
        container: &ContainerId,
        replace: bool,
    ) -> Result<SnapshotImage, Error> {
        let snapshots = self.snapshots_of(key);
        let container = self.fake.inspect(&container.into()).await.unwrap();
        let of = SnapshotOrigin {
            container: container.name.clone(),
            purpose: Some(Purpose::parse("python").unwrap()),
            session: "mine".into(),
            workdir: ContainerPath::parse("/work").unwrap(),
            mount_cwd: false,
        };
        let place = snapshots.place(&self.fake, name(as_name), replace, &|_| {}).await?;
        place.take(&self.fake, &container, &of, NOW).await
    }

    async fn take(&self, as_name: &str, container: &ContainerId, replace: bool) -> Result<SnapshotImage, Error> {
        self.take_by(1, as_name, container, replace).await
    }
}

#[tokio::test]
async fn a_snapshot_is_found_by_its_name_and_describes_its_container() {
    let w = World::new();
    let container = w.container("web", None).await;
    let taken = w.take("base", &container, false).await.unwrap();
    let snapshots = w.snapshots_of(1);
    let found = snapshots.find(&w.fake, &name("base")).await.unwrap();
    assert_eq!(found, taken);
    assert_eq!((found.reference.as_str(), found.of.container.as_str()), ("coracle-snapshot:base", "web"));
    assert_eq!((found.of.session.as_str(), found.of.workdir.as_str(), found.of.mount_cwd), ("mine", "/work", false));
    let label = |key: &str| found.image.labels[key].clone();
    // Labels about the container are removed, and the caller's labels stay.
    assert_eq!(
        (label("coracle.name"), label("coracle.exec_user"), label("team")),
        ("".into(), "".into(), "blue".into())
    );
    assert!(
        matches!(snapshots.find(&w.fake, &name("other")).await, Err(Error::NotFound { near, .. }) if near.is_empty())
    );
    let near = snapshots.find(&w.fake, &name("Base")).await;
    assert!(matches!(&near, Err(Error::NotFound { near, .. }) if near[0].as_str() == "base"), "{near:?}");
}

#[tokio::test]
async fn an_image_without_our_signature_is_neither_found_listed_nor_replaced() {
    let w = World::new();
    let container = w.container("web", None).await;
    w.take_by(2, "planted", &container, false).await.unwrap();
    let snapshots = w.snapshots_of(1);
    assert!(matches!(snapshots.find(&w.fake, &name("planted")).await, Err(Error::NotManaged(_))));
    assert_eq!(snapshots.list(&w.fake).await.unwrap().len(), 0);
    for replace in [false, true] {
        let taken = w.take("planted", &container, replace).await;
        assert!(matches!(taken, Err(Error::Taken { ours: false, .. })), "{taken:?}");
    }
}

#[tokio::test]
async fn a_snapshot_under_another_tag_is_not_found() {
    let w = World::new();
    let container = w.container("web", None).await;
    let taken = w.take("base", &container, false).await.unwrap();
    let commit = ImageCommit {
        container,
        tag: Some(ImageRef::parse("coracle-snapshot:other").unwrap()),
        labels: taken.image.labels.clone().into_iter().collect(),
        config: Default::default(),
    };
    w.fake.commit_image(&commit).await.unwrap();
    assert!(matches!(w.snapshots_of(1).find(&w.fake, &name("other")).await, Err(Error::NotManaged(_))));
}

#[tokio::test]
async fn a_name_is_replaced_only_on_request_and_the_old_image_is_removed() {
    let w = World::new();
    let container = w.container("web", None).await;
    let first = w.take("base", &container, false).await.unwrap();
    assert!(matches!(w.take("base", &container, false).await, Err(Error::Taken { ours: true, .. })));
    let second = w.take("base", &container, true).await.unwrap();
    assert_ne!(first.image.id, second.image.id);
    let here = w.fake.find_images(&[first.image.id.clone().into()]).await.unwrap();
    assert_eq!(here.len(), 0);
    // A snapshot with a container stays without a name, and is no longer listed.
    w.container("of-it", Some(&second.image)).await;
    let third = w.take("base", &container, true).await.unwrap();
    let here = w.fake.find_images(&[second.image.id.clone().into()]).await.unwrap();
    assert_eq!((here.len(), here[0].tags.len()), (1, 0));
    let listed = w.snapshots_of(1).list(&w.fake).await.unwrap();
    assert_eq!(listed.iter().map(|it| &it.snapshot.image.id).collect::<Vec<_>>(), [&third.image.id]);
}

#[tokio::test]
async fn a_snapshot_with_containers_is_not_deleted() {
    let w = World::new();
    let container = w.container("web", None).await;
    let base = w.take("base", &container, false).await.unwrap();
    let restored = w.container("restored", Some(&base.image)).await;
    let snapshots = w.snapshots_of(1);
    let refused = snapshots.delete(&w.fake, &base).await;
    assert!(matches!(&refused, Err(Error::InUse { by, .. }) if by == &["restored"]), "{refused:?}");
    let listed = snapshots.list(&w.fake).await.unwrap();
    assert_eq!(listed[0].by, ["restored"]);
    // A snapshot of a restored container is independent of the first.
    let again = w.take("again", &restored, false).await.unwrap();
    assert_eq!((again.name.as_str(), again.of.container.as_str()), ("again", "restored"));
    w.fake.remove(&restored).await.unwrap();
    snapshots.delete(&w.fake, &base).await.unwrap();
    assert_eq!(snapshots.list(&w.fake).await.unwrap().len(), 1);
}

/// Returns an archive with other labels.
async fn relabelled(w: &World, change: impl FnOnce(&mut std::collections::BTreeMap<String, String>)) -> std::fs::File {
    use coracle_archive::image::ImageArchive;

    let (snapshots, archive) = (w.snapshots_of(1), tempfile::tempfile().unwrap());
    let base = snapshots.find(&w.fake, &name("base")).await.unwrap();
    let into = archive.try_clone().unwrap();
    snapshots.export(&w.fake, &base, tempfile::tempfile().unwrap(), into).await.unwrap();
    let mut image = ImageArchive::open(archive).unwrap();
    let mut labels = image.labels();
    change(&mut labels);
    image.set_labels(&labels);
    let changed = tempfile::tempfile().unwrap();
    image.write("other:1", &changed, &std::sync::atomic::AtomicBool::new(false)).unwrap();
    changed
}

async fn import(w: &World, key: u8, archive: std::fs::File) -> Result<SnapshotImage, Error> {
    let archived = ArchivedSnapshot::open(archive, "second".into()).await?;
    let snapshots = w.snapshots_of(key);
    let place = snapshots.place(&w.fake, name("moved"), true, &|_| {}).await.unwrap();
    place.import(&w.fake, archived, tempfile::tempfile().unwrap(), NOW).await
}

#[tokio::test]
async fn an_archive_does_not_identify_its_host_and_an_import_belongs_to_the_importer() {
    let w = World::new();
    let container = w.container("web", None).await;
    w.take("base", &container, false).await.unwrap();
    let mut labels = std::collections::BTreeMap::new();
    let archive = relabelled(&w, |it| labels.clone_from(it)).await;
    let mut keys: Vec<_> = labels.keys().map(String::as_str).collect();
    keys.sort_unstable();
    let expected = [
        "coracle.created",
        "coracle.kind",
        "coracle.snapshot.container",
        "coracle.snapshot.mount_cwd",
        "coracle.snapshot.name",
        "coracle.snapshot.purpose",
        "coracle.snapshot.workdir",
        "coracle.version",
        "team",
    ];
    assert_eq!(keys, expected);
    let moved = import(&w, 3, archive).await.unwrap();
    assert_eq!((moved.of.session.as_str(), moved.of.container.as_str()), ("second", "web"));
    assert_eq!((moved.of.workdir.as_str(), moved.of.mount_cwd, moved.of.purpose.is_some()), ("/work", false, true));
    assert_eq!(moved.image.labels["team"], "blue");
    // Signed by that key alone, like its other snapshots.
    assert_eq!(w.snapshots_of(3).find(&w.fake, &name("moved")).await.unwrap(), moved);
    assert!(matches!(w.snapshots_of(1).find(&w.fake, &name("moved")).await, Err(Error::NotManaged(_))));
}

#[tokio::test]
async fn labels_of_an_archive_are_not_trusted() {
    let w = World::new();
    let container = w.container("web", None).await;
    let base = w.take("base", &container, false).await.unwrap();
    let signed = base.image.labels.clone();
    let archive = relabelled(&w, |labels| {
        labels.extend(signed.clone());
        let planted = ["session", "exec_user", "role", "snapshot.session", "snapshot.base_bytes", "id"];
        labels.extend(planted.map(|it| (format!("coracle.{it}"), "planted".to_owned())));
        labels.extend(["com.docker.compose.project", "io.podman.x"].map(|it| (it.to_owned(), "planted".to_owned())));
    })
    .await;
    let moved = import(&w, 1, archive).await.unwrap();
    assert_eq!(moved.of.session, "second");
    let planted: Vec<_> = moved.image.labels.iter().filter(|it| it.1 == "planted").collect();
    assert_eq!(planted, Vec::<(&String, &String)>::new());
    assert_ne!(moved.image.labels["coracle.id"], signed["coracle.id"]);
    // A snapshot of another namespace becomes one of this.
    let archive = relabelled(&w, |labels| {
        *labels = labels.iter().map(|(key, it)| (key.replace("coracle.", "theirs."), it.clone())).collect();
    })
    .await;
    let moved = import(&w, 1, archive).await.unwrap();
    assert!(moved.image.labels.keys().all(|it| !it.starts_with("theirs.")), "{moved:?}");
    for (key, value) in [("coracle.kind", "cache"), ("coracle.snapshot.workdir", "x"), ("coracle.snapshot.name", "a b")]
    {
        let archive = relabelled(&w, |labels| drop(labels.insert(key.into(), value.into()))).await;
        assert!(matches!(import(&w, 1, archive).await, Err(Error::NoSnapshot(_))), "{key}");
    }
}

#[tokio::test]
async fn a_refused_import_leaves_the_image_with_the_name() {
    let w = World::new();
    let container = w.container("web", None).await;
    w.take("base", &container, false).await.unwrap();
    let before = w.take("moved", &container, false).await.unwrap();
    let archive = relabelled(&w, |_| ()).await;
    w.fake.fail_next(coracle_runtime::fake::Verb::LoadImage);
    assert!(matches!(import(&w, 1, archive).await, Err(Error::Engine(_))));
    assert_eq!(w.snapshots_of(1).find(&w.fake, &name("moved")).await.unwrap(), before);
}
