//! Sandboxes: containers with a time to live and metadata, which are in the state directory.

use std::collections::BTreeMap;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use coracle::{Client, PersonSession};
use coracle_context::config::Machine;
use coracle_context::{Code, Context, Failure};
use coracle_host::fs::{remove, replace};
use coracle_host::lock::Lock;
use coracle_prepare::Process;
use coracle_types::{Handle, parse_stored, random_hex};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::process::Processes;

/// How often it is checked whose time is over.
const CHECK: Duration = Duration::from_millis(500);

/// Time until the next attempt to remove a sandbox that could not be removed.
const RETRY: Duration = Duration::from_secs(30);

/// The user of a sandbox, whom E2B's images call `user`.
const USER: &str = "1000:1000";

/// The home of that user, where commands run.
const HOME: &str = "/home/user";

/// The version of the format of records.
const SCHEMA: u64 = 1;

/// A sandbox, as it is stored.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SandboxRecord {
    pub(crate) schema: u64,
    /// Its id, which is the name of its container, too.
    pub(crate) id: String,
    pub(crate) template: String,
    pub(crate) started: Timestamp,
    pub(crate) ends: Timestamp,
    pub(crate) metadata: BTreeMap<String, String>,
    pub(crate) internet: Option<bool>,
    pub(crate) cpus: f64,
    pub(crate) memory_bytes: u64,
}

/// A sandbox that this server knows.
#[derive(Debug)]
pub(crate) struct Sandbox {
    record: Mutex<SandboxRecord>,
    /// Variables of its commands, which are not stored. A fork gets them, too.
    env: BTreeMap<String, String>,
    /// Held while its record changes, and while it is removed.
    changing: tokio::sync::Mutex<()>,
    pub(crate) processes: Arc<Processes>,
}

impl Sandbox {
    pub(crate) fn record(&self) -> SandboxRecord {
        self.record.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// All sandboxes of a server.
#[derive(Debug)]
pub(crate) struct Sandboxes {
    process: Process,
    dir: PathBuf,
    all: Mutex<BTreeMap<String, Arc<Sandbox>>>,
    /// Two servers would end each other's sandboxes by an outdated record.
    _only: Lock,
}

/// What a sandbox is created with.
#[derive(Clone, Debug, Default)]
pub(crate) struct NewSandbox {
    pub(crate) template: String,
    pub(crate) timeout: Duration,
    pub(crate) metadata: BTreeMap<String, String>,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) internet: Option<bool>,
}

impl Sandboxes {
    /// Reads those that another run of the server has left.
    pub(crate) fn open(process: Process) -> Result<Self, Failure> {
        let dir = process.context.state()?.root().join("e2b");
        DirBuilder::new().recursive(true).mode(0o700).create(&dir).map_err(Failure::internal)?;
        let only = Lock::try_take(&dir.join("lock")).map_err(Failure::internal)?.ok_or_else(|| {
            Failure::new(Code::Busy, "another server of E2B's API has this state directory")
                .hint("stop it, or start this one with another `--state-dir`")
        })?;
        let mut all = BTreeMap::new();
        for entry in std::fs::read_dir(&dir).map_err(Failure::internal)?.flatten() {
            let path = entry.path();
            if path.extension().is_none_or(|it| it != "json") {
                continue;
            }
            let bytes = std::fs::read(&path).map_err(Failure::internal)?;
            match parse_stored::<SandboxRecord>(&path, &bytes) {
                Ok(record) => drop(all.insert(record.id.clone(), Arc::new(of_record(record, BTreeMap::new())))),
                Err(err) => tracing::warn!(%err, "a sandbox cannot be read, and is left as it is"),
            }
        }
        Ok(Self { process, dir, all: Mutex::new(all), _only: only })
    }

    pub(crate) fn cx(&self) -> &Context {
        &self.process.context
    }

    pub(crate) fn client(&self) -> Client {
        Client::of_process(self.process.clone())
    }

    /// Creates a sandbox: a container, and its record. It is created even if the caller leaves.
    pub(crate) async fn create(self: &Arc<Self>, new: NewSandbox) -> Result<SandboxRecord, Failure> {
        let all = self.clone();
        tokio::spawn(async move { Box::pin(all.create_whole(new)).await }).await.map_err(Failure::internal)?
    }

    async fn create_whole(&self, new: NewSandbox) -> Result<SandboxRecord, Failure> {
        let id = new_id();
        let mut fields = usual_fields(&id, &new.env, new.internet);
        fields.extend(template_fields(&self.cx().config.machine, &new.template));
        let operation = if fields.contains_key("snapshot") { "restore" } else { "create" };
        let now = Timestamp::now();
        let mut record = SandboxRecord {
            schema: SCHEMA,
            id,
            template: new.template,
            started: now,
            ends: after(now, new.timeout),
            metadata: new.metadata,
            internet: new.internet,
            cpus: 0.0,
            memory_bytes: 0,
        };
        let created = Value::Object(self.call(operation, fields, &record).await?);
        let (now, limits) = (Timestamp::now(), &created["limits"]);
        record.started = now;
        record.ends = after(now, new.timeout);
        record.cpus = limits["cpus"].as_f64().unwrap_or(1.0);
        record.memory_bytes = limits["memory"].as_u64().unwrap_or(0);
        self.add(record, new.env).await
    }

