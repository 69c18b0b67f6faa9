//! A base for when no registry answers: a Debian that is built on the host once, and imported.

mod alternatives;
mod apt;
mod bootstrap;
mod certs;
mod conffiles;
mod dependency_closure;
mod dpkg_status;
#[cfg(test)]
pub(crate) mod fixture;
mod host;
mod mirror;
mod packages;
mod rootfs;
mod tar_writer;
mod tree;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Seek};
use std::path::Path;

use coracle_runtime::{ContainerRuntime, ImageImport};
use coracle_types::{EngineKind, ImageRef, RecordId};
use sha2::{Digest, Sha256};

pub use self::bootstrap::Bootstrap;
use self::host::OsRelease;
use crate::error::{BaseError, BaseStage, Error};
use crate::lock::{self, make_private_dir};
use crate::{Base, ImageOrigin, Progress, find};

/// Increased whenever the same host would give another base.
const MAKER: u32 = 1;

/// Attempts of an import whose image is missing afterwards.
const IMPORT_ATTEMPTS: usize = 3;

const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

enum BaseStrategy {
    Packages(Box<packages::HostPackages>),
    Mirror(mirror::Mirror),
}

/// Returns the bootstrapped base: the existing one if it is Coracle's and current, else a new one.
pub(crate) async fn ensure(
    runtime: &dyn ContainerRuntime,
    recipe: &Bootstrap,
    progress: &Progress<'_>,
) -> Result<Base, Error> {
    let arch = runtime.info().await?.arch;
    if let Some(base) = of_this_host(runtime, recipe, &arch).await? {
        return Ok(base);
    }
    let (recipe_copy, wanted) = (recipe.clone(), debian_arch(&arch).to_owned());
    let way = blocking(move || choose(&recipe_copy, &wanted)).await.map_err(|it| it.at(BaseStage::Choose))?;
    let (distribution, suite) = match &way {
        BaseStrategy::Packages(it) => (&it.host().os.id, &it.host().os.codename),
        BaseStrategy::Mirror(it) => (&it.distribution, &it.suite),
    };
    let reference = name(recipe, distribution, suite, &arch).map_err(|it| it.at(BaseStage::Choose))?;
    if let Some(base) = existing(runtime, recipe, &reference).await? {
        return Ok(base);
    }
    let waiting = "another process builds the base image; waiting for it";
    let locked = lock::take(&recipe.lock_file, waiting, progress).await;
    let failed = BaseError::io(format!("lock `{}`", recipe.lock_file.display()));
    let _lock = locked.map_err(|it| failed(it).at(BaseStage::Lock))?;
    if let Some(base) = existing(runtime, recipe, &reference).await? {
        return Ok(base);
    }
    let (tar, note) = build(recipe, way, progress).await?;
    progress("importing the base image");
    import(runtime, recipe, reference, tar, note).await.map_err(|it| it.at(BaseStage::Import))
}

fn choose(recipe: &Bootstrap, arch: &str) -> Result<BaseStrategy, BaseError> {
    match packages::inspect(&recipe.root, arch) {
        Ok(packages) => Ok(BaseStrategy::Packages(Box::new(packages))),
        Err(why) => mirror::select(recipe, arch, why).map(BaseStrategy::Mirror),
    }
}

/// Finds a base that was made of the packages of this host. To read them takes longer than all of the rest of a `create`.
async fn of_this_host(runtime: &dyn ContainerRuntime, recipe: &Bootstrap, arch: &str) -> Result<Option<Base>, Error> {
    let Some(os) = OsRelease::inspect(&recipe.root).filter(OsRelease::is_debian_like) else { return Ok(None) };
    match name(recipe, &os.id, &os.codename, arch) {
        Ok(reference) => existing(runtime, recipe, &reference).await,
        Err(_) => Ok(None),
    }
}

fn name(recipe: &Bootstrap, distribution: &str, suite: &str, arch: &str) -> Result<ImageRef, BaseError> {
    let value = format!("{}-base:{distribution}-{suite}-{arch}", recipe.signer.namespace());
    let why = "an image from the archive has none";
    ImageRef::parse(&value).map_err(|_| BaseError::Setting { setting: "suite", value, why })
}

