//! A list from memory equals the exact one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use coracle_runtime::{Container, RemovalOutcome};
use coracle_types::EngineKind;

use super::placed;
use crate::engines::{Case, LABEL, engine_program, on_every_engine};

/// Allowed age, with a margin for a busy machine.
const MOMENT: Duration = Duration::from_secs(5);

fn by_id(mut containers: Vec<Container>) -> Vec<Container> {
    containers.sort_by(|one, other| one.id.as_str().cmp(other.id.as_str()));
    containers
}

async fn both(case: &Case) -> (Vec<Container>, Vec<Container>) {
    let recent = case.runtime.list_recent(&case.mine()).await.unwrap();
    let recent = recent.into_iter().map(Arc::unwrap_or_clone).collect();
    (by_id(recent), by_id(case.runtime.list(&case.mine()).await.unwrap()))
}

async fn assert_same(case: &Case) {
    let (recent, exact) = both(case).await;
    assert_eq!(recent, exact);
}

#[tokio::test]
async fn own_changes_are_immediately_in_a_recent_list() {
    on_every_engine(async |case| {
        // From the second list on, known containers are not inspected again.
        assert_same(case).await;
        assert_same(case).await;
        let first = case.runtime.create(&placed(case, case.spec("first"))).await.unwrap();
        assert_same(case).await;
        case.runtime.start(&first).await.unwrap();
        assert_same(case).await;
        let second = super::running(case).await;
        assert_same(case).await;
        case.runtime.stop(&first, Duration::ZERO).await.unwrap();
        assert_same(case).await;
        assert_eq!(case.runtime.remove(&second).await.unwrap(), RemovalOutcome::Now);
        let (recent, exact) = both(case).await;
        assert_eq!((recent.len(), &recent), (1, &exact));
    })
    .await;
}

#[tokio::test]
async fn changes_of_others_are_in_a_recent_list_in_a_moment() {
    on_every_engine(async |case| {
        let id = super::running(case).await;
        assert_same(case).await;
        assert_same(case).await;
        // These engines have no program, and each of their lists is exact.
        let has_none = [EngineKind::Embedded, EngineKind::Kubernetes].contains(&case.engine());
        if !case.is_real() || case.program().is_some() || has_none {
            return;
        }
        let (name, label) = (case.name("theirs"), format!("{LABEL}={}", case.container_label().1));
        let create = ["create", "--name", name.as_str(), "--label", &label, case.image.as_str(), "true"];
        for words in [&["pause", id.as_str()][..], &["unpause", id.as_str()], &create, &["kill", id.as_str()]] {
            let done = engine_program(case.engine().as_str()).args(words).output().await.unwrap();
            assert!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
            let begun = Instant::now();
            loop {
                let (recent, exact) = both(case).await;
                if recent == exact {
                    break;
                }
                assert!(begun.elapsed() < MOMENT, "{words:?}: {recent:?} is not {exact:?}");
            }
        }
    })
    .await;
}
