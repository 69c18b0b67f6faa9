//! Finds images by name and by id. Nodes pull them from registries, which also provide their descriptions.

use std::time::Duration;

use coracle_runtime::Image;
use coracle_types::{Error, Excerpt, ImageId, ImageRef, Result};
use k8s_openapi::api::core::v1::Pod;

use crate::cluster::Cluster;
use crate::find::list_pods;
use crate::names::{CORACLE, IMAGE_ID, MAIN, MANAGED_BY};
use crate::settings::KubeSettings;

/// Timeout of a request to a registry.
pub(crate) const LOOK: Duration = Duration::from_secs(60);

/// Finds the image of that name, or of that id.
pub(crate) async fn find_image(cluster: &Cluster, name: &ImageRef, within: Duration) -> Result<Option<Image>> {
    if let Ok(id) = ImageId::parse(name.as_str()) {
        return Ok(by_id(cluster, &id).await?.map(|(_, image)| image));
    }
    let completed = built_name(&cluster.settings, name)?.unwrap_or_else(|| name.completed());
    if let Some(image) = look_up(cluster, &completed, within).await? {
        return Ok(Some(image));
    }
    if completed == name.completed() { Ok(None) } else { look_up(cluster, &name.completed(), within).await }
}

/// Returns the name in the configured registry of an image that was built here.
///
/// # Errors
/// [`Error::PullFailed`] if the configured registry is not valid in a name.
pub(crate) fn built_name(settings: &KubeSettings, name: &ImageRef) -> Result<Option<ImageRef>> {
    let local = match name.registry() {
        None => name.as_str(),
        // Podman's name for images without a registry.
        Some(_) => match name.as_str().strip_prefix("localhost/") {
            Some(local) => local,
            None => return Ok(None),
        },
    };
    let Some(registry) = &settings.registry else { return Ok(None) };
    let whole = format!("{}/{local}", registry.trim_end_matches('/'));
    match ImageRef::parse(&whole) {
        Ok(name) => Ok(Some(name.completed())),
        Err(err) => {
            Err(Error::PullFailed { image: name.clone(), excerpt: Excerpt::from_bytes(err.to_string().as_bytes()) })
        }
    }
}

async fn look_up(cluster: &Cluster, completed: &ImageRef, within: Duration) -> Result<Option<Image>> {
    let Some(found) = cluster.registry.find(completed, within).await? else { return Ok(None) };
    let pull_name = format!("{}@{}", repository(completed.as_str()), found.digest);
    let image = found.image(completed.to_string()).map_err(|detail| Error::Unreadable { verb: "pull", detail })?;
    cluster.remember_image(&pull_name, &image);
    Ok(Some(image))
}

/// Returns an image, and the name by which nodes pull it.
///
/// # Errors
/// [`Error::PullFailed`] for an unknown image that no Pod runs.
pub(crate) async fn to_run(cluster: &Cluster, id: &ImageId) -> Result<(String, Image)> {
    match by_id(cluster, id).await? {
        Some(found) => Ok(found),
        None => {
            let why = "no registry is known that has this image: name it by its registry and tag";
            Err(Error::PullFailed { image: id.clone().into(), excerpt: Excerpt::from_bytes(why.as_bytes()) })
        }
    }
}

/// Finds an image that was looked up before, or that a Pod of Coracle runs.
async fn by_id(cluster: &Cluster, id: &ImageId) -> Result<Option<(String, Image)>> {
    if let Some(known) = cluster.known_image(id) {
        return Ok(Some(known));
    }
    let pods = list_pods(cluster, &format!("{MANAGED_BY}={CORACLE}")).await?;
    let Some(name) = pods.iter().find(|it| has_image(it, id)).and_then(image_of) else { return Ok(None) };
    let Ok(reference) = ImageRef::parse(&name) else { return Ok(None) };
    let Some(found) = cluster.registry.find(&reference, LOOK).await? else { return Ok(None) };
    let image = found.image(name.clone()).map_err(|detail| Error::Unreadable { verb: "pull", detail })?;
    cluster.remember_image(&name, &image);
    Ok(Some((name, image)))
}

fn has_image(pod: &Pod, id: &ImageId) -> bool {
    pod.metadata.annotations.as_ref().and_then(|it| it.get(IMAGE_ID)).is_some_and(|it| it == id.as_str())
}

fn image_of(pod: &Pod) -> Option<String> {
    pod.spec.as_ref()?.containers.iter().find(|it| it.name == MAIN)?.image.clone()
}

/// A name without its tag and digest.
fn repository(name: &str) -> &str {
    let name = name.split_once('@').map_or(name, |it| it.0);
    let last = name.rfind('/').map_or(0, |it| it + 1);
    name[last..].find(':').map_or(name, |at| &name[..last + at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_without_a_registry_may_be_of_an_image_that_was_built_here() {
        let settings = KubeSettings { registry: Some("host:5000/team/".into()), ..KubeSettings::default() };
        let name = |it: &str| built_name(&settings, &ImageRef::parse(it).unwrap()).unwrap().map(|it| it.to_string());
        assert_eq!(name("coracle-cache:x").as_deref(), Some("host:5000/team/coracle-cache:x"));
        assert_eq!(name("localhost/coracle-cache:x").as_deref(), Some("host:5000/team/coracle-cache:x"));
        assert_eq!(name("ghcr.io/a/b:1"), None);
        assert_eq!(name("localhost:5000/a:1"), None);
    }

    #[test]
    fn a_port_is_no_tag() {
        for (name, expected) in [
            ("host:5000/a/b:1", "host:5000/a/b"),
            ("docker.io/library/x:latest", "docker.io/library/x"),
            ("host:5000/x", "host:5000/x"),
            ("host/x:1@sha256:00", "host/x"),
        ] {
            assert_eq!(repository(name), expected);
        }
    }
}
