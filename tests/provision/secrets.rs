//! Keys and settings on the tmpfs and on no disk.

use std::fs;

use coracle_provision::{Status, amplifier, ssh};
use coracle_runtime::PatternSet;
use coracle_types::{Command, ContainerPath, Exec, Exit, Ids};

use super::{content, items, place, put, root, sh};
use crate::engines::with_a_real_guest;

fn keys_of_host() -> ssh::SecretFiles {
    let dir = tempfile::tempdir().unwrap();
    for name in ["id_ed25519", "id_ed25519.pub", "config", "other"] {
        fs::write(dir.path().join(name), format!("CANARY {name}\n")).unwrap();
    }
    std::os::unix::fs::symlink("/etc/passwd", dir.path().join("id_link")).unwrap();
    ssh::read(dir.path(), &PatternSet::new(&["id_*".into()]).unwrap())
}

#[tokio::test]
async fn keys_are_readable_only_by_the_exec_user_and_on_no_disk() {
    with_a_real_guest(async |running| {
        let place = place(running).await;
        put(&place, "/home/agent/.ssh/config", "of the image").await;
        for _ in 0..2 {
            let step = ssh::forward(&place, &keys_of_host(), b"github.com ssh-ed25519 A\n").await;
            assert_eq!(step.status, Status::Success, "{step:?}");
            assert_eq!(step.probe.as_deref(), Some("the exec user can read each through `~/.ssh`"));
            let expected = [
                "config success",
                "id_ed25519 success",
                "id_ed25519.pub success",
                "known_hosts success",
                "id_link skipped",
            ];
            assert_eq!(items(&step), expected);
        }
        let seen = sh(&place, "stat -L -c '%n %u:%g %a' .ssh .ssh/*; cat .ssh/id_ed25519 .ssh/known_hosts").await;
        let expected = "\
.ssh 1000:1000 700
.ssh/config 1000:1000 600
.ssh/id_ed25519 1000:1000 600
.ssh/id_ed25519.pub 1000:1000 600
.ssh/known_hosts 1000:1000 600
CANARY id_ed25519
github.com ssh-ed25519 A
";
        assert_eq!(seen, expected);
        assert_eq!(sh(&place, "busybox readlink .ssh").await, "/.coracle/run/ssh\n");
        assert_eq!(content(&place, "/home/agent/.ssh.orig/config").await, b"of the image");
        assert_eq!(root(running, "grep -r CANARY /home /root /etc /tmp || true").await, "");
        let mounts = root(running, "cat /proc/mounts").await;
        assert!(mounts.lines().any(|it| it.starts_with("tmpfs /.coracle/run tmpfs")), "{mounts}");
        let other = Ids { uid: 1001, gid: 1001 };
        let cat = Command::Shell("cat /.coracle/run/ssh/id_ed25519".into());
        let refused = running.ran(Exec::new(cat, other, ContainerPath::root())).await;
        assert!(refused.exit != Exit::Code(0) && refused.stdout.text().is_empty(), "{refused:?}");
    })
    .await;
}

#[tokio::test]
async fn settings_are_links_to_the_tmpfs() {
    with_a_real_guest(async |running| {
        let place = place(running).await;
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("settings.yaml"), "key: CANARY\n").unwrap();
        fs::write(dir.path().join("settings.local.yaml"), "local\n").unwrap();
        fs::write(dir.path().join("other.yaml"), "other\n").unwrap();
        put(&place, "/home/agent/.amplifier/settings.yaml", "of the image").await;
        let step = amplifier::forward(&place, &amplifier::read(dir.path())).await;
        assert_eq!(step.status, Status::Success, "{step:?}");
        assert_eq!(items(&step), ["settings.local.yaml success", "settings.yaml success"]);
        let seen = sh(
            &place,
            "cd .amplifier; cat settings.local.yaml settings.yaml settings.yaml.orig; busybox readlink settings.yaml",
        )
        .await;
        assert_eq!(seen, "local\nkey: CANARY\nof the image/.coracle/run/amplifier/settings.yaml\n");
        let none = amplifier::forward(&place, &amplifier::read(&dir.path().join("none"))).await;
        assert_eq!(none.status, Status::Skipped);
    })
    .await;
}

/// An unreadable file is a failure, with any content.
#[tokio::test]
async fn a_key_that_the_exec_user_cannot_reach_is_reported() {
    with_a_real_guest(async |running| {
        let place = place(running).await;
        let step = ssh::forward(&place, &keys_of_host(), b"").await;
        assert_eq!(step.status, Status::Success, "{step:?}");
        // Both names are taken, so that the link to the keys cannot be created.
        root(running, "cd /home/agent; rm .ssh; mkdir .ssh .ssh.orig").await;
        let step = ssh::forward(&place, &keys_of_host(), b"").await;
        assert_eq!(step.status, Status::Failed, "{step:?}");
        assert!(step.error.is_some() && step.probe.is_none());
    })
    .await;
}
