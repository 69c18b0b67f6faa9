//! Directories of this machine, with everything that may lie in one.

use std::os::unix::fs::symlink;
use std::path::PathBuf;

use coracle_host::fs::HostPath;
use coracle_runtime::{Baseline, Policy, SkippedCounts};

use super::plan::{Trees, plan};
use super::read::read_all;
use super::{Filter, HostMount, ImportError};

/// An allowed directory with a directory `p`, and something beside it.
struct World(tempfile::TempDir);

impl World {
    fn new() -> Self {
        let world = Self(tempfile::tempdir().unwrap());
        world.file("root/p/a", "a");
        world.file("secret", "secret");
        world
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.path().canonicalize().unwrap().join(path)
    }

    fn file(&self, path: &str, content: &str) {
        let path = self.path(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    fn mount(&self) -> HostMount {
        let roots = vec![self.path("root")];
        HostMount {
            name: "p".into(),
            root: HostPath::open(&self.path("root")).unwrap(),
            host: HostPath::open(&self.path("root/p")).unwrap(),
            at: String::new(),
            filter: Filter::default(),
            max_bytes: 1 << 30,
            max_entries: 1000,
            follow: true,
            policy: Policy { allow_roots: roots, denied: vec![self.path("root/denied")], ..Policy::everything() },
        }
    }
}

fn read(mounts: &[HostMount]) -> Result<Baseline, ImportError> {
    read_all(mounts, &mut |_| true)
}

fn names(baseline: &Baseline) -> Vec<&str> {
    baseline.files.keys().map(String::as_str).collect()
}

#[test]
fn a_directory_that_is_swapped_for_a_link_is_not_gone_through() {
    let world = World::new();
    world.file("root/p/d/secret", "mine");
    let mount = world.mount();
    let trees = Trees::open(&mount).unwrap();
    let planned = plan(&mount, &trees).unwrap().files;
    let from = &planned.iter().find(|it| it.at == "d/secret").unwrap().from;
    assert!(trees.dir(from).is_ok());
    std::fs::rename(world.path("root/p/d"), world.path("root/p/was")).unwrap();
    symlink(world.path(""), world.path("root/p/d")).unwrap();
    assert!(trees.dir(from).is_err(), "the link leads to another file of that name");
}

#[test]
fn the_directory_itself_is_held() {
    let world = World::new();
    let mount = world.mount();
    std::fs::rename(world.path("root/p"), world.path("root/was")).unwrap();
    symlink(world.path(""), world.path("root/p")).unwrap();
    assert_eq!(names(&read(&[mount]).unwrap()), ["a"]);
}

#[test]
fn links_lead_to_nothing_that_is_denied() {
    let world = World::new();
    world.file("root/denied/key", "key");
    for (target, rule) in [
        ("../denied/key", "mount.denied"),
        ("../denied", "mount.denied"),
        ("../../secret", "mount.root"),
        ("via/key", "mount.denied"),
    ] {
        let _ = std::fs::remove_file(world.path("root/p/link"));
        let _ = std::fs::remove_file(world.path("root/p/via"));
        if target.starts_with("via") {
            symlink("../denied", world.path("root/p/via")).unwrap();
        }
        symlink(target, world.path("root/p/link")).unwrap();
        match read(&[world.mount()]) {
            Err(ImportError::Refused { problem, .. }) => assert_eq!(problem.rule, rule, "{target}"),
            other => panic!("{target}: {other:?}"),
        }
        // What is left out is not followed.
        let filter = Filter::new(&["a".into()], &[]).unwrap();
        assert_eq!(names(&read(&[HostMount { filter, ..world.mount() }]).unwrap()), ["a"]);
        let skipped = read(&[HostMount { follow: false, ..world.mount() }]).unwrap();
        assert!(skipped.mounts[0].left_out.links > 0);
    }
}

#[test]
fn circles_end_and_are_counted() {
    let world = World::new();
    for (target, at) in [(".", "here"), ("..", "up"), ("d/back", "into"), ("self", "self"), ("no", "dangling")] {
        symlink(target, world.path("root/p").join(at)).unwrap();
    }
    world.file("root/p/d/f", "f");
    symlink("..", world.path("root/p/d/back")).unwrap();
    let mount = world.mount();
    let policy = Policy { denied: Vec::new(), ..mount.policy.clone() };
    let baseline = read(&[HostMount { policy, ..mount }]).unwrap();
    assert_eq!(names(&baseline), ["a", "d/f"]);
    assert!(baseline.mounts[0].left_out.links >= 6, "{:?}", baseline.mounts[0].left_out);
}

#[test]
fn a_tree_of_links_ends_at_its_bounds() {
    let world = World::new();
    // Each directory leads to the next one twice: two to the thirtieth ways.
    for level in 0..30 {
        let dir = world.path(&format!("root/l{level}"));
        std::fs::create_dir(&dir).unwrap();
        for name in ["x", "y"] {
            symlink(format!("../l{}", level + 1), dir.join(name)).unwrap();
        }
    }
    world.file("root/l30/f", "f");
    symlink("../l0", world.path("root/p/l")).unwrap();
    assert!(matches!(read(&[world.mount()]), Err(ImportError::TooLarge { of: "files", .. })));
}

#[test]
fn budgets_and_clashes_are_reported_before_anything_is_read() {
    let world = World::new();
    world.file("root/p/b", "12345");
    let small = HostMount { max_bytes: 5, ..world.mount() };
    let mut sent = 0;
    let refused = read_all(&[world.mount(), small], &mut |_| {
        sent += 1;
        true
    });
    assert!(matches!(refused, Err(ImportError::TooLarge { of: "bytes", limit: 5, .. })) && sent == 0);
    let twice = read(&[world.mount(), world.mount()]);
    assert!(matches!(twice, Err(ImportError::Twice(path)) if path == "a"));
    let beside = HostMount { at: "x/y".into(), ..world.mount() };
    assert_eq!(names(&read(&[world.mount(), beside]).unwrap()), ["a", "b", "x/y/a", "x/y/b"]);
}

#[test]
fn a_file_longer_than_a_piece_is_whole() {
    let world = World::new();
    let long = "0123456789abcdef".repeat((9 << 20) / 16);
    world.file("root/p/long", &long);
    world.file("root/p/after", "x");
    let mut sent = Vec::new();
    let baseline = read_all(&[world.mount()], &mut |it| {
        sent.push(it.iter().map(|it| it.content.len()).sum::<usize>());
        true
    });
    let baseline = baseline.unwrap();
    assert_eq!(baseline.files["long"].size, 9 << 20);
    assert!(sent.len() >= 3 && sent.iter().all(|it| *it < 5 << 20), "{sent:?}");
    assert_eq!(baseline.mounts[0].left_out, SkippedCounts::default());
}
