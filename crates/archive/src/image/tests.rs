use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read as _, Seek as _, Write as _};
use std::sync::atomic::AtomicBool;

use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::ImageArchive;
use crate::oci::{ImageError, Platform};

fn architecture() -> String {
    Platform::of_this_machine().architecture
}

fn configuration() -> Map<String, Value> {
    let config = json!({ "Env": ["A=1"], "Labels": { "a": "b" } });
    let it = json!({
        "architecture": architecture(), "os": "linux", "config": config, "container_config": { "Labels": { "x": "y" } },
    });
    it.as_object().unwrap().clone()
}

fn layer(content: &str) -> File {
    let mut tar = ::tar::Builder::new(tempfile::tempfile().unwrap());
    let mut header = ::tar::Header::new_gnu();
    header.set_mode(0o644);
    header.set_size(content.len() as u64);
    tar.append_data(&mut header, "file", content.as_bytes()).unwrap();
    tar.into_inner().unwrap()
}

fn written(image: &ImageArchive) -> File {
    written_as(image, "demo:1")
}

fn written_as(image: &ImageArchive, name: &str) -> File {
    let file = tempfile::tempfile().unwrap();
    image.write(name, &file, &AtomicBool::new(false)).unwrap();
    file
}

/// An archive of these files.
fn archive(files: &BTreeMap<String, Vec<u8>>) -> File {
    let mut tar = ::tar::Builder::new(tempfile::tempfile().unwrap());
    for (path, content) in files {
        let mut header = ::tar::Header::new_gnu();
        header.set_mode(0o644);
        header.set_size(content.len() as u64);
        tar.append_data(&mut header, path, content.as_slice()).unwrap();
    }
    tar.into_inner().unwrap()
}

/// The files of what `write` makes.
fn files() -> BTreeMap<String, Vec<u8>> {
    unpacked(written(&ImageArchive::from_layer(configuration(), layer("one")).unwrap()))
}

fn unpacked(mut file: File) -> BTreeMap<String, Vec<u8>> {
    file.rewind().unwrap();
    let mut files = BTreeMap::new();
    for entry in ::tar::Archive::new(file).entries().unwrap() {
        let mut entry = entry.unwrap();
        let (path, mut content) = (entry.path().unwrap().display().to_string(), Vec::new());
        entry.read_to_end(&mut content).unwrap();
        files.insert(path, content);
    }
    files
}

fn blob(files: &mut BTreeMap<String, Vec<u8>>, content: &Value) -> Value {
    let bytes = content.to_string().into_bytes();
    let digest = hex::encode(Sha256::digest(&bytes));
    let size = bytes.len();
    files.insert(format!("blobs/sha256/{digest}"), bytes);
    json!({ "digest": format!("sha256:{digest}"), "size": size })
}

fn document(files: &BTreeMap<String, Vec<u8>>, path: &str) -> Value {
    serde_json::from_slice(&files[path]).unwrap()
}

/// The manifest's path and content.
fn manifest(files: &BTreeMap<String, Vec<u8>>) -> (String, Value) {
    let index = document(files, "index.json");
    let path = index["manifests"][0]["digest"].as_str().unwrap().replace("sha256:", "blobs/sha256/");
    (path.clone(), document(files, &path))
}

fn refused(files: &BTreeMap<String, Vec<u8>>) -> ImageError {
    ImageArchive::open(archive(files))
        .and_then(|it| it.write("demo:1", &tempfile::tempfile().unwrap(), &AtomicBool::new(false)).map(|()| it))
        .expect_err("it is accepted")
}

#[test]
fn a_written_image_is_read_with_other_labels_and_the_same_layer() {
    let mut image = ImageArchive::open(archive(&files())).unwrap();
    assert_eq!(image.labels(), BTreeMap::from([("a".into(), "b".into())]));
    let labels = BTreeMap::from([("c".to_owned(), "d".to_owned())]);
    image.set_labels(&labels);
    let again = ImageArchive::open(written(&image)).unwrap();
    assert_eq!((again.labels(), &again.configuration()["config"]["Env"]), (labels, &json!(["A=1"])));
    assert!(!again.configuration().contains_key("container_config"));
    let (mut before, mut after) = (Vec::new(), Vec::new());
    std::io::Seek::rewind(&mut layer("one")).unwrap();
    image.only_layer().unwrap().read_to_end(&mut before).unwrap();
    again.only_layer().unwrap().read_to_end(&mut after).unwrap();
    assert_eq!(before, after);
}

#[test]
fn containerd_reads_the_completed_name() {
    let image = ImageArchive::from_layer(configuration(), layer("one")).unwrap();
    for (name, completed) in [
        ("demo:1", "docker.io/library/demo:1"),
        ("team/demo", "docker.io/team/demo:latest"),
        ("localhost/demo:1", "localhost/demo:1"),
        ("h:5000/demo:1", "h:5000/demo:1"),
    ] {
        let files = unpacked(written_as(&image, name));
        let annotations = &document(&files, "index.json")["manifests"][0]["annotations"];
        assert_eq!(annotations["io.containerd.image.name"], completed);
        assert_eq!(annotations["org.opencontainers.image.ref.name"], name);
        assert_eq!(document(&files, "manifest.json")[0]["RepoTags"], json!([name]));
    }
}

#[test]
fn an_archive_of_docker_save_is_accepted_only_from_an_engine() {
    let mut saved = files();
    for path in ["oci-layout", "index.json"] {
        saved.remove(path).unwrap();
    }
    let read = ImageArchive::open_saved(archive(&saved)).unwrap();
    assert_eq!(ImageArchive::open(written(&read)).unwrap().labels(), read.labels());
    assert!(matches!(refused(&saved), ImageError::NotImages(why) if why.contains("oci-layout")));
}

