//! Coracle's state directory.

use std::fs::{DirBuilder, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use coracle_host::state_file::names;
use coracle_host::tree_sweep::sweep_path;
use coracle_lifecycle::SlotRole;
use coracle_types::{ContainerName, RecordId};

use crate::config::Config;
use crate::failure::{Failure, is_full};
use crate::host::Host;

/// The file that marks a directory as Coracle's.
const MARKER: &str = "CORACLE_STATE";

/// The paths in the state directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateDir {
    root: PathBuf,
}

impl StateDir {
    /// Creates the paths without accessing them.
    #[must_use]
    pub fn at(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// Creates the directory if it is missing. An existing one is not changed: it has to be empty or Coracle's, and
    /// inaccessible to other users.
    ///
    /// # Errors
    /// `config_invalid`.
    pub fn open(given: Option<&Path>, config: &Config, host: &Host) -> Result<Self, Failure> {
        let path = place(given, config, host);
        let refuse = |Unusable { reason, hint }: Unusable| {
            let message = format!("the state directory `{}` cannot be used: {reason}", path.display());
            Failure::config("state_dir", None, message).hint(hint)
        };
        let is_named = given.is_some() || config.state_dir.is_some();
        let refuse_io = |err: io::Error| match is_full(&err) {
            true => Failure::state_dir_full(&path, &err),
            false => refuse(err.into()),
        };
        let root = create(&path).map_err(refuse_io)?;
        check(&root, host.uid, is_named).map_err(refuse)?;
        sweep_path(&root);
        let state = Self { root };
        state.create_content().map_err(refuse_io)?;
        Ok(state)
    }

    /// The marker is created first, so that other processes never find the other directories without it.
    fn create_content(&self) -> io::Result<()> {
        match File::create_new(self.root.join(MARKER)) {
            Ok(mut marker) => marker.write_all(b"The state directory of Coracle.\n")?,
            Err(err) if err.kind() == io::ErrorKind::AlreadyExists => {}
            Err(err) => return Err(err),
        }
        for dir in [self.scratch(), self.empty(), self.audit(), self.engine_config()] {
            DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        }
        Ok(())
    }

    /// The directory itself.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The scratch directory, which containers may mount.
    #[must_use]
    pub fn scratch(&self) -> PathBuf {
        self.root.join("scratch")
    }

    /// An empty directory.
    #[must_use]
    pub fn empty(&self) -> PathBuf {
        self.root.join("empty")
    }

    /// The audit trail.
    #[must_use]
    pub fn audit(&self) -> PathBuf {
        self.root.join("audit")
    }

    /// The configuration of engines.
    #[must_use]
    pub fn engine_config(&self) -> PathBuf {
        self.root.join("engine")
    }

    /// The last good verdict of preflight.
    #[must_use]
    pub fn preflight(&self) -> PathBuf {
        self.root.join("preflight.json")
    }

    /// Warnings that sessions have got once: one empty file each.
    pub fn reported(&self) -> PathBuf {
        self.root.join("reported")
    }

    /// Directory of the proxy's sockets of a session's container, below the session's own directory.
    pub fn session_proxy(&self, session: &ContainerName, role: SlotRole) -> PathBuf {
        self.session(session).join("proxy").join(role.as_str())
    }

    /// Directory of the proxy of a container that `create` made.
    pub fn container_proxy(&self, container: &RecordId) -> PathBuf {
        self.root.join("proxy").join(container.as_str())
    }

    /// The directories of all proxies of containers.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn proxies(&self) -> Result<Vec<PathBuf>, Failure> {
        let dirs = |of: &Path| -> Result<Vec<PathBuf>, Failure> {
            Ok(names(of)?.into_iter().filter(|it| it.is_dir()).collect())
        };
        let below = |all: &[PathBuf]| -> Result<Vec<PathBuf>, Failure> {
            Ok(all.iter().map(|it| dirs(it)).collect::<Result<Vec<_>, _>>()?.concat())
        };
        let sessions: Vec<_> = dirs(&self.root.join("sessions"))?.iter().map(|it| it.join("proxy")).collect();
        let containers = below(&dirs(&self.root.join("proxy"))?)?;
        Ok([below(&below(&sessions)?)?, containers, dirs(&self.root.join("sandboxes"))?].concat())
    }

    /// Directory of the records of requests, which outlive their containers.
    pub fn recorded(&self) -> PathBuf {
        self.root.join("recorded")
    }

    /// Directory of a session.
    pub fn session(&self, session: &ContainerName) -> PathBuf {
        self.root.join("sessions").join(session.as_str())
    }

