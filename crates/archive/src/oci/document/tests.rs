use serde_json::{Value, json};

use super::*;

const OCI_LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

fn part(media_type: &str, size: u64) -> Value {
    json!({ "mediaType": media_type, "digest": Sha256Digest::from_content(media_type.as_bytes()).as_str(), "size": size })
}

fn manifest(layer: &str) -> Value {
    json!({ "schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": part(CONFIG_TYPES[0], 2), "layers": [part(layer, 3)] })
}

fn with(mut document: Value, name: &str, value: Value) -> Value {
    document[name] = value;
    document
}

fn parsed(document: &Value, media_type: &str) -> Result<ManifestDocument> {
    ManifestDocument::parse(document.to_string().as_bytes(), media_type)
}

#[test]
fn manifests_and_indexes_of_both_makers_are_read() {
    for layer in LayerEncoding::ALL.iter().flat_map(|(_, oci, docker)| [oci, docker]) {
        assert!(matches!(parsed(&manifest(layer), OCI_MANIFEST), Ok(ManifestDocument::Manifest(_))), "{layer}");
    }
    let docker = with(
        with(manifest("application/vnd.docker.image.rootfs.diff.tar.gzip"), "mediaType", DOCKER_MANIFEST.into()),
        "config",
        part(CONFIG_TYPES[1], 2),
    );
    assert!(matches!(parsed(&docker, &format!("{DOCKER_MANIFEST}; charset=utf-8")), Ok(ManifestDocument::Manifest(_))));
    let index = json!({ "schemaVersion": 2, "manifests": [part(OCI_MANIFEST, 5)] });
    for media_type in [OCI_INDEX, DOCKER_LIST] {
        assert!(matches!(parsed(&index, media_type), Ok(ManifestDocument::Index(it)) if it.len() == 1));
    }
}

#[test]
fn unknown_foreign_and_obsolete_parts_are_refused_by_their_own_errors() {
    let named = |document: &Value, sent: &str, expected: &str| match parsed(document, sent) {
        Err(ImageError::MediaType { media_type, .. }) => assert_eq!(media_type, expected),
        other => panic!("{other:?}"),
    };
    let good = manifest(OCI_LAYER);
    named(&manifest("text/plain"), OCI_MANIFEST, "text/plain");
    named(
        &with(good.clone(), "config", part("application/vnd.cncf.helm.config.v1+json", 2)),
        OCI_MANIFEST,
        "application/vnd.cncf.helm.config.v1+json",
    );
    named(&good, "text/html", "text/html");
    named(&with(good.clone(), "mediaType", "a/b".into()), OCI_MANIFEST, "a/b");
    for foreign in [
        "application/vnd.oci.image.layer.nondistributable.v1.tar+gzip",
        "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip",
    ] {
        assert!(matches!(parsed(&manifest(foreign), OCI_MANIFEST), Err(ImageError::ForeignLayer { .. })), "{foreign}");
    }
    for media_type in SCHEMA_ONE {
        assert!(matches!(parsed(&json!({}), media_type), Err(ImageError::SchemaOne)));
    }
    let old = json!({ "schemaVersion": 1, "fsLayers": [] });
    assert!(matches!(parsed(&old, DOCKER_MANIFEST), Err(ImageError::SchemaOne)));
}

#[test]
fn a_document_that_is_two_things_or_too_large_is_refused() {
    let good = manifest(OCI_LAYER);
    let malformed = |document: Value, sent: &str| {
        assert!(matches!(parsed(&document, sent), Err(ImageError::Malformed { .. })), "{document}");
    };
    malformed(with(good.clone(), "manifests", json!([])), OCI_MANIFEST);
    malformed(good.clone(), OCI_INDEX);
    malformed(with(good.clone(), "mediaType", Value::Null), OCI_INDEX);
    malformed(with(good.clone(), "layers", Value::Null), OCI_MANIFEST);
    malformed(
        with(good.clone(), "config", json!({ "mediaType": CONFIG_TYPES[0], "digest": "sha512:0", "size": 1 })),
        OCI_MANIFEST,
    );
    malformed(
        with(good.clone(), "config", json!({ "mediaType": CONFIG_TYPES[0], "digest": "sha256:../x", "size": 1 })),
        OCI_MANIFEST,
    );
    malformed(with(good.clone(), "layers", vec![part(OCI_LAYER, 1); MAX_LAYERS + 1].into()), OCI_MANIFEST);
    malformed("no document".into(), OCI_MANIFEST);
    let large = with(good.clone(), "config", part(CONFIG_TYPES[0], MAX_CONFIG + 1));
    assert!(matches!(parsed(&large, OCI_MANIFEST), Err(ImageError::TooLarge { .. })));
    let large = with(good, "layers", json!([part(OCI_LAYER, MAX_LAYER + 1)]));
    assert!(matches!(parsed(&large, OCI_MANIFEST), Err(ImageError::TooLarge { .. })));
}

#[test]
fn bytes_are_checked_against_what_names_them() {
    let descriptor = Descriptor::new("", Sha256Digest::from_content(b"abc"), 3);
    assert!(descriptor.check("x", b"abc").is_ok());
    assert!(matches!(descriptor.check("x", b"abd"), Err(ImageError::WrongDigest { .. })));
    assert!(matches!(descriptor.check("x", b"abcd"), Err(ImageError::WrongSize { found: 4, .. })));
}
