//! Walks over files inside, to find changed files and secrets.

use coracle_client::{Link, ScanOptions};
use coracle_protocol::{ErrorCode, FileKind};
use coracle_types::{ContainerPath, Error, Secret};
use jiff::Timestamp;

use super::sh;
use crate::engines::{with_a_guest, with_a_real_guest};

fn below(root: &str) -> ScanOptions {
    ScanOptions::all(ContainerPath::parse(root).unwrap())
}

async fn paths(link: &Link, walk: ScanOptions, needles: &[Secret]) -> Vec<String> {
    let walked = link.walk(walk, needles).await.unwrap();
    assert!(!walked.more);
    let mut paths: Vec<_> = walked.entries.into_iter().map(|it| it.path).collect();
    paths.sort();
    paths
}

#[tokio::test]
async fn files_that_were_written_are_found_by_time_name_and_content() {
    with_a_guest(async |running| {
        let link = running.link();
        let secret = Secret::from("a value that was given to commands");
        link.set_session(&[("TOKEN".into(), secret), ("EDITOR".into(), Secret::from("something-plain"))])
            .await
            .unwrap();
        let since = Timestamp::now();
        for (path, content) in [
            ("/root/w/.git/config", "x"),
            ("/root/w/key", "it is a value that was given to commands\n"),
            ("/root/w/encoded", "YSB2YWx1ZSB0aGF0IHdhcyBnaXZlbiB0byBjb21tYW5kcw=="),
            ("/root/w/plain", "something-plain"),
            ("/root/w/other", "another value"),
        ] {
            let at = super::at(coracle_types::Ids::ROOT, path);
            let content = coracle_types::Input::Bytes(content.into());
            let put = coracle_client::WriteFile { at, mode: None, exact: false, parents: true, replace: true, content };
            link.put(put).await.unwrap();
        }
        let all = ["/root/w/.git/config", "/root/w/encoded", "/root/w/key", "/root/w/other", "/root/w/plain"];
        assert_eq!(paths(link, below("/root/w"), &[]).await, all);
        let earlier = since.checked_sub(jiff::SignedDuration::from_secs(5)).unwrap();
        let later = since.checked_add(jiff::SignedDuration::from_secs(600)).unwrap();
        assert_eq!(paths(link, ScanOptions { since: Some(earlier), ..below("/root/w") }, &[]).await, all);
        assert_eq!(
            paths(link, ScanOptions { since: Some(later), ..below("/root/w") }, &[]).await,
            Vec::<String>::new()
        );
        let named = ScanOptions { names: Some(vec![".git".into()]), ..below("/root") };
        let found = link.walk(named, &[]).await.unwrap();
        assert_eq!((found.entries[0].path.as_str(), found.entries[0].kind), ("/root/w/.git", FileKind::Dir));
        let session = ScanOptions { session: vec!["TOKEN".into(), "MISSING".into()], ..below("/") };
        assert_eq!(paths(link, session, &[]).await, ["/root/w/encoded", "/root/w/key"]);
        let needles = [Secret::from("another value"), Secret::from("short")];
        assert_eq!(paths(link, below("/"), &needles).await, ["/root/w/other"]);
        assert_eq!(paths(link, below("/"), &[Secret::from("short")]).await, Vec::<String>::new());
    })
    .await;
}

#[tokio::test]
async fn more_than_a_window_of_entries_and_more_than_a_frame_of_values_travel() {
    with_a_guest(async |running| {
        let link = running.link();
        let dir = format!("/root/{}", "long-name-".repeat(12));
        running
            .case
            .runtime
            .upload(
                &running.id,
                &ContainerPath::root(),
                crate::engines::tar_of(|tar| {
                    for it in 0..4000 {
                        let mut header = tar::Header::new_gnu();
                        header.set_size(0);
                        header.set_mode(0o600);
                        tar.append_data(&mut header, format!("{}/{it}", &dir[1..]), &b""[..]).unwrap();
                    }
                }),
            )
            .await
            .unwrap();
        let walked = link.walk(below(&dir), &[]).await.unwrap();
        assert_eq!((walked.entries.len(), walked.more), (4000, false));
        let walked = link.walk(ScanOptions { max_entries: 10, ..below(&dir) }, &[]).await.unwrap();
        assert_eq!((walked.entries.len(), walked.more), (10, true));
        let needles: Vec<Secret> = (0..300).map(|it| Secret::from(format!("{it:01000}"))).collect();
        assert_eq!(paths(link, below(&dir), &needles).await, Vec::<String>::new());
        let needles: Vec<Secret> = (0..1100).map(|it| Secret::from(format!("{it:01000}"))).collect();
        let refused = link.walk(below(&dir), &needles).await;
        assert!(matches!(&refused, Err(Error::Refused(it)) if it.code == ErrorCode::TooLong), "{refused:?}");
    })
    .await;
}

#[tokio::test]
async fn mounts_in_a_container_are_not_walked() {
    with_a_real_guest(async |running| {
        running
            .printed(sh(
                "echo shared-memory-value > /dev/shm/x; echo shared-memory-value > /root/x; ln -s /dev/shm /root/shm",
            ))
            .await;
        let needles = [Secret::from("shared-memory-value")];
        assert_eq!(paths(running.link(), below("/"), &needles).await, ["/root/x"]);
        let all = paths(running.link(), below("/"), &[]).await;
        let mounted = |it: &&String| ["/proc/", "/sys/", "/dev/", "/.coracle/"].iter().any(|dir| it.starts_with(dir));
        assert_eq!(all.iter().filter(mounted).count(), 0);
        assert!(!all.iter().any(|it| it == "/etc/resolv.conf" || it == "/etc/hostname"), "files are mounts, too");
        assert!(all.iter().any(|it| it.ends_with("/passwd")));
    })
    .await;
}
