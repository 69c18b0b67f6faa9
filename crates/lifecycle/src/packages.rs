//! Packages that the snippets of all sessions share: a volume that they read, and what is in it.
//!
//! **Invariant:** a volume that snippets may have is never written to. Packages are added in another one, which takes its
//! place when it is whole: no session sees a part of them, and no session changes them for another.

use coracle_runtime::{ContainerRuntime, LabelFilter, Volume};
use coracle_types::{EngineKind, VolumeName, random_hex};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::record::{BadRecord, summed_bytes, summed_value};
use crate::store::{read_own, write_whole};
use crate::volume::{NewVolume, create};
use crate::{Lock, Result, Store, StoreError};

/// What their volumes are, in the label `<ns>.role`.
pub(crate) const ROLE: &str = "packages";

/// What one engine has of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedPackages {
    /// The engine,
    pub engine: EngineKind,
    /// and where it listens.
    pub endpoint: String,
    /// The volume that they are in.
    pub volume: VolumeName,
    /// As they were requested.
    pub packages: Vec<SharedPackage>,
    /// When the last of them were added.
    pub made: Timestamp,
}

/// A requested package.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedPackage {
    /// Whose it is: `javascript` or `python`.
    pub language: String,
    /// Its name without a version.
    pub name: String,
    /// The requested name, with the version if one was given.
    #[serde(rename = "asked")]
    pub requested: String,
}

/// Version of the format. This one is not written; a later one is.
const SCHEMA: u32 = 0;

/// The file.
#[derive(Default, Serialize, Deserialize)]
struct PackageRecord {
    engines: Vec<SharedPackages>,
}

impl SharedPackages {
    fn is_of(&self, runtime: &dyn ContainerRuntime) -> bool {
        self.engine == runtime.kind() && self.endpoint == runtime.endpoint().address
    }
}

impl Store {
    /// What all engines have of them.
    ///
    /// # Errors
    /// When what is remembered cannot be read, or is damaged.
    pub fn shared_packages(&self) -> Result<Vec<SharedPackages>, StoreError> {
        let file = self.packages_file();
        let Some(bytes) = read_own(&file)? else { return Ok(Vec::new()) };
        match summed_value::<PackageRecord>(&bytes, SCHEMA) {
            Ok(stored) => Ok(stored.engines),
            Err(BadRecord::Newer) => Err(StoreError::Newer(file)),
            Err(err) => Err(StoreError::io(&file)(std::io::Error::other(format!("it is damaged: {err}")))),
        }
    }

    /// What this engine has of them, if anything. A volume that was removed is logged and left out.
    ///
    /// # Errors
    /// As for [`shared_packages`](Self::shared_packages), and those of the engine.
    pub async fn shared_packages_on(&self, runtime: &dyn ContainerRuntime) -> Result<Option<SharedPackages>> {
        let Some(packages) = self.shared_packages()?.into_iter().find(|it| it.is_of(runtime)) else { return Ok(None) };
        let there = self.packages_volumes(runtime).await?.iter().any(|it| it.name == packages.volume.as_str());
        if !there {
            tracing::warn!(volume = %packages.volume, "the volume of packages for snippets is gone");
        }
        Ok(Some(packages).filter(|_| there))
    }

    /// Held while the packages are changed.
    ///
    /// # Errors
    /// [`crate::Error::Busy`] when another call holds it for 10 s.
    pub async fn lock_packages(&self) -> Result<Lock> {
        self.common_lock(ROLE).await
    }

    /// An empty volume for them, which is unused until it is [stored](Self::keep_packages).
    ///
    /// # Errors
    /// Those of the engine.
    pub async fn new_packages_volume(&self, runtime: &dyn ContainerRuntime) -> Result<VolumeName> {
        let name = format!("{}-packages-{}", self.signer().namespace(), random_hex::<8>());
        let name = VolumeName::parse(name).expect("a namespace and hex digits are a name");
        create(runtime, self, NewVolume { name: &name, role: ROLE, labels: Vec::new(), size: None }).await?;
        Ok(name)
    }

    /// From now on snippets get these. Volumes of before go, as far as no container has them.
    ///
    /// # Errors
    /// When it cannot be remembered.
    pub async fn keep_packages(&self, runtime: &dyn ContainerRuntime, packages: SharedPackages) -> Result<()> {
        let mut engines = self.shared_packages()?;
        engines.retain(|it| !it.is_of(runtime));
        engines.push(packages);
        write_whole(&self.packages_file(), &summed_bytes(&PackageRecord { engines }))?;
        // The new packages are stored; removing the earlier ones may fail.
        if let Err(err) = self.sweep_packages(runtime).await {
            tracing::warn!(%err, "packages of before stay for now");
        }
        Ok(())
    }