/// Finds a base that Coracle built from the same recipe. One without a valid signature is ignored, whatever its name.
async fn existing(
    runtime: &dyn ContainerRuntime,
    recipe: &Bootstrap,
    reference: &ImageRef,
) -> Result<Option<Base>, Error> {
    let Some((image, _)) = find(runtime, reference).await? else { return Ok(None) };
    let (signer, labels) = (&recipe.signer, &image.labels);
    let current = labels.get(&signer.key("base.recipe")) == Some(&recipe_hash());
    if !current || !signer.verify(runtime.kind(), labels) {
        return Ok(None);
    }
    let note = labels.get(&signer.key("base.note")).cloned();
    Ok(Some(Base { image, reference: reference.clone(), source: ImageOrigin::Bootstrap, note }))
}

async fn build(recipe: &Bootstrap, way: BaseStrategy, progress: &Progress<'_>) -> Result<(File, String), Error> {
    match way {
        BaseStrategy::Packages(packages) => {
            progress("making a base image from packages of this host");
            let dir = recipe.temp_dir.clone();
            blocking(move || pack(&packages, &dir)).await.map_err(|it| it.at(BaseStage::Pack))
        }
        BaseStrategy::Mirror(mirror) => {
            progress("making a base image from a Debian mirror; this takes a minute");
            mirror.fetch(&recipe.temp_dir, recipe.build_timeout).await.map_err(|it| it.at(BaseStage::Mirror))
        }
    }
}

/// The temporary file never has a name, so nothing remains after a cancelled call.
fn pack(packages: &packages::HostPackages, temp_dir: &Path) -> Result<(File, String), BaseError> {
    make_private_dir(temp_dir).map_err(BaseError::io("make the temporary directory"))?;
    let mut tar = tempfile::tempfile_in(temp_dir).map_err(BaseError::io("make a temporary file"))?;
    let note = packages.pack(&tar)?;
    tar.rewind().map_err(BaseError::io("rewind the tar of the base"))?;
    Ok((tar, note))
}

async fn import(
    runtime: &dyn ContainerRuntime,
    recipe: &Bootstrap,
    reference: ImageRef,
    mut tar: File,
    note: String,
) -> Result<Base, BaseError> {
    let signer = &recipe.signer;
    let mut labels: BTreeMap<String, String> = [
        ("managed", "true".to_owned()),
        ("kind", "base".to_owned()),
        ("id", RecordId::random().to_string()),
        ("created", recipe.created.clone()),
        ("version", recipe.version.clone()),
        ("base.recipe", recipe_hash()),
        ("base.note", note.clone()),
    ]
    .map(|(key, value)| (signer.key(key), value))
    .into();
    signer.sign(runtime.kind(), &mut labels);
    let env = [("PATH", PATH), ("LANG", "C.UTF-8")].map(|(key, value)| (key.to_owned(), value.to_owned()));
    let labels: Vec<_> = labels.into_iter().collect();
    // Podman deletes a layer with its last image even while it imports another image with the same layer, which is then
    // missing. Other engines get the only descriptor: once the embedded engine has unpacked the archive, it is gone, and
    // is not written to the disk with the layer.
    let mut more_attempts = if runtime.kind() == EngineKind::Podman { IMPORT_ATTEMPTS - 1 } else { 0 };
    let image = loop {
        let spare = (more_attempts > 0).then(|| tar.try_clone()).transpose();
        let spare = spare.map_err(BaseError::io("duplicate the base's archive"))?;
        let import = ImageImport { tar, tag: reference.clone(), env: env.to_vec(), labels: labels.clone() };
        match (runtime.import_image(import).await, spare) {
            (Err(coracle_types::Error::Unreadable { .. }), Some(spare)) => {
                tar = spare;
                tar.rewind().map_err(BaseError::io("read the base's archive again"))?;
                more_attempts -= 1;
            }
            (imported, _) => break imported?,
        }
    };
    Ok(Base { image, reference, source: ImageOrigin::Bootstrap, note: Some(note) })
}

/// Hashes seeds and maker, which identify the kind of base.
fn recipe_hash() -> String {
    let text = format!("{MAKER}\n{}\n{}\n", packages::REQUIRED.join(" "), packages::SEEDS.join(" "));
    hex::encode(Sha256::digest(text))
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, BaseError> + Send + 'static,
) -> Result<T, BaseError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(broken) => Err(BaseError::Io { what: "finish the work".into(), source: io::Error::other(broken) }),
    }
}

/// Returns Debian's name of an OCI architecture.
fn debian_arch(oci: &str) -> &str {
    match oci {
        "386" => "i386",
        "arm" => "armhf",
        "ppc64le" => "ppc64el",
        same => same,
    }
}
