//! The state of an engine: its data directory, and the privileges of this process.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use coracle_host::cgroup::CpuSamples;
use coracle_types::{Error, Result};
use sha2::{Digest as _, Sha256};

use crate::cgroup::Cgroups;
use crate::directories::Directories;
use crate::ids::Privileges;
use crate::oci_runtime::OciRuntime;
use crate::options::EngineOptions;
use crate::pending::PendingOperations;
use crate::store::{LayerLimits, Store};
use crate::trash::Trash;
use crate::tree_history::IndexCache;

/// The time of the last check of something that other programs may change.
#[derive(Debug, Default)]
pub(crate) struct RepeatedCheck(Mutex<Option<Instant>>);

impl RepeatedCheck {
    /// Whether the last check is at least `interval` ago. If so, the caller must check now: this call counts as a check.
    pub(crate) fn is_due(&self, interval: Duration) -> bool {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = last.is_none_or(|it| it.elapsed() >= interval);
        if is_due {
            *last = Some(Instant::now());
        }
        is_due
    }
}

/// The engine that all operations share.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) options: EngineOptions,
    pub(crate) directories: Directories,
    pub(crate) privileges: Privileges,
    pub(crate) pending: PendingOperations,
    pub(crate) trash: Trash,
    pub(crate) store: Store,
    pub(crate) cgroups: Cgroups,
    pub(crate) cpu_samples: CpuSamples,
    /// When the rules of networks were last checked.
    pub(crate) rules_check: RepeatedCheck,
    /// Whether files of containers can share their content, once it was tried.
    pub(crate) shares_content: OnceLock<bool>,
    /// What is known of the files of containers with checkpoints.
    pub(crate) indexes: IndexCache,
    /// The OCI runtime that creates the processes of new containers; the engine itself if unset.
    pub(crate) runtime: Option<OciRuntime>,
}

impl Engine {
    /// The limits of a layer from any source.
    pub(crate) fn layer_limits(&self) -> LayerLimits {
        let limits = LayerLimits::default();
        LayerLimits { bytes: self.options.registries.max_layer_bytes.unwrap_or(limits.bytes), ..limits }
    }

    pub(crate) fn open(options: EngineOptions) -> Result<Self> {
        let what = || format!("cannot open the engine's data in `{}`", options.data_dir.display());
        let failed = |source| Error::Host { what: what(), source };
        let directories = Directories::open(&options.data_dir).map_err(failed)?;
        let privileges = Privileges::detect();
        privileges.check_record(&directories.ids_file())?;
        let store = Store::open(&directories, privileges.clone()).map_err(failed)?;
        let cgroups = Cgroups::detect(&group_name(&options.data_dir)).map_err(failed)?;
        let trash = Trash::new(&directories, &privileges);
        let pending = PendingOperations::new(directories.pending());
        let cpu_samples = CpuSamples::default();
        let rules_check = RepeatedCheck::default();
        Ok(Self {
            options,
            directories,
            privileges,
            pending,
            trash,
            store,
            cgroups,
            cpu_samples,
            rules_check,
            shares_content: OnceLock::new(),
            indexes: IndexCache::default(),
            runtime: None,
        })
    }

    /// The directory of bundles and mounts of containers that a runtime runs. A reboot empties it. Each engine has its own.
    pub(crate) fn run_dir(&self) -> PathBuf {
        Path::new("/run").join(group_name(&self.options.data_dir))
    }
}

/// The name of the engine's parent control group. Engines with different data have different ones, so that none removes
/// groups of another.
fn group_name(data_dir: &Path) -> String {
    let digest = Sha256::digest(data_dir.as_os_str().as_bytes());
    format!("coracle-{}", hex::encode(&digest[..4]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_is_due_at_first_and_again_after_its_interval() {
        let check = RepeatedCheck::default();
        let hour = Duration::from_secs(3600);
        assert!(check.is_due(hour) && !check.is_due(hour));
        assert!(check.is_due(Duration::ZERO));
    }
}
