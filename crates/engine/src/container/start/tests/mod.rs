//! Starts that are under way, and starts whose process died.

use std::path::Path;

use coracle_client::{Link, LinkSettings, SocketAt};
use coracle_host::process::{Invocation, spawn_detached};
use coracle_runtime::ContainerRuntime as _;
use coracle_types::{ContainerPath, ProcessId};
use tokio::time::timeout;

use super::super::containers::add;
use super::super::files::upload;
use super::*;
use crate::{EmbeddedRuntime, EngineOptions};

/// Tells a process of these tests where it listens.
const SOCKET: &str = "CORACLE_START_TEST_SOCKET";

fn runtime(dir: &Path) -> EmbeddedRuntime {
    EmbeddedRuntime::open(EngineOptions::example(dir)).unwrap()
}

/// A container whose PID 1 is this process.
fn container(parent: &Path) -> StoredContainer {
    let dir = ContainerDir::create(parent.join("it")).unwrap();
    write_json(&dir.run_file(), &RunRecord::new(ContainerGroup::default())).unwrap();
    std::fs::write(dir.process_file(), std::fs::read("/proc/self/stat").unwrap()).unwrap();
    StoredContainer { config: crate::config::example(Vec::new()), dir }
}

/// The record of a container without a network.
const NO_NETWORK: &str = r#"{"ports":[],"helpers":[]}"#;

#[tokio::test]
async fn a_container_that_is_being_started_is_entered_once_its_start_is_complete() {
    let parent = tempfile::tempdir().unwrap();
    let container = container(parent.path());
    let starting = lock(&container, "start").await.unwrap();
    let runtime = runtime(parent.path());
    let entering = state_to_enter(runtime.engine(), &container, "exec");
    assert!(timeout(Duration::from_millis(50), entering).await.is_err());
    assert!(timeout(Duration::from_millis(50), lock_at_rest(runtime.engine(), &container, "copy")).await.is_err());
    std::fs::write(container.dir.network_file(), NO_NETWORK).unwrap();
    // The lock is not needed any more.
    assert!(state_to_enter(runtime.engine(), &container, "exec").await.unwrap().process().is_some());
    assert!(lock_at_rest(runtime.engine(), &container, "copy").await.unwrap().is_none());
    drop(starting);
}

#[tokio::test]
async fn files_of_a_container_whose_start_was_interrupted_are_not_copied() {
    let parent = tempfile::tempdir().unwrap();
    let container = container(parent.path());
    let runtime = runtime(parent.path());
    assert!(lock_at_rest(runtime.engine(), &container, "copy").await.unwrap().is_none());
    let copied = upload(runtime.engine(), &container, &ContainerPath::root(), tempfile::tempfile().unwrap());
    assert!(matches!(copied, Err(Error::Engine { verb: "copy", .. })));
}

/// A container of an engine. Its PID 1 sleeps, and what started it died before it was complete.
async fn interrupted(runtime: &EmbeddedRuntime) -> StoredContainer {
    interrupted_with(runtime, &Invocation::new("/bin/sleep", ["60"])).await
}

/// The same with another program as its PID 1.
async fn interrupted_with(runtime: &EmbeddedRuntime, first: &Invocation) -> StoredContainer {
    let (engine, config) = (runtime.engine(), crate::config::example(Vec::new()));
    add(engine, &config, |_| Ok(())).await.unwrap();
    let container = find(engine, &(&config.id).into()).unwrap();
    let pid = spawn_detached(first, File::open("/dev/null").unwrap()).unwrap();
    std::fs::write(container.dir.process_file(), std::fs::read(format!("/proc/{pid}/stat")).unwrap()).unwrap();
    write_json(&container.dir.run_file(), &RunRecord::new(ContainerGroup::default())).unwrap();
    assert!(container.process().unwrap().is_some());
    container
}

