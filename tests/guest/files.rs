//! Files inside, over the link, with the kernel's permissions.

use coracle_client::{Link, WriteFile};
use coracle_protocol::{ErrorCode, FileEntry, FileKind};
use coracle_types::{Error, Ids, Input, Result};

use super::{AGENT, MIB, argv, at, sh};
use crate::engines::{Running, with_a_guest, with_a_real_guest};

fn put(user: Ids, path: &str, content: &[u8]) -> WriteFile {
    let content = Input::Bytes(content.to_vec());
    WriteFile { at: at(user, path), mode: Some(0o640), exact: false, parents: false, replace: true, content }
}

fn refusal<T: std::fmt::Debug>(result: Result<T>) -> ErrorCode {
    match result {
        Err(Error::Refused(fault)) => fault.code,
        other => panic!("{other:?}"),
    }
}

async fn names(link: &Link, user: Ids, path: &str) -> Vec<String> {
    let (entries, more) = link.list(at(user, path), 100).await.unwrap();
    assert!(!more);
    entries.into_iter().map(|it| it.name).collect()
}

/// A round through all that can be done, in a directory of the user's own.
async fn round(running: &Running<'_>, user: Ids, home: &str) {
    let (link, dir) = (running.link(), format!("{home}/new/deep"));
    let file = format!("{dir}/file");
    assert_eq!(refusal(link.make_dir(at(user, &dir), 0o750, false).await), ErrorCode::NotFound);
    let made: FileEntry = link.make_dir(at(user, &dir), 0o750, true).await.unwrap();
    assert_eq!((made.kind, made.mode & 0o777), (FileKind::Dir, 0o750));
    let every: Vec<u8> = (0..=255).cycle().take(3 * MIB as usize + 7).collect();
    let written = link.put(put(user, &file, &every)).await.unwrap();
    assert_eq!((written.kind, written.size, written.mode & 0o777), (FileKind::File, every.len() as u64, 0o640));
    let (entry, read) = link.get(at(user, &file), 0, u64::MAX >> 1).await.unwrap();
    assert!(entry == written && read == every, "{entry:?}, {} bytes", read.len());
    let (_, middle) = link.get(at(user, &file), 255, 3).await.unwrap();
    assert_eq!(middle, [255, 0, 1]);
    assert_eq!(link.stat(at(user, &file)).await.unwrap(), written);
    assert_eq!(names(link, user, &dir).await, ["file"]);
    let retained = WriteFile { replace: false, ..put(user, &file, b"other") };
    assert_eq!(refusal(link.put(retained).await), ErrorCode::Exists);
    if running.case.is_real() {
        assert_eq!((written.uid, written.gid), (user.uid, user.gid));
        let seen = running.printed(argv(&["stat", "-c", "%u:%g %a %s", &file])).await;
        assert_eq!(seen, format!("{user} 640 {}\n", every.len()));
    }
    assert_eq!(refusal(link.remove(at(user, &format!("{home}/new")), false).await), ErrorCode::Exists);
    link.remove(at(user, &format!("{home}/new")), true).await.unwrap();
    assert_eq!(refusal(link.stat(at(user, &file)).await), ErrorCode::NotFound);
}

#[tokio::test]
async fn files_are_written_read_listed_and_removed() {
    with_a_guest(async |running| {
        round(running, Ids::ROOT, "/root").await;
        if running.case.is_real() {
            running.printed(argv(&["busybox", "chown", "1000:1000", "/home/agent"])).await;
            round(running, AGENT, "/home/agent").await;
        }
    })
    .await;
}

#[tokio::test]
async fn only_permissions_decide_who_reads_a_file() {
    with_a_real_guest(async |running| {
        let link = running.link();
        running.printed(sh("umask 077; echo mine > /root/mine; echo his > /tmp/his; mkdir /tmp/kept")).await;
        for path in ["/root/mine", "/tmp/his"] {
            assert_eq!(refusal(link.get(at(AGENT, path), 0, 10).await), ErrorCode::Denied, "{path}");
            assert!(link.get(at(Ids::ROOT, path), 0, 10).await.unwrap().1.ends_with(b"s\n") == (path == "/tmp/his"));
        }
        assert_eq!(refusal(link.list(at(AGENT, "/root"), 10).await), ErrorCode::Denied);
        assert_eq!(refusal(link.put(put(AGENT, "/etc/mine", b"x")).await), ErrorCode::Denied);
        assert_eq!(refusal(link.put(put(AGENT, "/etc/passwd", b"x")).await), ErrorCode::Denied);
        assert_eq!(refusal(link.make_dir(at(AGENT, "/tmp/kept/new"), 0o755, false).await), ErrorCode::Denied);
        // The directory is world-writable and sticky: users keep their names in it.
        assert_eq!(refusal(link.remove(at(AGENT, "/tmp/his"), false).await), ErrorCode::Denied);
        assert_eq!(refusal(link.put(put(AGENT, "/tmp/his", b"x")).await), ErrorCode::Denied);
        assert_eq!(running.printed(sh("cat /root/mine /tmp/his")).await, "mine\nhis\n");
    })
    .await;
}

#[tokio::test]
async fn the_kernels_files_and_the_guests_own_are_out_of_reach() {
    with_a_real_guest(async |running| {
        let link = running.link();
        running
            .printed(sh("ln -s /proc/1 /tmp/one; ln -s /.coracle/link /tmp/link; ln -s /proc/self/root/etc /tmp/magic"))
            .await;
        for user in [Ids::ROOT, AGENT] {
            for path in [
                "/proc/self/environ",
                "/proc/1/environ",
                "/sys/kernel/uevent_seqnum",
                "/.coracle/guest",
                "/.coracle/link/sock",
            ] {
                refusal(link.get(at(user, path), 0, 10).await);
                refusal(link.put(put(user, path, b"x")).await);
                refusal(link.remove(at(user, path), false).await);
            }
            for path in [
                "/proc",
                "/proc/self/root",
                "/sys",
                "/.coracle",
                "/.coracle/run",
                "/tmp/one",
                "/tmp/link",
                "/tmp/magic",
            ] {
                refusal(link.list(at(user, path), 10).await);
                refusal(link.make_dir(at(user, &format!("{path}/new")), 0o755, true).await);
                refusal(link.put(put(user, &format!("{path}/new"), b"x")).await);
            }
            for special in ["/dev/null", "/dev/zero", "/dev/full"] {
                assert_eq!(refusal(link.get(at(user, special), 0, 10).await), ErrorCode::WrongKind, "{special}");
            }
        }
        assert_eq!(running.printed(argv(&["echo", "on"])).await, "on\n");
    })
    .await;
}
