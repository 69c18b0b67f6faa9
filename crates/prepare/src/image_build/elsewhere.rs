//! Images for an engine that cannot build: another engine on this host builds them and pushes them to the registry that
//! the nodes pull from.

use std::collections::BTreeMap;

use coracle_context::context::Context;
use coracle_context::engines::{Backend, Ready};
use coracle_context::failure::Failure;
use coracle_context::requested::Requested;
use coracle_images::{BuildOutcome, ImageOrigin, ImageRequest};
use coracle_provision::certs::ExtraCertificates;
use coracle_runtime::Image;
use coracle_runtime::labels::Signer;
use coracle_types::{Capability, EngineKind, Error};

use super::build_containers::LifecycleContainers;
use super::builder::Builder;

/// Whether another engine has to build this engine's images.
pub(super) fn is_needed(ready: &Ready) -> bool {
    ready.runtime.kind() == EngineKind::Kubernetes
}

/// Returns the image of a request for an engine that cannot build. An image without a recipe comes from its registry.
pub(super) async fn build(
    cx: &Context,
    backend: Backend<'_>,
    request: &ImageRequest,
    certs: &Requested<ExtraCertificates>,
) -> Result<BuildOutcome, Failure> {
    let target = &*backend.ready.runtime;
    if request.explicit && request.is_empty() {
        return Ok(BuildOutcome::Base(Builder::new(cx, backend)?.images().base(request).await?));
    }
    if request.is_empty()
        && let Some((image, reference)) = coracle_images::find(target, &request.image).await?
    {
        return Ok(BuildOutcome::Base(coracle_images::Base {
            image,
            reference,
            source: ImageOrigin::Pulled,
            note: None,
        }));
    }
    if cx.config.kubernetes.registry.is_none() {
        let unsupported = Error::Unsupported { engine: target.kind(), capability: Capability::Build };
        return Err(Failure::from(unsupported).hint_setting(
            "name the `image` of a registry, or say where images are pushed that are built here",
            "kubernetes.registry",
        ));
    }
    let ready = cx.engines().of_this_machine().await?;
    let here = Backend { ready: &ready, store: backend.store };
    let (builder, mut creation) = (Builder::new(cx, here)?, None);
    let mut containers = LifecycleContainers { cx, backend: here, certs, volumes: Vec::new(), creation: &mut creation };
    let outcome = cx.unless_cancelled(Box::pin(builder.images().build(request, &mut containers))).await;
    containers.remove().await;
    let outcome = outcome?;
    let published = publish(cx, &ready, &outcome, backend).await?;
    Ok(outcome.with_image(published))
}

/// Pushes the image to the registry, unless it was pushed before.
async fn publish(cx: &Context, from: &Ready, built: &BuildOutcome, to: Backend<'_>) -> Result<Image, Failure> {
    let ((image, name), target) = (built.image(), &*to.ready.runtime);
    let kinds = [from.runtime.kind(), target.kind()];
    let labels = renewed(to.store.signer(), image.labels.clone(), kinds);
    let there = target.find_images(std::slice::from_ref(name)).await?;
    // Coracle's labels contain the key and the time of the build.
    if let Some(same) = there.into_iter().find(|it| it.labels == labels && !it.labels.is_empty()) {
        return Ok(same);
    }
    cx.call.progress.message(format!("pushing {name} to the registry")).await;
    let spool = || tempfile::tempfile_in(cx.state()?.scratch()).map_err(Failure::internal);
    let (saved, spool) = (spool()?, spool()?);
    from.runtime.save_image(&image.id, saved.try_clone().map_err(Failure::internal)?).await?;
    cx.unless_cancelled(async {
        let written = spool.try_clone().map_err(Failure::internal)?;
        coracle_images::relabel(saved, name, labels, written).await.map_err(Failure::internal)?;
        Ok(target.load_image(spool, name).await?)
    })
    .await
}

/// Signs the labels again for another engine: a signature is valid for one engine only.
fn renewed(
    signer: &Signer,
    mut labels: BTreeMap<String, String>,
    [from, to]: [EngineKind; 2],
) -> BTreeMap<String, String> {
    if signer.verify(from, &labels) {
        signer.sign(to, &mut labels);
    }
    labels
}

#[cfg(test)]
mod tests {
    use coracle_types::{LabelNamespace, Secret};

    use super::*;

    #[test]
    fn only_the_signature_of_our_own_image_is_renewed_for_the_other_engine() {
        let signer = |key| Signer::new(LabelNamespace::parse("coracle").unwrap(), Secret::new(vec![key; 32]), 1000);
        for (key, is_ours) in [(1, true), (2, false)] {
            let mut labels = BTreeMap::from([("coracle.kind".to_owned(), "cache".to_owned())]);
            signer(key).sign(EngineKind::Docker, &mut labels);
            let there = renewed(&signer(1), labels.clone(), [EngineKind::Docker, EngineKind::Kubernetes]);
            assert_eq!(signer(1).verify(EngineKind::Kubernetes, &there), is_ours);
            assert_eq!(there == labels, !is_ours);
        }
    }
}
