//! Creation, run, end and removal of containers.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::{Duration, Instant};

use coracle_host::fs::HostPath;
use coracle_runtime::{
    Access, Capabilities, CreateSpec, LabelFilter, Limits, Mount, MountPoint, NetworkAttachment, Policy,
    RemovalOutcome, Tmpfs, Ulimits, VolumeCreate, VolumeMount, admit,
};
use coracle_types::{ByteSize, ContainerId, ContainerStatus, EngineKind, Error, Exit, Handle, ImageId, VolumeName};

use super::{argv, path, placed, printed, ran, running, sh};
use crate::engines::{Case, LABEL, Lack, engine_program, on_every_engine};

const GRACE: Duration = Duration::from_secs(10);

#[tokio::test]
async fn an_engine_tells_what_it_is() {
    on_every_engine(async |case| {
        let info = case.runtime.info().await.unwrap();
        assert_eq!((info.kind, info.rootless), (case.engine(), case.runtime.endpoint().rootless));
        assert_eq!(info.endpoint, case.runtime.endpoint().address);
        assert!(info.version.starts_with(|c: char| c.is_ascii_digit()), "{info:?}");
        assert!(matches!(info.arch.as_str(), "amd64" | "arm64") && matches!(info.cgroup, 1 | 2), "{info:?}");
        assert!(info.data_root.is_absolute(), "{info:?}");
    })
    .await;
}

