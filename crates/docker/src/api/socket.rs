//! The socket of an engine's API, and the check of its owner.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use coracle_engine_program::{ApiUse, EngineSettings};

use super::{ApiFault, ApiResult};
use crate::Dialect;

const PODMAN_OF_ROOT: &str = "/run/podman/podman.sock";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ApiSocket {
    pub(crate) path: PathBuf,
    /// Ids of the users who may own the socket, and may be its peer.
    pub(super) owners: Vec<u32>,
    /// The program finds its storage by itself, so that the service at the socket could use another.
    pub(crate) needs_storage_proof: bool,
}

impl ApiSocket {
    /// The socket of an engine, as seen by the user `me`. It need not exist.
    pub(crate) fn for_engine(dialect: Dialect, settings: &EngineSettings, endpoint: &str, me: u32) -> Option<Self> {
        let anyone_trusted = vec![0, me];
        match &settings.api {
            ApiUse::Never => return None,
            ApiUse::At(path) => {
                let needs_storage_proof = dialect == Dialect::Podman;
                return Some(Self { path: path.clone(), owners: anyone_trusted, needs_storage_proof });
            }
            // The endpoint of a configured program is known only if it is configured, too.
            ApiUse::Auto if settings.program.is_some() && settings.endpoint.is_none() => return None,
            ApiUse::Auto => {}
        }
        if let Some(path) = endpoint.strip_prefix("unix://") {
            return Some(Self { path: path.into(), owners: anyone_trusted, needs_storage_proof: false });
        }
        // Elsewhere than on Linux, Podman's containers run in a virtual machine.
        let is_local_podman = dialect == Dialect::Podman && settings.endpoint.is_none() && cfg!(target_os = "linux");
        let path = match me {
            _ if !is_local_podman => return None,
            0 => PODMAN_OF_ROOT.into(),
            _ => settings.runtime_dir.as_ref()?.join("podman/podman.sock"),
        };
        Some(Self { path, owners: vec![me], needs_storage_proof: true })
    }

    /// The file is one that only trusted users can have made.
    pub(super) fn check_file(&self) -> ApiResult<()> {
        let file = std::fs::metadata(&self.path).map_err(|err| match err.kind() {
            ErrorKind::NotFound => ApiFault::Missing,
            _ => ApiFault::Refused(err),
        })?;
        self.check_peer(file.uid())
    }

    /// The process that listens belongs to a trusted user.
    pub(super) fn check_peer(&self, uid: u32) -> ApiResult<()> {
        if self.owners.contains(&uid) { Ok(()) } else { Err(ApiFault::ForeignOwner(uid)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: u32 = 1000;

    fn settings(api: ApiUse) -> EngineSettings {
        EngineSettings {
            program: None,
            endpoint: None,
            config_dir: "/c".into(),
            home: "/h".into(),
            runtime_dir: Some("/run/user/1000".into()),
            temp_dir: "/t".into(),
            api,
            ssh_config: None,
            ssh_agent: None,
            logins: Default::default(),
        }
    }

    fn path(dialect: Dialect, settings: &EngineSettings, endpoint: &str, me: u32) -> Option<String> {
        Some(ApiSocket::for_engine(dialect, settings, endpoint, me)?.path.display().to_string())
    }

    #[test]
    fn the_socket_is_that_of_the_engine_which_the_program_speaks_to() {
        let auto = settings(ApiUse::Auto);
        let docker = |endpoint| path(Dialect::Docker, &auto, endpoint, ME);
        assert_eq!(docker("unix:///var/run/docker.sock").as_deref(), Some("/var/run/docker.sock"));
        assert_eq!(docker("ssh://me@there").or(docker("tcp://127.0.0.1:2375")), None);
        let podman = |me| path(Dialect::Podman, &auto, "local", me);
        assert_eq!(podman(0).as_deref(), Some(PODMAN_OF_ROOT));
        assert_eq!(podman(ME).as_deref(), Some("/run/user/1000/podman/podman.sock"));
        let remote = EngineSettings { endpoint: Some("ssh://me@there".into()), ..auto };
        assert_eq!(path(Dialect::Podman, &remote, "ssh://me@there", ME), None);
    }

    #[test]
    fn no_socket_is_guessed_for_a_program_of_the_persons_choice() {
        let own = EngineSettings { program: Some("/opt/docker".into()), ..settings(ApiUse::Auto) };
        assert_eq!(path(Dialect::Docker, &own, "unix:///var/run/docker.sock", ME), None);
        assert_eq!(path(Dialect::Podman, &own, "local", ME), None);
        let configured = EngineSettings { endpoint: Some("unix:///s".into()), ..own };
        assert_eq!(path(Dialect::Docker, &configured, "unix:///s", ME).as_deref(), Some("/s"));
        let never = settings(ApiUse::Never);
        assert_eq!(path(Dialect::Docker, &never, "unix:///var/run/docker.sock", ME), None);
    }

    #[test]
    fn a_socket_of_another_user_is_not_used() {
        let owners =
            |dialect, endpoint, me| ApiSocket::for_engine(dialect, &settings(ApiUse::Auto), endpoint, me).unwrap();
        let is_trusted = |socket: &ApiSocket, uid| socket.check_peer(uid).is_ok();
        let docker = owners(Dialect::Docker, "unix:///s", ME);
        assert!(is_trusted(&docker, 0) && is_trusted(&docker, ME) && !is_trusted(&docker, 1001));
        let rootless = owners(Dialect::Podman, "local", ME);
        assert!(!is_trusted(&rootless, 0) && is_trusted(&rootless, ME));
        let of_root = owners(Dialect::Podman, "local", 0);
        assert!(is_trusted(&of_root, 0) && !is_trusted(&of_root, ME));
    }
}
