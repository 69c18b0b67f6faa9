//! What is a candidate, and what stays after all.

use coracle_client::LinkSettings;
use coracle_runtime::FakeRuntime;
use coracle_types::LabelNamespace;

use super::*;
use crate::SavePolicy;
use crate::deferred::Deferred;
use crate::networks::tests::SingleEngine;
use crate::record::Lease;
use crate::record::tests::record;

/// An engine, a state directory, and links to no guest.
struct Bench {
    fake: FakeRuntime,
    store: Store,
    links: Links,
    _dir: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), LabelNamespace::parse("coracle").unwrap()).unwrap();
        Self { fake: FakeRuntime::new(), store, links: Links::new(LinkSettings::default()), _dir: dir }
    }

    fn engines(&self) -> SingleEngine {
        SingleEngine(self.fake.clone())
    }

    async fn prunable(&self, kinds: &[PruneKind]) -> Prune {
        let second = Duration::from_secs(1);
        let terms = LeaseTerms { idle: second, orphan_grace: Duration::ZERO, jobs: second, gone_for: second };
        let now = ClockReading::now();
        let scope = PruneScope { kinds, terms: &terms, idle_for: None, now: &now, temp_dirs: &[] };
        prunable(&self.engines(), &self.store, &self.links, &scope).await.unwrap()
    }
}

#[tokio::test]
async fn one_that_is_put_off_can_be_pruned_and_one_that_was_used_meanwhile_cannot() {
    let bench = Bench::new();
    let long_ago = ClockReading { wall: Timestamp::UNIX_EPOCH, up_s: 0, ..ClockReading::now() };
    let put_off = Some(Deferred::after(None, &ClockReading::now()));
    let idle = Record {
        id: Some(bench.fake.runs("web").await),
        state: RecordState::Ready,
        role: Role::Adopted,
        lease: Lease { used: Some(long_ago), put_off, ..Lease::default() },
        ..record("web")
    };
    bench.store.save(&idle).unwrap();
    let found = bench.prunable(&[PruneKind::Containers]).await;
    let [item] = &*found.candidates else { panic!("{found:?}") };
    assert_eq!(item.reason, "unused for a long time");
    let removing =
        RemoveOptions { links: &bench.links, saving: SavePolicy::Discard, grace: Duration::ZERO, adopted_too: true };
    let removed = async |item: &PruneItem| item.remove(&bench.engines(), &bench.store, &removing, None, &|_| {}).await;
    bench.store.touch(&idle).unwrap();
    assert!(matches!(removed(item).await, Err(Error::Busy { .. })));
    bench.store.save(&idle).unwrap();
    removed(item).await.unwrap();
    assert!(bench.store.records().unwrap().is_empty());
}

#[tokio::test]
async fn a_record_stays_while_others_are_in_its_stack() {
    let bench = Bench::new();
    let compose_project = Some(ProjectName::parse("shop").unwrap());
    let owner = Record { state: RecordState::Ready, compose_project, ..record("owner") };
    let joined = Record { compose_joined: true, name: ContainerName::parse("joined").unwrap(), ..owner.clone() };
    bench.store.save(&owner).unwrap();
    bench.store.save(&Record { record_id: RecordId::random(), ..joined }).unwrap();
    let found = bench.prunable(&[PruneKind::Records]).await;
    let names = |items: &[PruneItem]| items.iter().map(|it| it.name.clone()).collect::<Vec<_>>();
    assert_eq!(
        (names(&found.candidates), names(&found.retained)),
        (vec!["joined".to_owned()], vec!["owner".to_owned()])
    );
}

#[test]
fn directories_of_killed_pulls_and_builds_are_found() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["coracle-pull-1", "coracle-build-1", "another"] {
        std::fs::create_dir(dir.path().join(name)).unwrap();
    }
    let mut found = Prune::default();
    temporary(dir.path(), &mut found);
    let mut names: Vec<_> = found.retained.into_iter().map(|it| it.name).collect();
    names.sort();
    assert_eq!(names, ["coracle-build-1", "coracle-pull-1"]);
}
