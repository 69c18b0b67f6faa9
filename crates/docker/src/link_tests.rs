//! Links to guests through an engine's program.

use std::time::Duration;

use coracle_client::{LinkSettings, SocketAt, Transport};
use coracle_protocol::{SOCKET_GONE, VERSION};
use coracle_runtime::ContainerRuntime as _;
use coracle_types::{ContainerId, Error, ProcessId, Result};

use crate::scripted::docker as engine;

fn id() -> ContainerId {
    ContainerId::parse("a".repeat(64)).unwrap()
}

#[tokio::test]
async fn a_program_that_ends_at_once_is_a_guest_that_failed_for_its_reason() {
    let (engine, _temp) = engine("case \"$*\" in *exec*) echo 'no such file' >&2; exit 126;; esac; exit 1");
    let failed = engine.link(&id(), None, LinkSettings::default()).await.unwrap().open().await;
    assert!(matches!(&failed, Err(Error::GuestFailed { reason }) if reason.ends_with("no such file")), "{failed:?}");
}

#[tokio::test]
async fn a_removed_container_is_distinguished_from_a_failed_guest() {
    let (engine, _temp) = engine("case \"$*\" in *\" ps \"*) exit 0;; esac; exit 1");
    let failed = engine.link(&id(), None, LinkSettings::default()).await.unwrap().open().await;
    assert!(matches!(&failed, Err(Error::NoSuchContainer(_))), "{failed:?}");
}

#[tokio::test]
async fn a_guest_whose_socket_was_removed_is_distinguished_from_a_failed_one() {
    let gone = |failed: Result<()>| matches!(failed, Err(Error::FilesRemoved { .. }));
    let inspected = r#"[{"Id":"IDIDID","Name":"/c","State":{"Status":"running","Running":true,"Pid":1}}]"#;
    let script = |exec: &str| {
        let inspected = inspected.replace("IDIDID", id().as_str());
        format!("case \"$*\" in *exec*) {exec}; exit 1;; *inspect*) echo '{inspected}'; exit 0;; esac; exit 1")
    };
    let dir = tempfile::tempdir().unwrap();
    let at = |pid1| SocketAt { dir: dir.path().to_owned(), pid1 };
    // By its own program inside.
    let (engine, _temp) = engine(&script(&format!("echo 'coracle-guest: {SOCKET_GONE}' >&2")));
    assert!(gone(engine.link(&id(), None, LinkSettings::default()).await.unwrap().open().await));
    // Where nothing runs inside any more, by the directory that both sides share.
    let (engine, _temp) = crate::scripted::docker(&script("echo 'OCI runtime exec failed: no /dev/null'"));
    let seen = at(Some(ProcessId::current()));
    assert!(gone(engine.link(&id(), Some(seen), LinkSettings::default()).await.unwrap().open().await));
    // One that never answered did not lose anything.
    let failed = engine.link(&id(), Some(at(None)), LinkSettings::default()).await.unwrap().open().await;
    assert!(matches!(&failed, Err(Error::GuestFailed { .. })), "{failed:?}");
}

#[tokio::test]
async fn a_program_in_between_is_killed_with_its_link() {
    let hello = format!(r#"{{"hello":{{"version":{VERSION},"nonce":"'$nonce'","run":"r"}}}}"#);
    // Reads a prelude and a header of the expected length, and returns the nonce.
    let script = format!(
        "head -c 12 >/dev/null; echo $$ >\"$TMPDIR/pid\"\n\
         nonce=$(head -c 70 | grep -o '[0-9a-f]\\{{32\\}}')\n\
         message='{hello}'\n\
         octal=$(printf %o ${{#message}}); printf \"\\\\000\\\\000\\\\000\\\\$octal\\\\000\\\\000\\\\000\\\\$octal\\\\000\\\\000\\\\000\\\\000\"\n\
         printf %s \"$message\"; exec sleep 600"
    );
    let (engine, temp) = engine(&script);
    let link = engine.link(&id(), None, LinkSettings::default()).await.unwrap();
    link.open().await.unwrap();
    assert_eq!(link.transport(), Some(Transport::Stream));
    let pid = std::fs::read_to_string(temp.path().join("pid")).unwrap().trim().parse().unwrap();
    let process = ProcessId::from_pid(pid).unwrap();
    drop(link);
    while process.alive() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
