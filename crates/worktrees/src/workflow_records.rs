//! Records of workflows, with the ports and names that are reserved for each.
//!
//! **Invariant:** base, URL and ports are read from these records, never from a container.

use std::collections::BTreeSet;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use coracle_host::fs::replace;
use coracle_host::lock::Lock;
use coracle_host::state_file;
use coracle_host::state_file::{lock, names, own_directory, read, remove, write};
use coracle_lifecycle::{BadRecord, summed_bytes, summed_value};
use coracle_types::WorkflowId;
use coracle_types::failure::{Failure, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

const FIRST_PORT: u16 = 20_000;
const PORTS: u16 = 20;
const NAMESPACES: u16 = 500;

/// How long a call waits for another one of the same repository.
pub(crate) const LOCK_TIMEOUT: Duration = Duration::from_secs(700);

/// The format of records. Those of versions before the number have neither number nor digest.
const SCHEMA: u32 = 1;

/// The record of a workflow until it is removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Workflow {
    pub(crate) id: WorkflowId,
    pub(crate) branch: String,
    pub(crate) base: String,
    pub(crate) base_commit: String,
    /// The number of its namespace.
    pub(crate) k: u16,
    pub(crate) compose_project: String,
    /// Its files were complete once, so a missing one was deleted on purpose.
    #[serde(default)]
    pub(crate) ready: bool,
    /// Fields of a later version of this format.
    #[serde(flatten)]
    pub(crate) later: Map<String, Value>,
}

/// A file of a workflow.
enum StoredWorkflow {
    Missing,
    Known(Box<Workflow>),
    /// In a format of a later version, which only that version may change.
    Newer,
    Damaged(String),
}

impl StoredWorkflow {
    fn parse(bytes: &[u8]) -> Self {
        // Before format 1, a record had neither a number nor a digest.
        let is_first = serde_json::from_slice::<Value>(bytes).is_ok_and(|value| value.get("schema").is_none());
        let parsed =
            if is_first { serde_json::from_slice(bytes).map_err(BadRecord::from) } else { summed_value(bytes, SCHEMA) };
        match parsed {
            Ok(workflow) => {
                let mut workflow: Box<Workflow> = workflow;
                workflow.later.remove("schema");
                Self::Known(workflow)
            }
            Err(BadRecord::Newer) => Self::Newer,
            Err(err) => Self::Damaged(err.to_string()),
        }
    }
}

/// The record of a sandbox's repository.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Repository {
    pub(crate) url: String,
}

impl Workflow {
    /// Rebuilds a record. Its branch has to be the default one: the branch that code inside reports could be another
    /// workflow's.
    pub(crate) fn without_record(key: &str, id: &WorkflowId, branch: String) -> Self {
        Self {
            id: id.clone(),
            branch,
            base: String::new(),
            base_commit: String::new(),
            k: 0,
            compose_project: compose_project(key, id),
            ready: false,
            later: Map::new(),
        }
    }

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

    fn stored(&self, id: &WorkflowId) -> Result<StoredWorkflow> {
        match std::fs::read(self.path(id)) {
            Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(StoredWorkflow::Missing),
            bytes => Ok(StoredWorkflow::parse(&bytes.map_err(Failure::internal)?)),
        }
    }

    /// Reads the record of a workflow.
    ///
    /// # Errors
    /// If its record is damaged, or a newer version wrote it.
    pub(crate) fn workflow(&self, id: &WorkflowId) -> Result<Option<Workflow>> {
        match self.stored(id)? {
            StoredWorkflow::Missing => Ok(None),
            StoredWorkflow::Known(workflow) => Ok(Some(*workflow)),
            StoredWorkflow::Newer => Err(newer(id)),
            StoredWorkflow::Damaged(reason) => {
                let message = format!("The record of workflow `{id}` is damaged: {reason}.");
                let hint = format!("`coracle worktree remove {id}` saves its work and removes it");
                Err(Failure::internal(message).hint(hint))
            }
        }
    }

    /// Reads the record for a removal: a damaged record is rebuilt, so that the work can be saved.
    ///
    /// # Errors
    /// If a newer version wrote it.
    pub(crate) fn workflow_to_remove(
        &self,
        id: &WorkflowId,
        stand_in: impl FnOnce() -> Result<Workflow>,
    ) -> Result<Option<Workflow>> {
        match self.stored(id)? {
            StoredWorkflow::Damaged(reason) => {
                tracing::warn!(%id, reason, "the record of a workflow is damaged; its work is saved without it");
                stand_in().map(Some)
            }
            StoredWorkflow::Newer => Err(newer(id)),
            StoredWorkflow::Missing => Ok(None),
            StoredWorkflow::Known(workflow) => Ok(Some(*workflow)),
        }
    }

    /// Lists the ids of all workflows, including those with unreadable records: callers count them to decide about
    /// removing a volume.
    pub(crate) fn ids(&self) -> Result<Vec<WorkflowId>> {
        let mut ids: Vec<_> = names(&self.dir.join("workflows"))?.iter().filter_map(|file| id_of(file)).collect();
        ids.sort();
        Ok(ids)
    }

