//! What the host remembers of a sandbox: which start of its container is ready, and the tokens of that.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use coracle_host::lock::Lock;
use coracle_host::state_file::{lock, lock_shared, names, own_directory, read, write};
use coracle_proxy::Authority;
use coracle_proxy::token::{Scope, TokenHash};
use coracle_types::{Ids, ProfileName, Secret};
use coracle_worktrees::shared::SharedDir;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{Code, Failure, Result, SandboxKey, WORKER};

/// Maximum number of workers of a sandbox with a token for models. If there are more, the oldest one's token is
/// dropped.
const MOST_WORKERS: usize = 16;

/// A caller waits so long for another one that prepares the container, its image included.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(1200);

/// How long a removal waits for calls that begin something in the sandbox.
const COURTESY: std::time::Duration = std::time::Duration::from_secs(30);

/// What is remembered of a sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxRecord {
    /// Its key.
    pub key: SandboxKey,
    /// Its profile.
    pub profile: ProfileName,
    /// The container that is ready; none while one is being made so.
    pub ready: Option<StartRecord>,
}

/// A start of a container that may be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartRecord {
    /// The engine's id of it.
    pub container: String,
    /// The run of its guest: another one knows no token.
    pub run: String,
    /// Since when.
    pub at: Timestamp,
    /// The token of its relays.
    pub net: TokenHash,
    /// The tokens of its workers, the oldest first.
    pub llm: Vec<TokenHash>,
    /// It passed every test, and may be used. Until then its token opens the proxy alone, which the tests need.
    pub proven: bool,
    /// The tests looked for a way past the proxy. With an open network it was not tested, and is unknown.
    #[serde(default)]
    pub walled: bool,
    /// Where its relays lead, if that is by a network.
    #[serde(default)]
    #[serde(rename = "told")]
    pub proxy_addresses: Option<[SocketAddr; 2]>,
}

impl StartRecord {
    /// Whether this run of a container passed all checks, also of its network isolation where that is required.
    pub(crate) fn holds(&self, container: &str, run: &str, walled: bool) -> bool {
        self.proven && self.container == container && self.run == run && (self.walled || !walled)
    }
}

impl SandboxRecord {
    /// Whether a token opens that: only those of a container that is ready do.
    #[must_use]
    pub fn opens(&self, scope: Scope, token: &[u8]) -> bool {
        let Some(ready) = &self.ready else { return false };
        match scope {
            Scope::Net => ready.net.is_of(token),
            Scope::Llm => ready.llm.iter().any(|it| it.is_of(token)),
        }
    }

    /// One more worker.
    pub(crate) fn admit(&mut self, worker: TokenHash) {
        if let Some(ready) = &mut self.ready {
            let old = (ready.llm.len() + 1).saturating_sub(MOST_WORKERS);
            ready.llm.drain(..old);
            ready.llm.push(worker);
        }
    }

    /// One worker less.
    pub(crate) fn dismiss(&mut self, worker: &TokenHash) {
        if let Some(ready) = &mut self.ready {
            ready.llm.retain(|it| it != worker);
        }
    }
}

