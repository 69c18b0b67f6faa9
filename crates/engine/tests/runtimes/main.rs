//! Containers by real OCI runtimes, where they are installed: the same life as in the engine's own, and another wall.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test ends where its expectation is not met")]

mod lab;

use std::io::{Read as _, Seek as _};
use std::time::Duration;

use coracle_engine::OciRuntime;
use coracle_runtime::{ContainerRuntime as _, ImageCommit, ImageConfig, ImageStore as _, NetworkAttachment};
use coracle_types::{ContainerPath, ContainerStatus, Error, Exit, Ids, IsolationKind};
use lab::{Lab, argv, sh};

/// Everything that a container does from its creation to its removal.
async fn check_life(runtime: OciRuntime, network: NetworkAttachment) {
    let Some(lab) = Lab::new(runtime).await else { return };
    let Some(container) = lab.run(network).await else { return };
    let seen = lab.runtime.inspect(&(&container.id).into()).await.unwrap();
    assert_eq!((seen.status, seen.isolation), (ContainerStatus::Running, Some(runtime.isolation())));

    // Commands by the guest and without it.
    let text = async |exec| container.guest.exec(exec).await.unwrap().stdout.text();
    assert_eq!(text(sh("id -u; id -g; echo kept > /kept; cat /proc/sys/kernel/hostname")).await, "0\n0\nlab\n");
    let of_user = coracle_types::Exec { user: Ids { uid: 1000, gid: 1000 }, ..sh("id -u; echo x > /denied") };
    let of_user = container.guest.exec(of_user).await.unwrap();
    assert_eq!((of_user.stdout.text().as_str(), of_user.exit), ("1000\n", Exit::Code(1)), "{of_user:?}");
    let plain = async |exec| lab.runtime.exec(&container.id, exec).await;
    let it = plain(sh("cat /kept; echo wrong >&2; exit 7")).await.unwrap();
    assert_eq!((it.stdout.text(), it.stderr.text(), it.exit), ("kept\n".into(), "wrong\n".into(), Exit::Code(7)));
    assert_eq!(plain(argv(&["/bin/nosuch"])).await.unwrap().exit, Exit::Code(127));
    let elsewhere = ContainerPath::parse("/nosuch").unwrap();
    let elsewhere = coracle_types::Exec { workdir: elsewhere, ..sh("true") };
    assert!(matches!(plain(elsewhere).await, Err(Error::NoSuchPath(_))));

    // Files in and out while it runs.
    lab.runtime.upload(&container.id, &ContainerPath::root(), lab::tar(&[("uploaded", "from outside")])).await.unwrap();
    assert_eq!(plain(argv(&["cat", "/uploaded"])).await.unwrap().stdout.text(), "from outside");
    let mut into = tempfile::tempfile().unwrap();
    let copy = into.try_clone().unwrap();
    lab.runtime.download(&container.id, &ContainerPath::parse("/kept").unwrap(), copy, 1 << 20).await.unwrap();
    let mut tar = Vec::new();
    into.rewind().unwrap();
    into.read_to_end(&mut tar).unwrap();
    assert!(tar.windows(5).any(|it| it == b"kept\n"));

    // An image of it, and its end.
    let commit =
        ImageCommit { container: container.id.clone(), tag: None, labels: Vec::new(), config: ImageConfig::default() };
    let image = lab.runtime.commit_image(&commit).await.unwrap();
    assert_ne!(image.id, lab.image);
    lab.runtime.stop(&container.id, Duration::from_secs(10)).await.unwrap();
    let seen = lab.runtime.inspect(&(&container.id).into()).await.unwrap();
    assert_eq!((seen.status, seen.exit_code), (ContainerStatus::Exited, Some(0)));
    lab.check_nothing_left(&container.id);

    // Once more with the same files, and away.
    lab.runtime.start(&container.id).await.unwrap();
    assert_eq!(lab.plain(&container.id, argv(&["cat", "/kept"])).await, "kept\n");
    lab.runtime.remove(&container.id).await.unwrap();
    lab.check_nothing_left(&container.id);
    let again = lab.run_image(&image.id, NetworkAttachment::None).await.unwrap();
    assert_eq!(lab.plain(&again.id, argv(&["cat", "/kept", "/uploaded"])).await, "kept\nfrom outside");
    lab.runtime.remove(&again.id).await.unwrap();
}

#[tokio::test]
async fn a_container_lives_by_runc() {
    check_life(OciRuntime::Runc, NetworkAttachment::None).await;
}

#[tokio::test]
async fn a_container_lives_by_crun() {
    check_life(OciRuntime::Crun, NetworkAttachment::None).await;
}

/// Its kernel names no peer of a socket, which the guest and its host need.
#[tokio::test]
async fn gvisor_has_no_guest_and_leaves_nothing() {
    let Some(lab) = Lab::new(OciRuntime::Runsc).await else { return };
    let id = lab.create(true, NetworkAttachment::None).await;
    let refused = lab.runtime.start(&id).await;
    let is_guest = matches!(refused, Err(Error::Unsupported { capability: coracle_types::Capability::Guest, .. }));
    assert!(is_guest, "{refused:?}");
    lab.check_nothing_left(&id);
    lab.runtime.remove(&id).await.unwrap();
}

