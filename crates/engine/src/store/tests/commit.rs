//! Images of containers, and archives of images.

use coracle_archive::oci::Configuration;

use super::*;

pub(super) struct Container {
    pub(super) upper: PathBuf,
    pub(super) source: CommitSource,
}

pub(super) fn container(place: &Place, base: &Image) -> Container {
    let upper = place.dir.path().join("upper");
    std::fs::create_dir(&upper).unwrap();
    let source = CommitSource {
        upper: upper.clone(),
        base: base.id.clone(),
        mount_points: vec![],
        stubs: vec![],
        config: ImageConfig { cmd: vec!["sh".into()], ..ImageConfig::default() },
        env: vec!["B=c".into()],
        labels: vec![("k".into(), "v".into())],
        tag: Some(name("made:1")),
        intermediate: false,
        limits: LayerLimits::default(),
    };
    Container { upper, source }
}

#[test]
fn a_container_s_files_become_a_layer_on_its_image() {
    if !coracle_skips::has_root() {
        return;
    }
    let place = Place::new();
    let base =
        place.import("base:1", &Tar::default().file("gone", "x").file("kept", "x").dir("hidden").file("hidden/x", ""));
    let Container { upper, source } = container(&place, &base);
    std::fs::write(upper.join("new"), "new").unwrap();
    std::fs::hard_link(upper.join("new"), upper.join("same")).unwrap();
    std::os::unix::fs::symlink("new", upper.join("link")).unwrap();
    let sparse = File::create(upper.join("sparse")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"end", 1 << 20).unwrap();
    sparse.set_len((1 << 20) + 100_000).unwrap();
    std::fs::create_dir_all(upper.join("hidden/proc/sub")).unwrap();
    std::fs::create_dir_all(upper.join(".coracle/link")).unwrap();
    std::fs::create_dir_all(upper.join(".coracle/other")).unwrap();
    for path in ["hidden/proc/sub/secret", ".coracle/guest", ".wh.odd", "hosts"] {
        std::fs::write(upper.join(path), "").unwrap();
    }
    std::fs::write(upper.join("hostname"), "changed").unwrap();
    let mode = rustix::fs::Mode::empty();
    rustix::fs::mknodat(rustix::fs::CWD, upper.join("gone"), rustix::fs::FileType::CharacterDevice, mode, 0).unwrap();
    rustix::fs::setxattr(upper.join("hidden"), "trusted.overlay.opaque", b"y", rustix::fs::XattrFlags::empty())
        .unwrap();
    rustix::fs::setxattr(upper.join("new"), "trusted.overlay.origin", b"y", rustix::fs::XattrFlags::empty()).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(upper.join("socket")).unwrap();
    let absolute = |paths: &[&str]| paths.iter().map(PathBuf::from).collect::<Vec<_>>();
    let source = CommitSource {
        mount_points: absolute(&["/hidden/proc", "/.coracle/link"]),
        stubs: absolute(&["/.coracle", "/.coracle/guest", "/.coracle/other", "/hosts", "/hostname"]),
        ..source
    };
    let made = place.store.commit(source.clone()).unwrap();
    assert_eq!((made.env.as_slice(), made.config.cmd.as_slice()), (&["B=c".to_owned()][..], &["sh".to_owned()][..]));
    assert_eq!((made.labels.len(), made.tags.len()), (1, 1));
    let dirs = place.store.layer_dirs(&made.id).unwrap().unwrap();
    assert_eq!(dirs[1..], place.store.layer_dirs(&base.id).unwrap().unwrap());
    let mut names: Vec<_> = std::fs::read_dir(&dirs[0]).unwrap().map(|it| it.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["gone", "hidden", "hostname", "link", "new", "same", "sparse"]);
    let stat = |path: &str| dirs[0].join(path).symlink_metadata().unwrap();
    assert_eq!((stat("new").ino(), stat("new").nlink()), (stat("same").ino(), 2));
    assert!(std::fs::read(dirs[0].join("sparse")).unwrap() == std::fs::read(upper.join("sparse")).unwrap());
    assert!(stat("sparse").blocks() * 512 < 100_000 && stat("gone").rdev() == 0);
    assert!(rustix::fs::getxattr(dirs[0].join("hidden"), "trusted.overlay.opaque", &mut [0u8; 64]).is_ok());
    assert!(rustix::fs::getxattr(dirs[0].join("new"), "trusted.overlay.origin", &mut [0u8; 64]).is_err());
    assert_eq!(std::fs::read_dir(dirs[0].join("hidden")).unwrap().count(), 0);
    assert_eq!(place.damage(true), Vec::<String>::new());
    // The same files are the same layer.
    let again = place.store.commit(source).unwrap();
    assert_eq!(place.store.layer_dirs(&again.id).unwrap().unwrap(), dirs);
    assert!(place.is_tidy());
}

