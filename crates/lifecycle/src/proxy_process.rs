//! The process that runs the proxy of a container after the commands that used the container have ended.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use coracle_types::ProcessId;
use serde::{Deserialize, Serialize};

use crate::record::Record;
use crate::store::{read_own, write_whole};
use crate::{Lock, Result, Store, StoreError};

/// Such a process, as it describes itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProxyProcess {
    /// The process.
    pub process: ProcessId,
    /// The run of the guest that it is connected to.
    pub run: String,
    /// Digests of the settings that it was started with.
    pub settings: BTreeMap<String, String>,
    /// Whether its link is a command of the engine in the container.
    pub by_exec: bool,
}

impl Store {
    /// The process that runs the proxy of a container. `None` if it has ended, or its file cannot be read.
    #[must_use]
    pub fn proxy_process(&self, record: &Record) -> Option<ProxyProcess> {
        let bytes = read_own(&self.proxy_file(record, "process.json")).ok()??;
        let described: ProxyProcess = serde_json::from_slice(&bytes).ok()?;
        described.process.alive().then_some(described)
    }

    /// Records that this process runs the proxy of a container.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn save_proxy_process(&self, record: &Record, described: &ProxyProcess) -> Result<()> {
        let bytes = serde_json::to_vec(described).expect("a process serialises");
        Ok(write_whole(&self.proxy_file(record, "process.json"), &bytes)?)
    }

    /// The right to be that process. `None` while another one has it.
    ///
    /// # Errors
    /// When the file of the lock cannot be opened.
    pub async fn claim_proxy_process(&self, record: &Record, patience: Duration) -> Result<Option<Lock>> {
        taken(&self.proxy_file(record, "process.lock"), patience).await
    }

    /// The right to start or replace that process. `None` while another call has it.
    ///
    /// # Errors
    /// When the file of the lock cannot be opened.
    pub async fn lock_proxy_start(&self, record: &Record, patience: Duration) -> Result<Option<Lock>> {
        taken(&self.proxy_file(record, "start.lock"), patience).await
    }

    fn proxy_file(&self, record: &Record, name: &str) -> PathBuf {
        self.root().join("proxy").join(record.record_id.as_str()).join(name)
    }
}

async fn taken(file: &Path, patience: Duration) -> Result<Option<Lock>> {
    Ok(Lock::take(file, patience).await.map_err(StoreError::io(file))?)
}

#[cfg(test)]
mod tests {
    use coracle_types::LabelNamespace;

    use super::*;
    use crate::record::tests::record;

    #[test]
    fn a_process_is_found_until_it_ends() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), LabelNamespace::parse("coracle").unwrap()).unwrap();
        let record = record("web");
        assert_eq!(store.proxy_process(&record), None);
        let me = ProcessId::current();
        let described = |process| ProxyProcess { process, run: "r".into(), settings: BTreeMap::new(), by_exec: false };
        std::fs::create_dir(dir.path().join("proxy").join(record.record_id.as_str())).unwrap();
        store.save_proxy_process(&record, &described(me.clone())).unwrap();
        assert_eq!(store.proxy_process(&record), Some(described(me.clone())));
        store.save_proxy_process(&record, &described(ProcessId { start: me.start + 1, ..me })).unwrap();
        assert_eq!(store.proxy_process(&record), None, "another process has its number now");
        std::fs::write(store.proxy_file(&record, "process.json"), "{").unwrap();
        assert_eq!(store.proxy_process(&record), None);
    }
}
