//! Snapshots: restored files, and programs that must never run during that.

use coracle_workspace::fs::WriteMode;
use coracle_workspace::{FsError, GuestFs};

use super::{AGENT, Space, path, with_git_inside};
use crate::engines::with_a_real_guest;

/// Files with content and executable bit, and links with their targets.
const SEEN: &str = "find . -name .git -prune -o -type f -exec sh -c \
    'for f; do echo \"$f $(sha256sum < \"$f\") $(test -x \"$f\" && echo x)\"; done' sh {} + | LC_ALL=C sort; \
    find . -name .git -prune -o -type l -exec sh -c 'for f; do echo \"$f $(readlink \"$f\")\"; done' sh {} + | LC_ALL=C sort";

/// Files that a git with the workspace's own configuration would change or omit.
const FILES: &str = r#"
    echo '* text=auto eol=crlf ident filter=evil working-tree-encoding=UTF-16' > .gitattributes
    echo 'ignored/' > .gitignore
    printf 'a\r\nb\n$Id$\n' > text
    mkdir -p ignored d/e swap; echo 1 > ignored/f; echo 1 > d/e/f; echo 1 > swap/inner; echo 1 > other
    ln -s d/e/f link; ln -s /etc/passwd out
    echo true > run; chmod 755 run
    dd if=/dev/zero of=large bs=65536 count=40 2>/dev/null
    touch "$(printf 'odd\377')" "$(printf 'a\nb')" -- -x 'back\slash' 'git~1' .coracle-0.tmp"#;

const CHANGES: &str = r#"
    echo changed > text; rm -r d link swap other out; echo 2 > swap; mkdir other; echo 2 > other/inner
    ln -s ../outside d; mkdir out; echo 2 > out/f; ln -s text link
    chmod 644 run; echo 2 > ignored/new; mkdir -p new/deep; echo 2 > new/deep/file; echo '*' > .gitignore; rm large"#;

async fn files_are_restored_as_they_were_at_the_tag(space: &Space<'_>) {
    let fs: &GuestFs = &space.fs;
    space.sh("mkdir ../outside").await;
    space.sh(FILES).await;
    let before = space.sh(SEEN).await;
    assert!(before.contains("./run ") && before.contains("odd") && before.contains("./out /etc/passwd"), "{before}");
    let id = fs.snapshot("one").await.unwrap();
    assert_eq!((id.len(), space.sh(SEEN).await == before), (40, true));
    space.sh(CHANGES).await;
    let changed = space.sh(SEEN).await;
    assert!(changed != before);
    fs.snapshot("two").await.unwrap();
    let untouched = "stat -c '%i %Y' .gitattributes";
    let inode = space.sh(untouched).await;
    for (tag, expected) in [("one", &before), ("two", &changed), ("one", &before), ("one", &before)] {
        fs.restore(tag).await.unwrap();
        assert_eq!(&space.sh(SEEN).await, expected, "{tag}");
    }
    assert_eq!(space.sh(untouched).await, inode, "what is as it was is left alone");
    // Nothing of it is here, and nothing was written through a link.
    assert_eq!(space.sh("ls ../outside; find .. -name '*.git' -o -name 'index*'").await, "");
    // Both are available to another handle too.
    space.sh("rm text").await;
    let again = space.again();
    let again = if space.running.case.is_real() { again } else { again.with_home(path("/home/agent")) };
    again.restore("one").await.unwrap();
    assert_eq!(space.sh(SEEN).await, before);
}

async fn tags_are_names_that_are_given_once(fs: &GuestFs, read_only: &GuestFs) {
    fails!(fs.restore("tag"), FsError::NotFound(_));
    fs.write("a", "1", WriteMode::Create.into()).await.unwrap();
    read_only.snapshot("tag").await.unwrap();
    fails!(fs.snapshot("tag"), FsError::Exists(_));
    let (first, second) = tokio::join!(fs.snapshot("both"), read_only.snapshot("both"));
    let taken = |it: &Result<_, _>| matches!(it, Err(FsError::Exists(_)));
    assert!(first.is_ok() || second.is_ok(), "{first:?} {second:?}");
    assert!([&first, &second].iter().all(|it| it.is_ok() || taken(it)), "{first:?} {second:?}");
    let (first, second) = tokio::join!(fs.snapshot("left"), read_only.snapshot("right"));
    assert!(first.is_ok() && second.is_ok(), "{first:?} {second:?}");
    for tag in ["", "-x", "a/b", "../x", "a b", "HEAD^", "x.lock"] {
        fails!(fs.snapshot(tag), FsError::Invalid { .. });
        fails!(fs.restore(tag), FsError::Invalid { .. });
    }
    fs.delete("a", false).await.unwrap();
    fails!(read_only.restore("tag"), FsError::ReadOnly(_));
    fs.snapshot("empty").await.unwrap();
    fs.restore("tag").await.unwrap();
    assert_eq!(fs.read("a").await.unwrap(), "1");
    fs.restore("empty").await.unwrap();
    assert_eq!(fs.list("").await.unwrap().items, []);
}

