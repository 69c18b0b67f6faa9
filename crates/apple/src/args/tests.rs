//! The command lines for Apple's `container`, argument by argument.

use coracle_host::fs::HostPath;
use coracle_runtime::{HostEntry, Policy, Port, Protocol, admit};
use coracle_types::{Command, ContainerName, ImageId};
use insta::assert_snapshot;

use super::*;

fn line(words: &EngineArgs) -> String {
    words.0.iter().map(|it| it.to_str().unwrap()).collect::<Vec<_>>().join(" ")
}

fn id() -> ContainerId {
    ContainerId::parse("coracle-ws-1").unwrap()
}

fn image() -> ImageRef {
    ImageRef::parse("docker.io/library/python:3.12-bookworm").unwrap()
}

fn spec() -> CreateSpec {
    CreateSpec::new(ContainerName::parse("coracle-ws-1").unwrap(), image())
}

fn made(spec: CreateSpec, guest: Option<GuestDelivery>, network: NetworkAttachment) -> Result<String> {
    let digest = ImageId::parse(format!("sha256:{}", "a".repeat(64))).unwrap();
    let placed = admit(spec, &Policy::everything()).unwrap().with_guest(guest).with_image(digest, network);
    create(&placed, &Base { reference: image(), has_user: false }).map(|it| line(&it))
}

fn refused(spec: CreateSpec) -> bool {
    matches!(made(spec, None, NetworkAttachment::None), Err(Error::NotEncodable { .. }))
}

