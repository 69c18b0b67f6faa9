//! Records of workflows, and the ports and names that each has for itself.
//!
//! **Invariant:** base, URL and ports are read from these records, never from a container.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::failure::over_limit;
use crate::files::{Lock, lock, names, own_directory, read, remove, write};
use crate::{Result, WorkflowId};

const FIRST_PORT: u16 = 20_000;
const PORTS: u16 = 20;
const NAMESPACES: u16 = 500;

/// A caller waits this long for another one of the same repository.
pub(crate) const PATIENCE: Duration = Duration::from_secs(700);

/// What is remembered of a workflow until it is removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Workflow {
    pub(crate) id: WorkflowId,
    pub(crate) branch: String,
    pub(crate) base: String,
    pub(crate) base_commit: String,
    /// Which of the namespaces it has.
    pub(crate) k: u16,
    pub(crate) compose_project: String,
    /// Its files were complete once, so a missing one was deleted on purpose.
    #[serde(default)]
    pub(crate) ready: bool,
}

/// What is remembered of the repository of a sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Repository {
    pub(crate) url: String,
}

impl Workflow {
    pub(crate) fn ports(&self) -> Range<u16> {
        ports(self.k)
    }
}

pub(crate) fn ports(k: u16) -> Range<u16> {
    let first = FIRST_PORT + PORTS * k;
    first..first + PORTS
}

pub(crate) fn compose_project(key: &str, id: &WorkflowId) -> String {
    let digest = Sha256::new().chain_update(key).chain_update([0]).chain_update(id.as_str()).finalize();
    format!("coracle-{}", hex::encode(&digest[..6]))
}

/// The records of one sandbox, below `$STATE/sandboxes/<key>/`.
#[derive(Clone, Debug)]
pub(crate) struct Records {
    all: PathBuf,
    dir: PathBuf,
}

impl Records {
    pub(crate) fn open(state: &Path, key: &str) -> Result<Self> {
        let all = state.join("sandboxes");
        let dir = all.join(key);
        own_directory(&dir.join("workflows"))?;
        Ok(Self { all, dir })
    }

    fn path(&self, id: &WorkflowId) -> PathBuf {
        self.dir.join("workflows").join(format!("{id}.json"))
    }

    pub(crate) fn workflow(&self, id: &WorkflowId) -> Result<Option<Workflow>> {
        read(&self.path(id))
    }

    /// One that cannot be read is an error: who counts them decides about a volume by it.
    pub(crate) fn workflows(&self) -> Result<Vec<Workflow>> {
        let files = names(&self.dir.join("workflows"))?;
        let files = files.iter().filter(|it| it.extension().is_some_and(|it| it == "json"));
        let mut found = files.filter_map(|it| read(it).transpose()).collect::<Result<Vec<Workflow>>>()?;
        found.sort_by(|a, b| a.id.cmp(&b.id));
        Ok(found)
    }

    pub(crate) fn repository(&self) -> Result<Option<Repository>> {
        read(&self.dir.join("repo.json"))
    }

    pub(crate) fn remember_repository(&self, it: &Repository) -> Result<()> {
        write(&self.dir.join("repo.json"), it)
    }

    /// The repository that is to be set up.
    pub(crate) fn wanted(&self) -> Result<Option<Repository>> {
        read(&self.dir.join("wanted.json"))
    }

    pub(crate) fn want(&self, it: &Repository) -> Result<()> {
        write(&self.dir.join("wanted.json"), it)
    }

    /// The sandbox is gone, and the next one of its key works on whatever it is asked to.
    pub(crate) fn forget_repository(&self) -> Result<()> {
        ["repo.json", "wanted.json"].iter().try_for_each(|it| remove(&self.dir.join(it)))
    }

    /// Remembers a workflow with the first namespace that no other one has and whose ports can be had.
    pub(crate) async fn remember(&self, workflow: impl FnOnce(u16) -> Workflow) -> Result<Workflow> {
        let _lock = lock(&self.all.join("ports.lock"), Duration::from_secs(30)).await?;
        let mut taken = BTreeSet::new();
        for sandbox in names(&self.all)? {
            let workflows = names(&sandbox.join("workflows"))?;
            taken.extend(workflows.iter().filter_map(|it| read::<Workflow>(it).ok()?).map(|it| it.k));
        }
        let Some(k) = (0..NAMESPACES).find(|k| !taken.contains(k) && can_be_had(ports(*k))) else {
            return Err(over_limit(format!("{NAMESPACES} workflows have all ports there are")));
        };
        let workflow = workflow(k);
        write(&self.path(&workflow.id), &workflow)?;
        Ok(workflow)
    }

    pub(crate) fn update(&self, workflow: &Workflow) -> Result<()> {
        write(&self.path(&workflow.id), workflow)
    }

    pub(crate) fn forget(&self, id: &WorkflowId) -> Result<()> {
        remove(&self.path(id))
    }

    /// One at a time: the repository of this sandbox, or one of its workflows.
    pub(crate) async fn lock(&self, what: &str) -> Result<Lock> {
        lock(&self.dir.join(format!("{what}.lock")), PATIENCE).await
    }
}

fn can_be_had(mut ports: Range<u16>) -> bool {
    ports.all(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workflow(id: &str, k: u16) -> Workflow {
        let id = WorkflowId::parse(id).unwrap();
        let branch = format!("coracle/{id}");
        let compose_project = compose_project("k", &id);
        Workflow { id, branch, base: "main".into(), base_commit: "0".repeat(40), k, compose_project, ready: false }
    }

    #[tokio::test]
    async fn x39_each_workflow_has_ports_of_its_own_over_all_sandboxes_until_it_goes() {
        let state = tempfile::tempdir().unwrap();
        let sandboxes: Vec<_> = ["a", "b"].map(|it| Records::open(state.path(), it).unwrap()).into();
        let mut taken = Vec::new();
        let asked = (0..30).map(|n| {
            let records = sandboxes[n % 2].clone();
            tokio::spawn(async move { records.remember(|k| workflow(&format!("w{n}"), k)).await.unwrap() })
        });
        for it in asked.collect::<Vec<_>>() {
            taken.push(it.await.unwrap());
        }
        let distinct: BTreeSet<_> = taken.iter().flat_map(Workflow::ports).collect();
        assert_eq!(distinct.len(), 600);
        let projects: BTreeSet<_> = taken.iter().map(|it| it.compose_project.clone()).collect();
        assert_eq!(projects.len(), 30);
        // As another process finds it.
        let again = Records::open(state.path(), "a").unwrap();
        assert_eq!(again.workflow(&taken[0].id).unwrap(), Some(taken[0].clone()));
        assert_eq!(again.workflows().unwrap().len(), 15);
        again.forget(&taken[0].id).unwrap();
        let next = again.remember(|k| workflow("next", k)).await.unwrap();
        assert_eq!(next.k, taken[0].k);
    }

    #[tokio::test]
    async fn ports_that_somebody_listens_at_are_passed_over() {
        let state = tempfile::tempdir().unwrap();
        let records = Records::open(state.path(), "a").unwrap();
        let free = records.remember(|k| workflow("one", k)).await.unwrap();
        records.forget(&free.id).unwrap();
        let _held = TcpListener::bind((Ipv4Addr::LOCALHOST, free.ports().start + 7)).unwrap();
        let other = records.remember(|k| workflow("one", k)).await.unwrap();
        assert!(other.k > free.k);
    }

    #[test]
    fn the_last_namespace_ends_below_the_last_port() {
        assert_eq!((ports(0), ports(499)), (20_000..20_020, 29_980..30_000));
    }
}
