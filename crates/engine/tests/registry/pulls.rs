//! Pulls that work.

use coracle_runtime::ImageStore as _;
use coracle_types::ImageRef;
use serde_json::json;

use crate::front::Reply;
use crate::image::{OCI_INDEX, TestImage, arch, digest};
use crate::lab::Lab;

#[tokio::test]
async fn an_image_is_pulled_once_and_its_layers_are_not_fetched_again() {
    let Some(lab) = Lab::start().await else { return };
    let image = TestImage::new(&["a", "b", "c", "d"]);
    lab.registry.push("some/image", "1", &image).await;
    let name = lab.name("some/image:1");
    let pulled = lab.engine.pull(&name).await.unwrap();
    assert_eq!(pulled.id.as_str(), image.id());
    assert_eq!(
        pulled.digest.as_deref().map(|it| it.rsplit('@').next().unwrap()),
        Some(digest(image.manifest.as_bytes()).as_str())
    );
    let fetched = lab.front.requests().iter().filter(|it| it.is_for("/blobs/")).count();
    assert_eq!(fetched, 5);
    let found = lab.engine.runtime.find_images(&[ImageRef::parse(&name).unwrap()]).await.unwrap();
    assert_eq!(found.iter().map(|it| it.id.as_str().to_owned()).collect::<Vec<_>>(), [image.id()]);

    lab.front.behave();
    let before = lab.engine.files();
    assert_eq!(lab.engine.pull(&name).await.unwrap().id, pulled.id);
    let again: Vec<_> = lab.front.requests().into_iter().map(|it| it.path).collect();
    let config = format!("/v2/some/image/blobs/{}", image.id());
    assert_eq!(again, ["/v2/some/image/manifests/1".to_owned(), config]);
    assert_eq!(lab.engine.files(), before);
}

#[tokio::test]
async fn a_layer_of_another_image_is_not_fetched() {
    let Some(lab) = Lab::start().await else { return };
    let image = TestImage::new(&["first", "second"]);
    lab.registry.push("more", "1", &image).await;
    assert_eq!(lab.engine.pull(&lab.name("more:1")).await.unwrap().id.as_str(), image.id());
    let fetched: Vec<_> =
        lab.front.requests().into_iter().filter(|it| it.is_for("/blobs/")).map(|it| it.path).collect();
    let blob = |bytes: &[u8]| format!("/v2/more/blobs/{}", digest(bytes));
    assert_eq!(fetched, [blob(&image.config), blob(&image.layers[1])]);
}

#[tokio::test]
async fn an_index_leads_to_the_image_of_this_machine_and_a_digest_pins_it() {
    let Some(lab) = Lab::start().await else { return };
    let (own, other) = (TestImage::new(&["own"]), TestImage::of_arch("s390x", &["other"]));
    for image in [&own, &other] {
        lab.registry.push("multi", &image.id()[7..20], image).await;
    }
    let index = json!({
        "schemaVersion": 2, "mediaType": OCI_INDEX,
        "manifests": [other.in_index("s390x"), own.in_index(arch())],
    });
    let index = index.to_string();
    lab.registry.push_manifest("multi", "all", (OCI_INDEX, &index)).await;
    let pulled = lab.engine.pull(&lab.name("multi:all")).await.unwrap();
    assert_eq!(pulled.id.as_str(), own.id());
    let pinned = lab.name(&format!("multi@{}", digest(index.as_bytes())));
    assert_eq!(lab.engine.pull(&pinned).await.unwrap().id, pulled.id);

    let foreign = json!({ "schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": [other.in_index("s390x")] });
    lab.registry.push_manifest("multi", "foreign", (OCI_INDEX, &foreign.to_string())).await;
    for tag in ["foreign", &other.id()[7..20]] {
        let reason = lab.engine.refusal(&lab.name(&format!("multi:{tag}"))).await;
        assert!(reason.contains("linux/s390x") && reason.contains(arch()), "{reason}");
    }
}

#[tokio::test]
async fn a_missing_image_is_reported() {
    let Some(lab) = Lab::start().await else { return };
    let reason = lab.engine.refusal(&lab.name("nothing:1")).await;
    assert!(reason.contains("has no `nothing:1`"), "{reason}");
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let reason = lab.engine.refusal(&format!("{closed}/x:1")).await;
    assert!(reason.contains(&format!("cannot reach {closed}")), "{reason}");
    lab.front.spoil(|_, _| {
        Reply::new("429 Too Many Requests", &[], r#"{"errors":[{"code":"TOOMANYREQUESTS","message":"x"}]}"#)
    });
    let reason = lab.engine.refusal(&lab.name("first:1")).await;
    assert!(reason.contains("429 (TOOMANYREQUESTS)"), "{reason}");
}
