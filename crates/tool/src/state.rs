//! The directory that we keep our things in (containers.md 2.11).

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use coracle_lifecycle::SlotRole;
use coracle_runtime::ContainerName;

use crate::config::Config;
use crate::failure::Failure;
use crate::host::Host;

/// Where things are within the state directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateDir {
    root: PathBuf,
}

impl StateDir {
    /// Names the places without looking at them.
    #[must_use]
    pub fn at(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// Makes the directory if it is missing, and makes sure that it is the person's alone.
    ///
    /// # Errors
    /// `config_invalid`.
    pub fn open(given: Option<&Path>, config: &Config, host: &Host) -> Result<Self, Failure> {
        let path = place(given, config, host);
        let refuse = |why: String| {
            let message = format!("the state directory `{}` cannot be used: {why}", path.display());
            Failure::config("state_dir", None, message).hint("name another with `state_dir` or `--state-dir`")
        };
        let make = || {
            DirBuilder::new().recursive(true).mode(0o700).create(&path)?;
            path.canonicalize()
        };
        let root = make().map_err(|err| refuse(err.to_string()))?;
        private(&root, host.uid).map_err(|err| refuse(err.to_string()))?;
        let state = Self { root };
        for dir in [state.scratch(), state.empty(), state.audit(), state.engine_config()] {
            DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(|err| refuse(err.to_string()))?;
        }
        Ok(state)
    }

    /// The directory itself.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The scratch directory, which containers may have mounted.
    #[must_use]
    pub fn scratch(&self) -> PathBuf {
        self.root.join("scratch")
    }

    /// A directory with nothing in it.
    #[must_use]
    pub fn empty(&self) -> PathBuf {
        self.root.join("empty")
    }

    /// The audit trail.
    #[must_use]
    pub fn audit(&self) -> PathBuf {
        self.root.join("audit")
    }

    /// The configuration that engines run with.
    #[must_use]
    pub fn engine_config(&self) -> PathBuf {
        self.root.join("engine")
    }

    /// The last good verdict of preflight.
    #[must_use]
    pub fn preflight(&self) -> PathBuf {
        self.root.join("preflight.json")
    }

    /// Where the proxy of a session's container keeps its sockets, below the session's own directory.
    pub(crate) fn session_proxy(&self, session: &ContainerName, role: SlotRole) -> PathBuf {
        self.session(session).join("proxy").join(role.as_str())
    }

    /// Where a session keeps its own things.
    pub(crate) fn session(&self, session: &ContainerName) -> PathBuf {
        self.root.join("sessions").join(session.as_str())
    }

    /// Removes the proxy of a role whose container has ended for good.
    pub(crate) fn forget_session_proxy(&self, session: &ContainerName, role: SlotRole) {
        let place = self.session_proxy(session, role);
        let _ = std::fs::remove_dir_all(&place);
        // And with the last of them what they lay in.
        let _ = place.parent().map(std::fs::remove_dir);
        if role == SlotRole::Run {
            let _ = std::fs::remove_dir_all(self.session(session).join("code"));
        }
    }

    /// The token of agents over HTTP.
    #[must_use]
    pub fn mcp_token(&self) -> PathBuf {
        self.root.join("mcp-token")
    }

    /// Keys and the configuration of ssh clients.
    #[must_use]
    pub fn ssh(&self) -> PathBuf {
        self.root.join("ssh")
    }

    /// The token of programs over HTTP.
    #[must_use]
    pub fn serve_token(&self) -> PathBuf {
        self.root.join("serve-token")
    }

    /// What containers used in the last hour.
    #[must_use]
    pub fn usage(&self) -> PathBuf {
        self.root.join("usage")
    }

    /// The token of what reads metrics, which opens nothing else.
    #[must_use]
    pub fn metrics_token(&self) -> PathBuf {
        self.root.join("metrics-token")
    }
}

fn place(given: Option<&Path>, config: &Config, host: &Host) -> PathBuf {
    if let Some(path) = given {
        return host.path(path);
    }
    let usual = host.state_home.join("coracle");
    match (&config.state_dir, config.label_namespace.as_str()) {
        (Some(path), _) => path.clone(),
        (None, "coracle") => usual,
        (None, namespace) => usual.join("ns").join(namespace),
    }
}

fn private(root: &Path, uid: u32) -> io::Result<()> {
    let meta = root.metadata()?;
    if meta.uid() != uid {
        return Err(io::Error::other(format!("it belongs to user {}", meta.uid())));
    }
    if meta.mode() & 0o077 != 0 {
        std::fs::set_permissions(root, PermissionsExt::from_mode(0o700))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::path::Path;

    use coracle_runtime::LabelNamespace;

    use super::{StateDir, place};

    use crate::config::Config;
    use crate::host::Host;

    #[test]
    fn it_lies_where_the_person_says() {
        let host = Host::below(Path::new("/h"));
        let other = Config { label_namespace: LabelNamespace::parse("amplifier").unwrap(), ..Config::default() };
        let set = Config { state_dir: Some("/s".into()), ..Config::default() };
        assert_eq!(place(None, &Config::default(), &host), Path::new("/h/state/coracle"));
        assert_eq!(place(None, &other, &host), Path::new("/h/state/coracle/ns/amplifier"));
        assert_eq!(place(None, &set, &host), Path::new("/s"));
        assert_eq!(place(Some(Path::new("x")), &set, &host), Path::new("/h/work/x"));
    }

    #[test]
    fn it_is_the_persons_alone() {
        let dir = tempfile::tempdir().unwrap();
        let host = Host::below(dir.path());
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let state = StateDir::open(Some(dir.path()), &Config::default(), &host).unwrap();
        assert_eq!(state.root().metadata().unwrap().mode() & 0o777, 0o700);
        let stranger = Host { uid: host.uid + 1, ..host };
        let failure = StateDir::open(Some(dir.path()), &Config::default(), &stranger).unwrap_err();
        assert!(failure.message.contains("belongs to user"), "{}", failure.message);
    }
}
