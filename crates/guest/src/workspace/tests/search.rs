//! Tests of searches for files and lines.

use super::*;
use crate::protocol::workspace::GrepMatch;

struct GrepArgs<'a> {
    path: &'a str,
    pattern: &'a str,
    glob: Option<&'a str>,
    context: u32,
    gitignore: bool,
    bounds: SearchLimits,
}

fn every(pattern: &str) -> GrepArgs<'_> {
    GrepArgs { path: "", pattern, glob: None, context: 0, gitignore: false, bounds: ALL }
}

fn grep(world: &World, args: &GrepArgs<'_>) -> (Vec<GrepMatch>, u64, bool) {
    let operation = WorkspaceOp::Grep {
        path: args.path.into(),
        pattern: args.pattern.into(),
        glob: args.glob.map(Into::into),
        ignore_case: false,
        context: args.context,
        gitignore: args.gitignore,
        bounds: args.bounds,
    };
    match world.execute(operation) {
        WorkspaceReply::Grepped { matches, omitted, complete } => (matches, omitted, complete),
        other => panic!("{other:?}"),
    }
}

fn places(world: &World, args: &GrepArgs<'_>) -> Vec<String> {
    grep(world, args).0.into_iter().map(|it| format!("{}:{}:{}", it.path, it.line, it.text)).collect()
}

