//! `workspace.mounts`: host directories in a session's workspace.

use coracle_types::ByteSize;
use coracle_workspace::Filter;
use serde::Deserialize;

use super::macros::words;

/// A host directory in a workspace.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostMount {
    /// The directory: relative to an allowed one, or absolute below it.
    pub host_path: String,
    /// Its path in the workspace; default: the workspace itself.
    #[serde(default)]
    pub mount_path: Option<String>,
    /// Patterns of files to copy; default: all.
    #[serde(default)]
    pub include_glob: Vec<String>,
    /// Patterns of files that are not copied.
    #[serde(default)]
    pub exclude_glob: Vec<String>,
    /// Maximum number of bytes to copy.
    #[serde(default)]
    pub max_bytes: Option<ByteSize>,
    /// Whether links are followed, within the allowed directory.
    #[serde(default)]
    pub follow_symlinks: bool,
    /// Whether it is copied or bind-mounted.
    #[serde(default)]
    pub mode: MountMode,
}

words! {
    /// How a directory is provided in a workspace.
    MountMode {
        /// Its files are copied, once.
        #[default]
        Copy,
        /// It is bind-mounted, so changes inside are changes on the host.
        Bind,
    }
}

impl HostMount {
    /// Returns an error that can be found without reading the host's files.
    pub(super) fn fault(&self) -> Option<String> {
        let name = self.host_path.escape_debug();
        if let Err(why) = self.place() {
            return Some(format!("mount_path of `{name}`: {why}"));
        }
        if let Err((pattern, why)) = self.filter() {
            return Some(format!("`{}` of `{name}` is not a pattern: {why}", pattern.escape_debug()));
        }
        if self.mode == MountMode::Copy {
            return None;
        }
        let narrowed = !self.include_glob.is_empty() || !self.exclude_glob.is_empty() || self.max_bytes.is_some();
        if narrowed || self.follow_symlinks {
            return Some(format!("`{name}` is bound as it is: it takes no globs, no max_bytes and no follow_symlinks"));
        }
        let at_root = self.place().is_ok_and(|it| it.is_empty());
        at_root.then(|| format!("`{name}` is bound, so it needs a mount_path: the workspace itself is a volume"))
    }

    /// Builds the filter of its files.
    pub fn filter(&self) -> Result<Filter, (String, String)> {
        Filter::new(&self.include_glob, &self.exclude_glob)
    }

    /// Returns its path in the workspace: parts joined by `/`, empty for the workspace itself.
    pub fn place(&self) -> Result<String, &'static str> {
        let path = self.mount_path.as_deref().unwrap_or_default();
        let mut parts: Vec<&str> = path.split('/').map(str::trim).filter(|it| !it.is_empty()).collect();
        if parts.first() == Some(&"workspace") {
            parts.remove(0);
        }
        match parts.as_slice() {
            all if all.iter().any(|it| ["..", "."].contains(it)) => Err("it has a `.` or `..`"),
            all if all.iter().any(|it| it.contains(char::is_control)) => Err("it has a control character"),
            all if all.len() > 16 || all.iter().any(|it| it.len() > 80) => Err("it is too long"),
            all => Ok(all.join("/")),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    fn fault(mount: &str) -> Option<String> {
        let text = format!("[[workspace.mounts]]\nhost_path = \"p\"\n{mount}\n");
        Config::read(&text, false).err().map(|it| it.into_inner().message)
    }

    #[test]
    fn mounts_are_checked_when_they_are_read() {
        for fine in ["", "mount_path = \"/workspace/a/b\"", "include_glob = [\"**/*.py\", \"\"]", "max_bytes = \"1m\""]
        {
            assert_eq!(fault(fine), None, "{fine}");
        }
        assert_eq!(fault("mode = \"bind\"\nmount_path = \"src\""), None);
        for bad in [
            "mount_path = \"../x\"",
            "exclude_glob = [\"[\"]",
            "include_glob = [\"../*\"]",
            "mode = \"bind\"",
            "mode = \"bind\"\nmount_path = \"src\"\nexclude_glob = [\"x\"]",
            "mode = \"bind\"\nmount_path = \"src\"\nfollow_symlinks = true",
            "mode = \"move\"",
            "path = \"x\"",
        ] {
            let fault = fault(bad).unwrap_or_else(|| panic!("{bad} is taken"));
            assert!(fault.contains("workspace.mounts"), "{fault}");
        }
    }
}