/// A sandbox in which a workflow is just begun, or which is just taken away. Ends when it is dropped.
#[derive(Debug)]
pub struct WorkflowClaim(#[expect(dead_code, reason = "the lock is the claim")] Lock);

/// The key and the certificate of a proxy's authority.
#[derive(Serialize, Deserialize)]
struct AuthorityFile {
    pem: String,
}

/// The place of one sandbox on the host: a directory of its key's name.
#[derive(Clone, Debug)]
pub struct SandboxDir {
    root: PathBuf,
    key: SandboxKey,
}

impl SandboxDir {
    /// That of a key below the directory of `all`, made if it is missing.
    ///
    /// # Errors
    /// Whatever the file system says.
    pub fn open(all: &Path, key: &SandboxKey) -> Result<Self> {
        let root = all.join(key.as_str());
        own_directory(&root.join("sock"))?;
        Ok(Self { root, key: key.clone() })
    }

    /// All sandboxes that are remembered. One whose record is damaged is left out.
    ///
    /// # Errors
    /// `newer_version` for a record that a newer version wrote, and when the directory cannot be read.
    pub fn all(all: &Path) -> Result<Vec<SandboxRecord>> {
        let mut records = Vec::new();
        for dir in names(all)? {
            match read(&dir.join("record.json")) {
                Ok(record) => records.extend(record),
                Err(err) if err.code == Code::NewerVersion => return Err(err),
                Err(_) => {}
            }
        }
        Ok(records)
    }

    /// The keys of all that anything is left of, also where the record cannot be read.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn keys(all: &Path) -> Result<Vec<SandboxKey>> {
        let mut keys: Vec<_> =
            names(all)?.iter().filter_map(|it| SandboxKey::parse(it.file_name()?.to_str()?)).collect();
        keys.sort();
        Ok(keys)
    }

    /// Its key.
    #[must_use]
    pub fn key(&self) -> &SandboxKey {
        &self.key
    }

    /// A damaged record is thrown away: it grants nothing, and the next start is tested like a first one.
    ///
    /// # Errors
    /// `newer_version` for a record that a newer version wrote, and whatever the file system says.
    pub fn drop_damaged(&self) -> Result<()> {
        match self.record() {
            Ok(_) => Ok(()),
            Err(err) if err.code == Code::NewerVersion => Err(err),
            Err(_) => self.forget(),
        }
    }

    /// The exclusive lock for removing the sandbox. `None` while another call holds it.
    ///
    /// # Errors
    /// Whatever the file system says.
    pub async fn alone(&self, patience: std::time::Duration) -> Result<Option<WorkflowClaim>> {
        match lock(&self.root.join("teardown.lock"), patience).await {
            Ok(lock) => Ok(Some(WorkflowClaim(lock))),
            Err(err) if err.code == Code::Busy => Ok(None),
            Err(err) => Err(err),
        }
    }

    /// The directory itself.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where the proxy of the sandbox listens. Bound into its container alone.
    #[must_use]
    pub fn sockets(&self) -> PathBuf {
        self.root.join("sock")
    }

    /// The file of the user's decisions about refused requests.
    #[must_use]
    pub fn approvals(&self) -> PathBuf {
        self.root.join("approvals.json")
    }

    /// What a replay of its proxy has answered.
    #[must_use]
    pub fn replay_log(&self) -> PathBuf {
        self.root.join("replayed.jsonl")
    }

    /// Returns the authority with which the sandbox's proxy ends TLS, made at its first use.
    ///
    /// # Errors
    /// `newer_version` for a file that a newer version wrote, and whatever the file system says.
    pub fn authority(&self) -> Result<Arc<Authority>> {
        let (path, key) = (self.root.join("authority.json"), self.key.as_str());
        if read::<AuthorityFile>(&path)?.is_none() {
            let made = String::from_utf8(Authority::generate(key)?.to_pem().reveal().to_vec());
            let unfinished = self.root.join(format!("authority.{}", coracle_types::random_hex::<8>()));
            write(&unfinished, &AuthorityFile { pem: made.map_err(Failure::internal)? })?;
            // Of two processes, one is first.
            let linked = std::fs::hard_link(&unfinished, &path);
            coracle_host::state_file::remove(&unfinished)?;
            linked.or_else(|err| if path.exists() { Ok(()) } else { Err(Failure::internal(err)) })?;
        }
        let file: Option<AuthorityFile> = read(&path)?;
        let pem = file.ok_or_else(|| Failure::internal("the authority of a proxy was removed"))?.pem;
        Authority::from_pem(key, &Secret::from(pem)).map(Arc::new)
    }

    /// Reads the record.
    ///
    /// # Errors
    /// If it exists and cannot be read; then nothing is granted.
    pub fn record(&self) -> Result<Option<SandboxRecord>> {
        read(&self.file())
    }

    /// The sandbox's files on this host: the directory that it has, or a new one below `root` if the sandbox has no record
    /// yet. `None` where files are in a volume. `person` is the user who calls.
    ///
    /// # Errors
    /// `policy_denied` where agents would have to be root or the worker.
    pub fn shared_dir(&self, root: Option<&Path>, person: Ids) -> Result<Option<SharedDir>> {
        if let Some(shared) = SharedDir::recorded(&self.root)? {
            return Ok(Some(shared));
        }
        let is_new = || self.record().is_ok_and(|record| record.is_none());
        let Some(root) = root.filter(|_| is_new()) else { return Ok(None) };
        SharedDir::below(root, self.key.as_str(), &self.root, person, WORKER).map(Some)
    }

    pub(crate) fn save(&self, record: &SandboxRecord) -> Result<()> {
        // A damaged one may be replaced, and not one that a newer version wrote.
        if let Err(err) = self.record()
            && err.code == Code::NewerVersion
        {
            return Err(err);
        }
        write(&self.file(), record)
    }

    /// One at a time, over all processes.
    pub(crate) async fn lock(&self) -> Result<Lock> {
        lock(&self.root.join("record.lock"), PATIENCE).await
    }

    /// A workflow begins here: until this is dropped the sandbox is not removed.
    ///
    /// # Errors
    /// `busy` when it is being removed for a long time.
    pub async fn begin(&self) -> Result<WorkflowClaim> {
        lock_shared(&self.root.join("workflows.lock"), PATIENCE).await.map(WorkflowClaim)
    }

    /// No workflow begins here until this is dropped. `None` while one does.
    ///
    /// # Errors
    /// Whatever the file system says.
    pub async fn end(&self) -> Result<Option<WorkflowClaim>> {
        self.end_within(COURTESY).await
    }

    /// As [`end`](Self::end), for who has nothing to wait for.
    ///
    /// # Errors
    /// Whatever the file system says.
    pub async fn end_at_once(&self) -> Result<Option<WorkflowClaim>> {
        self.end_within(std::time::Duration::ZERO).await
    }

    async fn end_within(&self, patience: std::time::Duration) -> Result<Option<WorkflowClaim>> {
        match lock(&self.root.join("workflows.lock"), patience).await {
            Ok(lock) => Ok(Some(WorkflowClaim(lock))),
            Err(err) if err.code == Code::Busy => Ok(None),
            Err(err) => Err(err),
        }
    }

    /// Changes what is remembered, if anything is.
    pub(crate) async fn change(&self, change: impl FnOnce(&mut SandboxRecord)) -> Result<()> {
        let _alone = self.lock().await?;
        let Some(mut record) = self.record()? else { return Ok(()) };
        change(&mut record);
        self.save(&record)
    }

    /// Removes the record.
    pub(crate) fn forget(&self) -> Result<()> {
        coracle_host::state_file::remove(&self.file())
    }

    fn file(&self) -> PathBuf {
        self.root.join("record.json")
    }
}

