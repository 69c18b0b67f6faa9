//! The user's identity and settings on the host, read once per container.

use std::path::{Path, PathBuf};

use coracle_host::find_program::find_program_in;
use coracle_host::gh::gh_token;
use coracle_host::git::{GitProgram, HostGit};
use coracle_provision::certs::ExtraCertificates;
use coracle_provision::ssh::SecretFiles;
use coracle_provision::{amplifier, env, ssh};
use coracle_runtime::PatternSet;
use coracle_types::{Redactor, Secret};

use crate::context::Context;
use crate::host::Host;
use crate::requested::Requested;

/// The data that may be passed to a container: only what was requested is read.
#[derive(Debug)]
pub struct HostIdentity {
    /// `git config --global --list --includes -z`.
    pub git: Requested<Vec<u8>>,
    pub token: Requested<Secret>,
    pub keys: Requested<SecretFiles>,
    /// `~/.ssh/known_hosts`.
    pub known_hosts: Vec<u8>,
    /// Settings of Amplifier.
    pub settings: SecretFiles,
}

/// The requested data.
#[derive(Clone, Copy, Debug)]
pub struct IdentityRequest<'a> {
    pub git: &'a Requested,
    pub gh: &'a Requested,
    pub ssh: &'a Requested,
    pub settings: bool,
}

impl HostIdentity {
    /// Reads the data. Missing files are no error.
    pub async fn read(cx: &Context, request: IdentityRequest<'_>) -> Self {
        let (git, token) = tokio::join!(git(cx, request.git), token(cx, request.gh));
        let ssh = cx.host.home.join(".ssh");
        // The patterns were validated with the configuration; an invalid one matches nothing.
        let patterns = PatternSet::new(&cx.config.auto_passthrough.ssh_keys).unwrap_or_default();
        let keys = match request.ssh {
            Requested::No(why) => Requested::No(why.clone()),
            Requested::Yes(()) => Requested::Yes(ssh::read(&ssh, &patterns)),
        };
        let settings = match request.settings {
            true => amplifier::read(&cx.host.home.join(".amplifier")),
            false => SecretFiles::default(),
        };
        let known_hosts = std::fs::read(ssh.join("known_hosts")).unwrap_or_default();
        Self { git, token, keys, known_hosts, settings }
    }
}

/// Returns the host's own certificate authorities.
pub fn certs(cx: &Context, wanted: &Requested) -> Requested<ExtraCertificates> {
    match wanted {
        Requested::No(why) => Requested::No(why.clone()),
        Requested::Yes(()) => {
            Requested::Yes(ExtraCertificates::read(Path::new("/"), &cx.config.auto_passthrough.ca_files))
        }
    }
}

/// Returns the authorities for an image that is not built for a user.
pub fn trusted_certificates(cx: &Context) -> Requested<ExtraCertificates> {
    certs(cx, &Requested::Yes(()))
}

async fn git(cx: &Context, wanted: &Requested) -> Requested<Vec<u8>> {
    if let Requested::No(why) = wanted {
        return Requested::No(why.clone());
    }
    match user_git(cx).await.global_config(&cx.host.home, Some(&cx.host.config_home)).await {
        Ok(config) => Requested::Yes(config),
        Err(why) => Requested::No(why.to_string()),
    }
}

async fn token(cx: &Context, wanted: &Requested) -> Requested<Secret> {
    if let Requested::No(why) = wanted {
        return Requested::No(why.clone());
    }
    let Ok(program) = find_program_in("gh", &trusted_path(cx)) else {
        return Requested::No("the host has no `gh`".into());
    };
    match gh_token(&program, &cx.config.auto_passthrough.gh_host, &cx.host.env).await {
        Ok(token) => Requested::Yes(token),
        Err(why) => Requested::No(why.to_string()),
    }
}

/// The values of this process's variables with secret names, to be redacted from output.
pub fn secrets_of(host: &Host) -> Redactor {
    let secrets = host.env.iter().filter(|(name, _)| !env::is_plain(name, "", std::iter::empty()));
    Redactor::new(secrets.map(|(name, value)| (name.clone(), value.clone())).collect())
}

/// Returns the user's `PATH`.
pub fn search_path(host: &Host) -> String {
    host.env.get("PATH").map(|it| String::from_utf8_lossy(it.reveal()).into_owned()).unwrap_or_default()
}

/// Returns the directories of the user's `PATH` to which no container can write: absolute, with links resolved, and not
/// below a directory that may be mounted.
pub fn trusted_path(cx: &Context) -> Vec<PathBuf> {
    let path = search_path(&cx.host);
    let roots = cx.policy().map(|it| it.allow_roots).unwrap_or_default();
    let outside = |dir: &Path| !roots.iter().any(|root| dir.starts_with(root));
    let trusted =
        |dir: &PathBuf| dir.is_absolute() && outside(dir) && dir.canonicalize().is_ok_and(|real| outside(&real));
    std::env::split_paths(&path).filter(trusted).collect()
}

/// Returns the newest git on the host, including the user's own directories.
pub async fn user_git(cx: &Context) -> GitProgram {
    GitProgram::of_this_host(&trusted_path(cx)).await
}