    /// Snippets get none any more. Whether some container still has them.
    ///
    /// # Errors
    /// When that cannot be remembered, and those of the engine.
    pub async fn drop_packages(&self, runtime: &dyn ContainerRuntime) -> Result<bool> {
        let mut engines = self.shared_packages().unwrap_or_default();
        engines.retain(|it| !it.is_of(runtime));
        write_whole(&self.packages_file(), &summed_bytes(&PackageRecord { engines }))?;
        Ok(self.sweep_packages(runtime).await? > 0)
    }

    /// Removes volumes of packages that are not what snippets get. How many stay, since containers have them.
    async fn sweep_packages(&self, runtime: &dyn ContainerRuntime) -> Result<usize> {
        let stored = self.shared_packages()?;
        let mut left = 0;
        for volume in self.packages_volumes(runtime).await? {
            if stored.iter().any(|it| it.volume.as_str() == volume.name) {
                continue;
            }
            if let Err(err) = runtime.remove_volume(&volume.name).await {
                tracing::debug!(volume = volume.name, %err, "packages of before stay for now");
                left += 1;
            }
        }
        Ok(left)
    }

    async fn packages_volumes(&self, runtime: &dyn ContainerRuntime) -> Result<Vec<Volume>> {
        let role = LabelFilter(vec![(self.signer().key("role"), Some(ROLE.to_owned()))]);
        let mut found = runtime.list_volumes(&role).await?;
        found.retain(|it| self.signed(runtime.kind(), &it.labels));
        Ok(found)
    }

    fn packages_file(&self) -> std::path::PathBuf {
        self.root().join("packages.json")
    }
}

#[cfg(test)]
mod tests {
    use coracle_runtime::{FakeRuntime, Volumes as _};
    use coracle_types::LabelNamespace;

    use super::*;

    fn store(dir: &tempfile::TempDir) -> Store {
        Store::open(dir.path(), LabelNamespace::parse("coracle").unwrap()).unwrap()
    }

    fn with(runtime: &FakeRuntime, volume: &VolumeName) -> SharedPackages {
        let package = SharedPackage { language: "python".into(), name: "six".into(), requested: "six==1".into() };
        SharedPackages {
            engine: runtime.kind(),
            endpoint: runtime.endpoint().address,
            volume: volume.clone(),
            packages: vec![package],
            made: Timestamp::UNIX_EPOCH,
        }
    }

    #[tokio::test]
    async fn new_packages_replace_the_old_ones() {
        let (dir, runtime) = (tempfile::tempdir().unwrap(), FakeRuntime::new());
        let store = store(&dir);
        assert_eq!(store.shared_packages_on(&runtime).await.unwrap(), None);
        let first = store.new_packages_volume(&runtime).await.unwrap();
        store.keep_packages(&runtime, with(&runtime, &first)).await.unwrap();
        let second = store.new_packages_volume(&runtime).await.unwrap();
        assert_eq!(store.shared_packages_on(&runtime).await.unwrap().unwrap().volume, first);
        store.keep_packages(&runtime, with(&runtime, &second)).await.unwrap();
        assert_eq!(store.shared_packages_on(&runtime).await.unwrap(), Some(with(&runtime, &second)));
        let left: Vec<_> = store.packages_volumes(&runtime).await.unwrap().into_iter().map(|it| it.name).collect();
        assert_eq!(left, [second.as_str()]);
        assert!(!store.drop_packages(&runtime).await.unwrap());
        assert_eq!(store.packages_volumes(&runtime).await.unwrap(), []);
    }

    #[tokio::test]
    async fn a_volume_that_is_gone_and_a_record_that_is_damaged_are_not_used() {
        let (dir, runtime) = (tempfile::tempdir().unwrap(), FakeRuntime::new());
        let store = store(&dir);
        let volume = store.new_packages_volume(&runtime).await.unwrap();
        store.keep_packages(&runtime, with(&runtime, &volume)).await.unwrap();
        runtime.remove_volume(volume.as_str()).await.unwrap();
        assert_eq!(store.shared_packages_on(&runtime).await.unwrap(), None);
        let file = store.packages_file();
        let text = std::fs::read_to_string(&file).unwrap().replace(volume.as_str(), "other");
        std::fs::write(&file, text).unwrap();
        assert!(store.shared_packages().is_err());
        assert!(!store.drop_packages(&runtime).await.unwrap(), "it is no reason to be stuck");
    }
}