#[test]
fn a_compressed_or_other_file_is_refused() {
    for content in [&b"x"[..], &[b'x'; 2000], &[0x1f, 0x8b, 8, 0], b""] {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(content).unwrap();
        let refused = ImageArchive::open(file).expect_err("it is accepted");
        assert!(matches!(refused, ImageError::NotImages(_)), "{refused:?}");
    }
}

#[test]
fn a_blob_of_another_digest_or_length_is_refused() {
    let (path, manifest) = manifest(&files());
    let layer = manifest["layers"][0]["digest"].as_str().unwrap().replace("sha256:", "blobs/sha256/");
    let config = manifest["config"]["digest"].as_str().unwrap().replace("sha256:", "blobs/sha256/");
    for blob in [path, layer, config] {
        let (mut flipped, mut longer) = (files(), files());
        *flipped.get_mut(&blob).unwrap().last_mut().unwrap() ^= 1;
        longer.get_mut(&blob).unwrap().push(0);
        for files in [flipped, longer] {
            assert!(
                matches!(refused(&files), ImageError::WrongDigest { .. } | ImageError::WrongSize { .. }),
                "{blob}: {:?}",
                refused(&files)
            );
        }
    }
}

#[test]
fn digests_are_no_paths() {
    let mut files = files();
    files.insert("outside".into(), b"x".to_vec());
    for digest in ["sha256:../../outside", "sha512:00", "outside", ""] {
        let index = json!({ "schemaVersion": 2, "manifests": [{ "digest": digest, "size": 1 }] });
        files.insert("index.json".into(), index.to_string().into_bytes());
        assert!(matches!(refused(&files), ImageError::Malformed { what: "manifest", .. }), "{digest}");
    }
}

#[test]
fn the_image_for_this_host_is_chosen_and_two_of_them_are_refused() {
    let mut files = files();
    let entry = document(&files, "index.json")["manifests"][0].clone();
    let for_platform = |mut entry: Value, os: &str, architecture: &str| {
        entry["platform"] = json!({ "os": os, "architecture": architecture });
        entry
    };
    // Attestations of a builder are entries of an unknown platform.
    let note = blob(&mut files, &json!({ "note": true }));
    let entries =
        json!([for_platform(note, "unknown", "unknown"), for_platform(entry.clone(), "linux", &architecture())]);
    let inner = blob(&mut files, &json!({ "schemaVersion": 2, "manifests": entries }));
    let mut nested = inner;
    nested["mediaType"] = json!("application/vnd.oci.image.index.v1+json");
    let set = |files: &mut BTreeMap<String, Vec<u8>>, manifests: Value| {
        files.insert("index.json".into(), json!({ "manifests": manifests }).to_string().into_bytes());
    };
    set(&mut files, json!([nested]));
    assert!(ImageArchive::open(archive(&files)).is_ok());
    let (_, mut other) = manifest_of(&files, &entry);
    other["annotations"] = json!({ "a": "b" });
    let other = blob(&mut files, &other);
    set(&mut files, json!([entry, other]));
    assert!(matches!(refused(&files), ImageError::Several(2)));
    set(&mut files, json!([for_platform(entry, "linux", "s390x")]));
    assert!(matches!(refused(&files), ImageError::NoPlatform { offered, .. } if offered == "linux/s390x"));
    set(&mut files, json!([]));
    assert!(matches!(refused(&files), ImageError::Malformed { what: "index", .. }));
}

fn manifest_of(files: &BTreeMap<String, Vec<u8>>, entry: &Value) -> (String, Value) {
    let path = entry["digest"].as_str().unwrap().replace("sha256:", "blobs/sha256/");
    (path.clone(), document(files, &path))
}

#[test]
fn layers_that_the_configuration_does_not_list_are_refused() {
    let mut files = files();
    let (_, mut manifest) = manifest(&files);
    let one = manifest["layers"][0].clone();
    manifest["layers"].as_array_mut().unwrap().push(one);
    let changed = blob(&mut files, &manifest);
    files.insert("index.json".into(), json!({ "manifests": [changed] }).to_string().into_bytes());
    assert!(matches!(refused(&files), ImageError::Malformed { what: "configuration", .. }));
}

#[test]
fn an_extension_header_is_bounded_and_a_truncated_archive_is_malformed() {
    let mut header = ::tar::Header::new_gnu();
    header.set_entry_type(::tar::EntryType::XHeader);
    header.set_size(2 << 20);
    header.set_cksum();
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(header.as_bytes()).unwrap();
    file.set_len(512 + (2 << 20)).unwrap();
    let refused = ImageArchive::open(file).expect_err("it is read");
    assert!(matches!(&refused, ImageError::Malformed { why, .. } if why.contains("extension")), "{refused:?}");
    let file = archive(&files());
    file.set_len(600).unwrap();
    let refused = ImageArchive::open(file).expect_err("it is read");
    assert!(matches!(&refused, ImageError::NotImages(_) | ImageError::Malformed { .. }), "{refused:?}");
}

#[test]
fn writing_ends_when_the_caller_cancels() {
    let image = ImageArchive::open(archive(&files())).unwrap();
    let ended = image.write("demo:1", &tempfile::tempfile().unwrap(), &AtomicBool::new(true));
    assert!(matches!(ended, Err(ImageError::Cancelled)), "{ended:?}");
}
