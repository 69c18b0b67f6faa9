//! The spec of a sandbox's container, with all defaults resolved.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use coracle_context::config::{Config, SandboxNetwork, SandboxProfile};
use coracle_context::context::Context;
use coracle_context::engines::Ready;
use coracle_context::failure::{Code, Failure};
use coracle_context::{container_guest, egress, git_programs, strict};
use coracle_devcontainer::mounts::{MountKind, MountRequest};
use coracle_host::fs::HostPath;
use coracle_lifecycle::{ContainerTemplate, GuestProgram};
use coracle_runtime::{
    Access, Capabilities, CreateSpec, HostEntry, Limits, Mount, NetworkRequest, PatternSet, Policy, Tmpfs, Ulimits,
};
use coracle_sandbox::Transport;
use coracle_sandbox::devcontainer_state::DevcontainerState;
use coracle_types::{ByteSize, ContainerName, ContainerPath, EngineKind, Ids, ImageRef, NetworkName};
use coracle_worktrees::shared::{READ_ONLY, SharedDir};

use super::devcontainer;
use crate::image_build::{NamedImage, owned, sandbox_image};
use crate::preflight::ensure_ready;
use crate::resolve;

/// The directory of files in the container.
const ROOT: &str = "/workspace";

/// The agent's home directory, on the volume if the files are the host's.
const HOME: &str = "/home/agent";

/// Limits of each process if no process inside is root.
const ULIMITS: Ulimits = Ulimits { nofile: None, core: Some(0) };

/// The settings of a container: it is replaced when they change. Records store the `Debug` text, so renaming a type or
/// a field here replaces every container.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Plan {
    image: Option<ImageRef>,
    limits: Limits,
    agent: Ids,
    home: String,
    /// The host directory of the files.
    shared: Option<PathBuf>,
    /// From the repository's `devcontainer.json`: host directories, and directories in memory.
    binds: Vec<Bind>,
    memory: Vec<ContainerPath>,
    /// Names that are mounted read-only over writable host directories.
    protected: Vec<String>,
    network: SandboxNetwork,
    transport: Transport,
    worn: HandedDevcontainer,
    /// No process inside is root.
    strict: bool,
}

/// A host directory, and where it is mounted.
pub(crate) type Bind = (PathBuf, ContainerPath, Access);

/// What the image is built from. It is not compared, since the image is.
#[derive(Clone, Default)]
struct HandedDevcontainer(Option<Arc<DevcontainerState>>);

impl PartialEq for HandedDevcontainer {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl fmt::Debug for HandedDevcontainer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Records of earlier versions contain this text in their settings; see `Plan`.
        f.write_str("Handed")
    }
}

impl Plan {
    pub(super) fn new(
        config: &Config,
        profile: &SandboxProfile,
        shared: Option<&SharedDir>,
        worn: Option<&Arc<DevcontainerState>>,
        transport: Transport,
    ) -> Self {
        let own = &config.sandbox;
        let agent = worn.map(|it| it.record.agent.clone()).unwrap_or_default();
        let requested = || worn.iter().flat_map(|it| &it.file.mounts);
        let binds: Vec<_> = requested().filter_map(|it| bind(config, it)).collect();
        let memory = requested().filter(|it| it.kind == MountKind::Tmpfs).map(|it| it.at.clone()).collect();
        Self {
            image: worn.map(|it| it.image().clone()).or_else(|| profile.image.clone()),
            limits: Limits { memory: Some(own.memory), cpus: Some(own.cpus), pids: Some(own.pids) },
            // Files on the host belong to their owner, whatever user the repository's file names.
            agent: match config.is_strict() {
                true => strict::USER,
                false => shared.map_or(agent.ids, SharedDir::agent),
            },
            home: if shared.is_some() { HOME.to_owned() } else { agent.home },
            protected: protected(config, shared.is_some(), &binds),
            shared: shared.map(|it| it.path().to_owned()),
            binds,
            memory,
            network: own.network,
            transport,
            worn: HandedDevcontainer(worn.cloned()),
            strict: config.is_strict(),
        }
    }

    /// Returns the exec user and its home directory.
    pub(super) fn agent(&self) -> (Ids, String) {
        (self.agent, self.home.clone())
    }

    /// Whether its private network is internal; none if it has no private network.
    pub(super) fn internal(&self) -> Option<bool> {
        (self.transport == Transport::Tcp).then_some(self.network != SandboxNetwork::Bridge)
    }

    fn spec(&self, image: ImageRef, sockets: &Path, network: Option<NetworkName>) -> Result<CreateSpec, Failure> {
        let place = ContainerPath::parse;
        let by_sockets = self.transport == Transport::Unix;
        let mut mounts: Vec<_> = by_sockets.then(|| egress::mount(sockets)).transpose()?.into_iter().collect();
        let open = |path: &Path| HostPath::open(path).map_err(|err| Failure::internal(format!("{err}")));
        if let Some(dir) = &self.shared {
            let host = open(dir)?;
            if host.real() != dir {
                return Err(Failure::internal(format!("a link is in the place of `{}`", dir.display())));
            }
            mounts.push(Mount { host, at: place(ROOT)?, access: Access::ReadWrite });
        }
        let bind = |(path, at, access): &Bind| Ok(Mount { host: open(path)?, at: at.clone(), access: *access });
        let binds = self.binds.iter().map(bind).collect::<Result<Vec<_>, Failure>>()?;
        // The mount may have become writable after the file was validated.
        resolve::protected::check(&binds, &self.protected)?;
        mounts.extend(binds);
        let tmpfs = |at| Tmpfs { at, size: ByteSize::mib(1024), mode: 0o1777 };
        let memory = self.memory.iter().filter(|it| it.as_str() != "/tmp").cloned();
        let (capabilities, home) = match self.strict {
            true => (Capabilities::None, Some(Tmpfs { mode: 0o700, ..tmpfs(place(HOME)?) })),
            false => (Capabilities::Guest, None),
        };
        Ok(CreateSpec {
            exec_user: self.agent,
            network: match network {
                Some(own) => NetworkRequest::Named(own),
                None if self.network == SandboxNetwork::Bridge => NetworkRequest::Bridge,
                None => NetworkRequest::None,
            },
            limits: self.limits,
            tmpfs: [place("/tmp")?].into_iter().chain(memory).map(tmpfs).chain(home).collect(),
            mounts,
            read_only: self.strict,
            ulimits: if self.strict { ULIMITS } else { Ulimits::default() },
            capabilities,
            // The sandbox replaces this name.
            ..CreateSpec::new(ContainerName::parse("sandbox")?, image)
        })
    }