async fn data_without_a_tag_is_freed(space: &Space<'_>) {
    let fs: &GuestFs = &space.fs;
    fails!(fs.forget("none"), FsError::NotFound(_));
    fails!(fs.forget("a/b"), FsError::Invalid { .. });
    fs.write("kept", "the same in both", WriteMode::Create.into()).await.unwrap();
    space.sh("head -c 3000000 /dev/urandom > large").await;
    fs.snapshot("large").await.unwrap();
    space.sh("rm large").await;
    fs.snapshot("small").await.unwrap();
    let repository = "r=$(find / -type d -name snapshots.git 2>/dev/null | head -1)";
    let size = async || {
        let reported = space.sh(&format!("{repository}; du -sk $r | cut -f1")).await;
        reported.trim().parse::<u64>().unwrap()
    };
    let before = size().await;
    assert!(before > 2900, "{before}");
    // New objects might belong to a snapshot that is being taken.
    space.sh(&format!("{repository}; find $r/objects -type f -exec touch -d '2020-01-01 00:00:00' {{}} +")).await;
    fs.forget("large").await.unwrap();
    fails!(fs.restore("large"), FsError::NotFound(_));
    assert!(size().await + 2900 < before, "{before} {}", size().await);
    fs.write("kept", "changed", WriteMode::Overwrite.into()).await.unwrap();
    fs.restore("small").await.unwrap();
    assert_eq!(fs.read("kept").await.unwrap(), "the same in both");
    fs.snapshot("large").await.unwrap();
}

/// A repository with a program at every place where git runs one.
const HOSTILE: &str = r#"
    export GIT_CONFIG_GLOBAL=/dev/null
    up=$(cd ..; pwd); printf '#!/bin/sh\necho "$0 $*" >> %s/canary\ncat\n' "$up" > ../run; chmod 755 ../run
    hostile() {
        git config -f "$1" core.fsmonitor "$up/run"; git config -f "$1" core.hooksPath "$up/hooks"
        git config -f "$1" core.editor "$up/run"; git config -f "$1" core.pager "$up/run"
        git config -f "$1" filter.evil.clean "$up/run clean"; git config -f "$1" filter.evil.smudge "$up/run smudge"
        git config -f "$1" filter.evil.process "$up/run process"; git config -f "$1" filter.evil.required true
        git config -f "$1" diff.external "$up/run"; git config -f "$1" core.alternateRefsCommand "$up/run"
        git config -f "$1" gpg.program "$up/run"; git config -f "$1" commit.gpgSign true
    }
    mkdir ../hooks
    for hook in post-index-change reference-transaction post-checkout pre-commit; do cp ../run ../hooks/$hook; done"#;