    pub(crate) fn repository(&self) -> Result<Option<Repository>> {
        read(&self.dir.join("repo.json"))
    }

    pub(crate) fn remember_repository(&self, it: &Repository) -> Result<()> {
        write(&self.dir.join("repo.json"), it)
    }

    /// The repository that the sandbox is to get.
    pub(crate) fn wanted(&self) -> Result<Option<Repository>> {
        read(&self.dir.join("wanted.json"))
    }

    pub(crate) fn want(&self, it: &Repository) -> Result<()> {
        write(&self.dir.join("wanted.json"), it)
    }

    /// Deletes the record after the sandbox was removed: the next one of its key may use another repository.
    pub(crate) fn forget_repository(&self) -> Result<()> {
        ["repo.json", "wanted.json"].iter().try_for_each(|it| remove(&self.dir.join(it)))
    }

    /// Records a workflow with the first free namespace whose ports are free.
    pub(crate) async fn remember(&self, workflow: impl FnOnce(u16) -> Workflow) -> Result<Workflow> {
        let _lock = lock(&self.all.join("ports.lock"), Duration::from_secs(30)).await?;
        let taken = self.taken()?;
        let Some(k) = (0..NAMESPACES).find(|k| !taken.contains(k) && can_be_had(ports(*k))) else {
            return Err(Failure::over_limit(format!("{NAMESPACES} workflows use all available ports")));
        };
        let workflow = workflow(k);
        replace(&self.dir.join("workflows").join(format!("{}.ports-{k}", workflow.id)), b"")
            .map_err(Failure::internal)?;
        self.update(&workflow)?;
        Ok(workflow)
    }

    /// The namespaces in use by workflows of all sandboxes.
    fn taken(&self) -> Result<BTreeSet<u16>> {
        let mut taken = BTreeSet::new();
        for sandbox in names(&self.all)? {
            for file in names(&sandbox.join("workflows"))? {
                taken.extend(namespace_of(&file));
            }
        }
        Ok(taken)
    }

    pub(crate) fn update(&self, workflow: &Workflow) -> Result<()> {
        let mut workflow = workflow.clone();
        workflow.later.insert("schema".into(), SCHEMA.into());
        replace(&self.path(&workflow.id), &summed_bytes(&workflow)).map_err(Failure::internal)
    }

    /// Deletes the record of a workflow, and frees its ports.
    pub(crate) fn forget(&self, id: &WorkflowId) -> Result<()> {
        remove(&self.path(id))?;
        let reserved = names(&self.dir.join("workflows"))?;
        let prefix = format!("{id}.ports-");
        let is_own =
            |file: &&PathBuf| file.file_name().and_then(|it| it.to_str()).is_some_and(|it| it.starts_with(&prefix));
        reserved.iter().filter(is_own).try_for_each(|file| remove(file))
    }

    /// Locks the repository of this sandbox, or one of its workflows.
    pub(crate) async fn lock(&self, what: &str) -> Result<Lock> {
        lock(&self.dir.join(format!("{what}.lock")), LOCK_TIMEOUT).await
    }
}

fn newer(id: &WorkflowId) -> Failure {
    state_file::newer(format!("Workflow `{id}` was recorded by a newer version of Coracle."))
}

fn id_of(file: &Path) -> Option<WorkflowId> {
    WorkflowId::parse(file.file_name()?.to_str()?.strip_suffix(".json")?).ok()
}

/// The namespace that a file reserves. Its number is in the name of a file, so that it is known even if the record is
/// damaged; records of earlier versions have it only in their content.
fn namespace_of(file: &Path) -> Option<u16> {
    let name = file.file_name()?.to_str()?;
    if let Some((_, k)) = name.rsplit_once(".ports-") {
        return k.parse().ok();
    }
    let record: Value = name.ends_with(".json").then(|| serde_json::from_slice(&std::fs::read(file).ok()?).ok())??;
    record.get("k")?.as_u64()?.try_into().ok()
}

fn can_be_had(mut ports: Range<u16>) -> bool {
    ports.all(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok())
}

#[cfg(test)]
mod tests {
    use coracle_types::failure::Code;

    use super::*;

    fn workflow(id: &str, k: u16) -> Workflow {
        let id = WorkflowId::parse(id).unwrap();
        let branch = format!("coracle/{id}");
        let compose_project = compose_project("k", &id);
        Workflow {
            id,
            branch,
            base: "main".into(),
            base_commit: "0".repeat(40),
            k,
            compose_project,
            ready: false,
            later: Map::new(),
        }
    }