#[test]
fn w27_globs_find_files_in_order() {
    let world = World::new();
    for path in ["a.py", "x/a.py", "x/y/a.py", "x.py/b", ".git/a.py", "b/.hidden.py"] {
        world.file(path, "");
    }
    world.link("l.py", "a.py");
    world.link("x/out.py", "../../secret");
    world.link("dir", "x");
    assert_eq!(world.glob("", "**/*.py"), ["a.py", "b/.hidden.py", "l.py", "x/a.py", "x/y/a.py"]);
    assert_eq!(world.glob("", "*.py"), ["a.py", "l.py"]);
    assert_eq!(world.glob("", "x/**"), ["x/a.py", "x/y/a.py"]);
    assert_eq!(world.glob("dir", "*.py"), ["dir/a.py"]);
    assert_eq!(world.glob("", ".git/*"), [".git/a.py"]);
    assert_eq!(world.glob(".git", "*"), [".git/a.py"]);
    let glob_error = |path: &str, pattern: &str| {
        let operation = WorkspaceOp::Glob { path: path.into(), pattern: pattern.into(), gitignore: false, bounds: ALL };
        match world.execute(operation) {
            WorkspaceReply::Not(error) => error.code,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(glob_error("none", "*"), WorkspaceErrorCode::NotFound);
    assert_eq!(glob_error("a.py", "*"), WorkspaceErrorCode::NotDirectory);
    assert_eq!(glob_error("", "["), WorkspaceErrorCode::BadPattern);
}

#[test]
fn w28_matches_are_reported_in_order_and_the_rest_is_counted() {
    let world = World::new();
    for it in 0..150 {
        world.file(&format!("{it:03}/f"), "match\nother\n".repeat(10));
    }
    world.file("binary", "match\0");
    let (hits, omitted, complete) = grep(&world, &every("^match$"));
    assert_eq!((hits.len(), omitted, complete), (1000, 500, true));
    let places: Vec<_> = hits.iter().map(|it| (it.path.clone(), it.line)).collect();
    let expected: Vec<_> =
        (0..100).flat_map(|it| (0..10).map(move |line| (format!("{it:03}/f"), line * 2 + 1))).collect();
    assert_eq!(places, expected);
    let of_one = grep(&world, &GrepArgs { path: "007/f", ..every("match") }).0;
    assert!(of_one.len() == 10 && of_one.iter().all(|it| it.path == "007/f"), "{of_one:?}");
    assert_eq!(grep(&world, &GrepArgs { path: "binary", ..every("match") }).0.len(), 0);
    let bad = WorkspaceOp::Grep {
        path: String::new(),
        pattern: "(".into(),
        glob: None,
        ignore_case: false,
        context: 0,
        gitignore: false,
        bounds: ALL,
    };
    assert!(
        matches!(world.execute(bad), WorkspaceReply::Not(it) if it.code == WorkspaceErrorCode::BadPattern && it.detail == "unclosed group")
    );
    let few = SearchLimits { entries: 100, ..ALL };
    let (hits, _, complete) = grep(&world, &GrepArgs { bounds: few, ..every("match") });
    assert_eq!((hits.len(), complete), (500, false));
}

#[test]
fn lines_match_separately_and_are_reported_without_their_ending() {
    let world = World::new();
    world.file("a", b"one\r\ntwo\rthree\n\xff\xfefour\n\nlast");
    world.file("long", "x".repeat(5000) + "\n");
    assert_eq!(places(&world, &every("one$")), ["a:1:one"]);
    assert_eq!(places(&world, &every(r"two\s")), ["a:2:two\rthree"]);
    assert_eq!(places(&world, &every(r"three\s")), Vec::<String>::new());
    assert_eq!(places(&world, &every("two$|^three")), Vec::<String>::new());
    assert_eq!(places(&world, &every(r"\Afour|four\z")), ["a:3:\u{fffd}\u{fffd}four"]);
    assert_eq!(places(&world, &every("^$")), ["a:4:"]);
    assert_eq!(places(&world, &every(r"(?s)one.*last|t\z")), ["a:5:last"]);
    assert_eq!(places(&world, &every("one\ntwo")), Vec::<String>::new());
    assert_eq!(places(&world, &every("[^a]ast")), ["a:5:last"]);
    let (hits, ..) = grep(&world, &GrepArgs { path: "long", ..every("x$") });
    assert!(hits[0].cut && hits[0].text.len() == 2000);
    let (hits, ..) = grep(&world, &GrepArgs { path: "a", context: 2, ..every("four") });
    assert_eq!(
        (hits[0].before.as_slice(), hits[0].after.as_slice()),
        (&["one".to_owned(), "two\rthree".into()][..], &[String::new(), "last".into()][..])
    );
}

#[test]
fn files_ignored_by_git_or_excluded_by_a_glob_are_not_searched() {
    let world = World::new();
    world.file(".gitignore", "*.log\n/build\nsub/only\n!keep.log\n");
    world.file("sub/.gitignore", "!again.log\n");
    for path in ["a.log", "keep.log", "build/x", "sub/again.log", "sub/b.log", "sub/only/x", "sub/build/x", "y.rs"] {
        world.file(path, "hit");
    }
    let args = GrepArgs { gitignore: true, ..every("^hit") };
    let paths = |args: &GrepArgs<'_>| grep(&world, args).0.into_iter().map(|it| it.path).collect::<Vec<_>>();
    assert_eq!(paths(&args), ["keep.log", "sub/again.log", "sub/build/x", "y.rs"]);
    assert_eq!(paths(&GrepArgs { path: "sub", ..args }), ["sub/again.log", "sub/build/x"]);
    let globbed = |glob| paths(&GrepArgs { glob: Some(glob), ..every("^hit") });
    assert_eq!(globbed("*.rs"), ["y.rs"]);
    assert_eq!(globbed("sub/*.log"), ["sub/again.log", "sub/b.log"]);
    assert_eq!(globbed("again.*"), ["sub/again.log"]);
    assert_eq!(globbed(" ").len(), 8);
}

#[test]
fn a_file_of_many_blocks_is_searched_as_one() {
    let world = World::new();
    let line = |it: u32| format!("{it:07} {}\n", "-".repeat(60 + it as usize % 40));
    let all: String = (1..=80_000).map(line).collect();
    world.file("large", &all);
    let (hits, omitted, _) =
        grep(&world, &GrepArgs { context: 2, bounds: SearchLimits { most: 200, ..ALL }, ..every("000 -+$") });
    assert_eq!((hits.len() as u64, omitted), (80, 0));
    for (hit, number) in hits.iter().zip((1000..).step_by(1000)) {
        assert_eq!((hit.line, hit.text.as_str()), (u64::from(number), line(number).trim_end()));
        assert_eq!(hit.before, [line(number - 2).trim_end(), line(number - 1).trim_end()]);
        let after: Vec<_> = (number + 1..=80_000).take(2).map(|it| line(it).trim_end().to_owned()).collect();
        assert_eq!(hit.after, after);
    }
    world.file("large", "x".repeat(7 << 20) + "end\nend\n");
    let (hits, omitted, _) = grep(&world, &every("x|end"));
    assert_eq!((hits.iter().map(|it| it.line).collect::<Vec<_>>(), omitted), (vec![1, 2], 0));
}

mod as_ripgrep {
    use proptest::prelude::*;

    use super::super::super::line_search::{Block, LineMatcher};

    proptest! {
        /// The search works on blocks, but must find lines as if each was matched separately.
        #[test]
        fn the_search_finds_the_lines_that_match_separately(
            text in "[ab\r\n]{0,40}",
            pattern in prop::sample::select(vec![
                "a", "^a", "a$", "a*", "[^b]+b", r"\s", r"(?s)a.b", r"\Aa|b\z", r"\bab\b", r"(?m)^b$", "", "^$", r"a\r?$",
                r"\B", "(?R)^a$", "b|ab+$",
            ]),
        ) {
            let search = LineMatcher::new(pattern, false, 0).unwrap();
            let mut found = Vec::new();
            let mut hit = |it: crate::protocol::workspace::GrepMatch| { found.push(it.line); true };
            search.search(&mut text.as_bytes(), &mut Block::default(), &|| false, &mut hit).unwrap();
            let alone = regex::bytes::Regex::new(pattern).unwrap();
            let mut lines: Vec<&str> = text.split('\n').collect();
            if lines.last() == Some(&"") {
                lines.pop();
            }
            let matching = lines.iter().map(|it| it.strip_suffix('\r').unwrap_or(it));
            let expected: Vec<u64> = matching
                .zip(1..)
                .filter(|(line, _)| alone.is_match(line.as_bytes()))
                .map(|it| it.1)
                .collect();
            prop_assert_eq!(found, expected);
        }
    }
}
