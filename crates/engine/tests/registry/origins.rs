//! Images of layouts, archives and the other engines of this machine.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use coracle_engine::{ImageOrigin, RegistryOptions};
use coracle_runtime::Image;
use coracle_types::{Error, ImageRef};
use serde_json::json;

use crate::image::{OCI_INDEX, TestImage, arch, digest, gzip, tar_of};
use crate::lab::TestEngine;
use crate::other_engine::OtherEngine;

async fn copied(engine: &TestEngine, origin: ImageOrigin, name: &str) -> Result<Image, Error> {
    engine.runtime.copy_image(origin, &ImageRef::parse(name).unwrap(), Duration::from_secs(60)).await
}

/// The reason why an image is refused. Nothing is stored.
async fn refusal(engine: &TestEngine, origin: ImageOrigin, name: &str) -> String {
    let before = engine.files();
    let Err(Error::PullFailed { excerpt, .. }) = copied(engine, origin, name).await else { panic!("{name} is taken") };
    assert_eq!(engine.files(), before, "{excerpt}");
    excerpt.to_string()
}

/// The files of a layout with these images, by their names.
fn layout(images: &[(&str, &TestImage)]) -> Vec<(String, Vec<u8>)> {
    let blob = |bytes: &[u8]| (format!("blobs/sha256/{}", &digest(bytes)[7..]), bytes.to_vec());
    let mut files = vec![("oci-layout".to_owned(), br#"{"imageLayoutVersion":"1.0.0"}"#.to_vec())];
    let mut manifests = Vec::new();
    for (name, image) in images {
        files.extend(image.layers.iter().chain([&image.config]).map(|it| blob(it)));
        files.push(blob(image.manifest.as_bytes()));
        let mut descriptor = image.in_index(arch());
        descriptor["annotations"] = json!({ "org.opencontainers.image.ref.name": name });
        manifests.push(descriptor);
    }
    let index = json!({ "schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": manifests });
    files.push(("index.json".to_owned(), index.to_string().into_bytes()));
    files
}

/// The files of an archive of `docker save`.
fn saved(image: &TestImage, tars: &[Vec<u8>]) -> Vec<(String, Vec<u8>)> {
    let layers: Vec<_> = (0..tars.len()).map(|it| format!("{it}/layer.tar")).collect();
    let manifest = json!([{ "Config": "config.json", "RepoTags": ["saved:1"], "Layers": layers }]);
    let files = layers.into_iter().zip(tars.iter().cloned());
    let rest =
        [("config.json".into(), image.config.clone()), ("manifest.json".into(), manifest.to_string().into_bytes())];
    files.chain(rest).collect()
}

fn archive(files: &[(String, Vec<u8>)]) -> File {
    let mut builder = tar::Builder::new(tempfile::tempfile().unwrap());
    for (path, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        builder.append_data(&mut header, path, content.as_slice()).unwrap();
    }
    builder.into_inner().unwrap()
}

fn write(dir: &Path, files: &[(String, Vec<u8>)]) {
    for (path, content) in files {
        let path = dir.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
}

#[tokio::test]
async fn a_layout_is_copied_as_directory_and_as_archive() {
    let (one, two) = (TestImage::new(&["one", "shared"]), TestImage::new(&["two", "shared"]));
    let files = layout(&[("x:1", &one), ("2", &two)]);
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), &files);
    for as_archive in [false, true] {
        let engine = TestEngine::new(RegistryOptions::default());
        let origin = || match as_archive {
            true => ImageOrigin::Archive(archive(&files)),
            false => ImageOrigin::Layout(dir.path().to_owned()),
        };
        assert_eq!(copied(&engine, origin(), "x:1").await.unwrap().id.as_str(), one.id());
        assert_eq!(copied(&engine, origin(), "x:2").await.unwrap().id.as_str(), two.id());
        let reason = refusal(&engine, origin(), "x:3").await;
        assert!(reason.contains("the image layout has no `x:3`"), "{reason}");
    }
}

#[tokio::test]
async fn an_archive_of_docker_is_copied_plain_and_compressed() {
    let tars = [tar_of(b"a"), tar_of(b"b")];
    let image = TestImage::of_tars(arch(), &tars);
    let files = saved(&image, &tars);
    let engine = TestEngine::new(RegistryOptions::default());
    let plain = copied(&engine, ImageOrigin::Archive(archive(&files)), "saved:1").await.unwrap();
    assert_eq!(plain.id.as_str(), image.id());
    let mut packed = tempfile::tempfile().unwrap();
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut std::io::BufReader::new(archive_at_start(&files)), &mut bytes).unwrap();
    std::io::Write::write_all(&mut packed, &gzip(&bytes)).unwrap();
    let other = TestEngine::new(RegistryOptions::default());
    assert_eq!(copied(&other, ImageOrigin::Archive(packed), "other:1").await.unwrap().id, plain.id);
}

