//! Commits a container as an image with the environment, the volumes and the command of its base, and signed labels.

use std::collections::BTreeSet;

use coracle_runtime::labels::Signer;
use coracle_runtime::{Container, ContainerRuntime, Image, ImageCommit};
use coracle_types::{ImageRef, RecordId};

use crate::Error;

/// Labels about the committed container and its caller, which an image must not inherit.
const OF_ONE_CONTAINER: [&str; 9] =
    ["role", "name", "purpose", "persistent", "session", "exec_user", "workdir", "guest", "compose_project"];

/// Variables that an engine gives each container. A base that was committed may have them too; they carry no information.
const OF_THE_ENGINE: [&str; 4] = ["HOME", "HOSTNAME", "TERM", "container"];

/// The `PATH` that Podman sets if the image sets none.
const USUAL_PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A container to commit.
pub(crate) struct Commit<'a> {
    pub(crate) signer: &'a Signer,
    pub(crate) container: &'a Container,
    /// The image that the container was created from.
    pub(crate) base: &'a Image,
    pub(crate) tag: ImageRef,
    /// The value of the label `kind`.
    pub(crate) kind: &'static str,
    /// When it is created (RFC 3339).
    pub(crate) created: String,
    /// Coracle's version.
    pub(crate) version: &'a str,
}

impl Commit<'_> {
    /// Commits the image with further labels, and reads it back. An image that `read` does not accept, or that differs
    /// from its base in more than files and labels, is removed.
    ///
    /// Not safe to abandon: the container may stay paused if an engine's program is killed.
    pub(crate) async fn run<T>(
        self,
        runtime: &dyn ContainerRuntime,
        labels: impl IntoIterator<Item = (&'static str, String)>,
        read: impl FnOnce(&Image) -> Option<T>,
    ) -> Result<T, Error> {
        check_env(&self.container.env, self.base)?;
        let commit = ImageCommit {
            container: self.container.id.clone(),
            tag: Some(self.tag.clone()),
            labels: self.labels(runtime, labels).into_iter().collect(),
            config: self.base.config.clone(),
        };
        let image = runtime.commit_image(&commit).await?;
        let checked = match read(&image) {
            Some(read) => check_image(&image, self.base).map(|()| read),
            None => unfit("its labels or its name differ from the requested ones"),
        };
        if checked.is_err() {
            runtime.remove_image(&image.id).await?;
        }
        checked
    }

    /// Returns the labels of the image. Inherited labels cannot be removed, so Coracle's labels about the container are
    /// set to an empty value, and the rest is signed again.
    fn labels(
        &self,
        runtime: &dyn ContainerRuntime,
        more: impl IntoIterator<Item = (&'static str, String)>,
    ) -> std::collections::BTreeMap<String, String> {
        let prefix = self.signer.key("");
        let mut labels = self.container.labels.clone();
        labels.retain(|name, _| name.starts_with(&prefix));
        for name in OF_ONE_CONTAINER {
            labels.entry(self.signer.key(name)).and_modify(String::clear);
        }
        let own = [
            ("managed", "true".to_owned()),
            ("kind", self.kind.to_owned()),
            ("id", RecordId::random().to_string()),
            ("created", self.created.clone()),
            ("version", self.version.to_owned()),
        ];
        labels.extend(own.into_iter().chain(more).map(|(name, value)| (self.signer.key(name), value)));
        self.signer.sign(runtime.kind(), &mut labels);
        labels
    }
}

/// Checks that command, environment and volumes are those of the base.
fn check_image(image: &Image, base: &Image) -> Result<(), Error> {
    check_env(&image.env, base)?;
    if image.config != base.config {
        return unfit("its command differs from that of its base");
    }
    if image.volumes != base.volumes { unfit("it has volumes that its base does not have") } else { Ok(()) }
}

/// Checks that the environment is that of the base.
fn check_env(env: &[String], base: &Image) -> Result<(), Error> {
    let has_path = base.env.iter().any(|it| it.starts_with("PATH="));
    let of_engine = |it: &str| {
        let name = it.split('=').next().unwrap_or_default();
        OF_THE_ENGINE.contains(&name) || !has_path && it == USUAL_PATH
    };
    let listed = |env: &[String]| -> BTreeSet<String> { env.iter().filter(|it| !of_engine(it)).cloned().collect() };
    let (actual, expected) = (listed(env), listed(&base.env));
    // Only names: a value may be a secret.
    let differs = actual.symmetric_difference(&expected).next().and_then(|it| it.split_once('=')).map(|it| it.0);
    match differs {
        Some(name) => unfit(format!("its environment differs from its base's in `{name}`")),
        None => Ok(()),
    }
}

pub(crate) fn unfit<T>(what: impl Into<String>) -> Result<T, Error> {
    Err(Error::Unfit { what: what.into() })
}
