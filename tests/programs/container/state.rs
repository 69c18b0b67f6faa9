//! The state directory of the simulated engine.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;

#[derive(Debug)]
pub(crate) struct State {
    dir: PathBuf,
    pub(crate) scenario: Scenario,
}

/// Settings of a test.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Scenario {
    /// Containers are printed in the form before the present one.
    pub(crate) old_form: bool,
    /// The version.
    pub(crate) version: Option<String>,
    /// The service does not run.
    pub(crate) service_down: bool,
    pub(crate) faults: Vec<Fault>,
}

/// A fault at one call of a verb.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Fault {
    pub(crate) verb: String,
    /// The number of the call, from 1; every call without it.
    pub(crate) nth: Option<u64>,
    pub(crate) delay_ms: u64,
    pub(crate) hang: bool,
    pub(crate) exit: Option<u8>,
    pub(crate) stderr: String,
    pub(crate) signal: Option<i32>,
    /// Bytes of the answer that are printed.
    pub(crate) truncate_json: Option<usize>,
    /// Bytes before the answer.
    pub(crate) flood_bytes: usize,
    /// Stopped containers are reported as running.
    pub(crate) stale_running: bool,
    /// Stopped containers are reported in this state.
    pub(crate) state: Option<String>,
    /// This call and those after it fail, so many in all.
    pub(crate) delete_fails_times: u64,
    /// Removes the named container before.
    pub(crate) vanish: bool,
    pub(crate) service_down: bool,
}

/// A stored container.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct StoredContainer {
    pub(crate) id: String,
    pub(crate) created: String,
    pub(crate) started: Option<String>,
    pub(crate) image: String,
    pub(crate) digest: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) env: Vec<String>,
    pub(crate) command: Vec<String>,
    pub(crate) workdir: String,
    pub(crate) user: String,
    pub(crate) cpus: u64,
    pub(crate) memory: u64,
    pub(crate) networks: Vec<String>,
    pub(crate) mounts: Vec<Mount>,
    pub(crate) capabilities: Vec<String>,
    pub(crate) read_only: bool,
    pub(crate) ulimits: Vec<String>,
    /// Its first process on this machine, and when that was started.
    pub(crate) process: Option<(u32, u64)>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Mount {
    Bind { source: PathBuf, target: String, read_only: bool },
    Tmpfs { target: String, options: String },
}

impl State {
    pub(crate) fn open() -> Result<Self> {
        let named = std::env::var_os("CORACLE_SCRIPTED_CONTAINER").map(PathBuf::from);
        let at_home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".scripted-container"));
        let dir = named.or_else(at_home).ok_or_else(|| anyhow!("no directory to keep things in"))?;
        for name in ["containers", "images", "networks", "volumes", "counts"] {
            fs::create_dir_all(dir.join(name))?;
        }
        let scenario = match fs::read(dir.join("scenario.json")) {
            Ok(text) => serde_json::from_slice(&text).context("scenario.json")?,
            Err(_) => Scenario::default(),
        };
        Ok(Self { dir, scenario })
    }

    pub(crate) fn at(&self, path: impl AsRef<Path>) -> PathBuf {
        self.dir.join(path)
    }

    /// Locks the state for a change.
    pub(crate) fn lock(&self) -> Result<File> {
        let file = File::create(self.at("lock"))?;
        file.lock()?;
        Ok(file)
    }

    pub(crate) fn note_call(&self, words: &[String]) -> Result<()> {
        let env: BTreeMap<_, _> = std::env::vars().collect();
        let stdin = fs::read_link("/proc/self/fd/0").is_ok_and(|it| it != Path::new("/dev/null"));
        let line = json!({ "argv": words, "env": env, "stdin_open": stdin }).to_string() + "\n";
        let mut file = OpenOptions::new().create(true).append(true).open(self.at("calls.jsonl"))?;
        Ok(file.write_all(line.as_bytes())?)
    }

    /// The number of this call of its verb, from 1.
    pub(crate) fn count(&self, verb: &str) -> Result<u64> {
        let _lock = self.lock()?;
        let path = self.at("counts").join(verb);
        let count = fs::read_to_string(&path).ok().and_then(|it| it.parse::<u64>().ok()).unwrap_or_default() + 1;
        fs::write(path, count.to_string())?;
        Ok(count)
    }

    pub(crate) fn read<T: DeserializeOwned>(&self, kind: &str, name: &str) -> Result<T> {
        let path = self.at(kind).join(format!("{name}.json"));
        let text = fs::read(path).map_err(|_| anyhow!("{} \"{name}\" not found", kind.trim_end_matches('s')))?;
        Ok(serde_json::from_slice(&text)?)
    }

    /// Whole, or as before.
    pub(crate) fn write(&self, kind: &str, name: &str, value: &impl Serialize) -> Result<()> {
        let path = self.at(kind).join(format!("{name}.json"));
        let unfinished = path.with_extension(format!("new-{}", std::process::id()));
        fs::write(&unfinished, serde_json::to_vec(value)?)?;
        Ok(fs::rename(unfinished, path)?)
    }

    pub(crate) fn has(&self, kind: &str, name: &str) -> bool {
        self.at(kind).join(format!("{name}.json")).exists()
    }

    pub(crate) fn forget(&self, kind: &str, name: &str) -> Result<()> {
        Ok(fs::remove_file(self.at(kind).join(format!("{name}.json")))?)
    }

    pub(crate) fn all<T: DeserializeOwned>(&self, kind: &str) -> Result<Vec<T>> {
        let mut paths: Vec<_> = fs::read_dir(self.at(kind))?.filter_map(|it| Some(it.ok()?.path())).collect();
        paths.retain(|it| it.extension().is_some_and(|it| it == "json"));
        paths.sort();
        // A container that is removed concurrently is skipped.
        let texts = paths.iter().filter_map(|it| fs::read(it).ok());
        texts.map(|it| Ok(serde_json::from_slice(&it)?)).collect()
    }

    pub(crate) fn root_of(&self, id: &str) -> PathBuf {
        self.at("containers").join(format!("{id}.root"))
    }
}

impl StoredContainer {
    /// Its first process, while that is the one that was started.
    pub(crate) fn pid(&self) -> Option<u32> {
        let (pid, begun) = self.process?;
        (started_at(pid)? == begun).then_some(pid)
    }
}

/// Start time of a process, in ticks since the boot. `None` for one that has ended, reaped or not.
pub(crate) fn started_at(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<_> = stat.rsplit_once(") ")?.1.split(' ').collect();
    (fields[0] != "Z").then(|| fields.get(19)?.parse().ok())?
}

pub(crate) fn now() -> String {
    jiff::Timestamp::now().to_string()
}