fn archive_at_start(files: &[(String, Vec<u8>)]) -> File {
    let mut file = archive(files);
    std::io::Seek::rewind(&mut file).unwrap();
    file
}

#[tokio::test]
async fn hostile_archives_are_refused() {
    let tars = [tar_of(b"a")];
    let image = TestImage::of_tars(arch(), &tars);
    let engine = TestEngine::new(RegistryOptions::default());
    copied(&engine, ImageOrigin::Archive(archive(&saved(&image, &tars))), "first:1").await.unwrap();
    let other = TestImage::of_tars(arch(), &[tar_of(b"b")]);
    for (files, expected) in [
        (saved(&other, &tars), "its content is sha256:"),
        (saved(&other, &[]), "it names 1 layers, and its manifest 0"),
        (vec![("x".to_owned(), Vec::new())], "neither `index.json`"),
        (vec![("manifest.json".to_owned(), b"[]".to_vec())], "the archive has no `x:1`"),
        (vec![("manifest.json".to_owned(), vec![b' '; 5 << 20])], "is larger than"),
    ] {
        let reason = refusal(&engine, ImageOrigin::Archive(archive(&files)), "x:1").await;
        assert!(reason.contains(expected), "{reason}");
    }
    let mut spoiled = layout(&[("x:1", &other)]);
    let layer = format!("blobs/sha256/{}", &digest(&other.layers[0])[7..]);
    for change in [|it: &mut Vec<u8>| it.push(0), |it: &mut Vec<u8>| it[20] ^= 1] {
        let file = spoiled.iter_mut().find(|it| it.0 == layer).unwrap();
        file.1.clone_from(&other.layers[0]);
        change(&mut file.1);
        let reason = refusal(&engine, ImageOrigin::Archive(archive(&spoiled)), "x:1").await;
        assert!(reason.contains("bytes instead of") || reason.contains("has the digest"), "{reason}");
    }
}

#[tokio::test]
async fn a_layout_leads_to_no_file_outside() {
    let image = TestImage::new(&["a"]);
    let (dir, outside) = (tempfile::tempdir().unwrap(), tempfile::NamedTempFile::new().unwrap());
    write(dir.path(), &layout(&[("x:1", &image)]));
    std::fs::write(outside.path(), &image.layers[0]).unwrap();
    let layer = dir.path().join(format!("blobs/sha256/{}", &digest(&image.layers[0])[7..]));
    let engine = TestEngine::new(RegistryOptions::default());
    copied(&engine, ImageOrigin::Archive(archive(&layout(&[("y:1", &TestImage::new(&["y"]))]))), "y:1").await.unwrap();
    std::fs::remove_file(&layer).unwrap();
    std::os::unix::fs::symlink(outside.path(), &layer).unwrap();
    let reason = refusal(&engine, ImageOrigin::Layout(dir.path().to_owned()), "x:1").await;
    assert!(reason.contains("the image layout has no `blobs/"), "{reason}");
}

