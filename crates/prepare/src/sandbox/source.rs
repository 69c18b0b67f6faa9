//! The repository that a workflow begins from, as it was said.

use std::path::Path;

use coracle_context::context::Context;

/// A URL, or the whole path of a directory. What is relative begins at the working directory, which is also meant when
/// nothing was said.
pub fn source(cx: &Context, said: Option<String>) -> String {
    let here = cx.config.working_dir(&cx.host);
    match said {
        None => here.display().to_string(),
        Some(said) if is_directory(&here, &said) => here.join(said).display().to_string(),
        Some(said) => said,
    }
}

/// No URL begins with a dot or a slash, and none of those that we take is without a colon.
fn is_directory(here: &Path, said: &str) -> bool {
    let pointed = [".", ".."].contains(&said) || ["/", "./", "../"].iter().any(|it| said.starts_with(it));
    pointed || (!said.is_empty() && !said.contains(':') && here.join(said).is_dir())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_told_from_urls() {
        let here = tempfile::tempdir().unwrap();
        std::fs::create_dir(here.path().join("mine")).unwrap();
        for said in [".", "..", "./mine", "../x", "/abs", "mine", "mine/."] {
            assert!(is_directory(here.path(), said), "{said}");
        }
        for said in ["", "https://e.com/r", "git@e.com:mine", "ssh://e.com/r", "theirs", "-c", "e:mine"] {
            assert!(!is_directory(here.path(), said), "{said}");
        }
    }
}
