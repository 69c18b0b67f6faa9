//! Lists and searches.

use coracle_workspace::fs::{FsEntry, FsKind, LineQuery, SearchResults, WriteMode};
use coracle_workspace::{FsError, GuestFs};

use super::{Space, with_git_inside};

fn paths(found: &SearchResults<FsEntry>) -> Vec<&str> {
    assert!(found.complete && found.omitted == 0);
    found.items.iter().map(|it| it.path.as_str()).collect()
}

async fn a_directory_is_listed_by_name(space: &Space<'_>) {
    let fs: &GuestFs = &space.fs;
    space.sh("mkdir b.d; echo 123 > a; ln -s a to-a; ln -s none dangling; ln -s /etc out; mkfifo pipe").await;
    let listed = fs.list("/").await.unwrap();
    assert_eq!(paths(&listed), ["a", "b.d", "dangling", "out", "pipe", "to-a"]);
    let kinds: Vec<_> = listed.items.iter().map(|it| (it.kind, it.size, it.target.as_deref())).collect();
    assert_eq!(
        kinds,
        [
            (FsKind::File, 4, None),
            (FsKind::Directory, 0, None),
            (FsKind::Symlink, 0, Some("none")),
            (FsKind::Symlink, 0, Some("/etc")),
            (FsKind::Other, 0, None),
            (FsKind::File, 4, None),
        ]
    );
    fails!(fs.list("a"), FsError::NotDirectory(_));
    fails!(fs.list("none"), FsError::NotFound(_));
    // A pipe is inspected, but never opened.
    assert_eq!(fs.stat("pipe").await.unwrap().kind, FsKind::Other);
    fails!(fs.read("pipe"), FsError::Invalid { .. });
    fails!(fs.write("pipe", "x", WriteMode::Overwrite.into()), FsError::Invalid { .. });
}

async fn unaddressable_names_are_listed_as_such(space: &Space<'_>) {
    space.sh("touch \"$(printf 'odd\\377')\"").await;
    let listed = space.fs.list("").await.unwrap().items;
    let reported: Vec<_> = listed.iter().map(|it| (it.path.as_str(), it.addressable)).collect();
    assert_eq!(reported, [("odd\u{fffd}", false)]);
}

async fn files_are_found_by_their_paths(fs: &GuestFs) {
    for file in ["a.py", "x/a.py", "x/y/a.py", "x/b.rs", ".git/a.py", "ä/ü.py"] {
        fs.write(file, "x", WriteMode::Create.into()).await.unwrap();
    }
    assert_eq!(paths(&fs.glob("", "**/*.py").await.unwrap()), ["a.py", "x/a.py", "x/y/a.py", "ä/ü.py"]);
    assert_eq!(paths(&fs.glob("", "/*.py").await.unwrap()), ["a.py"]);
    assert_eq!(paths(&fs.glob("x", "**/*.py").await.unwrap()), ["x/a.py", "x/y/a.py"]);
    assert_eq!(paths(&fs.glob("", "ä/*").await.unwrap()), ["ä/ü.py"]);
    assert_eq!(paths(&fs.glob("", ".git/*").await.unwrap()), [".git/a.py"]);
    fails!(fs.glob("none", "*"), FsError::NotFound(_));
    fails!(fs.glob("a.py", "*"), FsError::NotDirectory(_));
    for pattern in ["", "../*", "a\0", "[z"] {
        fails!(fs.glob("", pattern), FsError::Invalid { .. });
    }
}

async fn lines_are_found_by_a_regular_expression(fs: &GuestFs) {
    fs.write("a.txt", "one\nTwo\nthree\n", WriteMode::Create.into()).await.unwrap();
    fs.write("b/c.rs", "two\n", WriteMode::Create.into()).await.unwrap();
    fs.write_bytes("b/binary", b"two\0", WriteMode::Create.into()).await.unwrap();
    let reported = async |path: &str, lines: LineQuery<'_>| -> Vec<String> {
        let found = fs.grep(path, &lines).await.unwrap();
        assert!(found.complete && found.omitted == 0);
        found.items.into_iter().map(|it| format!("{}:{}:{}", it.path, it.line, it.text)).collect()
    };
    let two = LineQuery { pattern: "^t.o$", ..LineQuery::default() };
    assert_eq!(reported("", two).await, ["b/c.rs:1:two"]);
    assert_eq!(reported("", LineQuery { ignore_case: true, ..two }).await, ["a.txt:2:Two", "b/c.rs:1:two"]);
    assert_eq!(reported("a.txt", LineQuery { ignore_case: true, ..two }).await, ["a.txt:2:Two"]);
    assert!(reported("", LineQuery { glob: Some("*.txt"), ..two }).await.is_empty());
    let around = fs.grep("a.txt", &LineQuery { pattern: "Two", context: 1, ..LineQuery::default() }).await.unwrap();
    assert_eq!((&around.items[0].before, &around.items[0].after), (&vec!["one".into()], &vec!["three".into()]));
    fails!(fs.grep("none", &two), FsError::NotFound(_));
    for pattern in ["", "("] {
        fails!(fs.grep("", &LineQuery { pattern, ..two }), FsError::Invalid { .. });
    }
    fails!(fs.grep("", &LineQuery { glob: Some("../x"), ..two }), FsError::Invalid { .. });
}

#[tokio::test]
async fn lists_and_searches_keep_the_contract() {
    with_git_inside(async |running| {
        let space = async |name: &str| Space::new(running, name).await;
        a_directory_is_listed_by_name(&space("listed").await).await;
        unaddressable_names_are_listed_as_such(&space("odd").await).await;
        files_are_found_by_their_paths(&space("globbed").await.fs).await;
        lines_are_found_by_a_regular_expression(&space("grepped").await.fs).await;
    })
    .await;
}
