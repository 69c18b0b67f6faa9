//! Links: followed inside, and never out.

use coracle_workspace::fs::{FsKind, LineQuery, WriteMode};
use coracle_workspace::{FsError, GuestFs};

use super::{Space, with_git_inside};

async fn links_that_stay_inside_are_followed(space: &Space<'_>) {
    let fs: &GuestFs = &space.fs;
    let root = fs.root();
    space
        .sh(&format!("mkdir dir; echo x > dir/file; ln -s dir to-dir; ln -s {root}/dir/file full; ln -s none new"))
        .await;
    assert_eq!(fs.read("to-dir/file").await.unwrap(), "x\n");
    assert_eq!(
        (fs.stat("full").await.unwrap().kind, fs.stat("to-dir").await.unwrap().kind),
        (FsKind::File, FsKind::Directory)
    );
    fs.write("full", "through", WriteMode::Overwrite.into()).await.unwrap();
    assert_eq!(space.sh("cat dir/file; readlink full").await, format!("through{root}/dir/file\n"));
    assert!(!fs.exists("new").await.unwrap());
    fails!(fs.read("new"), FsError::NotFound(_));
    fails!(fs.write("new", "x", WriteMode::Create.into()), FsError::Exists(_));
    fs.write("new", "x", WriteMode::Overwrite.into()).await.unwrap();
    assert_eq!(fs.read("none").await.unwrap(), "x");
    // A removal removes the link itself, also one to a directory.
    for link in ["full", "new"] {
        fs.delete(link, false).await.unwrap();
    }
    fs.delete("to-dir", true).await.unwrap();
    assert_eq!(space.sh("ls; ls dir").await, "dir\nnone\nfile\n");
}

async fn links_that_lead_out_are_not(space: &Space<'_>) {
    let fs: &GuestFs = &space.fs;
    space
        .sh("mkdir ../secret; echo key > ../secret/file; mkdir a; ln -s ../../secret a/out; ln -s /etc/passwd passwd; \
              ln -s loop loop; ln -s ../secret/none dangling")
        .await;
    for path in ["a/out", "a/out/file", "passwd", "loop", "dangling"] {
        fails!(fs.stat(path), FsError::Escape(_));
        fails!(fs.exists(path), FsError::Escape(_));
        fails!(fs.read(path), FsError::Escape(_));
        fails!(fs.list(path), FsError::Escape(_));
        fails!(fs.glob(path, "**"), FsError::Escape(_));
        fails!(fs.grep(path, &LineQuery { pattern: ".", ..LineQuery::default() }), FsError::Escape(_));
        for mode in [WriteMode::Overwrite, WriteMode::Append, WriteMode::Create] {
            fails!(fs.write(path, "x", mode.into()), FsError::Escape(_));
        }
        fails!(fs.mkdir(path, true, true), FsError::Escape(_));
    }
    fails!(fs.delete("a/out/file", true), FsError::Escape(_));
    assert!(fs.glob("", "**").await.unwrap().items.is_empty());
    assert!(fs.grep("", &LineQuery { pattern: "key", ..LineQuery::default() }).await.unwrap().items.is_empty());
    fs.delete("a", true).await.unwrap();
    for link in ["passwd", "loop", "dangling"] {
        fs.delete(link, true).await.unwrap();
    }
    assert_eq!(space.sh("ls; cat ../secret/file; ls ../secret").await, "key\nfile\n");
}

#[tokio::test]
async fn links_keep_the_contract() {
    with_git_inside(async |running| {
        links_that_stay_inside_are_followed(&Space::new(running, "inside").await).await;
        links_that_lead_out_are_not(&Space::new(running, "out").await).await;
    })
    .await;
}