/// Commands, the kernel and the end of a container in gVisor, without a network and with one.
#[tokio::test]
async fn a_container_without_a_guest_lives_in_gvisor() {
    for network in [NetworkAttachment::None, NetworkAttachment::EngineDefault] {
        let Some(lab) = Lab::new(OciRuntime::Runsc).await else { return };
        let id = lab.create(false, network).await;
        lab.runtime.start(&id).await.unwrap();
        let seen = lab.runtime.inspect(&(&id).into()).await.unwrap();
        assert_eq!((seen.status, seen.isolation), (ContainerStatus::Running, Some(IsolationKind::Gvisor)));
        let it = lab.runtime.exec(&id, sh("id -u; echo kept > /kept; exit 7")).await.unwrap();
        assert_eq!((it.stdout.text().as_str(), it.exit), ("0\n", Exit::Code(7)), "{it:?}");
        let host = std::fs::read_to_string("/proc/version").unwrap();
        assert_ne!(lab.plain(&id, argv(&["cat", "/proc/version"])).await, host);
        lab.runtime.remove(&id).await.unwrap();
        lab.check_nothing_left(&id);
    }
}

/// The starting process died after it had connected the network, and before the program of the container began.
#[tokio::test]
async fn a_container_whose_start_was_interrupted_is_ended_by_a_command() {
    for runtime in [OciRuntime::Runc, OciRuntime::Runsc] {
        let Some(lab) = Lab::new(runtime).await else { continue };
        let id = lab.create(false, NetworkAttachment::None).await;
        lab.runtime.start(&id).await.unwrap();
        lab.mark_as_starting(&id);
        let ran = lab.runtime.exec(&id, sh("true")).await;
        assert!(matches!(ran, Err(Error::NotRunning { .. })), "{runtime}: {ran:?}");
        lab.check_nothing_left(&id);
        lab.runtime.start(&id).await.unwrap();
        assert_eq!(lab.plain(&id, sh("echo again")).await, "again\n", "{runtime}");
        lab.runtime.remove(&id).await.unwrap();
    }
}

/// A command that outlives its limit is ended, and the container goes on.
#[tokio::test]
async fn a_command_is_ended_at_its_limit() {
    for runtime in [OciRuntime::Runc] {
        let Some(lab) = Lab::new(runtime).await else { continue };
        let Some(container) = lab.run(NetworkAttachment::None).await else { continue };
        let limits = coracle_types::ExecLimits {
            total: Some(Duration::from_millis(700)),
            grace: Duration::from_millis(50),
            ..Default::default()
        };
        let endless = coracle_types::Exec { limits, ..argv(&["sleep", "1000"]) };
        let it = lab.runtime.exec(&container.id, endless).await.unwrap();
        assert!(matches!(it.exit, Exit::TimedOut(_)), "{runtime}: {it:?}");
        let running = lab.plain(&container.id, sh("ps | grep -c '[s]leep 1000'")).await;
        assert_eq!(running, "0\n", "{runtime}");
        lab.runtime.remove(&container.id).await.unwrap();
    }
}

/// Programs look for their limits in `/sys/fs/cgroup`.
#[tokio::test]
async fn a_container_of_the_engines_own_sees_its_limits_and_cannot_change_them() {
    let Some(lab) = Lab::new(None).await else { return };
    let Some(container) = lab.run(NetworkAttachment::None).await else { return };
    let limit = sh("cd /sys/fs/cgroup; cat memory/memory.limit_in_bytes || cat memory.max");
    assert_eq!(lab.plain(&container.id, limit).await.trim(), (lab::MEMORY_MIB << 20).to_string());
    let change =
        sh("cd /sys/fs/cgroup; for at in memory/memory.limit_in_bytes memory/tasks memory.max cgroup.procs x; do
        (echo 1 > $at) 2>/dev/null && echo wrote $at; done; true");
    assert_eq!(lab.plain(&container.id, change).await, "");
    let others = sh("cat /proc/self/cgroup | grep -v -e ':/$' -e name=; true");
    assert_eq!(lab.plain(&container.id, others).await, "");
    lab.runtime.remove(&container.id).await.unwrap();
}

/// The kernel that a container sees is the one that its wall names.
#[tokio::test]
async fn the_wall_is_what_inspect_says() {
    let host = std::fs::read_to_string("/proc/version").unwrap();
    for runtime in [OciRuntime::Runc] {
        let Some(lab) = Lab::new(runtime).await else { continue };
        let Some(container) = lab.run(NetworkAttachment::None).await else { continue };
        let shares_kernel = lab.plain(&container.id, argv(&["cat", "/proc/version"])).await == host;
        assert_eq!(shares_kernel, runtime.isolation() == IsolationKind::Namespaces, "{runtime}");
        // PID 1 of the container, or the program that is its kernel, is held to the limits of its control group.
        let pid = lab.runtime.inspect(&(&container.id).into()).await.unwrap().pid.unwrap();
        let groups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
        let group_lines = groups.lines().filter(|it| it.contains(container.id.as_str())).count();
        assert!(group_lines > 0, "{runtime}: {groups}");
        lab.runtime.remove(&container.id).await.unwrap();
    }
}
