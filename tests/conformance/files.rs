//! Tars into a container and out of it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek};
use std::path::Path;

use coracle_types::{ContainerId, Error};
use tar::{EntryType, Header};

use super::{path, placed, printed, running};
use crate::engines::{Case, Lack, on_every_engine, tar_of};

/// An entry: kind, mode, content or target of the link.
type Tree = BTreeMap<String, (EntryType, u32, Vec<u8>)>;

fn tree(root: &str) -> Tree {
    let file = |mode, bytes: &[u8]| (EntryType::Regular, mode, bytes.to_vec());
    let dir = |mode| (EntryType::Directory, mode, Vec::new());
    let random: Vec<u8> = (0..300_000u32).map(|it| (it.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let long = "long".repeat(40);
    let entries = [
        ("", dir(0o755)),
        ("/bytes", file(0o644, &random)),
        ("/empty", file(0o600, b"")),
        ("/script", file(0o755, b"#!/bin/sh\n")),
        ("/readonly", file(0o444, b"x")),
        ("/a blank, \"quotes\" & ünï", file(0o640, b"odd")),
        ("/-n", file(0o644, b"dash")),
        ("/private", dir(0o700)),
        ("/private/deep", dir(0o755)),
        ("/private/deep/file", file(0o644, b"deep")),
        ("/link", (EntryType::Symlink, 0o777, b"private/deep/file".to_vec())),
        ("/dangling", (EntryType::Symlink, 0o777, b"/no/such/file".to_vec())),
        (&format!("/{long}"), file(0o644, b"long")),
    ];
    entries.into_iter().map(|(name, it)| (format!("{root}{name}"), it)).collect()
}

fn pack(tree: &Tree, (uid, gid): (u64, u64)) -> File {
    tar_of(|tar| {
        for (name, (kind, mode, bytes)) in tree {
            let mut header = Header::new_gnu();
            header.set_entry_type(*kind);
            header.set_mode(*mode);
            header.set_uid(uid);
            header.set_gid(gid);
            header.set_size(0);
            if *kind == EntryType::Symlink {
                tar.append_link(&mut header, name, std::str::from_utf8(bytes).unwrap()).unwrap();
            } else {
                header.set_size(bytes.len() as u64);
                tar.append_data(&mut header, name, &bytes[..]).unwrap();
            }
        }
    })
}

/// The tree, and the name of the first entry.
fn unpack(mut file: File) -> (Tree, String) {
    file.rewind().unwrap();
    let (mut tree, mut first) = (Tree::new(), None);
    for entry in tar::Archive::new(file).entries().unwrap() {
        let mut entry = entry.unwrap();
        let name = entry.path().unwrap().to_str().unwrap().trim_end_matches('/').to_owned();
        let (kind, mode) = (entry.header().entry_type(), entry.header().mode().unwrap() & 0o7777);
        let mut bytes = Vec::new();
        match entry.link_name().unwrap() {
            Some(target) if kind == EntryType::Symlink => bytes.extend(target.to_str().unwrap().bytes()),
            _ => _ = entry.read_to_end(&mut bytes).unwrap(),
        }
        first.get_or_insert(name.clone());
        tree.insert(name, (kind, mode, bytes));
    }
    (tree, first.unwrap_or_default())
}

async fn download(case: &Case, id: &ContainerId, at: &str) -> (Tree, String) {
    let file = tempfile::tempfile().unwrap();
    case.runtime.download(id, &path(at), file.try_clone().unwrap(), 16 << 20).await.unwrap();
    unpack(file)
}

const OWNED: &str = "1234:4321\n1234:4321\n";

#[tokio::test]
async fn a_tree_is_copied_in_and_out_unchanged() {
    on_every_engine(async |case| {
        let id = running(case).await;
        case.runtime.upload(&id, &path("/tmp"), pack(&tree("data"), (1234, 4321))).await.unwrap();
        let (came, first) = download(case, &id, "/tmp/data").await;
        let names = |it: &Tree| it.keys().cloned().collect::<Vec<_>>();
        assert_eq!((names(&came), first.as_str()), (names(&tree("data")), "data"));
        for (name, expected) in tree("data") {
            let (kind, mode, bytes) = &came[&name];
            assert_eq!((*kind, *mode), (expected.0, expected.1), "{name}");
            assert!(*bytes == expected.2, "the content of {name}");
        }
        if case.is_real() {
            // Read inside: copies from Podman have other owners. The fake changes owners only as root.
            assert_eq!(printed(case, &id, "stat -c %u:%g /tmp/data/private/deep/file /tmp/data/-n").await, OWNED);
        }
    })
    .await;
}

#[tokio::test]
async fn one_file_is_copied_out_under_its_name() {
    on_every_engine(async |case| {
        let id = running(case).await;
        case.runtime.upload(&id, &path("/tmp"), pack(&tree("d"), (0, 0))).await.unwrap();
        let (came, first) = download(case, &id, "/tmp/d/script").await;
        assert_eq!(first, "script");
        assert_eq!(came, Tree::from([("script".into(), (EntryType::Regular, 0o755, b"#!/bin/sh\n".to_vec()))]));
    })
    .await;
}

#[tokio::test]
async fn existing_files_are_replaced_and_others_stay() {
    on_every_engine(async |case| {
        let id = running(case).await;
        let one = |name: &str, text: &str| Tree::from([(name.into(), (EntryType::Regular, 0o644, text.into()))]);
        for tree in [one("d/old", "old"), one("d/file", "first, and longer"), one("d/file", "second")] {
            case.runtime.upload(&id, &path("/tmp"), pack(&tree, (0, 0))).await.unwrap();
        }
        let (came, _) = download(case, &id, "/tmp/d").await;
        assert_eq!((came["d/file"].2.as_slice(), came["d/old"].2.as_slice()), (&b"second"[..], &b"old"[..]));
    })
    .await;
}

#[tokio::test]
async fn a_link_that_is_there_is_replaced_and_not_followed() {
    on_every_engine(async |case| {
        let id = running(case).await;
        let link = |name: &str, to: &str| Tree::from([(name.into(), (EntryType::Symlink, 0o777, to.into()))]);
        let file = |name: &str, text: &str| Tree::from([(name.into(), (EntryType::Regular, 0o644, text.into()))]);
        let before = [file("d/target", "kept"), link("d/a", "target"), file("d/b", "a file")];
        for tree in before.into_iter().chain([file("d/a", "new"), link("d/b", "target")]) {
            case.runtime.upload(&id, &path("/tmp"), pack(&tree, (0, 0))).await.unwrap();
        }
        let (came, _) = download(case, &id, "/tmp/d").await;
        assert_eq!(came["d/target"].2, b"kept");
        assert_eq!((came["d/a"].0, came["d/a"].2.as_slice()), (EntryType::Regular, &b"new"[..]));
        assert_eq!((came["d/b"].0, came["d/b"].2.as_slice()), (EntryType::Symlink, &b"target"[..]));
    })
    .await;
}

#[tokio::test]
async fn files_are_copied_in_before_the_first_start_and_out_after_the_last_end() {
    on_every_engine(async |case| {
        if case.lacks(Lack::FilesAtRest) {
            return;
        }
        let (runtime, id) = (&case.runtime, case.runtime.create(&placed(case, case.spec("early"))).await.unwrap());
        runtime.upload(&id, &path("/tmp"), pack(&tree("d"), (0, 0))).await.unwrap();
        runtime.start(&id).await.unwrap();
        if case.is_real() {
            assert_eq!(printed(case, &id, "cat /tmp/d/private/deep/file").await, "deep");
        }
        runtime.stop(&id, std::time::Duration::from_secs(10)).await.unwrap();
        assert_eq!(download(case, &id, "/tmp/d/-n").await.0["-n"].2, b"dash");
    })
    .await;
}

#[tokio::test]
async fn a_path_that_is_missing_is_an_error() {
    on_every_engine(async |case| {
        let id = running(case).await;
        for missing in ["/no/such/file", "/etc/passwd/below", "/tmp/none"] {
            let into = tempfile::tempfile().unwrap();
            let it = case.runtime.download(&id, &path(missing), into, 1 << 20).await;
            assert!(matches!(it, Err(Error::Engine { verb: "download", .. })), "{missing}: {it:?}");
            let it = case.runtime.upload(&id, &path(missing), pack(&tree("d"), (0, 0))).await;
            assert!(matches!(it, Err(Error::Engine { verb: "upload", .. })), "{missing}: {it:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn more_than_allowed_is_an_error() {
    on_every_engine(async |case| {
        let id = running(case).await;
        case.runtime.upload(&id, &path("/tmp"), pack(&tree("d"), (0, 0))).await.unwrap();
        for (max_bytes, fits) in [(4096, false), (100_000, false), (1 << 20, true)] {
            let mut into = tempfile::tempfile().unwrap();
            let it = case.runtime.download(&id, &path("/tmp/d/bytes"), into.try_clone().unwrap(), max_bytes).await;
            let refused = matches!(it, Err(Error::TooLarge { max_bytes: reported }) if reported == max_bytes);
            assert_eq!((it.is_ok(), refused), (fits, !fits), "{it:?}");
            assert!(into.metadata().unwrap().len() <= max_bytes);
            into.rewind().unwrap();
            let mut archive = tar::Archive::new(into);
            let first = archive.entries().unwrap().next().unwrap().unwrap();
            assert_eq!(first.path().unwrap(), Path::new("bytes"), "{max_bytes}");
        }
    })
    .await;
}

#[tokio::test]
async fn files_that_the_engine_creates_belong_to_root_inside() {
    on_every_engine(async |case| {
        if !case.is_real() {
            return; // it has no users
        }
        let id = running(case).await;
        // Not every engine binds both files.
        let script = "stat -c '%u:%g' / $(ls -d /etc/hosts /etc/resolv.conf 2>/dev/null)";
        let is_roots = |owners: String| owners.lines().all(|it| it == "0:0") && owners.starts_with("0:0");
        assert!(is_roots(printed(case, &id, script).await));
        if case.lacks(Lack::Restart) {
            return;
        }
        // Again after a start that finds the files.
        case.runtime.stop(&id, std::time::Duration::ZERO).await.unwrap();
        case.runtime.start(&id).await.unwrap();
        assert!(is_roots(printed(case, &id, script).await));
    })
    .await;
}