    #[tokio::test]
    async fn x39_each_workflow_has_its_own_ports_among_all_sandboxes_until_it_is_removed() {
        let state = tempfile::tempdir().unwrap();
        let sandboxes: Vec<_> = ["a", "b"].map(|it| Records::open(state.path(), it).unwrap()).into();
        let mut taken = Vec::new();
        let recorded = (0..30).map(|n| {
            let records = sandboxes[n % 2].clone();
            tokio::spawn(async move { records.remember(|k| workflow(&format!("w{n}"), k)).await.unwrap() })
        });
        for it in recorded.collect::<Vec<_>>() {
            taken.push(it.await.unwrap());
        }
        let distinct: BTreeSet<_> = taken.iter().flat_map(Workflow::ports).collect();
        assert_eq!(distinct.len(), 600);
        let projects: BTreeSet<_> = taken.iter().map(|it| it.compose_project.clone()).collect();
        assert_eq!(projects.len(), 30);
        // As another process reads it.
        let again = Records::open(state.path(), "a").unwrap();
        assert_eq!(again.workflow(&taken[0].id).unwrap(), Some(taken[0].clone()));
        assert_eq!(again.ids().unwrap().len(), 15);
        // Concurrent tests may listen at these ports for a moment, so the free ones are read from the records.
        assert_eq!(again.taken().unwrap(), taken.iter().map(|it| it.k).collect());
        again.forget(&taken[0].id).unwrap();
        assert!(!again.taken().unwrap().contains(&taken[0].k));
    }

    #[tokio::test]
    async fn a_damaged_record_keeps_its_ports_and_can_be_removed() {
        let state = tempfile::tempdir().unwrap();
        let records = Records::open(state.path(), "a").unwrap();
        let whole = records.remember(|k| workflow("one", k)).await.unwrap();
        let path = records.path(&whole.id);
        let text = std::fs::read_to_string(&path).unwrap();
        for damaged in [String::new(), "{".to_owned(), text.replace("\"main\"", "\"other\"")] {
            std::fs::write(&path, damaged).unwrap();
            let failure = records.workflow(&whole.id).unwrap_err();
            assert!(failure.message.contains("damaged"), "{failure}");
            assert_eq!(records.ids().unwrap(), std::slice::from_ref(&whole.id));
            let removed = records.workflow_to_remove(&whole.id, || Ok(whole.clone())).unwrap();
            assert_eq!(removed, Some(whole.clone()));
            let next = records.remember(|k| workflow("two", k)).await.unwrap();
            assert_ne!(next.k, whole.k);
            records.forget(&next.id).unwrap();
        }
        records.forget(&whole.id).unwrap();
        assert!(records.taken().unwrap().is_empty());
    }

    #[tokio::test]
    async fn records_of_other_versions_are_read_or_not_changed() {
        let state = tempfile::tempdir().unwrap();
        let records = Records::open(state.path(), "a").unwrap();
        let mut known = records.remember(|k| workflow("one", k)).await.unwrap();
        let path = records.path(&known.id);
        // An earlier version wrote neither a number nor a digest.
        std::fs::remove_file(path.with_extension(format!("ports-{}", known.k))).unwrap();
        std::fs::write(&path, serde_json::to_string(&known).unwrap()).unwrap();
        assert_eq!(records.workflow(&known.id).unwrap(), Some(known.clone()));
        assert_ne!(records.remember(|k| workflow("two", k)).await.unwrap().k, known.k);
        // A later version may add fields, which are preserved.
        known.later.insert("colour".into(), "blue".into());
        records.update(&known).unwrap();
        assert_eq!(records.workflow(&known.id).unwrap().unwrap().later["colour"], "blue");
        // A later version may change the format.
        let newer = format!("{{\"schema\":2,\"k\":{},\"id\":{{}}}}", known.k);
        std::fs::write(&path, &newer).unwrap();
        for failure in [
            records.workflow(&known.id).unwrap_err(),
            records.workflow_to_remove(&known.id, || Ok(known.clone())).unwrap_err(),
        ] {
            assert!(failure.code == Code::NewerVersion && failure.message.contains("newer version"), "{failure}");
        }
        assert_eq!(records.ids().unwrap().len(), 2);
        assert_ne!(records.remember(|k| workflow("three", k)).await.unwrap().k, known.k);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), newer);
    }

    #[tokio::test]
    async fn namespaces_with_ports_in_use_are_skipped() {
        let state = tempfile::tempdir().unwrap();
        let records = Records::open(state.path(), "a").unwrap();
        // The first port of a namespace that nothing else uses at this moment.
        let hold = |k| Some((k, TcpListener::bind((Ipv4Addr::LOCALHOST, ports(k).start + 7)).ok()?));
        let (held, _listener) = (0..NAMESPACES).find_map(hold).unwrap();
        assert!(!can_be_had(ports(held)));
        let other = records.remember(|k| workflow("one", k)).await.unwrap();
        assert_ne!(other.k, held);
    }

    #[test]
    fn the_last_namespace_ends_below_the_last_port() {
        assert_eq!((ports(0), ports(499)), (20_000..20_020, 29_980..30_000));
    }
}
