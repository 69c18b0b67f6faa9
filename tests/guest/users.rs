//! Users of images.

use std::fs::File;
use std::process::Stdio;

use coracle_protocol::{EnsureUser, ErrorCode};
use coracle_runtime::{Capabilities, CreateSpec, Tmpfs};
use coracle_types::{ByteSize, ContainerPath, Error, Exec, Handle, Ids, ImageId, Secret};
use tar::{Builder, EntryType, Header};

use super::{AGENT, argv, at, sh};
use crate::engines::{Case, Running, Way, busybox_with, engine_program, with_real_engines};

const WORK: &str = "/work/deep";

/// A directory or a file with an owner.
fn owned(tar: &mut Builder<&mut File>, kind: EntryType, path: &str, uid: u64) {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(0o755);
    header.set_uid(uid);
    header.set_gid(uid);
    header.set_size(0);
    tar.append_data(&mut header, path, &[][..]).unwrap();
}

/// A container of an image with that passwd line, and something at that path.
async fn with_user<'a>(case: &'a Case, name: &str, line: &str, there: Option<(EntryType, &str, u64)>) -> Running<'a> {
    let passwd = format!("root:x:0:0:root:/root:/bin/sh\n{line}\n");
    let tar = busybox_with(&passwd, |tar| {
        if let Some((kind, path, uid)) = there {
            owned(tar, kind, path, uid);
        }
    });
    let image = crate::conformance::import(case, &case.tag(name), tar).await;
    case.run(Way::Socket, case.spec(name), &image.id).await
}

async fn settled(running: &Running<'_>) -> Result<coracle_protocol::UserInfo, Error> {
    running.link().ensure_user(EnsureUser { uid: 1000, gid: 1000, workdir: WORK.into(), bound: vec![] }).await
}

/// The agent's identity as its command sees it.
async fn seen(running: &Running<'_>) -> String {
    let script = sh("echo $HOME $USER $(id -u):$(id -g) $(pwd); touch file && rm file");
    running.printed(Exec { user: AGENT, workdir: ContainerPath::parse(WORK).unwrap(), ..script }).await
}

#[tokio::test]
async fn an_entry_of_the_image_is_used_as_it_is() {
    with_real_engines(async |case| {
        let (dir, none) = (EntryType::Directory, None);
        for (name, line, there, expected, owner) in [
            ("own", "node:x:1000:1000::/srv/node:/bin/sh", Some((dir, "srv/node", 1000)), "/srv/node node", 1000),
            ("roots", "node:x:1000:1000::/srv/node:/bin/sh", Some((dir, "srv/node", 0)), "/srv/node node", 0),
            ("missing", "node:x:1000:1000::/nonexistent:/bin/false", none, "/nonexistent node", 1000),
            ("slash", "node:x:1000:1000::/:/sbin/nologin", none, "/ node", 0),
            ("empty", "node:x:1000:1000:::", none, "/ node", 0),
            ("relative", "node:x:1000:1000::srv/node:", none, "/ node", 0),
            ("nobody", "node:x:1:1::/srv/node:/bin/sh", none, "/home/agent agent", 0),
        ] {
            let running = with_user(case, name, line, there).await;
            let reported = settled(&running).await.unwrap();
            assert_eq!(format!("{} {}", reported.home, reported.name), expected, "{name}");
            assert_eq!((&*reported.shell, reported.readable, reported.writable), ("/bin/sh", true, true), "{name}");
            assert_eq!(seen(&running).await, format!("{expected} 1000:1000 {WORK}\n"), "{name}");
            let home = running.printed(argv(&["stat", "-c", "%u", &reported.home])).await;
            assert_eq!(home, format!("{owner}\n"), "{name}: what is there keeps its owner");
        }
    })
    .await;
}

