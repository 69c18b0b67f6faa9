//! A registry that lies, interrupts transfers, or never ends one: a typed error, nothing stored, and the next pull works.

use std::time::Duration;

use coracle_engine::RegistryOptions;
use coracle_runtime::ImageStore as _;
use coracle_types::Error;
use serde_json::json;

use crate::front::{Pace, Reply, Request};
use crate::image::{TestImage, digest, tar_of};
use crate::lab::{Lab, TestEngine};

/// A registry with one image of one layer, which is large enough to be cut.
async fn lab() -> Option<(Lab, TestImage, String)> {
    let lab = Lab::start().await?;
    let noise: Vec<u8> = (0..300_000_u32).flat_map(|it| it.wrapping_mul(2_654_435_761).to_be_bytes()).collect();
    let image = TestImage::of_tars(crate::image::arch(), &[tar_of(&noise)]);
    lab.registry.push("x", "1", &image).await;
    let name = lab.name("x:1");
    Some((lab, image, name))
}

/// Pulls while replies for `path` are spoiled. The reason of the failure.
async fn spoiled(lab: &Lab, path: String, mut fault: impl FnMut(&Request, Reply) -> Reply + Send + 'static) -> String {
    lab.front.spoil(move |request, reply| if request.is_for(&path) { fault(request, reply) } else { reply });
    lab.engine.refusal(&lab.name("x:1")).await
}

fn changed(mut reply: Reply) -> Reply {
    reply.body[0] ^= 1;
    reply
}

#[tokio::test]
async fn other_bytes_than_named_are_refused_wherever_they_are() {
    let Some((lab, image, name)) = lab().await else { return };
    let (config, layer) = (digest(&image.config), digest(&image.layers[0]));
    let reason = spoiled(&lab, "/manifests/1".into(), |_, mut it| {
        it.body.push(b' ');
        it
    });
    assert!(reason.await.contains("its manifest has the digest"));
    for (path, what) in [(config, "configuration".to_owned()), (layer.clone(), format!("layer {layer}"))] {
        let reason = spoiled(&lab, path, |_, it| changed(it)).await;
        assert!(reason.contains(&format!("its {what} has the digest sha256:")), "{reason}");
    }
    let pinned = lab.name(&format!("x@{}", digest(image.manifest.as_bytes())));
    let other = image.manifest_with(|it| it["annotations"] = json!({ "a": "b" }));
    lab.front.spoil(move |request, reply| match request.is_for("/manifests/") {
        true => Reply::new("200 OK", &["Content-Type: application/vnd.oci.image.manifest.v1+json"], other.clone()),
        false => reply,
    });
    let reason = lab.engine.refusal(&pinned).await;
    assert!(reason.contains("its manifest has the digest"), "{reason}");
    lab.pulls_again(&name, &image).await;
}

#[tokio::test]
async fn a_transfer_that_breaks_off_is_resumed_where_it_was() {
    let Some((lab, image, name)) = lab().await else { return };
    let (path, size) = (digest(&image.layers[0]), image.layers[0].len());
    assert!(size > 100_000);
    let blob = path.clone();
    lab.front.spoil(move |request, mut reply| {
        if request.is_for(&blob) && request.before == 0 {
            (reply.length, reply.pace) = (Some(size), Pace::Cut(70_000));
        }
        reply
    });
    assert_eq!(lab.engine.pull(&name).await.unwrap().id.as_str(), image.id());
    let requests: Vec<_> = lab.front.requests().into_iter().filter(|it| it.is_for(&path)).collect();
    assert_eq!(requests.len(), 2);
    assert!(requests[1].head.contains("range: bytes=70000-"), "{}", requests[1].head);
}

#[tokio::test]
async fn a_server_without_ranges_is_resumed_by_passing_over_what_is_here() {
    let Some((lab, image, name)) = lab().await else { return };
    let (path, whole) = (digest(&image.layers[0]), image.layers[0].clone());
    lab.front.spoil(move |request, reply| match (request.is_for(&path), request.before) {
        (true, 0) => Reply { pace: Pace::Cut(70_000), ..Reply::new("200 OK", &[], whole.clone()) },
        (true, _) => Reply::new("200 OK", &[], whole.clone()),
        _ => reply,
    });
    assert_eq!(lab.engine.pull(&name).await.unwrap().id.as_str(), image.id());
}

#[tokio::test]
async fn a_transfer_is_resumed_as_often_as_it_brings_something() {
    let Some((lab, image, name)) = lab().await else { return };
    let (blob, part) = (digest(&image.layers[0]), image.layers[0].len() / 6);
    lab.front.spoil(move |request, reply| match request.is_for(&blob) {
        true => Reply { pace: Pace::Cut(part), ..reply },
        false => reply,
    });
    assert_eq!(lab.engine.pull(&name).await.unwrap().id.as_str(), image.id());
}