    /// Removes the proxy of a role whose container was removed for good.
    pub(crate) fn forget_session_proxy(&self, session: &ContainerName, role: SlotRole) {
        let place = self.session_proxy(session, role);
        let _ = std::fs::remove_dir_all(&place);
        // Removes the parent directory too, if it is empty.
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

    /// The resource usage of containers in the last hour.
    #[must_use]
    pub fn usage(&self) -> PathBuf {
        self.root.join("usage")
    }

    /// The token for reading metrics, which is valid for nothing else.
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

/// Why a directory is refused, and the hint.
struct Unusable {
    reason: String,
    hint: String,
}

impl From<io::Error> for Unusable {
    fn from(err: io::Error) -> Self {
        Self { reason: err.to_string(), hint: "choose another one with `state_dir` or `--state-dir`".to_owned() }
    }
}

fn create(path: &Path) -> io::Result<PathBuf> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    path.canonicalize()
}

/// Checks that no other user can access the directory. A configured one may belong to another program or a project: it
/// is accepted only if it is empty or has Coracle's files.
fn check(root: &Path, uid: u32, is_named: bool) -> Result<(), Unusable> {
    let meta = root.metadata()?;
    if meta.uid() != uid {
        let owner = if uid == 0 { "run without `sudo`, as its owner" } else { "run as its owner" };
        let hint = format!("{owner}, or choose another one with `state_dir` or `--state-dir`");
        return Err(Unusable { reason: format!("it belongs to user {}", meta.uid()), hint });
    }
    if is_named && !is_ours(root) && root.read_dir()?.next().is_some() {
        let reason = "it has files that are not Coracle's".to_owned();
        let hint = format!("choose a new or empty one, such as `{}`", root.join("coracle").display());
        return Err(Unusable { reason, hint });
    }
    if meta.mode() & 0o077 != 0 {
        let reason = format!("others can open it (its mode is {:o})", meta.mode() & 0o7777);
        let path = root.display().to_string();
        let path = shlex::try_quote(&path).unwrap_or_default();
        let hint = format!("close it with `chmod 700 {path}`, or choose one that does not exist yet");
        return Err(Unusable { reason, hint });
    }
    Ok(())
}

/// Versions before the marker had the key, or a trail beside the scratch directory.
fn is_ours(root: &Path) -> bool {
    let has_file = |name: &str| root.join(name).symlink_metadata().is_ok_and(|it| it.is_file());
    let has_dir = |name: &str| root.join(name).symlink_metadata().is_ok_and(|it| it.is_dir());
    has_file(MARKER) || (has_dir("audit") && has_dir("scratch") && (has_file("key") || has_dir("empty")))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt};
    use std::path::Path;

    use coracle_types::LabelNamespace;

    use super::{StateDir, place};

    use crate::config::Config;
    use crate::host::Host;

    #[test]
    fn it_is_where_the_user_configures_it() {
        let host = Host::below(Path::new("/h"));
        let other = Config { label_namespace: LabelNamespace::parse("amplifier").unwrap(), ..Config::default() };
        let set = Config { state_dir: Some("/s".into()), ..Config::default() };
        assert_eq!(place(None, &Config::default(), &host), Path::new("/h/state/coracle"));
        assert_eq!(place(None, &other, &host), Path::new("/h/state/coracle/ns/amplifier"));
        assert_eq!(place(None, &set, &host), Path::new("/s"));
        assert_eq!(place(Some(Path::new("x")), &set, &host), Path::new("/h/work/x"));
    }

    fn opened(dir: &Path, host: &Host) -> Result<StateDir, (String, String)> {
        let opened = StateDir::open(Some(dir), &Config::default(), host);
        opened.map_err(|failure| (failure.message.clone(), failure.hint.clone().unwrap_or_default()))
    }

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().mode() & 0o7777
    }

    #[test]
    fn a_directory_of_others_is_refused_and_not_changed() {
        let dir = tempfile::tempdir().unwrap();
        let host = Host::below(dir.path());
        let at = |name: &str| dir.path().join(name);
        for (name, bits, file) in [
            ("project", 0o755, Some("main.c")),
            ("private", 0o700, Some("key")),
            ("open", 0o755, None),
            ("tmp", 0o1777, None),
        ] {
            std::fs::create_dir(at(name)).unwrap();
            std::fs::set_permissions(at(name), PermissionsExt::from_mode(bits)).unwrap();
            file.map_or(Ok(()), |file| std::fs::write(at(name).join(file), "")).unwrap();
            let (message, hint) = opened(&at(name), &host).unwrap_err();
            let expected = match file {
                Some(_) => ("files that are not Coracle's", "new or empty"),
                None => ("others can open it", "chmod 700 "),
            };
            assert!(message.contains(expected.0) && hint.contains(expected.1), "{message}; {hint}");
            assert_eq!(mode(&at(name)), bits, "{name}");
            assert_eq!(at(name).read_dir().unwrap().count(), usize::from(file.is_some()), "{name}");
        }
        std::fs::set_permissions(at("open"), PermissionsExt::from_mode(0o700)).unwrap();
        opened(&at("open"), &host).unwrap();
        let stranger = Host { uid: host.uid + 1, ..host };
        assert!(opened(&at("open"), &stranger).unwrap_err().0.contains("belongs to user"));
    }

    #[test]
    fn a_directory_of_ours_is_opened_again_also_one_of_an_earlier_version() {
        let dir = tempfile::tempdir().unwrap();
        let host = Host::below(dir.path());
        let state = opened(&dir.path().join("new/deep"), &host).unwrap();
        assert_eq!(mode(state.root()), 0o700);
        assert_eq!(opened(state.root(), &host).unwrap(), state);
        std::fs::remove_file(state.root().join(super::MARKER)).unwrap();
        assert_eq!(opened(state.root(), &host).unwrap(), state);
        // The default one contains directories of other namespaces.
        std::fs::create_dir_all(dir.path().join("state/coracle/ns")).unwrap();
        std::fs::set_permissions(dir.path().join("state/coracle"), PermissionsExt::from_mode(0o700)).unwrap();
        assert!(StateDir::open(None, &Config::default(), &host).is_ok());
    }
}
