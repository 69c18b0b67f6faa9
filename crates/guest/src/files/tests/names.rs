//! Creates, lists, renames and removes directories and links.

use super::*;

#[test]
fn missing_parents_are_created_only_beneath_the_root() {
    let w = world();
    for (path, expected) in [
        ("/a/b/c/f", Ok("a/b/c/f")),
        ("/to-d/e/f", Ok("d/e/f")),
        ("/g/../h/f", Ok("h/f")),
        ("/../../i/f", Ok("i/f")),
        ("/f/x/y", Err(ErrorCode::WrongKind)),
        ("/out/x/y", Err(ErrorCode::NotFound)),
        ("/.coracle/x/y", Err(ErrorCode::Denied)),
        ("/to-run/x/y", Err(ErrorCode::Denied)),
    ] {
        let put = w.files.put(&w.ids, &at(path), options(None, true, false)).and_then(AtomicWriter::commit);
        assert_eq!(put.map_err(|it| it.code).map(|_| ()), expected.map(|_| ()), "{path}");
        assert!(expected.is_err() || w.path(expected.unwrap()).is_file(), "{path}");
    }
    assert!(w.path("g").is_dir());
    assert_eq!(fs::read_dir(w.dir.path().join("outside")).unwrap().count(), 1);
    assert!(!w.path(".coracle/x").exists() && !w.path(".coracle/run/x").exists());
}

#[test]
fn a_directory_is_created_with_the_requested_mode() {
    let w = world();
    let make = |path: &str, parents| w.files.make_dir(&w.ids, &at(path), 0o2771, parents).map_err(|it| it.code);
    let created = make("/n/m/", true).unwrap();
    assert_eq!((created.name.as_str(), created.kind, created.mode & 0o777), ("m", FileKind::Dir, 0o771));
    assert_eq!(make("/d", true).unwrap().kind, FileKind::Dir);
    assert_eq!(make("/to-d", true).unwrap().kind, FileKind::Dir);
    for (path, parents, expected) in [
        ("/d", false, ErrorCode::Exists),
        ("/f", true, ErrorCode::WrongKind),
        ("/q/r", false, ErrorCode::NotFound),
        ("/f/x", true, ErrorCode::WrongKind),
        ("/dangling", true, ErrorCode::Exists),
        ("/.coracle/x", true, ErrorCode::Denied),
        ("/proc", true, ErrorCode::Denied),
    ] {
        assert_eq!(make(path, parents).unwrap_err(), expected, "{path}");
    }
}

#[test]
fn entries_are_listed_in_order_up_to_the_limit() {
    let w = world();
    fs::write(w.path("d").join(std::ffi::OsStr::from_bytes(b"\xff")), "").unwrap();
    let list = |path: &str, limit| {
        let (entries, more) = w.files.list(&w.ids, &at(path), limit).map_err(|it| it.code)?;
        Ok::<_, ErrorCode>((entries.into_iter().map(|it| it.name).collect::<Vec<_>>(), more))
    };
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    assert_eq!(list("/to-d", 10), Ok((names(&["sub", "up", "\u{fffd}"]), false)));
    assert_eq!(list("/d", 1), Ok((names(&["sub"]), true)));
    assert_eq!(list("/d", 0), Ok((vec![], true)));
    assert_eq!(list("/f", 10), Err(ErrorCode::WrongKind));
    assert_eq!(list("/to-run", 10), Err(ErrorCode::Denied));
    let (entries, _) = w.files.list(&w.ids, &at("/d"), 10).unwrap();
    assert_eq!(entries[1].link.as_deref(), Some("../f"));
}

#[test]
fn remove_deletes_an_entry_and_its_tree_without_following_links() {
    use ErrorCode::{Denied, Exists, NotFound, WrongKind};
    for (path, recursive, expected) in [
        ("/f", false, Ok(())),
        ("/pipe", false, Ok(())),
        ("/d", true, Ok(())),
        ("/d/", true, Ok(())),
        ("/to-f", true, Ok(())),
        ("/out", true, Ok(())),
        ("/to-run", true, Ok(())),
        ("/d", false, Err(Exists)),
        ("/gone", true, Err(NotFound)),
        ("/f/below", true, Err(NotFound)),
        ("/", true, Err(WrongKind)),
        ("/d/sub/..", true, Err(WrongKind)),
        ("/proc", true, Err(Denied)),
        ("/.coracle", true, Err(Denied)),
        ("/to-run/key", true, Err(Denied)),
    ] {
        let w = world();
        symlink("/f", w.path("d/sub/link")).unwrap();
        symlink(w.dir.path().join("outside"), w.path("d/sub/out")).unwrap();
        let done = w.files.remove(&w.ids, &at(path), recursive).map_err(|it| it.code);
        assert_eq!(done, expected, "{path}");
        assert!(fs::symlink_metadata(w.path(path)).is_err() || done.is_err(), "{path}");
        assert!(w.path("f").exists() || path == "/f", "{path}");
        assert!(w.dir.path().join("outside/f").exists() && w.path(".coracle/run/key").exists(), "{path}");
    }
}

