//! Follows links. Pure, but for the callback that reads a link.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Component, Path};

/// Links on the way, at most.
pub(super) const MAX_HOPS: usize = 40;

/// Why a link is not followed.
#[derive(Debug)]
pub(super) enum LinkError {
    /// It leads out of the directory.
    Outside,
    /// It leads nowhere, or in a circle.
    Nowhere,
    /// A part of the path cannot be read.
    Io(io::Error),
}

impl From<io::Error> for LinkError {
    fn from(err: io::Error) -> Self {
        match err.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Self::Nowhere,
            _ => Self::Io(err),
        }
    }
}

/// Reads the target of a path beneath the directory, if it is a link.
pub(super) type ReadLink<'a> = dyn FnMut(&[OsString]) -> io::Result<Option<OsString>> + 'a;

/// Follows a link in `from` with the target `target`. Paths are beneath `root` and have no links in them.
pub(super) fn follow(
    root: &Path,
    from: &[OsString],
    target: &OsStr,
    read: &mut ReadLink<'_>,
) -> Result<Vec<OsString>, LinkError> {
    let (mut here, mut rest, mut hops) = (from.to_vec(), VecDeque::new(), 1);
    begin(root, target, &mut here, &mut rest)?;
    while let Some(part) = rest.pop_front() {
        if part == ".." {
            here.pop().ok_or(LinkError::Outside)?;
            continue;
        }
        here.push(part);
        if let Some(target) = read(&here)? {
            hops += 1;
            if hops > MAX_HOPS {
                return Err(LinkError::Nowhere);
            }
            here.pop();
            begin(root, &target, &mut here, &mut rest)?;
        }
    }
    Ok(here)
}

/// Puts the parts of a link's target before the remaining parts.
fn begin(
    root: &Path,
    target: &OsStr,
    here: &mut Vec<OsString>,
    rest: &mut VecDeque<OsString>,
) -> Result<(), LinkError> {
    let mut target = Path::new(target);
    if target.is_absolute() {
        target = target.strip_prefix(root).map_err(|_| LinkError::Outside)?;
        here.clear();
    }
    for part in target.components().rev() {
        match part {
            Component::Normal(name) => rest.push_front(name.to_owned()),
            Component::ParentDir => rest.push_front("..".into()),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// Follows a link in `d`, where these links are.
    fn led(target: &str, links: &[(&str, &str)]) -> Result<String, LinkError> {
        let links: BTreeMap<_, _> = links.iter().copied().collect();
        let join = |parts: &[OsString]| parts.join(OsStr::new("/")).into_string().unwrap();
        let mut read = |path: &[OsString]| {
            assert!(path.len() < 100);
            Ok(links.get(join(path).as_str()).map(OsString::from))
        };
        follow(Path::new("/root"), &["d".into()], OsStr::new(target), &mut read).map(|it| join(&it))
    }

    #[test]
    fn links_stay_beneath_their_directory() {
        for (target, to) in [("a", "d/a"), ("../b", "b"), ("/root/x/./y", "x/y"), ("l/z", "e/z"), ("..", "")] {
            assert_eq!(led(target, &[("d/l", "../e")]).unwrap(), to, "{target}");
        }
        for outside in ["/etc/passwd", "../..", "../../root/x", "/root/../etc", "/rooted", "out", "far/x"] {
            let led = led(outside, &[("d/out", "/etc/passwd"), ("d/far", "../../..")]);
            assert!(matches!(led, Err(LinkError::Outside)), "{outside}: {led:?}");
        }
        assert!(matches!(led("a", &[("d/a", "b"), ("d/b", "a")]), Err(LinkError::Nowhere)));
    }

    #[test]
    fn forty_hops_are_followed_and_no_more() {
        let chain = |long: usize| -> Vec<(String, String)> {
            (1..long).map(|it| (format!("d/{it}"), (it + 1).to_string())).collect()
        };
        for (long, arrives) in [(MAX_HOPS, true), (MAX_HOPS + 1, false)] {
            let links = chain(long);
            let links: Vec<_> = links.iter().map(|it| (it.0.as_str(), it.1.as_str())).collect();
            assert_eq!(led("1", &links).is_ok(), arrives, "{long}");
        }
    }

    proptest! {
        #[test]
        fn whatever_links_say_the_way_ends_beneath(
            target in "[/.ab]{0,8}",
            links in proptest::collection::btree_map("d/[ab]|[ab]|[ab]/[ab]", "[/.ab]{0,6}", 0..5),
        ) {
            let links: Vec<_> = links.iter().map(|it| (it.0.as_str(), it.1.as_str())).collect();
            if let Ok(path) = led(&target, &links) {
                prop_assert!(path.split('/').all(|it| it != ".." && it != "."), "{path}");
                prop_assert!(!links.iter().any(|it| it.0 == path), "{path} is a link itself");
            }
        }
    }
}