#[tokio::test]
async fn names_are_not_shared() {
    on_every_engine(async |case| {
        let spec = placed(case, case.spec("twice"));
        let id = case.runtime.create(&spec).await.unwrap();
        let second = case.runtime.create(&spec).await;
        assert!(matches!(second, Err(Error::NameTaken(_))), "{second:?}");
        assert_eq!(case.runtime.remove(&id).await.unwrap(), RemovalOutcome::Now);
        case.runtime.create(&spec).await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_container_is_found_by_name_by_id_and_by_the_first_digits_of_it() {
    on_every_engine(async |case| {
        let id = case.runtime.create(&placed(case, case.spec("found"))).await.unwrap();
        let name = case.name("found");
        for handle in [name.as_str(), id.as_str(), id.short()] {
            let found = case.runtime.inspect(&Handle::parse(handle).unwrap()).await.unwrap();
            assert_eq!((&found.id, found.name.as_str(), &found.image), (&id, name.as_str(), &case.image), "{handle}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_name_that_is_part_of_another_finds_nothing() {
    on_every_engine(async |case| {
        case.runtime.create(&placed(case, case.spec("longer-name"))).await.unwrap();
        for other in ["longer", "longer-nam.", "onger-name"] {
            let found = case.runtime.inspect(&Handle::Name(case.name(other))).await;
            assert!(matches!(found, Err(Error::NoSuchContainer(_))), "{other}: {found:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn the_error_of_each_verb_names_what_is_missing() {
    on_every_engine(async |case| {
        let (id, runtime) = (ContainerId::parse("d".repeat(64)).unwrap(), &case.runtime);
        let gone = |it: Option<Error>| matches!(it, Some(Error::NoSuchContainer(_)));
        assert!(gone(runtime.inspect(&(&id).into()).await.err()));
        assert!(gone(runtime.inspect(&Handle::Name(case.name("never"))).await.err()));
        assert!(gone(runtime.start(&id).await.err()), "start");
        assert!(gone(runtime.stop(&id, GRACE).await.err()), "stop");
        assert!(gone(runtime.exec(&id, sh("true")).await.err()), "exec");
        assert!(gone(runtime.exec(&id, argv(&["true"])).await.err()), "exec of an argv");
        let file = || tempfile::tempfile().unwrap();
        assert!(gone(runtime.upload(&id, &path("/tmp"), file()).await.err()), "upload");
        assert!(gone(runtime.download(&id, &path("/tmp"), file(), 1 << 20).await.err()), "download");
        assert_eq!(runtime.remove(&id).await.unwrap(), RemovalOutcome::AlreadyGone);
    })
    .await;
}

#[tokio::test]
async fn containers_are_listed_by_labels_running_or_not() {
    on_every_engine(async |case| {
        let make = async |name: &str, kind: &str| {
            let labels = BTreeMap::from([case.label(), ("coracle-test.kind".into(), kind.into())]);
            case.runtime.create(&placed(case, CreateSpec { labels, ..case.spec(name) })).await.unwrap()
        };
        let (a, b) = (make("a", "one").await, make("b", "two").await);
        case.runtime.start(&b).await.unwrap();
        let listed = async |more: &[(&str, Option<&str>)]| {
            let more = more.iter().map(|(key, value)| (key.to_string(), value.map(str::to_owned)));
            let filter = LabelFilter(case.mine().0.into_iter().chain(more).collect());
            let mut ids: Vec<_> = case.runtime.list(&filter).await.unwrap().into_iter().map(|it| it.id).collect();
            ids.sort();
            ids
        };
        let mut both = vec![a.clone(), b];
        both.sort();
        assert_eq!(listed(&[]).await, both);
        assert_eq!(listed(&[("coracle-test.kind", None)]).await, both);
        assert_eq!(listed(&[("coracle-test.kind", Some("one"))]).await, [a]);
        assert_eq!(listed(&[("coracle-test.kind", Some("on"))]).await, []);
        assert_eq!(listed(&[("coracle-test.none", None)]).await, []);
        assert!(case.runtime.list(&LabelFilter(vec![(LABEL.into(), None)])).await.unwrap().len() >= 2);
    })
    .await;
}

#[tokio::test]
async fn a_container_lives_its_life() {
    on_every_engine(async |case| {
        let (runtime, id) = (&case.runtime, case.runtime.create(&placed(case, case.spec("life"))).await.unwrap());
        let state = async || {
            let it = runtime.inspect(&(&id).into()).await.unwrap();
            (it.status, it.pid.is_some(), it.exit_code.is_some())
        };
        let reported = !case.lacks(Lack::Processes);
        // Processes of a cluster are not this host's.
        let has_pid = reported && case.engine() != EngineKind::Kubernetes;
        let rounds = if case.lacks(Lack::Restart) { 1 } else { 2 };
        assert_eq!((id.is_digits(), state().await), (reported, (ContainerStatus::Created, false, false)));
        let early = runtime.exec(&id, sh("true")).await;
        assert!(matches!(early, Err(Error::NotRunning { status: ContainerStatus::Created, .. })), "{early:?}");
        runtime.stop(&id, GRACE).await.unwrap();
        for round in 0..rounds {
            runtime.start(&id).await.unwrap();
            runtime.start(&id).await.unwrap();
            assert_eq!((state().await, round), ((ContainerStatus::Running, has_pid, false), round));
            assert_eq!(printed(case, &id, "echo here").await, "here\n");
            let begun = Instant::now();
            runtime.stop(&id, GRACE).await.unwrap();
            assert!(begun.elapsed() < GRACE, "PID 1 did not obey TERM");
            runtime.stop(&id, GRACE).await.unwrap();
            assert_eq!((state().await, round), ((ContainerStatus::Exited, false, reported), round));
            for exec in [sh("true"), argv(&["true"]), sh("exit 7")] {
                let late = runtime.exec(&id, exec).await;
                let Err(Error::NotRunning { status: ContainerStatus::Exited, exit_code, .. }) = late else {
                    panic!("{late:?}");
                };
                assert_eq!(exit_code.is_some(), reported);
            }
        }
        assert_eq!(runtime.remove(&id).await.unwrap(), RemovalOutcome::Now);
        assert_eq!(runtime.remove(&id).await.unwrap(), RemovalOutcome::AlreadyGone);
        assert!(matches!(runtime.inspect(&(&id).into()).await, Err(Error::NoSuchContainer(_))));
    })
    .await;
}

#[tokio::test]
async fn a_running_container_is_removed_at_once_with_what_runs_in_it() {
    on_every_engine(async |case| {
        let id = running(case).await;
        ran(case, &id, sh("trap '' TERM; sleep 300 & echo up")).await;
        let begun = Instant::now();
        assert_eq!(case.runtime.remove(&id).await.unwrap(), RemovalOutcome::Now);
        assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
    })
    .await;
}

#[tokio::test]
async fn an_unknown_image_creates_no_container() {
    on_every_engine(async |case| {
        let image = ImageId::parse(format!("sha256:{}", "e".repeat(64))).unwrap();
        let spec = admit(case.spec("none"), &Policy::everything())
            .unwrap()
            .with_image(image, NetworkAttachment::EngineDefault);
        let made = case.runtime.create(&spec).await;
        let is_refused = match case.engine() {
            // It requests the image from the registry.
            EngineKind::Kubernetes => matches!(made, Err(Error::PullFailed { .. })),
            _ => matches!(made, Err(Error::Engine { verb: "create", .. })),
        };
        assert!(is_refused, "{made:?}");
        assert_eq!(case.runtime.list(&case.mine()).await.unwrap(), []);
    })
    .await;
}

#[tokio::test]
async fn labels_are_returned_as_given() {
    on_every_engine(async |case| {
        let unusual = [("a", ""), ("b.c/d-e", "x=y,z"), ("q", r#"it's a "quote" $HOME \n"#), ("u", "ünï ☃")];
        let unusual = unusual.map(|(key, value)| (format!("coracle-test.{key}"), value.to_owned()));
        let labels: BTreeMap<_, _> = unusual.into_iter().chain([case.label()]).collect();
        let spec = CreateSpec { labels: labels.clone(), ..case.spec("labels") };
        let id = case.runtime.create(&placed(case, spec)).await.unwrap();
        let mut shown = case.runtime.inspect(&id.into()).await.unwrap().labels;
        shown.retain(|key, _| key.starts_with("coracle-test."));
        assert_eq!(shown, labels);
    })
    .await;
}

#[tokio::test]
async fn limits_are_returned_as_given() {
    on_every_engine(async |case| {
        if case.lacks(Lack::ExactLimits) {
            return;
        }
        for (name, limits) in [
            ("some", Limits { memory: Some(ByteSize::mib(64)), cpus: Some(0.5), pids: Some(50) }),
            ("none", Limits::default()),
        ] {
            let id = case.runtime.create(&placed(case, CreateSpec { limits, ..case.spec(name) })).await.unwrap();
            let shown = case.runtime.inspect(&id.into()).await.unwrap().limits;
            // Podman sets a limit of processes even if none is requested.
            let shown = if limits.pids.is_none() { Limits { pids: None, ..shown } } else { shown };
            // A Pod has no limit of processes.
            let is_pod = case.engine() == EngineKind::Kubernetes;
            let limits = if is_pod { Limits { pids: None, ..limits } } else { limits };
            assert_eq!(shown, if case.keeps_limits() { limits } else { Limits::default() });
        }
    })
    .await;
}

/// A volume of that case at `/v`, and the name of it.
async fn volume(case: &Case, access: Access) -> VolumeMount {
    let name = VolumeName::parse(case.name("volume").as_str()).unwrap();
    let new = VolumeCreate { name: name.clone(), labels: vec![case.label()], size: None };
    let made = case.runtime.create_volume(&new).await.unwrap();
    assert_eq!((made.name.as_str(), case.mine().0.len()), (name.as_str(), made.labels.len()));
    VolumeMount { name, at: path("/v"), access }
}

#[tokio::test]
async fn a_volume_outlives_its_container_and_an_existing_one_is_reused() {
    on_every_engine(async |case| {
        let volumes = vec![volume(case, Access::ReadWrite).await];
        let spec = || CreateSpec { volumes: volumes.clone(), ..case.spec("keeps") };
        for (script, printed_is) in [("echo kept > /v/file", ""), ("cat /v/file; rm /v/file", "kept\n")] {
            let id = case.runtime.create(&placed(case, spec())).await.unwrap();
            case.runtime.start(&id).await.unwrap();
            let mut exec = sh(&script.replace("/v/", ""));
            exec.workdir = path("/v");
            let it = ran(case, &id, exec).await;
            assert_eq!((it.exit, it.stdout.text().as_str()), (Exit::Code(0), printed_is), "{it:?}");
            let shown = case.runtime.inspect(&(&id).into()).await.unwrap().mounts;
            assert_eq!(shown.iter().map(|it| (it.target.as_str(), it.writable)).collect::<Vec<_>>(), [("/v", true)]);
            let busy = case.runtime.remove_volume(volumes[0].name.as_str()).await;
            assert!(busy.is_err(), "it is in use");
            assert_eq!(case.runtime.remove(&id).await.unwrap(), RemovalOutcome::Now);
            volume(case, Access::ReadWrite).await;
        }
        for _ in 0..2 {
            case.runtime.remove_volume(volumes[0].name.as_str()).await.unwrap();
        }
        assert_eq!(case.runtime.list_volumes(&case.mine()).await.unwrap(), []);
    })
    .await;
}

#[tokio::test]
async fn on_a_root_that_is_read_only_volumes_and_memory_can_be_written() {
    on_every_engine(async |case| {
        let limits = Limits { memory: Some(ByteSize::mib(64)), ..Limits::default() };
        let spec = CreateSpec {
            read_only: true,
            volumes: vec![volume(case, Access::ReadWrite).await],
            tmpfs: vec![
                Tmpfs { at: path("/tmp"), size: ByteSize::mib(1), mode: 0o1777 },
                Tmpfs { at: path("/made/here"), size: ByteSize::mib(1), mode: 0o700 },
            ],
            ulimits: Ulimits { nofile: Some(512), core: Some(0) },
            capabilities: Capabilities::Guest,
            limits,
            ..case.spec("locked")
        };
        let id = case.runtime.create(&placed(case, spec)).await.unwrap();
        case.runtime.start(&id).await.unwrap();
        for dir in ["/v", "/tmp", "/made/here"] {
            let mut exec = sh("echo new > file && cat file");
            exec.workdir = path(dir);
            assert_eq!(ran(case, &id, exec).await.stdout.text(), "new\n", "{dir}");
        }
        // The fake has no kernel of its own that could forbid anything.
        if case.is_real() {
            let refused =
                ran(case, &id, sh("for dir in /etc /bin /run; do echo new > $dir/made; ls $dir/made; done")).await;
            let reported = refused.stderr.text();
            // Podman creates `/run`, which is read-only like the rest.
            assert!(refused.stdout.text().is_empty() && reported.matches("Read-only").count() >= 2, "{reported}");
            if !case.lacks(Lack::MemoryModes) {
                assert_eq!(printed(case, &id, "stat -c '%a %u' /tmp /made/here").await, "1777 0\n700 0\n");
            }
            if !case.lacks(Lack::Ulimits) {
                assert_eq!(printed(case, &id, "ulimit -n; ulimit -c").await, "512\n0\n");
            }
            // A kubelet before 1.22 mounts it without its size, and ends a Pod that has used more.
            if case.kube().is_none_or(|it| it.api().is_some()) {
                let fill = "dd if=/dev/zero of=/tmp/much bs=1k count=2000 2>/dev/null || echo full";
                assert_eq!(printed(case, &id, fill).await, "full\n");
            }
            let capabilities = printed(case, &id, "grep CapBnd /proc/1/status").await;
            assert_eq!(capabilities, "CapBnd:\t00000000000000e3\n");
        }
    })
    .await;
}

#[tokio::test]
async fn a_paused_container_is_resumed_by_start() {
    on_every_engine(async |case| {
        if case.lacks(Lack::Pause) {
            return;
        }
        let id = running(case).await;
        match case.fake() {
            Some(fake) => fake.pause(&id),
            None => {
                let mut pause = engine_program(case.engine().as_str());
                assert!(pause.args(["pause", id.as_str()]).stdout(Stdio::null()).status().await.unwrap().success());
            }
        }
        let seen = async || case.runtime.inspect(&(&id).into()).await.unwrap();
        let before = seen().await;
        assert_eq!(before.status, ContainerStatus::Paused);
        case.runtime.start(&id).await.unwrap();
        let after = seen().await;
        assert_eq!((after.status, after.pid), (ContainerStatus::Running, before.pid));
    })
    .await;
}

#[tokio::test]
async fn binds_show_the_hosts_files_and_read_only_ones_stay() {
    on_every_engine(async |case| {
        if case.lacks(Lack::Binds) {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().canonicalize().unwrap();
        let unusual = if case.lacks(Lack::OddSources) { "one \"two\"" } else { "one, \"two\"" };
        let mount = |name: &str, at: &str, access| {
            std::fs::create_dir(real.join(name)).unwrap();
            std::fs::write(real.join(name).join("file"), name).unwrap();
            Mount { host: HostPath::open(&real.join(name)).unwrap(), at: path(at), access }
        };
        let mounts =
            vec![mount(unusual, "/mnt/rw", Access::ReadWrite), mount("locked", "/mnt/with blank", Access::ReadOnly)];
        let id = case.runtime.create(&placed(case, CreateSpec { mounts, ..case.spec("binds") })).await.unwrap();
        let mut shown = case.runtime.inspect(&(&id).into()).await.unwrap().mounts;
        shown.sort_by_key(|it| it.target.clone());
        let point = |source: &str, target: &str, writable| MountPoint {
            source: real.join(source),
            target: target.into(),
            writable,
            is_bind: true,
        };
        assert_eq!(shown, [point(unusual, "/mnt/rw", true), point("locked", "/mnt/with blank", false)]);
        case.runtime.start(&id).await.unwrap();
        let mut exec = sh("cat file; echo new > made");
        exec.workdir = path("/mnt/rw");
        assert_eq!(ran(case, &id, exec).await.stdout.text(), unusual);
        assert_eq!(std::fs::read_to_string(real.join(unusual).join("made")).unwrap(), "new\n");
        // The fake's binds are links, which cannot forbid anything.
        if case.is_real() {
            let refused = ran(case, &id, sh("echo new > '/mnt/with blank/made'")).await;
            assert!(refused.stderr.text().contains("Read-only"), "{refused:?}");
        }
    })
    .await;
}
