//! Files and directories: reading, writing, creating and removing, and errors of each.

use coracle_workspace::fs::{FsKind, MAX_CONTENT, WriteMode, WriteOptions};
use coracle_workspace::{FsError, GuestFs};

use super::{Space, with_git_inside};

const CREATE: WriteOptions = WriteOptions { mode: WriteMode::Create, create_parents: true };
const OVERWRITE: WriteOptions = WriteOptions { mode: WriteMode::Overwrite, create_parents: true };
const APPEND: WriteOptions = WriteOptions { mode: WriteMode::Append, create_parents: true };

async fn bytes_are_read_as_they_were_written(fs: &GuestFs) {
    // More than fits into one answer of a guest.
    let large: Vec<u8> = (0..20_u32 << 20).map(|it| (it % 251) as u8).collect();
    for (name, bytes) in [("empty", &b""[..]), ("crlf", b"a\r\nb"), ("binary", b"\xff\0\n"), ("large", &large)] {
        let written = fs.write_bytes(name, bytes, CREATE).await.unwrap();
        assert_eq!((written.path.as_str(), written.kind, written.size), (name, FsKind::File, bytes.len() as u64));
        assert!(fs.read_bytes(name).await.unwrap() == bytes, "{name}");
        assert_eq!(fs.stat(name).await.unwrap(), written);
    }
    assert_eq!(fs.read("crlf").await.unwrap(), "a\r\nb");
    fails!(fs.read("binary"), FsError::Binary(_));
    assert!(fs.list("").await.unwrap().items.iter().all(|it| !it.path.starts_with(".coracle")));
}

async fn a_mode_says_what_may_be_there(fs: &GuestFs) {
    fs.write("a", "one", CREATE).await.unwrap();
    fails!(fs.write("a", "two", CREATE), FsError::Exists(_));
    assert_eq!(fs.read("a").await.unwrap(), "one");
    let appended = fs.write("a", "+two", APPEND).await.unwrap();
    assert_eq!((fs.read("a").await.unwrap().as_str(), appended.size), ("one+two", 7));
    let over = fs.write("a", "three", OVERWRITE).await.unwrap();
    assert!(over.version > appended.version && appended.version > 1, "{over:?} {appended:?}");
    assert_eq!(fs.read("a").await.unwrap(), "three");
    for (name, how) in [("b", OVERWRITE), ("c", APPEND)] {
        fs.write(name, "new", how).await.unwrap();
        assert_eq!(fs.read(name).await.unwrap(), "new");
    }
    fs.mkdir("dir", false, false).await.unwrap();
    for how in [OVERWRITE, APPEND] {
        fails!(fs.write("dir", "x", how), FsError::IsDirectory(_));
        fails!(fs.write("", "x", how), FsError::IsDirectory(_));
    }
    fails!(fs.read("dir"), FsError::IsDirectory(_));
}

async fn parents_are_created_only_on_request(fs: &GuestFs) {
    let alone = WriteOptions { create_parents: false, ..CREATE };
    fails!(fs.write("no/such/file", "x", alone), FsError::NotFound(_));
    assert!(!fs.exists("no").await.unwrap());
    fs.write("some/such/file", "x", CREATE).await.unwrap();
    fs.write("some/such/other", "x", alone).await.unwrap();
    fs.write("top", "x", alone).await.unwrap();
    for how in [alone, CREATE] {
        fails!(fs.write("top/below", "x", how), FsError::NotDirectory(_));
    }
    fails!(fs.read("top/below"), FsError::NotDirectory(_));
    fails!(fs.read("some/none"), FsError::NotFound(_));
}

async fn names_are_utf8_within_the_limits(fs: &GuestFs) {
    let (long, deep) = ("ä".repeat(80), ["d"; 16].join("/"));
    for name in ["ä/€/😀", " lead ing ", "a\nb", "-rf", "back\\slash", &long, &deep] {
        fs.write(name, name, CREATE).await.unwrap();
        assert_eq!(fs.read(name).await.unwrap(), name);
    }
    let listed = fs.list("").await.unwrap().items;
    assert!(listed.iter().all(|it| it.addressable) && listed.iter().any(|it| it.path == "a\nb"), "{listed:?}");
    for name in [format!("{long}ä"), format!("{deep}/d"), "a\0b".into()] {
        fails!(fs.write(&name, "x", CREATE), FsError::Invalid { .. });
        fails!(fs.read_bytes(&name), FsError::Invalid { .. });
        fails!(fs.mkdir(&name, true, true), FsError::Invalid { .. });
    }
}

async fn dots_are_folded_and_never_climb(fs: &GuestFs) {
    fs.write("a/b", "here", CREATE).await.unwrap();
    let full = format!("{}/a/b", fs.root());
    for same in ["a/../a/./b", "/a/b", "none/../a//b", &full] {
        assert_eq!(fs.read(same).await.unwrap(), "here", "{same}");
    }
    assert_eq!(fs.stat("a/..").await.unwrap().kind, FsKind::Directory);
    let outside = format!("{}/../{}", fs.root(), "x");
    for text in ["..", "../x", "a/../../x", &outside] {
        fails!(fs.read(text), FsError::Escape(_));
        fails!(fs.write(text, "x", CREATE), FsError::Escape(_));
        fails!(fs.delete(text, true), FsError::Escape(_));
        fails!(fs.list(text), FsError::Escape(_));
        fails!(fs.exists(text), FsError::Escape(_));
    }
}