#[test]
fn r24_create_says_what_the_table_says() {
    let dir = tempfile::tempdir().unwrap();
    let real = dir.path().canonicalize().unwrap();
    std::fs::create_dir(real.join("d")).unwrap();
    std::fs::write(real.join("f"), "").unwrap();
    let mount = |name: &str, at: &str, access| Mount {
        host: HostPath::open(&real.join(name)).unwrap(),
        at: ContainerPath::parse(at).unwrap(),
        access,
    };
    let spec = CreateSpec {
        limits: Limits { memory: Some(ByteSize::mib(1024)), cpus: Some(1.0), pids: Some(256) },
        mounts: vec![
            mount("d", "/src", Access::ReadOnly),
            mount("d", "/w", Access::ReadWrite),
            mount("f", "/f", Access::ReadOnly),
        ],
        labels: [("k".into(), "a b".into())].into(),
        ..spec()
    };
    let guest = GuestDelivery::Bound { program: "/s/guest/abc".into(), link: "/s/link/1".into() };
    let words = made(spec, Some(guest), NetworkAttachment::None).unwrap();
    let words = words.replace(real.to_str().unwrap(), "/real").replace(" --", "\n--");
    assert_snapshot!(words, @r"
    create
    --name coracle-ws-1
    --label k=a b
    --cpus 1
    --memory 1024M
    --network none
    --no-dns
    --cap-drop ALL
    --cap-add CAP_CHOWN
    --cap-add CAP_DAC_OVERRIDE
    --cap-add CAP_FOWNER
    --cap-add CAP_FSETID
    --cap-add CAP_KILL
    --cap-add CAP_SETGID
    --cap-add CAP_SETUID
    --workdir /
    --volume /s/guest/abc:/.coracle/guest:ro
    --mount type=tmpfs,target=/.coracle/run,size=16M,mode=0755
    --mount type=bind,source=/real/d,target=/src,readonly
    --mount type=bind,source=/real/d,target=/w
    --volume /real/f:/f:ro
    --entrypoint /.coracle/guest docker.io/library/python:3.12-bookworm init
    ");
}

#[test]
fn r24_a_container_without_a_guest_waits_on_the_network_that_it_was_given() {
    assert_snapshot!(made(spec(), None, NetworkAttachment::Id("n".into())).unwrap(), @"create --name coracle-ws-1 --network n --cap-drop ALL --cap-add CAP_CHOWN --cap-add CAP_DAC_OVERRIDE --cap-add CAP_FOWNER --cap-add CAP_FSETID --cap-add CAP_KILL --cap-add CAP_SETGID --cap-add CAP_SETUID --workdir / --entrypoint sleep docker.io/library/python:3.12-bookworm 2147483647");
    let base = Base { reference: image(), has_user: true };
    let digest = ImageId::parse(format!("sha256:{}", "a".repeat(64))).unwrap();
    let placed = admit(spec(), &Policy::everything()).unwrap().with_image(digest, NetworkAttachment::EngineDefault);
    assert!(line(&create(&placed, &base).unwrap()).contains(" --workdir / --user 0:0 --entrypoint "));
}

#[test]
fn r24_the_other_rows_say_what_the_table_says() {
    let id = id();
    let root = ContainerPath::parse("/w/d").unwrap();
    let (dir, file) = (Path::new("/t/x"), Path::new("/t/x/F"));
    let (label, tag) = ([("k".to_owned(), "v".to_owned())], ImageRef::parse("t:1").unwrap());
    let rows = [
        system("status"),
        system("version"),
        start(&id),
        inspect(id.as_str()),
        list(),
        stop(&id, Duration::from_secs(2)),
        kill(&id),
        delete(&id),
        connect(&id),
        copy_in(Path::new("/t/src"), &id, &root).unwrap(),
        copy_out(&id, &root, Path::new("/t/dst")).unwrap(),
        build(dir, file, &tag, &label).unwrap(),
        pull(&tag),
        images(),
        inspect_images(["t:1"]).unwrap(),
        delete_image("t:1").unwrap(),
        volumes(),
        delete_volume("v").unwrap(),
        create_network("n", &label, true).unwrap(),
        create_network("n", &[], false).unwrap(),
        networks(),
        delete_network("n").unwrap(),
        stats(&id),
        logs(&id, 200),
        own(&id),
    ];
    let shown: Vec<_> = rows.iter().map(|it| line(it).replace(OWN, "OWN")).collect();
    assert_snapshot!(shown.join("\n"), @r"
    system status --format json
    system version --format json
    start coracle-ws-1
    inspect coracle-ws-1
    list --all --format json
    stop --time 2 coracle-ws-1
    kill --signal KILL coracle-ws-1
    delete --force coracle-ws-1
    exec --interactive --user 0:0 --workdir / coracle-ws-1 /.coracle/guest connect
    copy /t/src coracle-ws-1:/w/d/
    copy coracle-ws-1:/w/d /t/dst
    build --progress plain --tag t:1 --file /t/x/F --label k=v /t/x
    image pull --progress none docker.io/library/t:1
    image list --format json
    image inspect t:1
    image delete t:1
    volume list --format json
    volume delete v
    network create --internal --label k=v n
    network create n
    network list --format json
    network delete n
    stats --no-stream --format json coracle-ws-1
    logs -n 200 coracle-ws-1
    exec --interactive --user 0:0 --workdir / coracle-ws-1 /bin/sh -c OWN coracle
    ");
}

#[test]
fn r24_a_command_has_no_value_of_its_environment_among_its_words() {
    let command = Command::Argv(vec!["ls".into(), "--".into(), "$(x)".into()]);
    let mut it = Exec::new(command, Ids { uid: 7, gid: 8 }, ContainerPath::parse("/w x").unwrap());
    it.env.insert("PATH".into(), "secret".into());
    let (words, env) = exec(&id(), &it, "m");
    let shown = line(&words).replace(&format!("{TAKE}{ENTER}"), "ENTER");
    assert_snapshot!(shown, @"exec --env CORACLE_ENV_0 --env CORACLE_ENV_1 --user 7:8 --workdir / coracle-ws-1 /bin/sh -c ENTER coracle 2 /w x ls -- $(x)");
    assert!(!shown.contains("secret"));
    let carried = [("CORACLE_ENV_0", "PATH=secret"), ("CORACLE_ENV_1", "CORACLE_MARK=m")];
    assert_eq!(env, carried.map(|(name, value)| (name.to_owned(), value.into())));
    it.stdin = Some(coracle_types::Input::Bytes(Vec::new()));
    assert!(line(&exec(&id(), &it, "m").0).starts_with("exec --interactive --env "));
}

#[test]
fn r23_what_would_be_read_as_something_else_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let with = |name: &str, at: &str, is_dir: bool| {
        let path = dir.path().join(name);
        if is_dir {
            std::fs::create_dir_all(&path).unwrap();
        } else {
            std::fs::write(&path, "").unwrap();
        }
        let host = HostPath::open(&path).unwrap();
        let mounts = vec![Mount { host, at: ContainerPath::parse(at).unwrap(), access: Access::ReadWrite }];
        CreateSpec { mounts, ..spec() }
    };
    for (name, at, is_dir) in
        [("a,b", "/w", true), ("a=b", "/w", true), ("c", "/w,ro", true), ("d:e", "/w", false), ("f", "/w:ro", false)]
    {
        assert!(refused(with(name, at, is_dir)), "{name} {at}");
    }
    assert!(!refused(with("g:h", "/w", true)) && !refused(with("i,j", "/w", false)), "what is no matter here");
    assert!(ImageRef::parse("--privileged").is_err() && ContainerName::parse("-x").is_err());
    assert!(refused(CreateSpec { labels: [("-k".into(), "v".into())].into(), ..spec() }));
    let on = made(spec(), None, NetworkAttachment::Id("--privileged".into()));
    assert!(matches!(on, Err(Error::NotEncodable { .. })), "{on:?}");
    let at = |it: &str| ContainerPath::parse(it).unwrap();
    assert!(
        copy_in(Path::new("/a:b"), &id(), &at("/w")).is_err() && copy_in(Path::new("/a"), &id(), &at("/w:x")).is_err()
    );
    assert!(copy_out(&id(), &at("/a:b"), Path::new("/t")).is_err());
    for it in [delete_network("-x"), delete_volume("-x"), delete_image("-x"), inspect_images(["--all"])] {
        assert!(matches!(it, Err(Error::NotEncodable { .. })), "{it:?}");
    }
}

#[test]
fn r22_limits_are_whole_and_what_cannot_be_had_is_refused() {
    let with = |cpus, memory, pids| line(&limits(EngineArgs::default(), Limits { memory, cpus, pids }));
    assert_eq!(with(Some(0.5), Some(ByteSize::mib(64)), Some(50)), "--cpus 1 --memory 200M");
    assert_eq!(with(Some(2.1), Some(ByteSize(ByteSize::mib(512).0 + 1)), None), "--cpus 3 --memory 513M");
    assert_eq!(with(None, None, None), "");
    let port = Port { container: 80, host: None, protocol: Protocol::Tcp };
    for (spec, capability) in [
        (CreateSpec { gpu: true, ..spec() }, Capability::Gpu),
        (CreateSpec { ports: vec![port], ..spec() }, Capability::Publish),
        (
            CreateSpec { add_hosts: vec![HostEntry { name: "h".into(), address: None }], ..spec() },
            Capability::HostEntries,
        ),
    ] {
        let it = made(spec, None, NetworkAttachment::None);
        assert!(matches!(it, Err(Error::Unsupported { capability: named, .. }) if named == capability), "{it:?}");
    }
    for (network, capability) in
        [(NetworkAttachment::Alone, Capability::PartedNetwork), (NetworkAttachment::Host, Capability::HostNetwork)]
    {
        let it = made(spec(), None, network);
        assert!(matches!(it, Err(Error::Unsupported { capability: named, .. }) if named == capability), "{it:?}");
    }
}

#[test]
fn a_root_file_system_is_built_of_nothing_else() {
    let env = [("PATH".to_owned(), "/bin".to_owned()), ("X".to_owned(), "a \"b\" $c".to_owned())];
    assert_snapshot!(dockerfile(&env), @r#"
    FROM scratch
    ADD rootfs.tar /
    ENV PATH="/bin"
    ENV X="a \"b\" \$c"
    "#);
}