    /// Creates another sandbox with the files of this one.
    pub(crate) async fn fork(self: &Arc<Self>, of: &Sandbox, timeout: Duration) -> Result<SandboxRecord, Failure> {
        let (all, record, env) = (self.clone(), of.record(), of.env.clone());
        let forked = async move {
            let id = new_id();
            let mut fields = usual_fields(&id, &env, record.internet);
            fields.insert("container".to_owned(), json!(record.id));
            let now = Timestamp::now();
            let record = SandboxRecord { id, started: now, ends: after(now, timeout), ..record };
            all.call("fork", fields, &record).await?;
            all.add(record, env).await
        };
        tokio::spawn(async move { Box::pin(forked).await }).await.map_err(Failure::internal)?
    }

    /// Creates the container of a record. The record is written first: a container without one would outlive its time.
    async fn call(
        &self,
        operation: &str,
        fields: Map<String, Value>,
        record: &SandboxRecord,
    ) -> Result<Map<String, Value>, Failure> {
        self.write(record).await?;
        match self.client().call(operation, fields).await {
            Ok(created) => Ok(created),
            Err(failure) => {
                // The failure of the call is the one to report; the record then ends at its time.
                if let Err(left) = self.forget(&record.id).await {
                    tracing::warn!(sandbox = %record.id, "its record stays: {}", left.message);
                }
                Err(failure)
            }
        }
    }

    async fn add(&self, record: SandboxRecord, env: BTreeMap<String, String>) -> Result<SandboxRecord, Failure> {
        if let Err(failure) = self.write(&record).await {
            self.destroy(&record.id).await?;
            return Err(failure);
        }
        self.lock().insert(record.id.clone(), Arc::new(of_record(record.clone(), env)));
        Ok(record)
    }

    async fn write(&self, record: &SandboxRecord) -> Result<(), Failure> {
        let text = serde_json::to_vec(record).map_err(Failure::internal)?;
        let file = self.file(&record.id);
        let written = tokio::task::spawn_blocking(move || replace(&file, &text)).await;
        written.map_err(Failure::internal)?.map_err(Failure::internal)
    }

    /// Removes a record.
    async fn forget(&self, id: &str) -> Result<(), Failure> {
        let file = self.file(id);
        let removed = tokio::task::spawn_blocking(move || remove(&file)).await;
        removed.map_err(Failure::internal)?.map_err(Failure::internal)
    }

    fn file(&self, id: &str) -> PathBuf {
        self.dir.join(format!("{id}.json"))
    }

    /// A sandbox whose time is not over.
    pub(crate) fn find(&self, id: &str) -> Option<Arc<Sandbox>> {
        self.lock().get(id).filter(|it| !is_over(&it.record())).cloned()
    }

    /// The records of those whose time is not over.
    pub(crate) fn records(&self) -> Vec<SandboxRecord> {
        self.lock().values().map(|it| it.record()).filter(|it| !is_over(it)).collect()
    }

    /// Sets when a sandbox ends; with `extend`, never to an earlier time.
    pub(crate) async fn set_timeout(
        &self,
        sandbox: &Arc<Sandbox>,
        time: Duration,
        extend: bool,
    ) -> Result<(), Failure> {
        let _changing = sandbox.changing.lock().await;
        let mut record = sandbox.record();
        if !self.lock().get(&record.id).is_some_and(|it| Arc::ptr_eq(it, sandbox)) {
            return Err(Failure::new(Code::NotFound, format!("sandbox \"{}\" has ended", record.id)));
        }
        let ends = after(Timestamp::now(), time);
        record.ends = if extend { record.ends.max(ends) } else { ends };
        self.write(&record).await?;
        *sandbox.record.lock().unwrap_or_else(PoisonError::into_inner) = record;
        Ok(())
    }

    /// Removes a sandbox with all that is in it, even if the caller leaves. `false`: there is none.
    pub(crate) async fn kill(self: &Arc<Self>, id: &str) -> Result<bool, Failure> {
        self.kill_if(id, |_| true).await
    }

