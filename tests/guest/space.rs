//! The files of a workspace, by the link: as the session's user, and never outside of it.

use coracle_protocol::workspace::{
    EntryKind, OpenMode, SearchLimits, TextRange, WorkspaceErrorCode, WorkspaceOp, WorkspaceReply, WriteReport,
};
use coracle_types::{ContainerPath, Ids};
use tokio::time::{Duration, Instant};

use super::{AGENT, argv, at, perl, sh, with_perl};
use crate::engines::{Running, WITHOUT_WAITING, with_a_guest, with_a_real_guest, with_real_engines};

const ALL: SearchLimits = SearchLimits { most: 1000, entries: 200_000, within_ms: 10_000 };

/// A workspace of a user.
struct Space<'a> {
    running: &'a Running<'a>,
    user: Ids,
}

impl Space<'_> {
    async fn act(&self, act: WorkspaceOp) -> WorkspaceReply {
        let root = ContainerPath::parse("/workspace").unwrap();
        self.running.link().space(self.user, &root, act).await.unwrap()
    }

    async fn write(&self, path: &str, how: OpenMode, content: &[u8]) -> Result<WriteReport, WorkspaceErrorCode> {
        let (path, content, tool) = (path.into(), content.into(), "write_file".into());
        let act = WorkspaceOp::Write { path, content, how, executable: None, seen: true, tool };
        match self.act(act).await {
            WorkspaceReply::Written(it) => Ok(it),
            WorkspaceReply::Not(it) => Err(it.code),
            other => panic!("{other:?}"),
        }
    }

    async fn edit(&self, path: &str, old: &str, new: &str) -> Result<WriteReport, WorkspaceErrorCode> {
        let (path, old, new, tool) = (path.into(), old.into(), new.into(), "edit_file".into());
        let act = WorkspaceOp::Edit { path, old, new, all: false, seen: true, tool };
        match self.act(act).await {
            WorkspaceReply::Written(it) => Ok(it),
            WorkspaceReply::Not(it) => Err(it.code),
            other => panic!("{other:?}"),
        }
    }

    async fn read(&self, path: &str) -> Result<TextRange, WorkspaceErrorCode> {
        match self.act(WorkspaceOp::Lines { path: path.into(), offset: 0, limit: 2000, most: 256 << 10 }).await {
            WorkspaceReply::Text(it) => Ok(it),
            WorkspaceReply::Not(it) => Err(it.code),
            other => panic!("{other:?}"),
        }
    }

    async fn remove(&self, path: &str) -> Result<u64, WorkspaceErrorCode> {
        match self.act(WorkspaceOp::Remove { path: path.into(), within_ms: 10_000, tool: "rm".into() }).await {
            WorkspaceReply::Removed { files, complete: true, .. } => Ok(files),
            WorkspaceReply::Not(it) => Err(it.code),
            other => panic!("{other:?}"),
        }
    }

    async fn glob(&self, pattern: &str) -> Vec<String> {
        let act = WorkspaceOp::Glob { path: String::new(), pattern: pattern.into(), gitignore: false, bounds: ALL };
        match self.act(act).await {
            WorkspaceReply::Globbed { entries, complete: true, .. } => entries.into_iter().map(|it| it.path).collect(),
            other => panic!("{other:?}"),
        }
    }

    async fn grep(&self, pattern: &str) -> Vec<String> {
        let act = WorkspaceOp::Grep {
            path: String::new(),
            pattern: pattern.into(),
            glob: None,
            ignore_case: false,
            context: 0,
            gitignore: false,
            bounds: ALL,
        };
        match self.act(act).await {
            WorkspaceReply::Grepped { matches, complete: true, .. } => {
                matches.into_iter().map(|it| format!("{}:{}:{}", it.path, it.line, it.text)).collect()
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Creates it as the agent, if there is one.
async fn workspace<'a>(running: &'a Running<'a>) -> Space<'a> {
    running.link().make_dir(at(Ids::ROOT, "/workspace"), 0o755, true).await.unwrap();
    if !running.case.is_real() {
        return Space { running, user: Ids::ROOT };
    }
    running.printed(sh("busybox chown 1000:1000 /workspace")).await;
    Space { running, user: AGENT }
}

#[tokio::test]
async fn files_of_a_workspace_are_written_read_found_and_removed() {
    with_a_guest(async |running| {
        let space = workspace(running).await;
        let large: Vec<u8> = b"a line of text\n".iter().copied().cycle().take(3 << 20).collect();
        let made = space.write("src/deep/a.py", OpenMode::Create, &large).await.unwrap();
        assert!(made.created && made.more && made.file.size == 3 << 20);
        assert_eq!(space.write("src/deep/a.py", OpenMode::Create, b"").await, Err(WorkspaceErrorCode::Exists));
        let text = space.read("src/deep/a.py").await.unwrap();
        assert_eq!((text.lines.len(), text.size), (2000, 3 << 20));
        space.write("b.txt", OpenMode::Create, b"one\ntwo\n").await.unwrap();
        let edited = space.edit("b.txt", "two", "three").await.unwrap();
        assert_eq!((edited.file.version, edited.replaced, edited.begin.as_str()), (2, 1, "one\nthree\n"));
        assert_eq!(space.glob("**/*.py").await, ["src/deep/a.py"]);
        assert_eq!(space.grep("^th").await, ["b.txt:2:three"]);
        if running.case.is_real() {
            assert_eq!(running.printed(argv(&["stat", "-c", "%u:%g %a", "/workspace/b.txt"])).await, "1000:1000 644\n");
        }
        assert_eq!(space.remove("src").await, Ok(1));
        assert_eq!(space.glob("**").await, ["b.txt"]);
        assert_eq!(space.read("src/deep/a.py").await, Err(WorkspaceErrorCode::NotFound));
    })
    .await;
}

#[tokio::test]
async fn the_kernel_decides_who_may() {
    with_a_real_guest(async |running| {
        let space = workspace(running).await;
        running
            .printed(sh(
                "cd /workspace; umask 077; echo mine > mine; mkdir theirs; echo x > theirs/x; umask 022; echo r > readable",
            ))
            .await;
        assert_eq!(space.read("mine").await, Err(WorkspaceErrorCode::Denied));
        assert_eq!(space.read("theirs/x").await, Err(WorkspaceErrorCode::Denied));
        assert_eq!(space.write("theirs/y", OpenMode::Create, b"").await, Err(WorkspaceErrorCode::Denied));
        space.read("readable").await.unwrap();
        assert_eq!(space.write("readable", OpenMode::Overwrite, b"").await, Err(WorkspaceErrorCode::Denied));
        assert_eq!(space.remove("theirs").await, Err(WorkspaceErrorCode::Denied));
        assert_eq!(space.grep(".").await, ["readable:1:r"]);
    })
    .await;
}

#[tokio::test]
async fn w18_links_lead_nowhere_outside() {
    with_a_real_guest(async |running| {
        let space = workspace(running).await;
        let outside = [
            "/etc/shadow",
            "/etc/passwd",
            "../etc/passwd",
            "../../../../../etc/passwd",
            "/workspace/../etc/passwd",
            "/proc/self/root/etc/passwd",
            "/proc/1/root/etc/passwd",
            "/proc/self/environ",
            "/proc/self/fd/0",
            "/proc/self/cwd",
            "/dev/null",
            "/dev/zero",
            "/sys/kernel/uevent_seqnum",
            "/.coracle/link/sock",
            "/.coracle/guest",
            "/.coracle/run",
            "/",
            "..",
            "/tmp",
            "/workspacex",
        ];
        let links: String = outside.iter().enumerate().map(|(at, to)| format!("ln -s {to} l{at};")).collect();
        running
            .printed(sh(&format!("echo secret > /tmp/secret; cd /workspace; {links} ln -s /workspace/l0 twice")))
            .await;
        let before = running.printed(sh("busybox ls -lR /etc /tmp /.coracle | busybox md5sum")).await;
        for at in (0..outside.len()).map(|it| format!("l{it}")).chain(["twice".to_owned()]) {
            for path in [at.clone(), format!("{at}/secret")] {
                assert_eq!(space.read(&path).await, Err(WorkspaceErrorCode::Escape), "{path}");
                assert_eq!(
                    space.write(&path, OpenMode::Overwrite, b"x").await,
                    Err(WorkspaceErrorCode::Escape),
                    "{path}"
                );
                assert_eq!(space.write(&path, OpenMode::Create, b"x").await, Err(WorkspaceErrorCode::Escape), "{path}");
                assert_eq!(space.edit(&path, "a", "b").await, Err(WorkspaceErrorCode::Escape), "{path}");
            }
            assert_eq!(space.remove(&format!("{at}/secret")).await, Err(WorkspaceErrorCode::Escape));
        }
        match space.act(WorkspaceOp::List { path: String::new(), most: 2000 }).await {
            WorkspaceReply::Listed { entries, .. } => {
                assert_eq!(entries.len(), outside.len() + 1);
                assert!(entries.iter().all(|it| it.kind == EntryKind::Symlink && it.target.is_some()));
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(space.grep(".").await, Vec::<String>::new());
        assert_eq!(space.glob("**/*").await, Vec::<String>::new());
        assert_eq!(space.remove("l0").await, Ok(1));
        assert_eq!(running.printed(sh("busybox ls -lR /etc /tmp /.coracle | busybox md5sum")).await, before);
    })
    .await;
}

#[tokio::test]
async fn w17_a_pipe_without_writers_blocks_nothing() {
    with_a_real_guest(async |running| {
        let space = workspace(running).await;
        running.printed(sh("cd /workspace; busybox mkfifo p; ln -s p to-p; echo x > f; ln -s self self")).await;
        let begun = Instant::now();
        assert_eq!(space.read("p").await, Err(WorkspaceErrorCode::NotRegular));
        assert_eq!(space.read("to-p").await, Err(WorkspaceErrorCode::NotRegular));
        assert_eq!(space.read("self").await, Err(WorkspaceErrorCode::Escape));
        assert_eq!(space.grep(".").await, ["f:1:x"]);
        assert_eq!(space.glob("**/*").await, ["f"]);
        assert!(begun.elapsed() < WITHOUT_WAITING);
    })
    .await;
}

#[tokio::test]
async fn w19_a_directory_swapped_with_a_link_is_not_followed() {
    with_real_engines(async |case| {
        let running = with_perl(case).await;
        let space = workspace(&running).await;
        running
            .printed(sh(concat!(
                "mkdir /tmp/out; echo secret > /tmp/out/f; cd /workspace; mkdir d; echo inside > d/f; ln -s /tmp/out evil;",
                "busybox chown -R 1000:1000 d; busybox chmod 777 /tmp/out",
            )))
            .await;
        // It exchanges two names at once, so that one of them is always the directory.
        let call = if cfg!(target_arch = "aarch64") { 276 } else { 316 };
        let swap = format!(
            "chdir '/workspace'; ($d, $e) = ('d', 'evil'); for (1..10000) {{ syscall({call}, -100, $d, -100, $e, 2) and die $!; \
             select(undef, undef, undef, 0.0002) }} print 'done'"
        );
        let swapping = running.printed(perl(&swap));
        tokio::pin!(swapping);
        let mut reads = 0;
        loop {
            let looking = look_while_swapped(&space, &mut reads);
            tokio::select! {
                biased;
                swapped = &mut swapping => {
                    assert_eq!(swapped, "done");
                    break;
                }
                () = looking => {}
            }
        }
        assert!(reads > 0);
        assert_eq!(running.printed(sh("cat /tmp/out/f; ls -A /tmp/out")).await, "secret\nf\n");
    })
    .await;
}

async fn look_while_swapped(space: &Space<'_>, reads: &mut usize) {
    for path in ["d/f", "evil/f"] {
        match space.read(path).await {
            Ok(text) => {
                assert_eq!(text.lines, ["inside"], "{path}");
                *reads += 1;
            }
            Err(code) => assert_eq!(code, WorkspaceErrorCode::Escape, "{path}"),
        }
    }
    for path in ["d/f", "d/new"] {
        let (path, tool) = (path.to_owned(), "write_file".to_owned());
        space
            .act(WorkspaceOp::Write {
                path,
                content: (*b"inside\n").into(),
                how: OpenMode::Overwrite,
                executable: None,
                seen: false,
                tool,
            })
            .await;
    }
    assert_eq!(space.grep("secret").await, Vec::<String>::new());
}

#[tokio::test]
async fn w29_a_tree_is_removed_and_what_its_links_lead_to_is_not() {
    with_a_real_guest(async |running| {
        let space = workspace(running).await;
        running
            .printed(sh(concat!(
                "mkdir /tmp/out; echo kept > /tmp/out/f; cd /workspace; mkdir -p t/a/b; echo x > t/a/b/f; ln -s /tmp/out t/out;",
                "busybox chown -R 1000:1000 t",
            )))
            .await;
        assert_eq!(space.remove("t").await, Ok(2));
        assert_eq!(running.printed(sh("cat /tmp/out/f; ls -A /workspace")).await, "kept\n");
    })
    .await;
}

#[tokio::test]
async fn w24_partly_written_files_of_a_guest_are_invisible() {
    with_a_real_guest(async |running| {
        let space = workspace(running).await;
        let left = "/workspace/.coracle-0123456789abcdef.tmp";
        running.printed(sh(&format!("echo half > {left}; busybox touch -d @1 {left}; echo x > /workspace/f"))).await;
        assert_eq!(space.glob("**/*").await, ["f"]);
        let name = left.rsplit('/').next().unwrap();
        assert_eq!(space.read(name).await, Err(WorkspaceErrorCode::NotFound));
    })
    .await;
}

#[tokio::test]
async fn w39_many_files_cost_a_bounded_time() {
    with_a_real_guest(async |running| {
        let space = workspace(running).await;
        running
            .printed(sh(concat!(
                "cd /workspace; d=0; while [ $d -lt 60 ]; do mkdir d$d; ",
                "(cd d$d; busybox seq 1000 | busybox xargs busybox touch); d=$((d+1)); done",
            )))
            .await;
        let bounds = SearchLimits { most: 50, entries: 50_000, within_ms: 500 };
        for _ in 0..2 {
            let begun = Instant::now();
            let act = WorkspaceOp::Changed { hints: Vec::new(), exclude: Vec::new(), bounds, tool: "shell".into() };
            match space.act(act).await {
                WorkspaceReply::Changed(it) => assert_eq!((it.total, it.complete), (0, false)),
                other => panic!("{other:?}"),
            }
            // The search is limited to half a second; a complete one would take much longer.
            assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
        }
    })
    .await;
}