#[tokio::test]
async fn a_digest_in_a_name_is_compared_whatever_the_origin() {
    let tars = [tar_of(b"one")];
    let (one, two) = (TestImage::of_tars(arch(), &tars), TestImage::new(&["two"]));
    let manifest = |it: &TestImage| digest(it.manifest.as_bytes());
    let files = layout(&[("x:1", &one), ("x:2", &two)]);
    let only = layout(&[("x:1", &one)]);
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), &files);
    let engine = TestEngine::new(RegistryOptions::default());
    let by_digest = |it: &TestImage| format!("x@{}", manifest(it));
    for origin in [ImageOrigin::Layout(dir.path().to_owned()), ImageOrigin::Archive(archive(&files))] {
        let image = copied(&engine, origin, &by_digest(&two)).await.unwrap();
        assert_eq!((image.id.as_str(), image.tags.len()), (two.id().as_str(), 0));
    }
    let reason = refusal(&engine, ImageOrigin::Archive(archive(&only)), &by_digest(&two)).await;
    assert!(reason.contains("its manifest has the digest"), "{reason}");
    // `docker save` tells no digest.
    let saved = || ImageOrigin::Archive(archive(&saved(&one, &tars)));
    let reason = refusal(&engine, saved(), &by_digest(&one)).await;
    assert!(reason.contains("does not know the digest"), "{reason}");
    let reason = refusal(&engine, saved(), &two.id()).await;
    assert!(reason.contains("its configuration has the digest"), "{reason}");
    let by_id = copied(&engine, saved(), &one.id()).await.unwrap();
    assert_eq!((by_id.id.as_str(), by_id.tags.len()), (one.id().as_str(), 0));
}

#[tokio::test]
async fn a_layout_that_cannot_be_read_is_not_called_absent() {
    let image = TestImage::new(&["a"]);
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), &layout(&[("x:1", &image)]));
    let index = dir.path().join("index.json");
    std::fs::remove_file(&index).unwrap();
    // A name that no file system takes, as a stand-in for a disk that fails.
    std::os::unix::fs::symlink("n".repeat(300), &index).unwrap();
    let engine = TestEngine::new(RegistryOptions::default());
    let failed = copied(&engine, ImageOrigin::Layout(dir.path().to_owned()), "x:1").await;
    assert!(
        matches!(&failed, Err(Error::Host { what, .. }) if what.contains("cannot read the image layout")),
        "{failed:?}"
    );
}

#[tokio::test]
async fn names_of_files_in_an_archive_print_no_control_characters() {
    let image = TestImage::of_tars(arch(), &[tar_of(b"a")]);
    let engine = TestEngine::new(RegistryOptions::default());
    copied(&engine, ImageOrigin::Archive(archive(&layout(&[("y:1", &image)]))), "y:1").await.unwrap();
    let name = format!("config\n\u{202e}{}", "x".repeat(1000));
    let manifest = json!([{ "Config": name, "RepoTags": ["x:1"], "Layers": [] }]).to_string();
    let mut files = vec![("manifest.json".to_owned(), manifest.into_bytes())];
    let absent = refusal(&engine, ImageOrigin::Archive(archive(&files)), "x:1").await;
    files.push((name, vec![b' '; 9 << 20]));
    let large = refusal(&engine, ImageOrigin::Archive(archive(&files)), "x:1").await;
    for reason in [absent, large] {
        assert!(reason.contains("`config\\n\\u{202e}xxx") && reason.len() < 400, "{reason}");
    }
}

/// What another engine has built is the same image here, by its id.
#[tokio::test]
async fn images_of_other_engines_are_copied_by_their_save() {
    let program_env = [("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"), ("HOME", "/root")];
    let program_env = program_env.map(|(name, value)| (name.to_owned(), value.into())).into();
    let engine = TestEngine::new(RegistryOptions { program_env, ..RegistryOptions::default() });
    for (program, of_docker) in [("docker", true), ("podman", false)] {
        let origin = || if of_docker { ImageOrigin::Docker } else { ImageOrigin::Podman };
        let Some(other) = OtherEngine::with_image(program).await else {
            coracle_skips::skip(coracle_skips::NEEDS_ENGINE);
            continue;
        };
        let copied = copied(&engine, origin(), &other.name).await;
        let expected = other.id().await;
        other.remove().await;
        assert_eq!(copied.unwrap().id.as_str(), expected, "{program}");
        let reason = refusal(&engine, origin(), "no-such-image:1").await;
        assert!(reason.contains(&format!("`{program}` failed (exit ")), "{reason}");
    }
}
