//! The repository of a workflow, as given by the caller.

use std::path::Path;

use coracle_context::context::Context;

/// Returns a URL, or the absolute path of a directory. A relative path is below the working directory, which is also
/// the default.
pub fn source(cx: &Context, source: Option<String>) -> String {
    let here = cx.config.working_dir(&cx.host);
    match source {
        None => here.display().to_string(),
        Some(source) if is_directory(&here, &source) => here.join(source).display().to_string(),
        Some(source) => source,
    }
}

/// No URL begins with a dot or a slash, and every supported URL contains a colon.
fn is_directory(here: &Path, text: &str) -> bool {
    let pointed = [".", ".."].contains(&text) || ["/", "./", "../"].iter().any(|it| text.starts_with(it));
    pointed || (!text.is_empty() && !text.contains(':') && here.join(text).is_dir())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_distinguished_from_urls() {
        let here = tempfile::tempdir().unwrap();
        std::fs::create_dir(here.path().join("mine")).unwrap();
        for text in [".", "..", "./mine", "../x", "/abs", "mine", "mine/."] {
            assert!(is_directory(here.path(), text), "{text}");
        }
        for text in ["", "https://e.com/r", "git@e.com:mine", "ssh://e.com/r", "theirs", "-c", "e:mine"] {
            assert!(!is_directory(here.path(), text), "{text}");
        }
    }
}
