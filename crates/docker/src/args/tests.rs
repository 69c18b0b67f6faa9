use coracle_host::fs::HostPath;
use coracle_runtime::{
    Access, Capabilities, CreateSpec, GuestDelivery, HostEntry, Limits, Mount, NetworkAttachment, Policy, Port,
    Protocol, Tmpfs, Ulimits, VolumeMount, admit,
};
use coracle_types::{ByteSize, Command, ContainerName, Exec, Ids, NetworkName};
use insta::assert_snapshot;

use super::create::{BindMount, bind};
use super::*;

fn spec() -> CreateSpec {
    CreateSpec::new(ContainerName::parse("Web_1.x").unwrap(), ImageRef::parse("ubuntu").unwrap())
}

fn words(dialect: Dialect, facts: EngineFacts, spec: CreateSpec, network: NetworkAttachment) -> String {
    let image = ImageId::parse(format!("sha256:{}", "a".repeat(64))).unwrap();
    let words = create(dialect, facts, &admit(spec, &Policy::everything()).unwrap().with_image(image, network));
    words.0.iter().map(|it| it.to_str().unwrap()).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_container_is_made_with_the_words_of_the_table() {
    let spec = CreateSpec {
        limits: Limits { memory: Some(ByteSize::mib(512)), cpus: Some(1.5), pids: Some(64) },
        ports: vec![Port { container: 80, host: None, protocol: Protocol::Tcp }],
        add_hosts: vec![HostEntry { name: "up".into(), address: None }],
        labels: [("k".into(), "a b".into())].into(),
        ..spec()
    };
    assert_snapshot!(words(Dialect::Docker, EngineFacts::default(), spec, NetworkAttachment::Id("n".into())), @r"
    create
    --pull=never
    --workdir=/
    --user=0:0
    --init
    --entrypoint=sleep
    --name=Web_1.x
    --hostname=web-1-x
    --cap-drop=ALL
    --cap-add=CHOWN
    --cap-add=DAC_OVERRIDE
    --cap-add=FOWNER
    --cap-add=FSETID
    --cap-add=KILL
    --cap-add=SETGID
    --cap-add=SETUID
    --security-opt=no-new-privileges
    --memory=536870912
    --memory-swap=536870912
    --pids-limit=64
    --cpus=1.5
    --shm-size=256m
    --network=n
    --publish=127.0.0.1::80/tcp
    --add-host=up:host-gateway
    --ipc=private
    --cgroupns=private
    --restart=no
    --no-healthcheck
    --log-driver=none
    --stop-signal=SIGTERM
    --stop-timeout=10
    --label=k=a b
    --
    sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
    2147483647
    ");
}

#[test]
fn podman_differs_in_mapping_devices_and_what_it_adds_by_itself() {
    let facts = EngineFacts {
        rootless: true,
        selinux: true,
        pauses: true,
        bounds: None,
        user_network: Some("pasta"),
        host_gateway: None,
    };
    let spec = CreateSpec { gpu: true, exec_user: Ids { uid: 7, gid: 8 }, ..spec() };
    let (docker, podman) = (
        words(Dialect::Docker, facts, spec.clone(), NetworkAttachment::None),
        words(Dialect::Podman, facts, spec, NetworkAttachment::Alone),
    );
    let only =
        |a: &str, b: &str| a.lines().filter(|it| !b.lines().any(|other| other == *it)).collect::<Vec<_>>().join("\n");
    assert_snapshot!(only(&docker, &podman), @r"
    --gpus=all
    --network=none
    ");
    assert_snapshot!(only(&podman, &docker), @r"
    --device=nvidia.com/gpu=all
    --userns=keep-id:uid=7,gid=8
    --network=pasta
    --http-proxy=false
    --systemd=false
    --sdnotify=ignore
    --image-volume=tmpfs
    --unsetenv=HOSTNAME
    --unsetenv=TERM
    --unsetenv=container
    ");
}

#[test]
fn a_guest_is_bound_read_only_and_started_in_place_of_a_sleep() {
    let guest = GuestDelivery::Bound { program: "/s/guest/abc".into(), link: "/s/link/1".into() };
    let image = ImageId::parse(format!("sha256:{}", "a".repeat(64))).unwrap();
    let guided = |dialect, guest: Option<GuestDelivery>| {
        let spec = CreateSpec { lifeline: Some(std::time::Duration::from_secs(1800)), ..spec() };
        let admitted = admit(spec, &Policy::everything()).unwrap().with_guest(guest);
        let words =
            create(dialect, EngineFacts::default(), &admitted.with_image(image.clone(), NetworkAttachment::None));
        words.0.iter().map(|it| it.to_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let only = |guest: GuestDelivery, dialect| {
        let plain = guided(dialect, None);
        let words = guided(dialect, Some(guest)).into_iter().filter(|it| !plain.contains(it));
        words.collect::<Vec<_>>().join("\n")
    };
    assert_snapshot!(only(guest.clone(), Dialect::Docker), @r"
    --entrypoint=/.coracle/guest
    --tmpfs=/.coracle/run:rw,noexec,nosuid,nodev,size=16m,mode=0755
    --mount=type=bind,source=/s/guest/abc,target=/.coracle/guest,bind-propagation=rprivate,readonly
    --mount=type=bind,source=/s/link/1,target=/.coracle/link,bind-propagation=rprivate
    init
    --lifeline=1800
    ");
    assert_snapshot!(only(guest, Dialect::Podman), @r"
    --entrypoint=/.coracle/guest
    --tmpfs=/.coracle/run:rw,noexec,nosuid,nodev,size=16m,mode=0755,notmpcopyup
    --volume=/s/guest/abc:/.coracle/guest:ro,rprivate,nosuid,nodev
    --volume=/s/link/1:/.coracle/link:rw,rprivate,nosuid,nodev
    init
    --lifeline=1800
    ");
    assert!(!only(GuestDelivery::Uploaded, Dialect::Docker).contains("bind"));
}

#[test]
fn a_root_that_is_read_only_has_volumes_and_memory_over_it() {
    let at = |path: &str| ContainerPath::parse(path).unwrap();
    let spec = CreateSpec {
        read_only: true,
        tmpfs: vec![Tmpfs { at: at("/tmp"), size: ByteSize::mib(256), mode: 0o1777 }],
        volumes: [("a", Access::ReadWrite), ("b", Access::ReadOnly)]
            .map(|(name, access)| VolumeMount { name: VolumeName::parse(name).unwrap(), at: at("/v"), access })
            .into(),
        ulimits: Ulimits { nofile: Some(4096), core: Some(0) },
        capabilities: Capabilities::Guest,
        ..spec()
    };
    let words = |dialect, spec: CreateSpec| {
        let image = ImageId::parse(format!("sha256:{}", "a".repeat(64))).unwrap();
        let guest = Some(GuestDelivery::Bound { program: "/s/guest/abc".into(), link: "/s/link/1".into() });
        let admitted =
            admit(spec, &Policy::everything()).unwrap().with_guest(guest).with_image(image, NetworkAttachment::None);
        let bounds = (dialect == Dialect::Podman).then_some((1000, 99));
        create(dialect, EngineFacts { bounds, ..EngineFacts::default() }, &admitted).0
    };
    let more = |dialect| {
        let plain = words(dialect, self::spec());
        let more = words(dialect, spec.clone()).into_iter().filter(|it| !plain.contains(it));
        more.map(|it| it.into_string().unwrap()).collect::<Vec<_>>().join("\n")
    };
    assert_snapshot!(more(Dialect::Docker), @r"
    --tmpfs=/.coracle:rw,noexec,nosuid,nodev,size=64m,mode=0755
    --ulimit=nofile=4096:4096
    --ulimit=core=0:0
    --read-only
    --tmpfs=/tmp:rw,exec,nosuid,nodev,size=268435456,mode=1777
    --mount=type=volume,source=a,target=/v,volume-nocopy
    --mount=type=volume,source=b,target=/v,volume-nocopy,readonly
    ");
    assert_snapshot!(more(Dialect::Podman), @r"
    --tmpfs=/.coracle:rw,noexec,nosuid,nodev,size=64m,mode=0755,notmpcopyup
    --ulimit=nofile=4096:4096
    --ulimit=nproc=99:99
    --ulimit=core=0:0
    --read-only
    --read-only-tmpfs=false
    --tmpfs=/tmp:rw,exec,nosuid,nodev,size=268435456,mode=1777,notmpcopyup
    --volume=a:/v:rw,nocopy,nosuid,nodev
    --volume=b:/v:ro,nocopy,nosuid,nodev
    ");
    let granted = |capabilities| {
        let words = words(Dialect::Docker, CreateSpec { capabilities, ..self::spec() });
        words.iter().filter(|it| it.to_str().unwrap().starts_with("--cap-add")).count()
    };
    assert_eq!([Capabilities::Packages, Capabilities::Guest, Capabilities::None].map(granted), [7, 5, 0]);
}

#[test]
fn a_bind_with_commas_and_quotes_stays_one_source() {
    let dir = tempfile::tempdir().unwrap();
    let unusual = dir.path().join("a,\"b");
    std::fs::create_dir(&unusual).unwrap();
    let mount = Mount {
        host: HostPath::open(&unusual).unwrap(),
        at: ContainerPath::parse("/w").unwrap(),
        access: Access::ReadOnly,
    };
    let bound = BindMount { source: mount.host.real(), target: mount.at.as_str(), access: mount.access };
    let EngineArgs(words) = bind(EngineArgs::default(), Dialect::Docker, bound);
    let source = mount.host.real().to_str().unwrap().replace('"', "\"\"");
    let expected = format!("--mount=type=bind,\"source={source}\",target=/w,bind-propagation=rprivate,readonly");
    assert_eq!(words, [OsString::from(expected)]);
}

#[test]
fn a_command_and_its_directory_are_arguments() {
    let id = ContainerId::parse("c".repeat(64)).unwrap();
    let command = Command::Argv(vec!["ls".into(), "--".into(), "$(x)".into()]);
    let mut it = Exec::new(command, Ids { uid: 7, gid: 8 }, ContainerPath::parse("/w x").unwrap());
    it.env.insert("A".into(), "b\n'c'".into());
    let words = exec(&id, &it, "m").0;
    let tail: Vec<_> = words.iter().rev().take(5).rev().map(|it| it.to_str().unwrap()).collect();
    assert_eq!(tail, ["coracle", "/w x", "ls", "--", "$(x)"]);
    assert!(words.contains(&"--env=A=b\n'c'".into()) && words.contains(&"--user=7:8".into()));
    assert!(!words.contains(&"--interactive".into()), "no input was given");
}

#[test]
fn an_image_of_a_container_starts_with_the_given_command_and_entrypoint() {
    let id = ContainerId::parse("c".repeat(64)).unwrap();
    let words = |dialect, config| {
        let labels = vec![("k".to_owned(), "a \"b\" $c".to_owned())];
        let new = ImageCommit { container: id.clone(), tag: None, labels, config };
        let words = commit(dialect, EngineFacts::default(), &new).0;
        let shown: Vec<_> = words.iter().map(|it| it.to_str().unwrap()).collect();
        shown[..shown.len() - 2].join("\n")
    };
    let config = ImageConfig {
        entrypoint: vec!["/a b".into(), "\"$c".into()],
        cmd: Vec::new(),
        user: "node".into(),
        workdir: "/x $y".into(),
    };
    assert_snapshot!(words(Dialect::Docker, config.clone()), @r#"
    commit
    --change=ENTRYPOINT ["/a b","\"$c"]
    --change=CMD [""]
    --change=USER "node"
    --change=WORKDIR "/x \$y"
    --change=LABEL k="a \"b\" \$c"
    "#);
    assert_snapshot!(words(Dialect::Podman, config), @r#"
    commit
    --quiet
    --pause=false
    --change=ENTRYPOINT ["/a b","\"$c"]
    --change=CMD []
    --change=USER node
    --change=WORKDIR /x $y
    --change=ENV HOSTNAME=
    --change=LABEL k="a "b" $c"
    "#);
    assert!(words(Dialect::Docker, ImageConfig::default()).contains("USER 0:0\n--change=WORKDIR /\n"));
}

#[test]
fn networks_are_parted_in_each_dialect() {
    let name = NetworkName::parse("net").unwrap();
    let network = |reach| NetworkCreate { name: name.clone(), labels: Vec::new(), reach, internal: false };
    let words = |dialect, reach| create_network(dialect, &network(reach)).0;
    assert!(words(Dialect::Docker, false).contains(&"--opt=com.docker.network.bridge.enable_icc=false".into()));
    assert!(words(Dialect::Podman, true).contains(&"--opt=isolate=true".into()));
}

#[test]
fn without_root_inside_pid_1_owns_its_files_and_a_volume_has_the_images_content() {
    let guest = GuestDelivery::Bound { program: "/s/guest/abc".into(), link: "/s/link/1".into() };
    let image = ImageId::parse(format!("sha256:{}", "a".repeat(64))).unwrap();
    let path = |it: &str| ContainerPath::parse(it).unwrap();
    let volume = |name: &str, at: &str, access| {
        let (name, at) = (VolumeName::parse(name).unwrap(), path(at));
        VolumeMount { name, at, access }
    };
    let spec = CreateSpec {
        exec_user: Ids { uid: 1000, gid: 1000 },
        capabilities: Capabilities::None,
        read_only: true,
        network: coracle_runtime::NetworkRequest::None,
        tmpfs: vec![Tmpfs { at: path("/home/agent"), size: ByteSize::mib(1), mode: 0o700 }],
        volumes: vec![volume("own", "/workspace", Access::ReadWrite), volume("base", "/base", Access::ReadOnly)],
        ..spec()
    };
    let policy = Policy { strict: true, ..Policy::everything() };
    let placed = admit(spec, &policy).unwrap().with_guest(Some(guest)).with_image(image, NetworkAttachment::None);
    let words = |dialect| {
        let words = create(dialect, EngineFacts::default(), &placed).0;
        let words = words.iter().map(|it| it.to_str().unwrap());
        let shown = ["--user", "--cap", "--read", "--tmpfs", "--mount=type=volume", "--volume=own", "--volume=base"];
        words.filter(|it| shown.iter().any(|prefix| it.starts_with(prefix))).collect::<Vec<_>>().join("\n")
    };
    assert_snapshot!(words(Dialect::Docker), @r"
    --user=1000:1000
    --tmpfs=/.coracle:rw,noexec,nosuid,nodev,size=64m,mode=0755,uid=1000,gid=1000
    --tmpfs=/.coracle/run:rw,noexec,nosuid,nodev,size=16m,mode=0700,uid=1000,gid=1000
    --cap-drop=ALL
    --read-only
    --tmpfs=/home/agent:rw,exec,nosuid,nodev,size=1048576,mode=0700,uid=1000,gid=1000
    --mount=type=volume,source=own,target=/workspace
    --mount=type=volume,source=base,target=/base,volume-nocopy,readonly
    ");
    assert_snapshot!(words(Dialect::Podman), @r"
    --user=1000:1000
    --tmpfs=/.coracle:rw,noexec,nosuid,nodev,size=64m,mode=0755,notmpcopyup,U
    --tmpfs=/.coracle/run:rw,noexec,nosuid,nodev,size=16m,mode=0700,notmpcopyup,U
    --cap-drop=ALL
    --read-only
    --read-only-tmpfs=false
    --tmpfs=/home/agent:rw,exec,nosuid,nodev,size=1048576,mode=0700,notmpcopyup,U
    --volume=own:/workspace:rw,copy,nosuid,nodev
    --volume=base:/base:ro,nocopy,nosuid,nodev
    ");
}

#[test]
fn a_check_keeps_its_words_where_podman_would_split_them() {
    let sent = |dialect, test: &[&str]| {
        let model = serde_json::json!({ "services": { "db": { "healthcheck": { "test": test } } } });
        let mut file = stack_file(dialect, &serde_json::from_value(model).unwrap());
        file["services"]["db"]["healthcheck"]["test"].take()
    };
    let spaced = ["CMD", "mysql", "-e", "SELECT 'a  b', \"$HOME\";"];
    let test: Vec<String> = serde_json::from_value(sent(Dialect::Podman, &spaced)).unwrap();
    let [kind, line] = test.as_slice() else { panic!("{test:?}") };
    assert_eq!(kind, "CMD-SHELL");
    assert_eq!(shlex::split(line).unwrap(), ["exec", "mysql", "-e", "SELECT 'a  b', \"$$HOME\";"]);
    for (dialect, test) in [
        (Dialect::Docker, &spaced[..]),
        (Dialect::Podman, &["CMD", "redis-cli", "ping"]),
        (Dialect::Podman, &["CMD-SHELL", "pg_isready -U postgres"]),
        (Dialect::Podman, &["NONE"]),
    ] {
        let sent = sent(dialect, test).to_string();
        assert_eq!(sent.replace("$$", "$"), serde_json::json!(test).to_string());
    }
}

#[test]
fn a_file_for_compose_has_no_variables_and_networks_of_podman_are_isolated() {
    let model = serde_json::json!({ "services": { "a": { "command": ["echo", "${HOME} $X"] } },
        "networks": { "own": {}, "ext": { "external": true, "name": "$n" } } });
    let model = serde_json::from_value(model).unwrap();
    let mut file = stack_file(Dialect::Docker, &model);
    assert_eq!(file["services"]["a"]["command"][1], "$${HOME} $$X");
    assert_eq!(file["networks"], serde_json::json!({ "own": {}, "ext": { "external": true, "name": "$$n" } }));
    file = stack_file(Dialect::Podman, &model);
    assert_eq!(file["networks"]["own"]["driver_opts"]["isolate"], "true");
    assert_eq!(file["networks"]["ext"].get("driver_opts"), None);
}
