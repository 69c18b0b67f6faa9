//! `workspace.mounts`: directories of the host in a session's workspace.

use coracle_types::ByteSize;
use coracle_workspace::Filter;
use serde::Deserialize;

use super::macros::words;

/// A directory of the host that a workspace gets.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostMount {
    /// The directory: relative to one that is allowed, or absolute beneath it.
    pub host_path: String,
    /// Its path in the workspace; the workspace itself when missing.
    #[serde(default)]
    pub mount_path: Option<String>,
    /// Patterns of what is copied; all when there is none.
    #[serde(default)]
    pub include_glob: Vec<String>,
    /// Patterns of what is not.
    #[serde(default)]
    pub exclude_glob: Vec<String>,
    /// At most so many bytes are copied.
    #[serde(default)]
    pub max_bytes: Option<ByteSize>,
    /// Links are followed, within the directory that is allowed.
    #[serde(default)]
    pub follow_symlinks: bool,
    /// How it comes in.
    #[serde(default)]
    pub mode: MountMode,
}

words! {
    /// How a directory comes into a workspace.
    MountMode {
        /// Its files are copied, once.
        #[default]
        Copy,
        /// It is there itself, and what is changed inside is changed on the host.
        Bind,
    }
}

impl HostMount {
    /// What is wrong with it, as far as that can be told without looking at the host.
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

    /// Which of its files are meant.
    pub fn filter(&self) -> Result<Filter, (String, String)> {
        Filter::new(&self.include_glob, &self.exclude_glob)
    }

    /// Its path in the workspace: parts joined by `/`, none for the workspace itself.
    pub fn place(&self) -> Result<String, &'static str> {
        let said = self.mount_path.as_deref().unwrap_or_default();
        let mut parts: Vec<&str> = said.split('/').map(str::trim).filter(|it| !it.is_empty()).collect();
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