#[cfg(test)]
mod tests {
    use coracle_proxy::token::fresh_token;
    use coracle_types::WorkflowId;

    use super::*;
    use crate::Domain;

    fn record() -> SandboxRecord {
        let profile = ProfileName::parse("default").unwrap();
        let key = SandboxKey::new(&profile, &Domain::Workflow(WorkflowId::parse("a").unwrap()), "local");
        let ready = StartRecord {
            container: "c".into(),
            run: "r".into(),
            at: Timestamp::UNIX_EPOCH,
            net: TokenHash::from_token(b"net"),
            llm: vec![],
            proven: true,
            walled: true,
            proxy_addresses: None,
        };
        SandboxRecord { key, profile, ready: Some(ready) }
    }

    #[test]
    fn x52_a_token_opens_what_it_is_for_and_nothing_once_its_container_is_not_ready() {
        let mut record = record();
        let worker = fresh_token();
        record.admit(TokenHash::from_token(worker.reveal()));
        assert!(record.opens(Scope::Net, b"net") && record.opens(Scope::Llm, worker.reveal()));
        assert!(!record.opens(Scope::Llm, b"net") && !record.opens(Scope::Net, worker.reveal()));
        record.dismiss(&TokenHash::from_token(worker.reveal()));
        assert!(!record.opens(Scope::Llm, worker.reveal()) && record.opens(Scope::Net, b"net"));
        record.ready = None;
        assert!(!record.opens(Scope::Net, b"net"));
    }

    #[test]
    fn a_start_that_nothing_keeps_in_is_not_one_behind_a_wall() {
        let walled = record().ready.unwrap();
        let open = StartRecord { walled: false, ..walled.clone() };
        let tested = StartRecord { proven: false, ..walled.clone() };
        for (ready, run, asks, holds) in [
            (&walled, "r", true, true),
            (&walled, "r", false, true),
            (&open, "r", false, true),
            (&open, "r", true, false),
            (&walled, "another", true, false),
            (&tested, "r", false, false),
        ] {
            assert_eq!(ready.holds("c", run, asks), holds, "{ready:?} {run} {asks}");
        }
        // What was written before it was remembered is tested again.
        let mut written = serde_json::to_value(&walled).unwrap();
        written.as_object_mut().unwrap().remove("walled");
        assert_eq!(serde_json::from_value::<StartRecord>(written).unwrap(), open);
    }

    #[test]
    fn the_oldest_worker_goes_when_there_are_too_many() {
        let mut record = record();
        for number in 0..=MOST_WORKERS {
            record.admit(TokenHash::from_token(number.to_string().as_bytes()));
        }
        assert!(!record.opens(Scope::Llm, b"0") && record.opens(Scope::Llm, b"1") && record.opens(Scope::Llm, b"16"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_sandbox_that_is_being_entered_is_not_removed() {
        let state = tempfile::tempdir().unwrap();
        let dir = SandboxDir::open(state.path(), &record().key).unwrap();
        let (one, other) = (dir.begin().await.unwrap(), dir.begin().await.unwrap());
        assert!(dir.end().await.unwrap().is_none());
        drop((one, other));
        let mine = dir.end().await.unwrap();
        assert!(mine.is_some());
        assert!(tokio::time::timeout(COURTESY, dir.begin()).await.is_err());
    }

    #[tokio::test]
    async fn it_is_read_as_it_was_written_and_a_damaged_one_grants_nothing() {
        let state = tempfile::tempdir().unwrap();
        let dir = SandboxDir::open(state.path(), &record().key).unwrap();
        assert_eq!(dir.record().unwrap(), None);
        dir.save(&record()).unwrap();
        dir.change(|it| it.admit(TokenHash::from_token(b"w"))).await.unwrap();
        assert!(dir.record().unwrap().unwrap().opens(Scope::Llm, b"w"));
        std::fs::write(dir.file(), b"{").unwrap();
        assert!(dir.record().is_err());
    }
}
