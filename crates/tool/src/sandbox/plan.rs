//! What a sandbox's container is made of (sandbox.md 1.2), with every default decided.

use std::collections::BTreeMap;
use std::path::Path;

use coracle_lifecycle::{Blueprint, GuestProgram};
use coracle_runtime::host::fs::HostPath;
use coracle_runtime::{
    Access, ByteSize, Capabilities, ContainerName, ContainerPath, CreateSpec, ImageRef, Limits, Mount, NetworkAsk,
    Policy, Tmpfs,
};
use coracle_sandbox::AGENT;
use sha2::{Digest as _, Sha256};

use crate::config::{Config, SandboxProfile};
use crate::context::Context;
use crate::failure::{Code, Failure};
use crate::ops::preflight::{Ready, ensure_ready};
use crate::{guest, tools};

/// Where the proxy's sockets are inside.
const PROXY_AT: &str = "/.coracle/proxy";

/// What decides what a container is: another one is made when it changes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Plan {
    image: Option<ImageRef>,
    limits: Limits,
}

impl Plan {
    pub(super) fn of(config: &Config, profile: &SandboxProfile) -> Self {
        let own = &config.sandbox;
        Self {
            image: profile.image.clone(),
            limits: Limits { memory: Some(own.memory), cpus: Some(own.cpus), pids: Some(own.pids) },
        }
    }

    /// Tells it from every other.
    pub(super) fn hash(&self) -> String {
        hex::encode(Sha256::digest(format!("{self:?}")))
    }

    fn spec(&self, image: ImageRef, sockets: &Path) -> Result<CreateSpec, Failure> {
        let place = ContainerPath::parse;
        let sockets = HostPath::open(sockets).map_err(|err| Failure::internal(format!("{err}")))?;
        Ok(CreateSpec {
            exec_user: AGENT,
            network: NetworkAsk::None,
            limits: self.limits,
            tmpfs: vec![Tmpfs { at: place("/tmp")?, size: ByteSize::mib(1024), mode: 0o1777 }],
            mounts: vec![Mount { host: sockets, at: place(PROXY_AT)?, access: Access::ReadOnly }],
            capabilities: Capabilities::Guest,
            // The sandbox gives it a name of its own.
            ..CreateSpec::new(ContainerName::parse("sandbox")?, image)
        })
    }

    /// Its image, made or fetched.
    pub(super) async fn image(&self, cx: &Context, ready: &Ready) -> Result<tools::Imaged, Failure> {
        tools::sandbox_image(cx, ready, self.image.as_ref()).await
    }

    /// All that a container needs. `sockets` is the directory of its own proxy.
    pub(super) async fn blueprint(&self, cx: &Context, sockets: &Path) -> Result<Blueprint, Failure> {
        let ready = ensure_ready(cx).await?;
        let tools::Imaged { image, reference } = self.image(cx, &ready).await?;
        let Some(program) = guest::program(cx, &*ready.runtime, &image)? else {
            let message = "a sandbox needs the guest, and this container gets none";
            let hint = "leave `guest` out of the configuration, and use an image for an architecture of this release";
            return Err(Failure::new(Code::Unsupported, message).detail("capability", "guest").hint(hint));
        };
        let worker = guest::worker(cx, &*ready.runtime, &image)?;
        Ok(Blueprint {
            spec: self.spec(ImageRef::parse(&reference)?, sockets)?,
            policy: policy(cx, sockets)?,
            image,
            reference,
            guest: GuestProgram { worker, ..program },
            volume_at: ContainerPath::parse("/workspace")?,
            workdir: ContainerPath::parse("/workspace")?,
            env: variables(&[("HOME", "/home/agent"), ("LANG", "C.UTF-8")]),
            fill: None,
            protected: Vec::new(),
            max_containers_total: cx.config.max_containers_total as usize,
            tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        })
    }
}

/// The person's, but for what is ours: this container's own sockets lie in the state directory, which no other gets.
fn policy(cx: &Context, sockets: &Path) -> Result<Policy, Failure> {
    let mut policy = cx.policy()?;
    policy.allow_roots = vec![sockets.to_owned()];
    sockets.clone_into(&mut policy.scratch);
    Ok(policy)
}

fn variables(all: &[(&str, &str)]) -> BTreeMap<String, String> {
    all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}