#[tokio::test]
async fn a_transfer_that_breaks_off_and_brings_nothing_fails() {
    let Some((lab, image, name)) = lab().await else { return };
    let path = digest(&image.layers[0]);
    let cut = |request: &Request, reply: Reply| {
        let bytes = if request.before == 0 { 1000 } else { 0 };
        Reply { pace: Pace::Cut(bytes), ..reply }
    };
    let reason = spoiled(&lab, path.clone(), cut).await;
    assert!(reason.contains("broke off 4 times"), "{reason}");
    assert_eq!(lab.front.requests().iter().filter(|it| it.is_for(&path)).count(), 4);
    lab.pulls_again(&name, &image).await;
}

#[tokio::test]
async fn a_length_that_is_not_the_announced_one_is_refused() {
    let Some((lab, image, name)) = lab().await else { return };
    let path = digest(&image.layers[0]);
    for length in [10, 1 << 30] {
        let lie = move |_: &Request, reply: Reply| Reply { length: Some(length), ..reply };
        let reason = spoiled(&lab, path.clone(), lie).await;
        assert!(reason.contains(&format!("has {length} bytes instead of")), "{reason}");
    }
    let config = digest(&image.config);
    let reason = spoiled(&lab, config, |_, mut reply| {
        reply.body.push(b' ');
        reply
    });
    assert!(reason.await.contains("its configuration is larger than"));
    lab.pulls_again(&name, &image).await;
}

#[tokio::test]
async fn a_document_without_end_is_refused() {
    let Some((lab, image, name)) = lab().await else { return };
    for (path, what) in [("/manifests/1".to_owned(), "manifest"), (digest(&image.config), "configuration")] {
        let reason = spoiled(&lab, path, |_, reply| Reply { body: vec![b' '; 5 << 20], ..reply }).await;
        assert!(reason.contains(&format!("its {what} is larger than")), "{reason}");
    }
    lab.pulls_again(&name, &image).await;
}

#[tokio::test]
async fn manifests_of_other_kinds_are_refused_by_name() {
    let Some((lab, image, name)) = lab().await else { return };
    let kinds = [
        ("application/vnd.docker.distribution.manifest.v1+prettyjws", "{}".to_owned(), "schema 1"),
        ("text/html", "<html>".to_owned(), "the unknown media type `text/html`"),
        (
            "application/vnd.oci.image.manifest.v1+json",
            image.manifest_with(|it| it["layers"][0]["mediaType"] = "application/x-thing".into()),
            "its layer has the unknown media type `application/x-thing`",
        ),
        (
            "application/vnd.oci.image.manifest.v1+json",
            image.manifest_with(|it| {
                it["layers"][0]["mediaType"] = "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip".into();
            }),
            "may not be distributed",
        ),
        (
            "application/vnd.oci.image.manifest.v1+json",
            image.manifest_with(|it| it["layers"][0]["size"] = (1_u64 << 60).into()),
            "is larger than",
        ),
    ];
    for (kind, manifest, expected) in kinds {
        lab.front.spoil(move |request, reply| match request.is_for("/manifests/") {
            true => Reply::new("200 OK", &[&format!("Content-Type: {kind}")], manifest.clone()),
            false => reply,
        });
        let reason = lab.engine.refusal(&name).await;
        assert!(reason.contains(expected), "{kind}: {reason}");
    }
    lab.pulls_again(&name, &image).await;
}

#[tokio::test]
async fn content_that_is_not_the_configurations_is_refused() {
    let Some((lab, image, name)) = lab().await else { return };
    // Each part is what its descriptor names; the layer is another one than the configuration says.
    let other = TestImage::new(&["other"]);
    let mixed = image.manifest_with(|it| {
        it["layers"] = serde_json::from_str::<serde_json::Value>(&other.manifest).unwrap()["layers"].clone();
    });
    lab.registry.push("x", "other", &other).await;
    lab.registry.push_manifest("x", "mixed", (&image.media_type, &mixed)).await;
    let reason = lab.engine.refusal(&lab.name("x:mixed")).await;
    assert!(reason.contains("its content is sha256:"), "{reason}");
    lab.pulls_again(&name, &image).await;
}

#[tokio::test]
async fn a_drip_ends_at_the_deadline() {
    let Some((lab, image, name)) = lab().await else { return };
    for path in ["/manifests/1".to_owned(), digest(&image.layers[0])] {
        lab.front.spoil(move |request, reply| match request.is_for(&path) {
            true => Reply { pace: Pace::Drip, ..reply },
            false => reply,
        });
        let before = lab.engine.files();
        let begun = std::time::Instant::now();
        let late = lab.engine.pull_within(&name, Duration::from_secs(2)).await;
        assert!(matches!(late, Err(Error::TimedOut { verb: "pull", .. })), "{late:?}");
        assert!(begun.elapsed() < Duration::from_secs(10));
        assert_eq!(lab.engine.files(), before);
    }
    lab.pulls_again(&name, &image).await;
}

