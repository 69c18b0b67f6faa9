//! Links and other tricks: no file outside must be read or written.

use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::*;

/// Names of links, and targets outside.
const OUTSIDE: &[(&str, &str)] = &[
    ("relative", "../secret"),
    ("absolute-shadow", "/etc/shadow"),
    ("absolute-coracle", "/.coracle/link/sock"),
    ("climbing", "../../../../../../../../etc/passwd"),
    ("climbing-back", "../ws/../secret"),
    ("absolute-climbing", "/ws/../secret"),
    ("absolute-dots", "/./../secret"),
    ("through-a-directory", "d/../../secret"),
    ("through-a-link", "to-d/../../secret"),
    ("by-a-link-above", "up/secret"),
    ("chain", "relative"),
    ("longer-chain", "chain"),
    ("magic-root", "/proc/self/root/etc/shadow"),
    ("magic-fd", "/proc/self/fd/0"),
    ("magic-cwd", "/proc/self/cwd"),
    ("thread", "/proc/thread-self/environ"),
    ("device", "/dev/null"),
    ("like-the-root", "/wsx/secret"),
    ("part-of-the-root", "/w"),
    ("root", "/"),
    ("above", ".."),
    ("own-parent", "/ws/.."),
    ("loop", "loop"),
    ("loop-one", "loop-two"),
    ("loop-two", "loop-one"),
    ("deep-loop", "deep-loop/x"),
];

/// Names of links to `d/f`, and their targets.
const INSIDE: &[(&str, &str)] = &[
    ("i-relative", "d/f"),
    ("i-absolute", "/ws/d/f"),
    ("i-absolute-odd", "//ws/.//d///f"),
    ("i-dots", "./d/../d/./f"),
    ("i-chain", "i-absolute"),
    ("i-directory", "to-d/f"),
    ("i-absolute-chain", "/ws/i-chain"),
    ("i-deep", "d/back/d/f"),
];