async fn nothing_of_a_repository_runs(space: &Space<'_>) {
    let fs: &GuestFs = &space.fs;
    let real = space.running.case.is_real();
    space.sh(&format!(
        "{HOSTILE}\n\
         for repo in . repo repo/inner; do\n\
           git init -q $repo; hostile $repo/.git/config; cp -r ../hooks $repo/.git/; echo '* filter=evil' > $repo/.gitattributes\n\
           echo 1 > $repo/file; done\n\
         mkdir bogus; echo 'gitdir: /nonexistent' > bogus/.git; echo 1 > bogus/file"
    ))
    .await;
    let canary = "cat ../canary 2>/dev/null || true; rm -f ../canary";
    space.sh("git -C repo status >/dev/null").await;
    assert!(space.sh(canary).await.contains("/run"), "a git that heeds the workspace runs it");
    // On the fake it would be the configuration of the user of the tests.
    let user = if real { "hostile ~/.gitconfig\n" } else { "" };
    space.sh(&format!("rm -r ../hooks; {HOSTILE}\n{user}true")).await;
    let before = space.sh(SEEN).await;
    assert!(["./repo/file", "./repo/inner/file", "./bogus/file"].iter().all(|it| before.contains(it)), "{before}");
    fs.snapshot("one").await.unwrap();
    // The user can also write to the repository of the snapshots.
    let home = if real { "/home/agent" } else { "../../../home/agent" };
    space
        .sh(&format!(
            "rm -r ../hooks; {HOSTILE}\nkept={home}/.coracle/snapshots.git; hostile $kept/config; cp -r ../hooks $kept/\n\
             rm repo/file; echo 2 > repo/inner/file; echo 2 > file; git init -q later; hostile later/.git/config; echo 2 > later/file"
        ))
        .await;
    fs.snapshot("two").await.unwrap();
    fs.restore("one").await.unwrap();
    assert_eq!(space.sh(SEEN).await, before);
    assert_eq!(space.sh(canary).await, "");
    // A later clone is removed as a whole, and an earlier one still has its history.
    assert_eq!(
        space
            .sh("ls -d later 2>/dev/null || true; ls -d .git repo/.git repo/inner/.git bogus/.git")
            .await
            .lines()
            .count(),
        4
    );
    fs.restore("two").await.unwrap();
    assert_eq!(space.sh("cat file later/file; ls repo").await, "2\n2\ninner\n");
    assert_eq!(space.sh(canary).await, "");
}

async fn nothing_unsaved_is_lost(space: &Space<'_>) {
    let fs: &GuestFs = &space.fs;
    // Root reads everything.
    if space.running.case.is_real() {
        space.sh("mkdir locked; echo 1 > locked/secret; chmod 000 locked").await;
        fails!(fs.snapshot("locked"), FsError::Git(_));
        space.sh("chmod 755 locked").await;
    }
    space.sh("mkdir .GIT; echo 1 > .GIT/config").await;
    fails!(fs.snapshot("named"), FsError::Git(_));
    space.sh("rm -r .GIT; git init -q empty; git init -q outer; git init -q outer/inner; echo 1 > file").await;
    fs.snapshot("kept").await.unwrap();
    space.sh("echo 2 > empty/later; rm -r outer/inner; git init -q new; rm file").await;
    fs.restore("kept").await.unwrap();
    assert_eq!(
        space.sh("cat file; ls empty; ls -d empty/.git outer/.git; ls -d new 2>/dev/null || true").await,
        "1\nempty/.git\nouter/.git\n"
    );
    // The snapshot's data is missing, so nothing is removed for it.
    let home = if space.running.case.is_real() { "/home/agent" } else { "../../../home/agent" };
    space.sh(&format!("echo more > file; echo 3 > newer; rm -rf {home}/.coracle/snapshots.git/objects/??")).await;
    fails!(fs.restore("kept"), FsError::NotFound(_) | FsError::Git(_));
    assert_eq!(space.sh("cat file newer").await, "more\n3\n");
}

#[tokio::test]
async fn snapshots_keep_the_contract() {
    with_git_inside(async |running| {
        nothing_unsaved_is_lost(&Space::new(running, "whole").await).await;
    })
    .await;
    with_git_inside(async |running| {
        files_are_restored_as_they_were_at_the_tag(&Space::new(running, "files").await).await;
    })
    .await;
    with_git_inside(async |running| {
        // Programs of the fake run on the host, whose files must not be searched.
        if running.case.is_real() {
            data_without_a_tag_is_freed(&Space::new(running, "freed").await).await;
        }
    })
    .await;
    with_git_inside(async |running| {
        let space = Space::new(running, "tags").await;
        let again = space.again().only_reading();
        let again = if running.case.is_real() { again } else { again.with_home(path("/home/agent")) };
        tags_are_names_that_are_given_once(&space.fs, &again).await;
    })
    .await;
}

#[tokio::test]
async fn snapshots_run_nothing_of_the_workspace() {
    with_git_inside(async |running| nothing_of_a_repository_runs(&Space::new(running, "hostile").await).await).await;
}

#[tokio::test]
async fn snapshots_need_a_git_and_a_home_outside() {
    with_a_real_guest(async |running| {
        let space = Space::new(running, "plain").await;
        fails!(space.fs.snapshot("one"), FsError::Unsupported(_));
        fails!(space.fs.restore("one"), FsError::Unsupported(_));
        let root = path("/home/agent/work");
        let fs = GuestFs::new(running.link().clone(), AGENT, path("/home")).with_home(root);
        fails!(fs.snapshot("one"), FsError::Unsupported(_));
    })
    .await;
}
