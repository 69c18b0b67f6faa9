//! Finds the `devcontainer.json` of a repository.

/// The result of a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DevcontainerSearch {
    /// There is none.
    Nothing,
    /// One file at that path.
    One(String),
    /// Several files, none of which is at the usual path.
    Several(Vec<String>),
}

/// Finds the file among the names of a repository's files.
#[must_use]
pub fn find<'a>(names: impl IntoIterator<Item = &'a str>) -> DevcontainerSearch {
    const USUAL: [&str; 2] = [".devcontainer/devcontainer.json", ".devcontainer.json"];
    let named = |it: &str| {
        let inner = it.strip_prefix(".devcontainer/").and_then(|it| it.strip_suffix("/devcontainer.json"));
        inner.is_some_and(|it| !it.is_empty() && !it.contains('/'))
    };
    let all: Vec<&str> = names.into_iter().filter(|it| USUAL.contains(it) || named(it)).collect();
    if let Some(usual) = USUAL.into_iter().find(|it| all.contains(it)) {
        return DevcontainerSearch::One(usual.to_owned());
    }
    match all[..] {
        [] => DevcontainerSearch::Nothing,
        [one] => DevcontainerSearch::One(one.to_owned()),
        _ => DevcontainerSearch::Several(all.into_iter().map(str::to_owned).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_searched_in_the_usual_order() {
        let (dir, plain, a, b) = (
            ".devcontainer/devcontainer.json",
            ".devcontainer.json",
            ".devcontainer/a/devcontainer.json",
            ".devcontainer/b/devcontainer.json",
        );
        let one = |it: &str| DevcontainerSearch::One(it.to_owned());
        assert_eq!(find([a, plain, dir, "x"]), one(dir));
        assert_eq!(find([a, plain]), one(plain));
        assert_eq!(find([a, "README.md"]), one(a));
        assert_eq!(find([a, b]), DevcontainerSearch::Several(vec![a.to_owned(), b.to_owned()]));
        for none in [
            "x/.devcontainer/devcontainer.json",
            ".devcontainer/a/b/devcontainer.json",
            ".devcontainer//devcontainer.json",
        ] {
            assert_eq!(find([none]), DevcontainerSearch::Nothing, "{none}");
        }
    }
}
