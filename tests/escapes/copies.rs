//! Archives and trees that lead copies out of the container.

use std::os::unix::fs::MetadataExt as _;
use std::time::Duration;

use coracle_types::ExecLimits;

use super::{Canary, SECRET, dir, file, header, image, link, path, run_in, sh, try_run};
use crate::engines::{Way, tar_of, with_real_engines};

/// Swaps a directory and a link to a directory of the host until it is stopped.
fn swap(canary: &Canary) -> String {
    format!(
        "mkdir -p /race; cd /race; while :; do rm -rf at; ln -s {0} at; rm -rf at; mkdir at; echo inside > at/secret; done",
        canary.path().display()
    )
}

/// CVE-2018-15664: a path is checked, and has become a link when it is used.
#[tokio::test]
async fn copies_do_not_follow_a_link_that_appears_during_the_copy() {
    with_real_engines(async |case| {
        let (canary, running) = (Canary::new(), case.runs(Way::Plain).await);
        let limits = ExecLimits { total: Some(Duration::from_secs(8)), ..ExecLimits::default() };
        let swapping = running.exec(coracle_types::Exec { limits, ..sh(&swap(&canary)) });
        let copying = async {
            for _ in 0..15 {
                let tar = tar_of(|tar| file(tar, "escaped", 0o644, "x"));
                let _ = case.runtime.upload(&running.id, &path("/race/at"), tar).await;
                for at in ["/race/at/secret", "/race/at"] {
                    let into = tempfile::NamedTempFile::new().unwrap();
                    let _ = case.runtime.download(&running.id, &path(at), into.reopen().unwrap(), 1 << 20).await;
                    let copied = std::fs::read(into.path()).unwrap();
                    assert!(!String::from_utf8_lossy(&copied).contains(SECRET), "{at} was the host's");
                }
            }
        };
        // The loop runs until its limit, or until the container is removed.
        tokio::select! { _ = async { let _ = swapping.await; std::future::pending::<()>().await } => {}, () = copying => {} }
        canary.check();
    })
    .await;
}

/// The same with a permanent link.
#[tokio::test]
async fn copies_do_not_follow_a_link_to_the_host() {
    with_real_engines(async |case| {
        let canary = Canary::new();
        let image = image(case, |tar| {
            link(tar, "out", canary.path().to_str().unwrap());
            link(tar, "up", &format!("../../../../../../..{}", canary.path().display()));
            link(tar, "self", "/proc/self/root");
            link(tar, "cwd", "/proc/self/cwd");
        })
        .await;
        let id = try_run(case, case.spec("links"), &image).await.unwrap();
        case.runtime.upload(&id, &path("/tmp"), tar_of(|tar| file(tar, "plain", 0o644, "x"))).await.unwrap();
        for at in ["/out", "/up", "/self/tmp", "/cwd", "/proc/self/root/tmp", "/proc/1/cwd"] {
            let _ = case.runtime.upload(&id, &path(at), tar_of(|tar| file(tar, "escaped", 0o644, "x"))).await;
            let inner = canary.path().strip_prefix("/").unwrap();
            for at in [format!("{at}/secret"), format!("{at}/{}/secret", inner.display())] {
                let into = tempfile::NamedTempFile::new().unwrap();
                let _ = case.runtime.download(&id, &path(&at), into.reopen().unwrap(), 1 << 20).await;
                assert!(!String::from_utf8_lossy(&std::fs::read(into.path()).unwrap()).contains(SECRET), "{at}");
            }
        }
        assert!(!std::path::Path::new("/tmp/escaped").exists() && !std::path::Path::new("/escaped").exists());
        canary.check();
    })
    .await;
}

