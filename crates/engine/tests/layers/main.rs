//! Images of other makers' layers have the same file tree here as in their own engine.
//!
//! Each image is saved by its engine, removed and loaded again, so that both sides have unpacked the same archives.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test ends where its expectation is not met")]

mod alter;
mod engines;
mod tree;

use std::path::{Path, PathBuf};
use std::time::Duration;

use coracle_engine::{EmbeddedRuntime, EngineOptions, ImageOrigin, RegistryOptions};
use coracle_types::ImageRef;
use engines::{Maker, Mounted, SavedImage};

/// Our layers of an image that is copied from an archive, mounted.
async fn mount_ours(saved: &SavedImage, data: &Path) -> Mounted {
    let options = EngineOptions {
        data_dir: data.to_owned(),
        guest: None,
        home: data.to_owned(),
        registries: RegistryOptions::default(),
    };
    let engine = EmbeddedRuntime::open(options).unwrap();
    let name = ImageRef::parse(&saved.name).unwrap();
    let origin = ImageOrigin::Archive(std::fs::File::open(&saved.archive).unwrap());
    let image = engine.copy_image(origin, &name, Duration::from_secs(120)).await.unwrap();
    let store = data.join("store");
    let digits = |id: &str| id.strip_prefix("sha256:").unwrap().to_owned();
    let configuration =
        std::fs::read(store.join("images").join(digits(image.id.as_str())).join("config.json")).unwrap();
    let configuration: serde_json::Value = serde_json::from_slice(&configuration).unwrap();
    let layers = configuration["rootfs"]["diff_ids"].as_array().unwrap().iter().rev();
    let layers: Vec<PathBuf> =
        layers.map(|it| store.join("layers/sha256").join(digits(it.as_str().unwrap())).join("diff")).collect();
    assert!(layers.len() > 2, "{layers:?}");
    Mounted::overlay(&layers).await
}

/// Fails with the entries that differ.
async fn check(maker: Maker) {
    if !rustix::process::geteuid().is_root() {
        return coracle_skips::skip(coracle_skips::NEEDS_ROOT);
    }
    let Some(saved) = maker.make().await else {
        return coracle_skips::skip(coracle_skips::NEEDS_ENGINE);
    };
    let data = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let theirs = saved.mount_theirs().await;
    let ours = mount_ours(&saved, data.path()).await;
    let (mut theirs, mut ours) = (tree::read(theirs.path()), tree::read(ours.path()));
    // Their layers have no entry for the root, and each engine gives it a mode of its own.
    for it in [&mut theirs, &mut ours] {
        it.remove(Path::new(""));
    }
    assert!(theirs.len() > 40, "{theirs:#?}");
    let differing: Vec<_> = theirs.iter().filter(|it| ours.get(it.0) != Some(it.1)).collect();
    let differing: Vec<_> = differing.iter().map(|it| (it.0, it.1, ours.get(it.0))).collect();
    assert!(differing.is_empty(), "theirs, ours: {differing:#?}");
    let more: Vec<_> = ours.keys().filter(|it| !theirs.contains_key(*it)).collect();
    assert!(more.is_empty(), "{more:?}");
}

#[tokio::test]
async fn an_image_committed_and_built_by_docker() {
    check(Maker::Docker).await;
}

#[tokio::test]
async fn an_image_built_by_buildkit() {
    check(Maker::BuildKit).await;
}

#[tokio::test]
async fn an_image_built_by_buildah() {
    check(Maker::Buildah).await;
}