async fn a_removal_takes_what_it_says(fs: &GuestFs) {
    for file in ["file", "tree/a", "tree/deep/er/b"] {
        fs.write(file, "x", CREATE).await.unwrap();
    }
    fs.mkdir("empty", false, false).await.unwrap();
    for (path, recursive) in [("file", false), ("empty", false)] {
        fs.delete(path, recursive).await.unwrap();
        assert!(!fs.exists(path).await.unwrap(), "{path}");
    }
    fails!(fs.delete("tree", false), FsError::NotEmpty(_));
    assert_eq!(fs.read("tree/deep/er/b").await.unwrap(), "x");
    fs.delete("tree", true).await.unwrap();
    for recursive in [false, true] {
        fails!(fs.delete("tree", recursive), FsError::NotFound(_));
        fails!(fs.delete("/", recursive), FsError::Invalid { .. });
    }
    assert_eq!(fs.list("").await.unwrap().items, []);
}

async fn a_directory_is_made_once(fs: &GuestFs) {
    fails!(fs.mkdir("a/b", false, false), FsError::NotFound(_));
    fs.mkdir("a/b", true, false).await.unwrap();
    fails!(fs.mkdir("a/b", true, false), FsError::Exists(_));
    fs.mkdir("a/b", true, true).await.unwrap();
    fs.mkdir("", false, true).await.unwrap();
    fails!(fs.mkdir("", false, false), FsError::Exists(_));
    fs.write("file", "x", CREATE).await.unwrap();
    fails!(fs.mkdir("file", true, true), FsError::Exists(_));
    fails!(fs.mkdir("file/x", true, true), FsError::NotDirectory(_));
}

/// `read_only` is the same workspace.
async fn a_read_only_view_changes_nothing(fs: &GuestFs, read_only: &GuestFs) {
    fs.write("a", "kept", CREATE).await.unwrap();
    assert!(read_only.read_only() && !fs.read_only());
    for how in [CREATE, OVERWRITE, APPEND] {
        fails!(read_only.write("b", "x", how), FsError::ReadOnly(_));
        fails!(read_only.write_bytes("a", b"x", how), FsError::ReadOnly(_));
    }
    fails!(read_only.delete("a", false), FsError::ReadOnly(_));
    fails!(read_only.mkdir("c", true, true), FsError::ReadOnly(_));
    fails!(read_only.restore("tag"), FsError::ReadOnly(_));
    assert_eq!((read_only.read("a").await.unwrap().as_str(), read_only.exists("b").await.unwrap()), ("kept", false));
    assert_eq!((read_only.list("").await.unwrap().items.len(), read_only.root()), (1, fs.root()));
}

async fn files_that_are_too_large_are_neither_read_nor_written(space: &Space<'_>) {
    let fs: &GuestFs = &space.fs;
    let most = vec![b'x'; usize::try_from(MAX_CONTENT).unwrap() + 1];
    fails!(fs.write_bytes("a", &most, CREATE), FsError::TooLarge(_));
    assert!(!fs.exists("a").await.unwrap());
    fs.write_bytes("a", &most[1..], CREATE).await.unwrap();
    assert_eq!(fs.read_bytes("a").await.unwrap().len() as u64, MAX_CONTENT);
    space.sh("echo >> a").await;
    fails!(fs.read_bytes("a"), FsError::TooLarge(_));
    assert_eq!(fs.stat("a").await.unwrap().size, MAX_CONTENT + 1);
}

async fn permissions_are_preserved_and_enforced(space: &Space<'_>) {
    let fs: &GuestFs = &space.fs;
    space.sh("echo old > tool; chmod 750 tool; mkdir closed; chmod 555 closed").await;
    fs.write("tool", "new", OVERWRITE).await.unwrap();
    assert_eq!(space.sh("stat -c %a tool").await, "750\n");
    // Root may write everywhere.
    if space.user.uid != 0 {
        fails!(fs.write("closed/x", "x", CREATE), FsError::Denied(_));
        fails!(fs.mkdir("closed/x", false, false), FsError::Denied(_));
    }
}

#[tokio::test]
async fn files_and_directories_keep_the_contract() {
    with_git_inside(async |running| {
        let space = async |name: &str| Space::new(running, name).await;
        bytes_are_read_as_they_were_written(&space("bytes").await.fs).await;
        a_mode_says_what_may_be_there(&space("modes").await.fs).await;
        parents_are_created_only_on_request(&space("parents").await.fs).await;
        names_are_utf8_within_the_limits(&space("names").await.fs).await;
        dots_are_folded_and_never_climb(&space("dots").await.fs).await;
        a_removal_takes_what_it_says(&space("removal").await.fs).await;
        a_directory_is_made_once(&space("made").await.fs).await;
        let one = space("one").await;
        let same = one.again().only_reading();
        a_read_only_view_changes_nothing(&one.fs, &same).await;
        files_that_are_too_large_are_neither_read_nor_written(&space("large").await).await;
        permissions_are_preserved_and_enforced(&space("permissions").await).await;
    })
    .await;
}

#[tokio::test]
async fn writes_to_read_only_mounts_are_reported_as_such() {
    crate::engines::with_real_engines(async |case| {
        let spec = coracle_runtime::CreateSpec { read_only: true, ..case.spec("read-only") };
        let running = case.run(crate::engines::Way::Socket, spec, &case.image).await;
        let fs = GuestFs::new(running.link().clone(), coracle_types::Ids::ROOT, super::path("/home"));
        fails!(fs.write("x", "x", CREATE), FsError::ReadOnly(_));
        fails!(fs.mkdir("x", false, false), FsError::ReadOnly(_));
        fails!(fs.delete("agent", false), FsError::ReadOnly(_));
    })
    .await;
}
