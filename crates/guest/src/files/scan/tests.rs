use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::SystemTime;

use rustix::fs::{CWD, Mode, mkdirat, mknodat, open, openat};
use tempfile::TempDir;

use super::super::{Files, walk};
use super::*;
use crate::protocol::{ErrorCode, ScanRequest, SecretQuery};

const FOREVER: Duration = Duration::from_secs(600);

fn walk(root: &str) -> ScanRequest {
    ScanRequest {
        root: root.into(),
        since_ms: None,
        prune: Vec::new(),
        depth: None,
        names: None,
        holding: None,
        max_entries: 1000,
        within_ms: 60_000,
    }
}

/// A root with files, and a directory outside to which its links point.
fn world() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for it in ["root/a/b/.git", "root/a/node_modules/x", "root/proc/1", "root/.coracle/run", "root/d/proc", "outside"] {
        fs::create_dir_all(dir.path().join(it)).unwrap();
    }
    let files = ["root/f", "root/a/b/deep", "root/a/b/.git/config", "root/a/node_modules/x/index"];
    let hidden = ["root/proc/1/environ", "root/.coracle/run/key", "root/d/proc/mine", "outside/secret"];
    for it in files.into_iter().chain(hidden) {
        fs::write(dir.path().join(it), it).unwrap();
    }
    symlink(dir.path().join("outside"), dir.path().join("root/a/out")).unwrap();
    symlink("../b", dir.path().join("root/a/b/up")).unwrap();
    mknodat(CWD, dir.path().join("root/pipe"), FileType::Fifo, Mode::RWXU, 0).unwrap();
    dir
}

fn scan_in(dir: &Path, walk: &ScanRequest, matcher: Option<SecretMatcher>) -> (Vec<ScanEntry>, bool) {
    let mut scan = Files::open(dir).unwrap().scan(walk, matcher).unwrap();
    assert!(scan.run(FOREVER));
    scan.end()
}

fn paths(dir: &TempDir, walk: &ScanRequest) -> Vec<String> {
    let (all, more) = scan_in(&dir.path().join("root"), walk, None);
    assert!(!more);
    let mut paths: Vec<_> = all.into_iter().map(|it| it.path).collect();
    paths.sort();
    paths
}

#[test]
fn files_and_links_are_reported_and_hidden_directories_are_not_entered() {
    let dir = world();
    let all = ["/a/b/.git/config", "/a/b/deep", "/a/b/up", "/a/node_modules/x/index", "/a/out", "/d/proc/mine", "/f"];
    assert_eq!(paths(&dir, &walk("/")), all);
    assert_eq!(paths(&dir, &walk("/a/b/")), ["/a/b/.git/config", "/a/b/deep", "/a/b/up"]);
    let pruned = ScanRequest { prune: vec!["node_modules".into(), ".git".into()], ..walk("/a") };
    assert_eq!(paths(&dir, &pruned), ["/a/b/deep", "/a/b/up", "/a/out"]);
    let skipped = |it: &str| ScanRequest { prune: vec![it.into()], ..walk("/a") };
    assert_eq!(paths(&dir, &skipped("/b")), ["/a/node_modules/x/index", "/a/out"]);
    assert_eq!(paths(&dir, &skipped("/x")).len(), 5, "an absolute pattern matches only the directory of that path");
    assert_eq!(paths(&dir, &ScanRequest { depth: Some(1), ..walk("/") }), ["/f"]);
    let named = |depth| ScanRequest { depth: Some(depth), names: Some(vec![".git".into(), "f".into()]), ..walk("/") };
    assert_eq!(paths(&dir, &named(2)), ["/f"]);
    assert_eq!(paths(&dir, &named(3)), ["/a/b/.git", "/f"]);
    let named = ScanRequest { prune: vec![".git".into()], ..named(9) };
    assert_eq!(paths(&dir, &named), ["/a/b/.git", "/f"]);
}

#[test]
fn a_scan_does_not_start_at_a_link_or_in_a_hidden_directory() {
    let dir = world();
    let files = Files::open(&dir.path().join("root")).unwrap();
    for (root, code) in [
        ("/a/out", ErrorCode::WrongKind),
        ("/f", ErrorCode::WrongKind),
        ("/a/b/up", ErrorCode::WrongKind),
        ("/proc/1", ErrorCode::Denied),
        ("/.coracle", ErrorCode::Denied),
        ("/a/../.coracle/run", ErrorCode::Denied),
        ("/gone", ErrorCode::NotFound),
        ("a", ErrorCode::Invalid),
    ] {
        let refused = files.scan(&walk(root), None).err().map(|it| it.code);
        assert_eq!(refused, Some(code), "{root}");
    }
}

#[test]
fn mounts_are_not_entered() {
    // The machine's own root: `/proc` and `/dev` are mounts on every machine that runs tests.
    let devices =
        ScanRequest { depth: Some(2), names: Some(vec!["null".into(), "shm".into(), "hostname".into()]), ..walk("/") };
    let (all, _) = scan_in(Path::new("/"), &devices, None);
    assert!(all.iter().all(|it| !it.path.starts_with("/dev/")), "{all:?}");
    let (in_dev, _) =
        scan_in(Path::new("/"), &ScanRequest { names: Some(vec!["fd".into()]), depth: Some(1), ..walk("/dev") }, None);
    assert_eq!(in_dev.len(), 1, "a scan can start at a mount");
}