    /// Builds or fetches its image.
    pub(super) async fn image(&self, cx: &Context, ready: &Ready) -> Result<NamedImage, Failure> {
        match &self.worn.0 {
            Some(worn) => devcontainer::image_of(cx, ready, worn).await,
            None if self.strict => {
                let plain = sandbox_image(cx, ready, self.image.as_ref()).await?;
                owned(cx, ready, &plain, &[ROOT]).await
            }
            None => sandbox_image(cx, ready, self.image.as_ref()).await,
        }
    }

    /// Prepares everything for the container: the directory of its proxy's sockets, or the network on which it
    /// reaches the proxy.
    pub(super) async fn template(
        &self,
        cx: &Context,
        sockets: &Path,
        network: Option<NetworkName>,
    ) -> Result<ContainerTemplate, Failure> {
        let ready = ensure_ready(cx).await?;
        if self.strict {
            strict::check(&ready, &self.limits)?;
        }
        let NamedImage { image, reference } = self.image(cx, &ready).await?;
        let Some(program) = container_guest::program(cx, &*ready.runtime, &image)? else {
            let message = "a sandbox needs the guest, and this container gets none";
            let hint = "leave `guest` out of the configuration, and use an image for an architecture of this release";
            return Err(Failure::new(Code::Unsupported, message).detail("capability", "guest").hint(hint));
        };
        let worker = container_guest::worker(cx, &*ready.runtime, &image)?;
        let mut spec = self.spec(ImageRef::parse(&reference)?, sockets, network)?;
        // On the embedded engine only a named network leads to the host, where the proxy listens.
        if self.transport == Transport::Tcp && ready.runtime.kind() == EngineKind::Embedded {
            spec.add_hosts.push(HostEntry { name: "host.docker.internal".into(), address: None });
        }
        let mut protected = self.protected.clone();
        let writable = self.binds.iter().filter(|it| it.2 == Access::ReadWrite);
        let named = git_programs::protected(cx, writable.map(|it| it.0.as_path())).await;
        protected.extend(named.into_iter().filter(|it| it.starts_with('/')));
        Ok(ContainerTemplate {
            spec,
            policy: self.policy(cx, sockets)?,
            image,
            reference,
            guest: GuestProgram { worker, ..program },
            volume_at: ContainerPath::parse(if self.shared.is_some() { HOME } else { ROOT })?,
            workdir: ContainerPath::parse(ROOT)?,
            env: variables(&[("HOME", &self.home), ("LANG", "C.UTF-8")]),
            volume_size: None,
            fill: None,
            protected,
            max_containers_total: cx.config.max_containers_total as usize,
            tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        })
    }

    /// The configured policy, but with no host data except Coracle's own and what the repository's file mounts.
    fn policy(&self, cx: &Context, sockets: &Path) -> Result<Policy, Failure> {
        let mut policy = cx.policy()?;
        if self.binds.is_empty() {
            policy.allow_roots.clear();
        }
        policy.allow_roots.extend(self.shared.clone());
        if self.transport == Transport::Unix {
            egress::admit(&mut policy, sockets);
        }
        // A network on which only the proxy is reachable is not open; a test verifies that before it is used.
        policy.open_network |= self.internal() == Some(true);
        policy.allow_host_gateway |= self.transport == Transport::Tcp;
        if self.worn.0.as_ref().is_some_and(|it| it.is_built()) {
            // The policy already checked the image that it was built from.
            policy.images = PatternSet::new(&["*".to_owned()]).unwrap_or_default();
        }
        Ok(policy)
    }
}

/// Resolves a mount of a repository's file on the host: read-only, unless the configuration grants more.
pub fn bind(config: &Config, mount: &MountRequest) -> Option<Bind> {
    let MountKind::Bind(source) = &mount.kind else { return None };
    let source = PathBuf::from(source);
    let real = source.canonicalize().unwrap_or(source);
    let granted = config.sandbox.writable_mounts.iter().any(|it| real.starts_with(it)) && !mount.read_only;
    let access = if granted { Access::ReadWrite } else { Access::ReadOnly };
    Some((real, mount.at.clone(), access))
}

/// Lists the protected names in all writable directories: Coracle's in a shared directory, and files that the user's
/// programs run.
fn protected(config: &Config, shared: bool, binds: &[Bind]) -> Vec<String> {
    let ours = READ_ONLY.iter().filter(|_| shared).map(|it| (*it).to_owned());
    let writable = binds.iter().any(|it| it.2 == Access::ReadWrite);
    ours.chain(config.workspace.protected.iter().filter(|_| writable).cloned()).collect()
}

fn variables(all: &[(&str, &str)]) -> BTreeMap<String, String> {
    all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}