#[tokio::test]
async fn a_container_whose_start_was_interrupted_is_ended_before_it_starts_again() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = runtime(dir.path());
    let container = interrupted(&runtime).await;
    // Its image is missing.
    assert!(start(runtime.engine(), &container.config.id).await.is_err());
    assert!(container.process().unwrap().is_none());
}

#[tokio::test]
async fn a_container_whose_start_was_interrupted_is_ended_by_a_command_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = runtime(dir.path());
    let container = interrupted(&runtime).await;
    let state = state_to_enter(runtime.engine(), &container, "exec").await.unwrap();
    assert!(matches!(state, State::Exited { .. }));
}

#[tokio::test]
async fn a_start_by_a_runtime_is_complete_once_its_program_goes() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = runtime(dir.path());
    let container = interrupted(&runtime).await;
    std::fs::write(container.dir.network_file(), NO_NETWORK).unwrap();
    assert!(container.is_start_complete());
    std::fs::write(container.dir.starting_file(), "").unwrap();
    let state = state_to_enter(runtime.engine(), &container, "exec").await.unwrap();
    assert!(matches!(state, State::Exited { .. }));
    // It would be taken for that of the next start.
    assert!(!container.dir.starting_file().exists());
}

/// Not a test by itself: PID 1 of a container whose guest listens and says nothing.
#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "a process of the test, marked by the variable")]
async fn silent_guest() {
    let Some(socket) = std::env::var_os(SOCKET) else { return };
    let _listener = tokio::net::UnixListener::bind(socket).unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
}

/// A container with a guest whose start was interrupted, and where that guest listens.
async fn interrupted_with_guest(dir: &Path, runtime: &EmbeddedRuntime) -> (StoredContainer, SocketAt) {
    let socket = SocketAt { dir: dir.join("link"), pid1: None };
    std::fs::create_dir(&socket.dir).unwrap();
    let env = [(SOCKET.to_owned(), socket.dir.join("sock").into_os_string())].into();
    let words = ["--exact", "container::start::tests::silent_guest"];
    let guest = Invocation { env, ..Invocation::new(std::env::current_exe().unwrap(), words) };
    let container = interrupted_with(runtime, &guest).await;
    let listens = async {
        while socket.connect().await.is_none() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(30), listens).await.unwrap();
    (container, socket)
}

async fn link(runtime: &EmbeddedRuntime, container: &StoredContainer, socket: &SocketAt) -> Link {
    runtime.link(&container.config.id, Some(socket.clone()), LinkSettings::default()).await.unwrap()
}

/// Whatever the caller knows of its PID 1.
async fn is_ended_by_its_link(pid1: impl FnOnce(&StoredContainer) -> Option<ProcessId>) {
    let dir = tempfile::tempdir().unwrap();
    let runtime = runtime(dir.path());
    let (container, socket) = interrupted_with_guest(dir.path(), &runtime).await;
    let socket = SocketAt { pid1: pid1(&container), ..socket };
    let opened = link(&runtime, &container, &socket).await.open().await;
    assert!(matches!(opened, Err(Error::NotRunning { .. })), "{opened:?}");
    assert!(container.process().unwrap().is_none());
}

#[tokio::test]
async fn a_container_whose_start_was_interrupted_is_ended_by_a_command_by_its_guest() {
    is_ended_by_its_link(|_| None).await;
}

#[tokio::test]
async fn a_container_whose_start_was_interrupted_is_ended_by_its_guests_link_also_after_it_was_inspected() {
    is_ended_by_its_link(|it| it.process().unwrap()).await;
}

#[tokio::test]
async fn a_link_waits_for_a_start_that_is_under_way() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = runtime(dir.path());
    let (container, socket) = interrupted_with_guest(dir.path(), &runtime).await;
    let starting = lock(&container, "start").await.unwrap();
    let link = link(&runtime, &container, &socket).await;
    assert!(timeout(Duration::from_millis(100), link.open()).await.is_err());
    assert!(container.process().unwrap().is_some());
    drop(starting);
    // The start was cancelled.
    assert!(matches!(link.open().await, Err(Error::NotRunning { .. })));
}
