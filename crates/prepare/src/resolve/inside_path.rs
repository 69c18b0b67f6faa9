//! Paths in a container, as a call gives them.

use coracle_context::failure::Failure;
use coracle_types::ContainerPath;

/// A path in a container, whose base may only be known when the container exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathInside {
    Absolute(ContainerPath),
    /// Below the home of the exec user.
    Home(String),
    /// Below the work directory.
    Workdir(String),
}

impl PathInside {
    /// Parses an absolute path, `~/…`, or one relative to the work directory. Fails before anything is created.
    pub fn parse(field: &str, text: &str) -> Result<Self, Failure> {
        let checked = |path: &str| match ContainerPath::parse(path) {
            Ok(path) if path.as_str() != "/" => Ok(path),
            Ok(_) => Err(Failure::invalid(field, format!("`{}` names no file", text.escape_debug()))),
            Err(err) => Err(Failure::invalid(field, format!("`{}`: {}", text.escape_debug(), err.why))),
        };
        let below = |rest: &str| checked(&format!("/{rest}")).map(|it| it.as_str().trim_start_matches('/').to_owned());
        match text.strip_prefix("~/") {
            Some(rest) => below(rest).map(Self::Home),
            None if text.starts_with('~') => {
                Err(Failure::invalid(field, format!("`{}`: only `~/` is the home", text.escape_debug())))
            }
            None if text.starts_with('/') => checked(text).map(Self::Absolute),
            None => below(text).map(Self::Workdir),
        }
    }

    /// Resolves the path, once home and work directory are known.
    pub fn resolve(&self, home: &ContainerPath, workdir: &ContainerPath) -> Result<ContainerPath, Failure> {
        Ok(match self {
            Self::Absolute(path) => path.clone(),
            Self::Home(rest) => home.join(rest)?,
            Self::Workdir(rest) => workdir.join(rest)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use coracle_types::ContainerPath;

    use super::PathInside;

    fn resolved(text: &str) -> Option<String> {
        let path = |text: &str| ContainerPath::parse(text).unwrap();
        let inside = PathInside::parse("repos", text).ok()?;
        Some(inside.resolve(&path("/home/me"), &path("/workspace")).unwrap().to_string())
    }

    #[test]
    fn a_path_begins_at_the_root_the_home_or_the_work_directory() {
        for (text, expected) in [
            ("/etc/x", Some("/etc/x")),
            ("~/.config/x", Some("/home/me/.config/x")),
            ("a/b", Some("/workspace/a/b")),
            ("./a", Some("/workspace/a")),
            ("..x", Some("/workspace/..x")),
            ("../a", None),
            ("~/../a", None),
            ("/a/../b", None),
            ("~", None),
            ("~root/x", None),
            ("/", None),
            ("", None),
            ("a\nb", None),
        ] {
            assert_eq!(resolved(text).as_deref(), expected, "{text:?}");
        }
    }
}
