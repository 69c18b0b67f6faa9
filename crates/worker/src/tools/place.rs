//! The one container that a worker has.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use coracle_runtime::{ByteSize, ContainerPath, Ids, Link};
use coracle_workspace::{Code, Failure, Reason, Role, Session, Sessions};

/// Where the kernel says how much memory all of a container may use, in its two ways.
const LIMITS: [&str; 2] = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];

/// The directory that a run works in.
#[derive(Debug)]
pub(crate) struct Place {
    link: Link,
    cwd: ContainerPath,
    agent: Ids,
    memory: ByteSize,
}

impl Place {
    pub(crate) fn new(link: Link, cwd: ContainerPath, agent: Ids) -> Self {
        let limits = LIMITS.iter().filter_map(|it| std::fs::read_to_string(it).ok()?.trim().parse().ok());
        Self { link, cwd, agent, memory: ByteSize(limits.min().unwrap_or(0)) }
    }
}

#[async_trait]
impl Sessions for Place {
    async fn ensure(&self, _: Role) -> Result<Session, Box<Failure>> {
        Ok(Session {
            link: self.link.clone(),
            session_id: "sandbox".into(),
            generation: 1,
            user: self.agent,
            workdir: self.cwd.clone(),
            env: BTreeMap::new(),
            memory: self.memory,
            code: None,
            replaced: None,
            warnings: Vec::new(),
            in_use: Arc::new(()),
        })
    }

    async fn held(&self, role: Role) -> Option<Link> {
        (role == Role::Workspace).then(|| self.link.clone())
    }

    async fn touch(&self, _: Role) {}

    async fn discard(&self, _: Role, _: Reason) -> Result<(), Box<Failure>> {
        Err(Box::new(Failure::new(Code::NotSupported, "A worker cannot take its own container away.")))
    }
}
