//! The source of a repository in `repos`: a server, or a directory on this host.

use std::path::PathBuf;

use coracle_context::context::Context;
use coracle_context::failure::Failure;
use coracle_host::git_url::{GitRules, GitUrl};

use super::host_paths::{copyable, host_path};
use super::provisioning::git_url;

/// A URL, or a directory that may be copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CloneSource {
    Url(GitUrl),
    /// With links resolved.
    Directory(PathBuf),
}

impl CloneSource {
    pub(super) fn read(text: &str, rules: GitRules, cx: &Context) -> Result<Self, Failure> {
        let Some(dir) = directory(text, cx) else { return git_url("repos", text, rules).map(Self::Url) };
        let opened = copyable(&dir, cx)?;
        if !opened.is_dir() {
            return Err(Failure::invalid("repos", format!("`{}` is no directory", text.escape_debug())));
        }
        Ok(Self::Directory(opened.real().to_owned()))
    }

    pub fn url(&self) -> Option<&GitUrl> {
        if let Self::Url(url) = self { Some(url) } else { None }
    }

    /// The name of the repository.
    pub fn name(&self) -> String {
        match self {
            Self::Url(url) => url.repository().to_owned(),
            Self::Directory(dir) => {
                let name = dir.file_name().map_or_else(|| "repository".into(), |it| it.to_string_lossy().into_owned());
                name.strip_suffix(".git").filter(|it| !it.is_empty()).map_or(name.clone(), str::to_owned)
            }
        }
    }
}

/// No URL begins with a dot or a slash, and every supported URL contains a colon.
fn directory(text: &str, cx: &Context) -> Option<PathBuf> {
    if let Some(path) = text.strip_prefix("file://") {
        return Some(host_path(path, cx));
    }
    let pointed = [".", ".."].contains(&text) || ["/", "./", "../", "~/"].iter().any(|it| text.starts_with(it));
    let plain = !text.is_empty() && !text.starts_with('-') && !text.contains(':');
    let path = host_path(text, cx);
    (pointed || plain && path.is_dir()).then_some(path)
}

#[cfg(test)]
mod tests {
    use coracle_context::failure::Code;

    use super::*;

    #[test]
    fn directories_are_distinguished_from_urls_and_must_be_allowed() {
        let dir = tempfile::tempdir().unwrap();
        let cx = Context::for_tests(dir.path());
        let mine = cx.host.cwd.join("mine.git");
        std::fs::create_dir_all(&mine).unwrap();
        let rules = GitRules { allow_private: false, ssh: false };
        let read = |text: &str| CloneSource::read(text, rules, &cx);
        for text in ["mine.git", "./mine.git", mine.to_str().unwrap(), &format!("file://{}", mine.display())] {
            let read = read(text).unwrap();
            assert_eq!((read.name().as_str(), read.url()), ("mine", None), "{text}");
        }
        assert!(read("https://example.org/a.git").unwrap().url().is_some());
        assert_eq!(read("theirs").unwrap_err().code, Code::InvalidInput);
        assert_eq!(read("/srv").unwrap_err().details["rule"], "copy.root");
        assert_eq!(read("/etc").unwrap_err().details["rule"], "copy.denied");
    }
}