#[tokio::test]
async fn on_a_root_that_is_read_only_a_user_gets_the_directory_and_the_rest_stays() {
    with_real_engines(async |case| {
        let at = |path: &str| ContainerPath::parse(path).unwrap();
        let spec = CreateSpec {
            read_only: true,
            tmpfs: vec![Tmpfs { at: at(WORK), size: ByteSize::mib(1), mode: 0o700 }],
            capabilities: Capabilities::Guest,
            ..case.spec("locked")
        };
        let running = case.run(Way::Socket, spec, &case.image).await;
        for user in [Ids { uid: 1000, gid: 1000 }, Ids { uid: 4242, gid: 4243 }] {
            let Ids { uid, gid } = user;
            let reported =
                running.link().ensure_user(EnsureUser { uid, gid, workdir: WORK.into(), bound: vec![] }).await.unwrap();
            // By then the first container has taken it over.
            assert_eq!((reported.uid, reported.gid, reported.writable), (uid, gid, uid == 1000));
        }
        let script =
            sh("id -u; touch file && stat -c '%a %u' . && ls -a /.coracle; touch /home/agent/no; wc -l </etc/passwd");
        let it = running.ran(Exec { user: AGENT, workdir: at(WORK), ..script }).await;
        let out = it.stdout.text();
        assert!(out.starts_with("1000\n700 1000\n") && out.ends_with("2\n"), "{it:?}");
        assert!(it.stderr.text().contains("Read-only"), "{it:?}");
        // More than the guest keeps in memory.
        let much = running.ran(Exec { user: AGENT, workdir: at(WORK), ..sh("head -c 20000000 /dev/zero") }).await;
        assert_eq!(much.stdout.total_bytes(), 20_000_000);
    })
    .await;
}

#[tokio::test]
async fn a_home_that_is_a_file_is_reported_and_the_file_stays() {
    with_real_engines(async |case| {
        let line = "node:x:1000:1000::/etc/file:/bin/sh";
        let running = with_user(case, "file", line, Some((EntryType::Regular, "etc/file", 0))).await;
        let Err(Error::Refused(fault)) = settled(&running).await else { panic!("it is no home") };
        assert_eq!((fault.code, fault.message.contains("`/etc/file`")), (ErrorCode::NoDirectory, true), "{fault}");
        assert_eq!(running.printed(argv(&["stat", "-c", "%F", "/etc/file"])).await, "regular empty file\n");
    })
    .await;
}

/// An image with configuration that must not be trusted.
const CHANGES: [&str; 9] = [
    r#"ENTRYPOINT ["/bin/false"]"#,
    r#"CMD ["/bin/none"]"#,
    "USER 4242:4242",
    "WORKDIR /nowhere",
    "VOLUME /home/agent",
    "VOLUME /.coracle/run",
    "ENV HOME=/evil",
    "ENV USER=evil",
    "ENV PATH=/evil",
];

async fn hostile(case: &Case) -> ImageId {
    let tag = case.tag("hostile");
    let tar = busybox_with("root:x:0:0:root:/root:/bin/sh\nagent:x:1000:1000::/home/agent:/bin/sh\n", |_| {});
    let label = case.label();
    let label = format!("LABEL {}={}", label.0, label.1);
    let changes = CHANGES.into_iter().chain([&*label]).flat_map(|it| ["--change", it]);
    let mut import = engine_program(case.engine().as_str());
    import.arg("import").args(changes).args(["-", tag.as_str()]).stdin(tar).stdout(Stdio::null());
    assert!(import.status().await.unwrap().success());
    let found = case.runtime.find_images(&[tag]).await.unwrap();
    found[0].id.clone()
}

#[tokio::test]
async fn an_image_that_wants_another_start_user_or_place_has_no_say() {
    with_real_engines(async |case| {
        if !case.engine().has_program() {
            return case.left_out(); // such an image is imported by an engine's program
        }
        let running = case.run(Way::Socket, case.spec("hostile"), &hostile(case).await).await;
        settled(&running).await.unwrap();
        let words = ["/bin/busybox", "sh", "-c", "echo $HOME $USER $PATH $(/bin/id -u):$(/bin/id -g) $(pwd)"];
        let command = Exec { user: AGENT, workdir: ContainerPath::parse(WORK).unwrap(), ..argv(&words) };
        let expected = format!("/home/agent agent /home/agent/.local/bin:/evil 1000:1000 {WORK}\n");
        assert_eq!(running.printed(command).await, expected);
        assert_eq!(running.printed(argv(&["/bin/busybox", "cat", "/proc/1/comm"])).await, "guest\n");
        let file = coracle_client::SecretFile {
            name: "secret".into(),
            user: AGENT,
            mode: 0o600,
            content: Secret::new(b"secret".to_vec()),
        };
        running.link().put_secret(file).await.unwrap();
        assert_eq!(
            running.printed(argv(&["/bin/busybox", "stat", "-f", "-c", "%T", "/.coracle/run"])).await,
            "tmpfs\n"
        );
        assert!(running.link().stat(at(AGENT, "/.coracle/run/secret")).await.is_err());
        let again = case.runtime.inspect(&Handle::from(&running.id)).await.unwrap();
        assert!(again.running());
    })
    .await;
}