#[test]
fn a_link_may_have_any_target() {
    let w = world();
    let long = "x".repeat(4095);
    for target in ["f", "/.coracle/run/ssh", "/proc/1", "../../outside", "not yet", "\u{e9}\n", &long] {
        let created = w.files.make_link(&w.ids, &at("/d/link"), target, true).unwrap();
        assert_eq!((created.kind, &*created.name, created.link.as_deref()), (FileKind::Link, "link", Some(target)));
        assert_eq!(fs::read_link(w.path("d/link")).unwrap().to_str().unwrap(), target);
    }
    for target in ["", "a\0b", &format!("{long}x")] {
        let refused = w.files.make_link(&w.ids, &at("/d/link"), target, true);
        assert_eq!(refused.unwrap_err().code, ErrorCode::Invalid);
    }
    assert_eq!(w.temporaries(), 0);
}

#[test]
fn a_link_replaces_only_a_file_or_a_link() {
    use ErrorCode::{Denied, Exists, Invalid, NotFound, WrongKind};
    let w = world();
    for (path, replace, expected) in [
        ("/f", false, Err(Exists)),
        ("/to-f", false, Err(Exists)),
        ("/f", true, Ok(())),
        ("/to-d", true, Ok(())),
        ("/new", true, Ok(())),
        ("/new2", false, Ok(())),
        ("/d", true, Err(WrongKind)),
        ("/d", false, Err(WrongKind)),
        ("/pipe", true, Err(WrongKind)),
        ("/d/sub/", true, Err(WrongKind)),
        ("/", true, Err(WrongKind)),
        ("/gone/new", true, Err(NotFound)),
        ("/.coracle", true, Err(Denied)),
        ("/.coracle/run/key", true, Err(Denied)),
        ("/to-run/new", true, Err(Denied)),
        ("/proc/new", true, Err(Denied)),
        ("new", true, Err(Invalid)),
    ] {
        let created = w.files.make_link(&w.ids, &at(path), "target", replace).map(drop);
        assert_eq!(created.map_err(|it| it.code), expected, "{path}");
    }
    assert_eq!(
        fs::read_to_string(w.path("d/sub/deep")).unwrap(),
        "root/d/sub/deep",
        "the target of a replaced link remains"
    );
    assert_eq!(w.temporaries(), 0);
}

#[test]
fn rename_requires_a_free_name() {
    use ErrorCode::{Denied, Exists, Invalid, NotFound};
    let w = world();
    for (path, name, expected) in [
        ("/f", "d", Err(Exists)),
        ("/f", "to-f", Err(Exists)),
        ("/d", "f", Err(Exists)),
        ("/f", "f", Err(Exists)),
        ("/gone", "new", Err(NotFound)),
        ("/f", "", Err(Invalid)),
        ("/f", "..", Err(Invalid)),
        ("/f", "d/new", Err(Invalid)),
        ("/f", "a\0b", Err(Invalid)),
        ("/f", ".coracle", Err(Denied)),
        ("/.coracle", "new", Err(Denied)),
        ("/.coracle/run/key", "new", Err(Denied)),
        ("/proc/f", "new", Err(Denied)),
        ("/to-run/key", "new", Err(Denied)),
        ("/f", "f2", Ok(FileKind::File)),
        ("/to-d", "to-d2", Ok(FileKind::Link)),
        ("/d/", "d2", Ok(FileKind::Dir)),
        ("/d2/sub/deep", "deeper", Ok(FileKind::File)),
    ] {
        let renamed = w.files.rename(&w.ids, &at(path), name);
        assert_eq!(renamed.as_ref().map(|it| it.kind).map_err(|it| it.code), expected, "{path} {name}");
        if let Ok(renamed) = renamed {
            assert_eq!(renamed.name, name);
        }
    }
    let message = w.files.rename(&w.ids, &at("/d2/sub"), "up").unwrap_err().message;
    assert_eq!(message, "`/d2/up` already exists");
    assert_eq!(fs::read_to_string(w.path("d2/sub/deeper")).unwrap(), "root/d/sub/deep");
}

#[test]
fn an_exact_mode_also_applies_to_an_existing_file() {
    let w = world();
    for (mode, exact, expected) in
        [(Some(0o600), true, 0o600), (Some(0o755), false, 0o600), (Some(0o6755), true, 0o755), (None, true, 0o755)]
    {
        let writing = w.files.put(&w.ids, &at("/f"), WriteOptions { exact, ..options(mode, false, true) }).unwrap();
        writing.commit().unwrap();
        assert_eq!(fs::metadata(w.path("f")).unwrap().mode() & 0o7777, expected);
    }
}