#[test]
fn an_upper_whose_content_lies_elsewhere_is_not_committed() {
    if !coracle_skips::has_root() {
        return;
    }
    let place = Place::new();
    let base = place.import("base:1", &small("x"));
    let Container { upper, source } = container(&place, &base);
    std::fs::create_dir(upper.join("renamed")).unwrap();
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(upper.join("renamed"), "trusted.overlay.redirect", b"/old", flags).unwrap();
    let it = place.store.commit(source).unwrap_err();
    assert!(it.to_string().contains("redirect"), "{it}");
    assert!(place.layers() == 1 && place.is_tidy());
}

/// Hashing the hole would take hours.
#[test]
fn a_file_with_a_hole_that_is_too_large_is_refused_by_its_name_before_it_is_read() {
    let place = Place::new();
    let base = place.import("base:1", &small("x"));
    let Container { upper, source } = container(&place, &base);
    std::fs::create_dir(upper.join("dir")).unwrap();
    File::create(upper.join("dir/two")).unwrap().set_len(1 << 40).unwrap();
    let refused = place.store.commit(source.clone()).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the container's file `dir/two` has 1099511627776 bytes, holes included, and with it the layer has more than \
         68719476736; shorten or remove the file, or keep it in a volume"
    );
    // Several files together, too.
    for name in ["one", "two", "three"] {
        File::create(upper.join("dir").join(name)).unwrap().set_len(50_000).unwrap();
    }
    let limits = LayerLimits { bytes: 140_000, ..LayerLimits::default() };
    let refused = place.store.commit(CommitSource { limits, ..source.clone() });
    assert!(matches!(&refused, Err(StoreError::FileTooLarge { path, .. }) if path == "dir/two"), "{refused:?}");
    assert!(place.layers() == 1 && place.is_tidy());
    // What was made before such a limit is not packed, either.
    let made = place.store.commit(source).unwrap();
    let files = place.store.layer_dirs(&made.id).unwrap().unwrap().remove(0);
    File::options().write(true).open(files.join("dir/two")).unwrap().set_len(1 << 40).unwrap();
    let refused = place.store.export(&made.id, &tempfile::tempfile().unwrap()).unwrap_err();
    assert!(refused.to_string().contains("its file `dir/two`, which has 1099511627776 bytes"), "{refused}");
}

#[test]
fn an_exported_image_is_a_layout_of_its_canonical_layers() {
    let place = Place::new();
    let base = place.import("base:1", &small("x"));
    let Container { upper, source } = container(&place, &base);
    std::fs::write(upper.join("new"), "new").unwrap();
    let made = place.store.commit(source).unwrap();
    let out = tempfile::tempfile().unwrap();
    place.store.export(&made.id, &out).unwrap();
    (&out).rewind().unwrap();
    let mut files = std::collections::BTreeMap::new();
    for entry in tar::Archive::new(&out).entries().unwrap() {
        let mut entry = entry.unwrap();
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut entry, &mut bytes).unwrap();
        files.insert(entry.path().unwrap().display().to_string(), bytes);
    }
    for (path, bytes) in files.iter().filter(|it| it.0.starts_with("blobs/")) {
        assert_eq!(path.rsplit('/').next(), Some(hex::encode(Sha256::digest(bytes)).as_str()));
    }
    let manifest: serde_json::Value = serde_json::from_slice(&files["manifest.json"]).unwrap();
    assert_eq!(manifest[0]["RepoTags"][0], "docker.io/library/made:1");
    let configuration = Configuration::parse(&files[manifest[0]["Config"].as_str().unwrap()]).unwrap();
    let layers = manifest[0]["Layers"].as_array().unwrap();
    assert_eq!((layers.len(), configuration.rootfs.diff_ids.len()), (2, 2));
    for (path, diff_id) in layers.iter().zip(&configuration.rootfs.diff_ids) {
        assert_eq!(path.as_str(), Some(format!("blobs/sha256/{}", diff_id.hex()).as_str()));
    }
}