#[tokio::test]
async fn a_small_blob_that_unpacks_without_end_is_refused() {
    let Some(lab) = Lab::start().await else { return };
    let engine = TestEngine::new(RegistryOptions { max_layer_bytes: Some(1 << 20), ..RegistryOptions::default() });
    engine.pull(&lab.direct("first:1")).await.unwrap();
    let bomb = TestImage::of_tars(crate::image::arch(), &[tar_of(&vec![0; 64 << 20])]);
    assert!(bomb.layers[0].len() < 1 << 20);
    lab.registry.push("bomb", "1", &bomb).await;
    let reason = engine.refusal(&lab.direct("bomb:1")).await;
    assert!(reason.contains("it has more than 1048576"), "{reason}");
}

#[tokio::test]
async fn layers_that_are_small_alone_and_large_together_are_refused() {
    let Some(lab) = Lab::start().await else { return };
    let engine = TestEngine::new(RegistryOptions { max_image_bytes: Some(1 << 20), ..RegistryOptions::default() });
    engine.pull(&lab.direct("first:1")).await.unwrap();
    let noise = |seed: u32| -> Vec<u8> {
        (0..150_000_u32)
            .flat_map(|it| (it ^ seed).wrapping_mul(2_654_435_761).rotate_left(it % 31).to_be_bytes())
            .collect()
    };
    // By what the manifest announces, and by what it unpacks to.
    let announced = TestImage::of_tars(crate::image::arch(), &[tar_of(&noise(1)), tar_of(&noise(2))]);
    let unpacked = TestImage::of_tars(crate::image::arch(), &[tar_of(&vec![0; 700_000]), tar_of(&vec![1; 700_000])]);
    assert!(announced.layers.iter().map(Vec::len).sum::<usize>() > 1 << 20);
    assert!(unpacked.layers.iter().map(Vec::len).sum::<usize>() < 1 << 20);
    for (name, image) in [("announced", &announced), ("unpacked", &unpacked)] {
        lab.registry.push(name, "1", image).await;
        let reason = match engine.pull(&lab.direct(&format!("{name}:1"))).await {
            Err(Error::PullFailed { excerpt, .. }) => excerpt.to_string(),
            other => panic!("{other:?}"),
        };
        assert_eq!(reason, "its content is larger than 1048576 bytes", "{name}");
    }
}

/// An image whose first layer is complete before its second one fails.
#[tokio::test]
async fn layers_of_an_image_that_is_refused_are_collected() {
    let Some((lab, image, name)) = lab().await else { return };
    let (good, other) = (TestImage::new(&["good", "promised"]), TestImage::new(&["good", "other"]));
    let mixed = good.manifest_with(|it| {
        it["layers"] = serde_json::from_str::<serde_json::Value>(&other.manifest).unwrap()["layers"].clone();
    });
    lab.registry.push("x", "good", &good).await;
    lab.registry.push("x", "other", &other).await;
    lab.registry.push_manifest("x", "mixed", (&good.media_type, &mixed)).await;
    // It compares the files of the engine before and after.
    let reason = lab.engine.refusal(&lab.name("x:mixed")).await;
    assert!(reason.contains("its content is sha256:"), "{reason}");
    lab.pulls_again(&name, &image).await;
}

#[tokio::test]
async fn layers_stay_for_the_next_attempt_after_a_transfer_that_broke_off_and_no_longer() {
    let Some((lab, image, name)) = lab().await else { return };
    let tars = [tar_of(b"kept"), tar_of(b"cut")];
    let cut = TestImage::of_tars(crate::image::arch(), &tars);
    lab.registry.push("cut", "1", &cut).await;
    let has_first_layer = |lab: &Lab| lab.engine.files().iter().any(|it| it.ends_with(&digest(&tars[0])[7..]));
    let break_off = |lab: &Lab| {
        let path = digest(&cut.layers[1]);
        lab.front.spoil(move |request, reply| match request.is_for(&path) {
            true => Reply { pace: Pace::Cut(0), ..reply },
            false => reply,
        });
    };
    break_off(&lab);
    assert!(matches!(lab.engine.pull(&lab.name("cut:1")).await, Err(Error::PullFailed { .. })));
    assert!(has_first_layer(&lab));
    lab.front.behave();
    let pulled = lab.engine.pull(&lab.name("cut:1")).await.unwrap();
    assert!(lab.front.requests().iter().all(|it| !it.is_for(&digest(&cut.layers[0]))));
    // Without another attempt they go with the next copy.
    lab.engine.runtime.remove_image(&pulled.id).await.unwrap();
    break_off(&lab);
    assert!(matches!(lab.engine.pull(&lab.name("cut:1")).await, Err(Error::PullFailed { .. })));
    assert!(has_first_layer(&lab));
    lab.pulls_again(&name, &image).await;
    assert!(!has_first_layer(&lab));
}
