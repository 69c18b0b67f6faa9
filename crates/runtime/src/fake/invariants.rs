//! Whatever is done to the fake engine, in whatever order, its own rules hold.

use std::collections::BTreeMap;

use coracle_types::{ContainerId, ContainerStatus, Error};
use proptest::prelude::*;

use super::FakeRuntime;
use super::trials::{AT_ONCE, placed, sh};
use crate::{ContainerRuntime, LabelFilter, RemovalOutcome};

/// An operation on one of few names, so that operations interact.
#[derive(Clone, Copy, Debug)]
enum Act {
    Create(u8),
    Start(u8),
    Stop(u8),
    Exec(u8),
    Crash(u8),
    Disappear(u8),
    Remove(u8),
}

fn act() -> impl Strategy<Value = Act> {
    let kinds = [Act::Create, Act::Start, Act::Stop, Act::Exec, Act::Crash, Act::Disappear, Act::Remove];
    (proptest::sample::select(kinds.to_vec()), 0..4u8).prop_map(|(kind, which)| kind(which))
}

/// The expected containers: absent, or their state.
type Model = BTreeMap<u8, (ContainerId, ContainerStatus)>;

async fn create(fake: &FakeRuntime, model: &mut Model, which: u8) {
    let made = fake.create(&placed(fake, &format!("c{which}")).await).await;
    match (made, model.get(&which)) {
        (Ok(id), None) => _ = model.insert(which, (id, ContainerStatus::Created)),
        (Err(Error::NameTaken(_)), Some(_)) => {}
        (other, known) => panic!("create with {known:?} gave {other:?}"),
    }
}

async fn step(fake: &FakeRuntime, model: &mut Model, last: &mut BTreeMap<u8, ContainerId>, act: Act) {
    let (Act::Create(which)
    | Act::Start(which)
    | Act::Stop(which)
    | Act::Exec(which)
    | Act::Crash(which)
    | Act::Disappear(which)
    | Act::Remove(which)) = act;
    let Some(id) = last.get(&which).cloned().or_else(|| matches!(act, Act::Create(_)).then(no_container)) else {
        return;
    };
    let known = model.get_mut(&which);
    let gone = known.is_none();
    match act {
        Act::Create(_) => {
            create(fake, model, which).await;
            last.insert(which, model[&which].0.clone());
        }
        Act::Start(_) => {
            let started = fake.start(&id).await;
            assert_eq!(matches!(started, Err(Error::NoSuchContainer(_))), gone, "{started:?}");
            known.into_iter().for_each(|it| it.1 = ContainerStatus::Running);
        }
        Act::Stop(_) | Act::Crash(_) => {
            if matches!(act, Act::Crash(_)) {
                fake.crash(&id);
            } else {
                assert_eq!(fake.stop(&id, AT_ONCE).await.is_err(), gone);
            }
            known
                .into_iter()
                .filter(|it| it.1 == ContainerStatus::Running)
                .for_each(|it| it.1 = ContainerStatus::Exited);
        }
        Act::Exec(_) => match (fake.exec(&id, sh("true")).await, known.map(|it| it.1)) {
            (Ok(_), Some(ContainerStatus::Running)) | (Err(Error::NoSuchContainer(_)), None) => {}
            (Err(Error::NotRunning { status, .. }), Some(known)) => assert_eq!(status, known),
            (other, known) => panic!("exec with {known:?} gave {other:?}"),
        },
        Act::Disappear(_) => {
            fake.disappear(&id);
            model.remove(&which);
        }
        Act::Remove(_) => {
            let removed = fake.remove(&id).await.unwrap();
            assert_eq!(removed == RemovalOutcome::AlreadyGone, gone);
            model.remove(&which);
        }
    }
}

fn no_container() -> ContainerId {
    ContainerId::parse("0".repeat(64)).unwrap()
}

/// The engine shows exactly the model's containers: unique names, the right states, a PID for a running one and no
/// other.
async fn compare(fake: &FakeRuntime, model: &Model) {
    let listed = fake.list(&LabelFilter::default()).await.unwrap();
    let shown: BTreeMap<_, _> = listed.iter().map(|it| (it.name.clone(), (it.id.clone(), it.status))).collect();
    assert_eq!(shown.len(), listed.len(), "names are not unique");
    let expected: BTreeMap<_, _> = model.iter().map(|(which, it)| (format!("c{which}"), it.clone())).collect();
    assert_eq!(shown, expected);
    for container in listed {
        assert_eq!(container.pid.is_some(), container.running());
        assert_eq!(container.exit_code.is_some(), container.status == ContainerStatus::Exited);
        assert!(fake.root(&container.id).unwrap().is_dir());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_sequence_of_acts_breaks_the_rules(acts in proptest::collection::vec(act(), 30)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (fake, mut model, mut last) = (FakeRuntime::new(), Model::new(), BTreeMap::new());
            for act in acts {
                step(&fake, &mut model, &mut last, act).await;
                compare(&fake, &model).await;
            }
        });
    }
}