/// CVE-2019-1002101, CVE-2022-24771 and many before: entries outside, links that later entries pass through, hard links to
/// the host's files.
#[tokio::test]
async fn an_archive_writes_nothing_outside_the_container() {
    with_real_engines(async |case| {
        let (canary, running) = (Canary::new(), case.runs(Way::Plain).await);
        let outside = canary.path().to_str().unwrap();
        let raw = |name: &str, kind, target: Option<&str>| {
            tar_of(|tar| {
                // A builder refuses such names.
                let mut header = header(kind, 0o666, 1);
                let bytes = header.as_old_mut();
                bytes.name[..name.len()].copy_from_slice(name.as_bytes());
                if let Some(target) = target {
                    bytes.linkname[..target.len()].copy_from_slice(target.as_bytes());
                    header.set_size(0);
                }
                header.set_cksum();
                tar.append(&header, if target.is_some() { &b""[..] } else { &b"x"[..] }).unwrap();
                if target.is_some() {
                    file(tar, &format!("{name}/escaped"), 0o666, "x");
                    file(tar, name, 0o666, "x");
                }
            })
        };
        let (regular, symbolic, hard) = (tar::EntryType::Regular, tar::EntryType::Symlink, tar::EntryType::Link);
        let up = format!("../../../../../../../..{outside}");
        for tar in [
            raw(&format!("{up}/escaped"), regular, None),
            raw(&format!("{outside}/escaped"), regular, None),
            raw("through", symbolic, Some(outside)),
            raw("through-up", symbolic, Some(&up)),
            raw("secret", hard, Some(&format!("{outside}/secret"))),
            raw("secret-up", hard, Some(&format!("{up}/secret"))),
        ] {
            let _ = case.runtime.upload(&running.id, &path("/tmp"), tar).await;
        }
        case.runtime.upload(&running.id, &path("/tmp"), raw("plain", regular, None)).await.unwrap();
        let it = running.ran(sh("cat /tmp/plain /tmp/secret /tmp/secret-up 2>/dev/null; true")).await;
        assert_eq!(it.stdout.text(), "x");
        canary.check();
    })
    .await;
}

/// CVE-2019-14271: the helper that copies loads a library, or runs a program, of the container while it is not confined.
#[tokio::test]
async fn a_copy_runs_nothing_of_the_container() {
    with_real_engines(async |case| {
        let mark = "#!/bin/sh\necho $0 >> /ran\n";
        let image = image(case, |tar| {
            dir(tar, "usr");
            dir(tar, "usr/bin");
            dir(tar, "files");
            file(tar, "files/one", 0o644, "1");
            for at in ["usr/bin/tar", "usr/bin/cp", "usr/bin/docker-tar", "usr/bin/podman", "usr/bin/storage-untar"] {
                file(tar, at, 0o755, mark);
            }
            file(tar, "etc/nsswitch.conf", 0o644, "passwd: evil files\ngroup: evil files\n");
            file(tar, "etc/ld.so.preload", 0o644, "/usr/lib/evil.so\n");
        })
        .await;
        let id = try_run(case, case.spec("helper"), &image).await.unwrap();
        case.runtime.upload(&id, &path("/files"), tar_of(|tar| file(tar, "two", 0o644, "2"))).await.unwrap();
        let into = tempfile::tempfile().unwrap();
        case.runtime.download(&id, &path("/files"), into.try_clone().unwrap(), 1 << 20).await.unwrap();
        let it = run_in(case, &id, sh("cat /ran 2>/dev/null; ls /files")).await.unwrap();
        assert_eq!(it.stdout.text(), "one\ntwo\n");
    })
    .await;
}

/// CVE-2021-41091: other users of the host reach the files of containers, among them set-user-id programs.
#[tokio::test]
async fn other_users_of_the_host_do_not_reach_the_engines_data() {
    with_real_engines(async |case| {
        let root = case.runtime.info().await.unwrap().data_root;
        let closed = root.ancestors().filter_map(|it| std::fs::metadata(it).ok()).any(|it| it.mode() & 0o001 == 0);
        assert!(closed, "every user may enter `{}`", root.display());
    })
    .await;
}
