//! Files of the caller, and dotfiles given as text.

use coracle_provision::{FileToPut, InlineFile, ProtectedBinds, Status, config_files, dotfiles_inline};

use super::{path, place, sh};
use crate::engines::with_a_real_guest;

fn file(at: &str, content: impl Into<Vec<u8>>, mode: u32) -> FileToPut {
    FileToPut { path: path(at), content: content.into(), mode }
}

#[tokio::test]
async fn files_belong_to_the_user_in_its_directories_and_to_root_elsewhere() {
    with_a_real_guest(async |running| {
        let place = place(running).await;
        sh(running, "umask 077; echo old >/etc/kept; ln -s /etc/passwd /tmp/link; ln -s /etc/passwd /home/agent/.link").await;
        let large: Vec<u8> = (0..=255).cycle().take(900 << 10).collect();
        let files = [
            file("/home/agent/.config/it's/\"a\" $b", large.clone(), 0o600),
            file("/workspace/deep/new", "'\"$HOME`id`\\", 0o755),
            file("/opt/tool/rc", "", 0o644),
            file("/etc/kept", "new\n", 0o640),
            file("/tmp/link", "mine", 0o644),
            file("/home/agent/.link", "mine", 0o644),
        ];
        let step = config_files(&place, &files, &ProtectedBinds::default()).await;
        assert_eq!(step.status, Status::Success, "{step:#?}");
        let seen = sh(running, r#"cd /; stat -c '%u:%g %a %s %n' home/agent/.config/* home/agent/.config/*/* \
            workspace/deep workspace/deep/new opt/tool opt/tool/rc etc/kept tmp/link home/agent/.link"#);
        let expected = "1000:1000 755 %d home/agent/.config/it's\n1000:1000 600 921600 home/agent/.config/it's/\"a\" $b\n\
            1000:1000 755 %d workspace/deep\n1000:1000 755 12 workspace/deep/new\n0:0 755 %d opt/tool\n\
            0:0 644 0 opt/tool/rc\n0:0 640 4 etc/kept\n0:0 644 4 tmp/link\n1000:1000 644 4 home/agent/.link\n";
        // Directories have sizes of their file system's choice.
        let without_sizes = |text: &str| -> Vec<String> {
            let words = |line: &str| line.split(' ').enumerate().filter(|it| it.0 != 2).map(|it| it.1).collect::<Vec<_>>().join(" ");
            text.lines().map(words).collect()
        };
        assert_eq!(without_sizes(&seen.await), without_sizes(expected));
        let (_, read) = place.link.get(place.at(&files[0].path), 0, 1 << 20).await.unwrap();
        assert!(read == large);
        assert!(sh(running, "cat /etc/passwd").await.starts_with("root:"));
    })
    .await;
}

#[tokio::test]
async fn a_file_that_the_user_may_not_write_fails_alone() {
    with_a_real_guest(async |running| {
        let place = place(running).await;
        sh(running, "mkdir /workspace/roots /home/agent/roots; ln -s /coracle-no-such-dir /tmp/dangling; ln -s /.coracle /tmp/ours").await;
        let protected = ProtectedBinds { roots: vec![path("/workspace")], names: vec![".git/hooks".into()] };
        let files = [
            file("/workspace/roots/x", "", 0o644),
            file("/workspace/ok", "ok", 0o644),
            file("/tmp/dangling/x", "", 0o644),
            file("/tmp/ours/run/x", "", 0o644),
            file("/workspace/.git/hooks/pre-commit", "", 0o755),
            file("/workspace/ok/below", "", 0o644),
        ];
        let step = config_files(&place, &files, &protected).await;
        let statuses: Vec<_> = step.items.iter().map(|it| it.status == Status::Success).collect();
        assert_eq!(statuses, [false, true, false, false, false, false], "{step:#?}");
        assert_eq!((step.status, step.items[4].code.as_deref()), (Status::Partial, Some("policy_denied")));
        let inline = |path: &str| InlineFile { path: path.into(), content: b"mine".to_vec(), mode: 0o600 };
        let files = [inline(".config/a"), inline("roots/a"), inline("../roots")];
        let step = dotfiles_inline(&place, &files, &protected).await;
        let statuses: Vec<_> = step.items.iter().map(|it| it.status == Status::Success).collect();
        assert_eq!(statuses, [true, false, false], "{step:#?}");
        assert_eq!(sh(running, "stat -c '%u %a' /home/agent/.config/a").await, "1000 600\n");
    })
    .await;
}
