//! Tests of process trees and how they are ended.

use super::*;

/// Forks, forks twice, ignores TERM, changes session and clears its environment: five processes in all.
const HIDERS: &str = "trap '' TERM; sleep 1000 & (sleep 1001 &) ; setsid sleep 1002 & \
    setsid sh -c 'trap \"\" TERM; env -i sleep 1003; :' & sleep 0.05; echo ready";

async fn start_and_wait_ready(container: &Container, plan: SpawnSpec) -> Process {
    let mut process = container.start(plan).await.unwrap();
    let mut ready = [0; 6];
    process.stdout.read_exact(&mut ready).await.unwrap();
    process
}

#[tokio::test]
async fn a_process_tree_is_ended_even_if_it_hides_and_no_other_is() {
    for user in [Some(myself()), is_root().then_some(STRANGER)].into_iter().flatten() {
        let container = here();
        let plan = |mark, text: &str| SpawnSpec { mark: TreeId(mark), user: user.clone(), ..script(text) };
        let hiding = start_and_wait_ready(&container, plan(1, &format!("{HIDERS}; wait"))).await;
        let other = start_and_wait_ready(&container, plan(2, "echo ready; exec sleep 1000")).await;
        assert_eq!(container.count(TreeId(1)).await, 6);
        assert!(container.end(TreeId(1), GRACE).await);
        assert_eq!((container.count(TreeId(1)).await, container.count(TreeId(2)).await), (0, 1));
        assert_eq!(hiding.exit.await.unwrap(), Exit::Signal(9));
        assert!(container.end(TreeId(2), GRACE).await);
        assert_eq!(other.exit.await.unwrap(), Exit::Signal(15));
    }
}

#[tokio::test]
async fn processes_that_a_command_leaves_behind_are_counted_and_ended() {
    let container = here();
    let process = start_and_wait_ready(&container, script(HIDERS)).await;
    assert_eq!(process.exit.await.unwrap(), Exit::Code(0));
    assert_eq!(container.count(TreeId(1)).await, 5);
    assert!(container.end(TreeId(1), GRACE).await);
    assert_eq!(container.count(TreeId(1)).await, 0);
}

#[tokio::test]
async fn a_process_that_obeys_term_ends_without_waiting_for_the_grace() {
    let container = here();
    let started = Instant::now();
    let obeying =
        start_and_wait_ready(&container, script("trap 'exit 5' TERM; echo ready; while :; do sleep 0.01; done")).await;
    assert!(container.end(TreeId(1), Duration::from_secs(60)).await);
    assert_eq!(obeying.exit.await.unwrap(), Exit::Code(5));
    let stopped =
        start_and_wait_ready(&container, SpawnSpec { mark: TreeId(2), ..script("echo ready; kill -STOP $$") }).await;
    assert!(container.end(TreeId(2), Duration::from_secs(60)).await);
    assert_eq!(stopped.exit.await.unwrap(), Exit::Signal(15));
    assert!(started.elapsed() < Duration::from_secs(30));
}

#[tokio::test]
async fn a_tree_that_grows_while_it_is_ended_is_ended() {
    let container = here();
    let text = "trap '' TERM; g() { while :; do (sleep 0.01; :) & (setsid sleep 1000 &) ; sleep 0.005; done; }; \
        g & g & echo ready; g";
    let growing = start_and_wait_ready(&container, script(text)).await;
    assert!(container.end(TreeId(1), GRACE).await);
    assert_eq!(container.count(TreeId(1)).await, 0);
    assert_eq!(growing.exit.await.unwrap(), Exit::Signal(9));
}

#[tokio::test]
async fn a_mark_without_processes_counts_as_ended() {
    assert!(here().end(TreeId(9), GRACE).await);
    assert_eq!(here().count(TreeId(9)).await, 0);
}