#[test]
fn files_changed_since_a_time_are_reported_even_with_an_old_modification_time() {
    let dir = world();
    let past = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    fs::File::options().write(true).open(dir.path().join("root/f")).unwrap().set_modified(past).unwrap();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis() as i64;
    let since = |ms| ScanRequest { since_ms: Some(ms), depth: Some(1), ..walk("/") };
    assert_eq!(paths(&dir, &since(now - 60_000)), ["/f"]);
    assert_eq!(paths(&dir, &since(now + 60_000)), Vec::<String>::new());
    let (all, _) = scan_in(&dir.path().join("root"), &since(0), None);
    assert_eq!((all[0].changed_ns, all[0].size, all[0].kind), (1_000_000_000_000_000_000, 6, FileKind::File));
}

#[test]
fn files_that_contain_a_value_are_found_and_large_ones_are_not_searched() {
    let dir = world();
    let root = dir.path().join("root");
    fs::write(root.join("a/key"), "x\nhunter2hunter2\n").unwrap();
    fs::write(root.join("large"), [&[b'x'; 5000][..], b"hunter2hunter2"].concat()).unwrap();
    fs::write(root.join("a/b/encoded"), "aHVudGVyMmh1bnRlcjI=").unwrap();
    let search = |max_file| {
        let matcher = SecretMatcher::new([&b"hunter2hunter2"[..], b"outside/secret", b"root/.coracle"].into_iter());
        let walk = ScanRequest {
            holding: Some(SecretQuery { values: Vec::new(), session: Vec::new(), max_file }),
            ..walk("/")
        };
        let (all, more) = scan_in(&root, &walk, matcher);
        let mut all: Vec<_> = all.into_iter().map(|it| it.path).collect();
        all.sort();
        (all, more)
    };
    assert_eq!(search(4096), (vec!["/a/b/encoded".to_owned(), "/a/key".into()], false));
    assert_eq!(search(8192), (vec!["/a/b/encoded".to_owned(), "/a/key".into(), "/large".into()], false));
}

#[test]
fn a_name_that_is_not_utf8_is_reported_with_replacement_characters() {
    let dir = tempfile::tempdir().unwrap();
    let unusual = dir.path().join(OsStr::from_bytes(b"a\xffdir"));
    fs::create_dir(&unusual).unwrap();
    fs::write(unusual.join("f\n\"\x01"), "").unwrap();
    let (all, more) = scan_in(dir.path(), &walk("/"), None);
    assert_eq!((all.len(), more), (1, false));
    assert_eq!((all[0].path.as_str(), all[0].odd), ("/a\u{fffd}dir/f\n\"\x01", true));
}

#[test]
fn a_scan_reports_that_it_skipped_directories_below_its_depth() {
    let dir = tempfile::tempdir().unwrap();
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut deepest = open(dir.path(), flags, Mode::empty()).unwrap();
    for _ in 0..3000 {
        mkdirat(&deepest, "deep", Mode::RWXU).unwrap();
        deepest = openat(&deepest, "deep", flags, Mode::empty()).unwrap();
    }
    fs::write(dir.path().join("deep/f"), "").unwrap();
    let mut scan = Files::open(dir.path()).unwrap().scan(&walk("/"), None).unwrap();
    while !scan.run(Duration::ZERO) {
        assert!(scan.walk.levels.len() <= walk::MAX_DEPTH);
        scan.run(Duration::from_micros(50));
    }
    let (all, more) = scan.end();
    assert_eq!((all.len(), all[0].path.as_str(), more), (1, "/deep/f", true));
    // `TempDir` cannot remove a tree that is so deep.
    let above = open(dir.path(), flags, Mode::empty()).unwrap();
    super::super::remove::remove(&above, b"deep", true).unwrap();
}

#[test]
fn a_reached_limit_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    (0..50).for_each(|it| fs::write(dir.path().join(format!("{it}")), "").unwrap());
    let (all, more) = scan_in(dir.path(), &ScanRequest { max_entries: 20, ..walk("/") }, None);
    assert_eq!((all.len(), more), (20, true));
    let (all, more) = scan_in(dir.path(), &ScanRequest { max_entries: 51, ..walk("/") }, None);
    assert_eq!((all.len(), more), (50, false));
    let (all, more) = scan_in(dir.path(), &ScanRequest { within_ms: 0, ..walk("/") }, None);
    assert_eq!((all.len(), more), (0, true));
    let mut output = ScanOutput::default();
    let long = ScanEntry { path: "x".repeat(1 << 20), ..all_of(dir.path()).remove(0) };
    (0..20).for_each(|_| output.add(long.clone()));
    assert!(
        output.more && output.entries.len() == 7 && output.bytes < MAX_SCAN_REPLY,
        "{} {}",
        output.entries.len(),
        output.bytes
    );
}

fn all_of(dir: &Path) -> Vec<ScanEntry> {
    scan_in(dir, &walk("/"), None).0
}