fn tricky() -> World {
    let world = World::new();
    world.file("d/f", "inside");
    world.link("to-d", "d");
    world.link("up", "..");
    world.link("d/back", "..");
    world.link("dangling", "none");
    world.link("dangling-deep", "none/at/all");
    world.link("behind-a-file", "d/f/x");
    fs::create_dir(world.dir.path().join("wsx")).unwrap();
    fs::write(world.dir.path().join("wsx/secret"), "a secret").unwrap();
    for (name, to) in OUTSIDE.iter().chain(INSIDE) {
        world.link(name, to);
    }
    mknodat(CWD, world.path("fifo"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    world.link("to-fifo", "fifo");
    UnixListener::bind(world.path("socket")).unwrap();
    for name in [&b"new\nline"[..], b"esc\x1b[2J", b"odd\xff", b" blank "] {
        fs::write(world.path("").join(std::ffi::OsStr::from_bytes(name)), "x").unwrap();
    }
    world
}

fn untouched(world: &World) {
    for path in ["secret", "wsx/secret"] {
        assert_eq!(fs::read_to_string(world.dir.path().join(path)).unwrap(), "a secret", "{path}");
    }
    let above: Vec<_> = fs::read_dir(world.dir.path()).unwrap().map(|it| it.unwrap().file_name()).collect();
    assert_eq!(above.len(), 3, "{above:?}");
}

#[test]
fn w18_links_to_targets_outside_are_refused_and_can_be_removed() {
    let world = tricky();
    for (name, _) in OUTSIDE {
        let below = format!("{name}/new");
        for path in [*name, &below] {
            assert_eq!(code(world.read(path)), WorkspaceErrorCode::Escape, "{path}");
            assert_eq!(code(world.work().bytes(path, 0, 10)), WorkspaceErrorCode::Escape, "{path}");
            assert_eq!(code(world.work().stat(path)), WorkspaceErrorCode::Escape, "{path}");
            assert_eq!(code(world.edit(path, "a", "b")), WorkspaceErrorCode::Escape, "{path}");
            for how in [OpenMode::Create, OpenMode::Overwrite, OpenMode::Append] {
                assert_eq!(code(world.write(path, how, "x")), WorkspaceErrorCode::Escape, "{path}");
            }
            assert_eq!(code(world.work().make_dir(path, true, true)), WorkspaceErrorCode::Escape, "{path}");
        }
        assert_eq!(code(world.remove(&below)), WorkspaceErrorCode::Escape, "{name}");
        for operation in [
            WorkspaceOp::List { path: (*name).into(), most: 10 },
            WorkspaceOp::Glob { path: (*name).into(), pattern: "**".into(), gitignore: true, bounds: ALL },
        ] {
            assert!(
                matches!(world.execute(operation), WorkspaceReply::Not(it) if it.code == WorkspaceErrorCode::Escape),
                "{name}"
            );
        }
    }
    for (name, to) in OUTSIDE {
        let entry = world.list("").into_iter().find(|it| it.path == *name).unwrap();
        assert_eq!((entry.kind, entry.target.as_deref(), entry.size), (EntryKind::Symlink, Some(*to), 0));
    }
    for (name, _) in OUTSIDE {
        assert_eq!(world.remove(name).unwrap(), (1, 0), "{name}");
    }
    untouched(&world);
}

#[test]
fn links_to_targets_inside_are_followed() {
    let world = tricky();
    for (name, _) in INSIDE {
        let entry = world.list("").into_iter().find(|it| it.path == *name).unwrap();
        assert_eq!((entry.kind, entry.target, entry.size), (EntryKind::File, None, 6), "{name}");
        assert_eq!(world.read(name).unwrap().lines, ["inside"], "{name}");
        assert_eq!(code(world.write(name, OpenMode::Create, "x")), WorkspaceErrorCode::Exists);
        let written = world.write(name, OpenMode::Overwrite, "INSIDE").unwrap();
        assert_eq!(written.file.path, *name);
        assert_eq!(world.has("d/f"), "INSIDE", "{name}");
        world.edit(name, "INSIDE", "inside").unwrap();
        assert!(world.path(name).is_symlink() && world.has("d/f") == "inside", "the target must be written");
    }
    // Versions belong to the file, independent of its name.
    let versions: Vec<_> =
        world.list("").into_iter().filter(|it| it.path.starts_with("i-")).map(|it| it.version).collect();
    assert_eq!(versions, vec![1 + 2 * INSIDE.len() as u64; INSIDE.len()]);
    world.write("to-d/new/er", OpenMode::Create, "x").unwrap();
    assert_eq!(world.has("d/new/er"), "x");
    assert_eq!(world.remove("i-chain").unwrap(), (1, 0));
    assert_eq!(world.remove("to-d").unwrap(), (1, 0));
    assert_eq!(world.has("d/f"), "inside");
}

#[test]
fn a_dangling_link_cannot_be_read_but_its_target_can_be_created() {
    let world = tricky();
    for name in ["dangling", "dangling-deep"] {
        assert_eq!(code(world.read(name)), WorkspaceErrorCode::NotFound);
        assert_eq!(code(world.work().stat(name)), WorkspaceErrorCode::NotFound);
        let entry = world.list("").into_iter().find(|it| it.path == name).unwrap();
        assert_eq!(entry.kind, EntryKind::Symlink);
    }
    assert_eq!(code(world.write("dangling", OpenMode::Create, "x")), WorkspaceErrorCode::Exists);
    for how in [OpenMode::Create, OpenMode::Overwrite] {
        assert_eq!(code(world.write("dangling-deep", how, "x")), WorkspaceErrorCode::NotFound);
    }
    assert!(world.write("dangling", OpenMode::Overwrite, "x").unwrap().created);
    assert_eq!(world.has("none"), "x");
    assert_eq!(code(world.read("behind-a-file")), WorkspaceErrorCode::NotDirectory);
    untouched(&world);
}

#[test]
fn w17_odd_entries_cause_no_error_no_blocking_and_no_access_outside() {
    let world = tricky();
    for name in ["fifo", "socket", "to-fifo"] {
        assert_eq!(code(world.read(name)), WorkspaceErrorCode::NotRegular, "{name}");
        assert_eq!(code(world.work().bytes(name, 0, 1)), WorkspaceErrorCode::NotRegular, "{name}");
        assert_eq!(code(world.write(name, OpenMode::Overwrite, "x")), WorkspaceErrorCode::NotRegular, "{name}");
        assert_eq!(code(world.edit(name, "a", "x")), WorkspaceErrorCode::NotRegular, "{name}");
    }
    let all = world.list("");
    let kind = |name: &str| all.iter().find(|it| it.path == name).map(|it| it.kind);
    assert_eq!(
        (kind("fifo"), kind("socket"), kind("to-fifo")),
        (Some(EntryKind::Other), Some(EntryKind::Other), Some(EntryKind::Other))
    );
    let replaced: Vec<_> = all.iter().filter(|it| it.odd).map(|it| it.path.as_str()).collect();
    assert_eq!(replaced, ["odd\u{fffd}"]);
    assert!(kind("new\nline").is_some() && kind(" blank ").is_some());
    let found = world.glob("", "**/*");
    assert!(found.contains(&"d/f".to_owned()) && !found.iter().any(|it| OUTSIDE.iter().any(|out| out.0 == it)));
    for gitignore in [false, true] {
        let operation = WorkspaceOp::Grep {
            path: String::new(),
            pattern: ".".into(),
            glob: None,
            ignore_case: false,
            context: 0,
            gitignore,
            bounds: ALL,
        };
        match world.execute(operation) {
            WorkspaceReply::Grepped { matches, complete: true, .. } => {
                assert_eq!(matches.len(), 5);
                assert!(matches.iter().all(|it| it.text == "x" || it.text == "inside"));
            }
            other => panic!("{other:?}"),
        }
    }
    let changes = world.work().changed(&["relative".into(), "fifo".into()], &[], ALL, "shell").unwrap();
    assert!(changes.complete);
    untouched(&world);
}

#[test]
fn an_ignore_file_that_is_a_link_or_a_pipe_is_not_read() {
    let world = World::new();
    fs::write(world.dir.path().join("secret"), "*").unwrap();
    world.link(".gitignore", "../secret");
    fs::create_dir(world.path("d")).unwrap();
    mknodat(CWD, world.path("d/.gitignore"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    world.file("d/f", "");
    let operation = WorkspaceOp::Glob { path: String::new(), pattern: "**/f".into(), gitignore: true, bounds: ALL };
    assert!(matches!(world.execute(operation), WorkspaceReply::Globbed { entries, .. } if entries.len() == 1));
}

#[test]
fn writing_a_hard_link_does_not_change_its_other_names() {
    let world = World::new();
    fs::hard_link(world.dir.path().join("secret"), world.path("hard")).unwrap();
    world.read("hard").unwrap();
    world.write("hard", OpenMode::Overwrite, "mine").unwrap();
    assert_eq!(fs::read_to_string(world.dir.path().join("secret")).unwrap(), "a secret");
    world.read("hard").unwrap();
    world.write("hard", OpenMode::Append, "x").unwrap();
    world.edit("hard", "minex", "other").unwrap();
    world.remove("hard").unwrap();
    assert_eq!(fs::read_to_string(world.dir.path().join("secret")).unwrap(), "a secret");
}

#[test]
fn at_most_as_many_links_as_in_the_kernel_are_followed() {
    let world = World::new();
    world.file("l0", "end");
    for it in 1..=41 {
        world.link(&format!("l{it}"), format!("l{}", it - 1));
    }
    assert_eq!(world.read("l40").unwrap().lines, ["end"]);
    assert_eq!(code(world.read("l41")), WorkspaceErrorCode::Escape);
}

#[test]
fn invalid_paths_and_roots_are_refused() {
    let world = World::new();
    for path in ["..", "a/../b", ".", "/secret", "a//b", "a/", "a\0b"] {
        assert_eq!(code(world.read(path)), WorkspaceErrorCode::Escape, "{path:?}");
        assert_eq!(code(world.write(path, OpenMode::Create, "x")), WorkspaceErrorCode::Escape, "{path:?}");
        assert_eq!(code(world.remove(path)), WorkspaceErrorCode::Escape, "{path:?}");
    }
    for root in ["", "ws", "/proc", "/sys/kernel", "/.coracle", "/ws/..", "/ws/../proc"] {
        assert!(Root::open(world.dir.path(), root).is_err(), "{root}");
    }
    for root in ["/none", "/secret"] {
        assert!(Root::open(world.dir.path(), root).unwrap().is_err(), "{root}");
    }
    // If the workspace is the whole file system, procfs, sysfs and the guest's files are still refused.
    let root = Root::open(Path::new("/"), "/").unwrap().unwrap();
    for path in
        ["proc/self/environ", "proc/1/root/etc/passwd", "proc/self/root/etc/passwd", "sys/kernel", ".coracle/link"]
    {
        assert!(root.open_path(path).is_err(), "{path}");
        assert!(root.resolve(path, crate::files::FinalLink::Itself, false).is_err(), "{path}");
    }
}

#[test]
fn w29_a_tree_is_removed_but_not_the_targets_of_its_links() {
    let world = tricky();
    for it in 0..10 {
        world.file(&format!("t/{it}/f"), "x");
    }
    world.link("t/out", "../../wsx");
    world.link("t/in", "../d");
    assert_eq!(world.remove("t").unwrap(), (12, 11));
    assert_eq!(world.has("d/f"), "inside");
    assert_eq!(code(world.remove("t")), WorkspaceErrorCode::NotFound);
    assert_eq!(code(world.remove("")), WorkspaceErrorCode::Denied);
    assert_eq!(world.remove("fifo").unwrap(), (1, 0));
    world.file("late/f", "x");
    let none = world.work().remove("late", 0, "rm").unwrap();
    assert!(matches!(none, WorkspaceReply::Removed { complete: false, .. }), "{none:?}");
    untouched(&world);
}

#[test]
fn w19_continuously_swapped_names_give_no_access_outside() {
    const SWAPS: u64 = 10_000;
    let world = World::new();
    let outside = world.dir.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("f"), "a secret").unwrap();
    world.file("d/f", "inside");
    world.file("real/f", "inside");
    world.link("evil", "../outside");
    let (swaps, done) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let swapping = scope.spawn(|| {
            let exchange = rustix::fs::RenameFlags::EXCHANGE;
            while swaps.load(Ordering::Relaxed) < SWAPS || done.load(Ordering::Relaxed) < 300 {
                rustix::fs::renameat_with(CWD, world.path("d"), CWD, world.path("evil"), exchange).unwrap();
                swaps.fetch_add(1, Ordering::Relaxed);
            }
        });
        let (mut read, mut refused) = (0, 0);
        while !swapping.is_finished() {
            let mut check = |text: OperationResult<TextRange>| match text {
                Ok(text) => {
                    assert!(text.lines.iter().all(|it| it == "inside"), "{text:?}");
                    read += 1;
                }
                Err(error) => {
                    let known = [WorkspaceErrorCode::Escape, WorkspaceErrorCode::NotFound];
                    assert!(known.contains(&error.0.code), "{error:?}");
                    refused += 1;
                }
            };
            check(world.read("d/f"));
            check(world.read("evil/f"));
            let write =
                write::Write { path: "d/f", how: OpenMode::Overwrite, executable: None, seen: false, tool: "t" };
            let _ = world.work().write(&write, b"inside\n");
            let new = write::Write { path: "d/new/er", how: OpenMode::Overwrite, ..write };
            let _ = world.work().write(&new, b"inside\n");
            let _ = world.remove("d/new");
            for found in world.glob("", "**/f") {
                assert!(["d/f", "evil/f", "real/f"].contains(&found.as_str()), "{found}");
            }
            done.fetch_add(1, Ordering::Relaxed);
        }
        assert!(read > 0 && refused > 0, "{read} {refused}");
    });
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
    assert_eq!(fs::read_to_string(outside.join("f")).unwrap(), "a secret");
}

#[test]
fn a_workspace_that_is_a_link_to_a_hidden_directory_is_refused() {
    let world = World::new();
    fs::create_dir(world.dir.path().join(".coracle")).unwrap();
    symlink(".coracle", world.dir.path().join("alias")).unwrap();
    assert_eq!(code(Root::open(world.dir.path(), "/alias").unwrap()), WorkspaceErrorCode::Escape);
}