    /// The same if its record is such while no other call changes it.
    async fn kill_if(self: &Arc<Self>, id: &str, is_such: fn(&SandboxRecord) -> bool) -> Result<bool, Failure> {
        let Some(sandbox) = self.lock().get(id).cloned() else { return Ok(false) };
        let (all, id) = (self.clone(), id.to_owned());
        let ending = async move {
            let _changing = sandbox.changing.lock().await;
            // From now on nothing reaches it: a client that looks why its command broke off has to find it gone.
            if !is_such(&sandbox.record()) || all.lock().remove(&id).is_none() {
                return Ok(false);
            }
            if let Err(failure) = all.destroy(&id).await {
                all.lock().insert(id, sandbox.clone());
                return Err(failure);
            }
            all.forget(&id).await?;
            Ok(true)
        };
        tokio::spawn(ending).await.map_err(Failure::internal)?
    }

    async fn destroy(&self, id: &str) -> Result<(), Failure> {
        let fields = Map::from_iter([("container".to_owned(), json!(id)), ("force".to_owned(), json!(true))]);
        match self.client().call("destroy", fields).await {
            Err(failure) if failure.code == Code::NotFound => Ok(()),
            done => done.map(drop),
        }
    }

    /// The guest of a sandbox, and who runs commands there.
    pub(crate) async fn session(&self, id: &str, as_root: bool) -> Result<PersonSession, Failure> {
        Box::pin(PersonSession::open(self.cx(), &Handle::parse(id)?, as_root)).await
    }

    /// The token for the processes and files of a sandbox. It follows from the key of the state directory, and is not stored.
    pub(crate) fn access_token(&self, id: &str) -> Result<String, Failure> {
        Ok(self.cx().store()?.signer().digest(format!("e2b access {id}").as_bytes()))
    }

    /// Removes sandboxes whose time is over, until the process ends.
    pub(crate) async fn expire(self: Arc<Self>) {
        let over = async {
            // Those that could not be removed, and when that is tried again.
            let mut failed = BTreeMap::new();
            loop {
                sleep(CHECK).await;
                failed.retain(|_, again| *again > Instant::now());
                let mut ending = JoinSet::new();
                for id in self.expired().into_iter().filter(|it| !failed.contains_key(it)) {
                    let all = self.clone();
                    ending.spawn(async move { (all.kill_if(&id, is_over).await, id) });
                }
                while let Some(ended) = ending.join_next().await {
                    if let Ok((Err(failure), id)) = ended {
                        tracing::warn!(sandbox = %id, "its time is over, and it could not be removed: {}", failure.message);
                        failed.insert(id, Instant::now() + RETRY);
                    }
                }
            }
        };
        self.cx().call.cancel.run_until_cancelled(over).await;
    }

    fn expired(&self) -> Vec<String> {
        self.lock().values().map(|it| it.record()).filter(is_over).map(|it| it.id).collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Arc<Sandbox>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_over(record: &SandboxRecord) -> bool {
    record.ends <= Timestamp::now()
}

fn of_record(record: SandboxRecord, env: BTreeMap<String, String>) -> Sandbox {
    Sandbox { record: Mutex::new(record), env, changing: tokio::sync::Mutex::default(), processes: Arc::default() }
}

fn new_id() -> String {
    format!("i{}", random_hex::<10>())
}

/// The fields of every new sandbox: E2B's user, and nothing of this machine.
fn usual_fields(id: &str, env: &BTreeMap<String, String>, internet: Option<bool>) -> Map<String, Value> {
    let mut env = env.clone();
    env.entry("HOME".to_owned()).or_insert_with(|| HOME.to_owned());
    let fields = json!({
        "name": id,
        "env": env,
        "user": USER,
        "workdir": HOME,
        "mount_cwd": false,
        "env_passthrough": "none",
        "forward_git": false,
        "forward_gh": false,
        "forward_ssh": false,
        "dotfiles_skip": true,
    });
    let Value::Object(mut fields) = fields else { unreachable!("an object is written above") };
    if internet == Some(false) {
        fields.insert("network".to_owned(), json!("none"));
    }
    fields
}

fn after(now: Timestamp, timeout: Duration) -> Timestamp {
    let timeout = SignedDuration::try_from(timeout).unwrap_or(SignedDuration::MAX);
    now.checked_add(timeout).unwrap_or(Timestamp::MAX)
}

/// The fields of `create` for a template: what an agent's machine is made of, the image of the code interpreter, a purpose, or a
/// snapshot.
fn template_fields(machine: &Machine, template: &str) -> Map<String, Value> {
    let (field, value) = match template {
        "" | "base" => match &machine.image {
            Some(image) => ("image", json!(image)),
            None => {
                let (purpose, packages) = (json!(machine.purpose), json!(machine.packages));
                return Map::from_iter([("purpose".to_owned(), purpose), ("packages".to_owned(), packages)]);
            }
        },
        "code-interpreter-v1" => ("purpose", json!("python")),
        "python" | "node" | "bun" | "rust" | "go" | "general" | "browser" | "desktop" | "clean" => {
            ("purpose", json!(template))
        }
        snapshot => ("snapshot", json!(snapshot.split(':').next().unwrap_or(snapshot))),
    };
    Map::from_iter([(field.to_owned(), value)])
}
