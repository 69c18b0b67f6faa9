//! The store as its callers see it.

use std::fs::File;
use std::io::{Seek as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use coracle_runtime::{Image, ImageConfig, ImageId, ImageImport, ImageRef, LabelFilter};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use super::layer::FILES;
use super::unpack::tests::Tar;
use super::*;

struct Place {
    dir: TempDir,
    store: Store,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Self::open(dir.path());
        Self { dir, store }
    }

    fn open(dir: &Path) -> Store {
        Store::open(&Directories::open(dir).unwrap(), Privileges::Root).unwrap()
    }

    fn import(&self, tag: &str, tar: &Tar) -> Image {
        let labels = vec![("l".into(), tag.to_owned())];
        let import =
            ImageImport { tar: file(&tar.bytes()), tag: name(tag), env: vec![("A".into(), "b".into())], labels };
        self.store.import(import).unwrap()
    }

    fn container(&self, id: &str, image: &ImageId) -> PathBuf {
        let dir = self.dir.path().join("containers").join(id);
        std::fs::create_dir(&dir).unwrap();
        std::fs::write(dir.join("config.json"), format!(r#"{{"image":"{}","name":"{id}","x":1}}"#, image.as_str()))
            .unwrap();
        dir
    }

    fn layers(&self) -> usize {
        std::fs::read_dir(self.store.layers()).unwrap().count()
    }

    fn is_tidy(&self) -> bool {
        [self.store.temporary(), self.store.holds(), self.dir.path().join("trash")]
            .iter()
            .all(|it| std::fs::read_dir(it).unwrap().next().is_none())
    }

    fn ids(&self, names: &[&str]) -> Vec<ImageId> {
        let names: Vec<_> = names.iter().map(|it| name(it)).collect();
        self.store.find(&names).unwrap().into_iter().map(|it| it.id).collect()
    }

    fn damage(&self, deep: bool) -> Vec<String> {
        let report = self.store.verify(deep).unwrap();
        report.damage.into_iter().map(|it| format!("{}: {}", it.object, it.reason)).collect()
    }
}

fn file(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file.rewind().unwrap();
    file
}

fn name(text: &str) -> ImageRef {
    ImageRef::parse(text).unwrap()
}

fn small(text: &str) -> Tar {
    Tar::default().file("file", text)
}

fn layer(bytes: &[u8]) -> NewLayer {
    NewLayer {
        diff_id: DiffId::from_sha256(Sha256::digest(bytes).into()),
        blob: file(bytes),
        compression: Compression::None,
        limits: LayerLimits::default(),
    }
}

#[test]
fn an_imported_image_is_found_by_each_of_its_names() {
    let place = Place::new();
    let image = place.import("ours:1", &small("one"));
    assert_eq!(
        (image.tags.as_slice(), image.env.as_slice()),
        (&["docker.io/library/ours:1".to_owned()][..], &["A=b".to_owned()][..])
    );
    assert_eq!((image.size_bytes, image.arch.as_str()), (3, configuration::host_architecture()));
    for by in ["ours:1", "docker.io/library/ours:1", image.id.as_str()] {
        assert_eq!(place.store.find(&[name(by)]).unwrap(), std::slice::from_ref(&image), "{by}");
    }
    for missing in ["ours", "localhost/ours:1", "quay.io/ours:1"] {
        assert_eq!(place.ids(&[missing]), [], "{missing}");
    }
    place.store.tag(&image.id, &name("localhost/local:1")).unwrap();
    assert_eq!(place.ids(&["local:1", "none", "ours:1"]), [image.id.clone(), image.id.clone()]);
    let dirs = place.store.layer_dirs(&image.id).unwrap().unwrap();
    assert_eq!(std::fs::read_to_string(dirs[0].join("file")).unwrap(), "one");
    let by_label = |value: &str| place.store.list(&LabelFilter(vec![("l".into(), Some(value.into()))])).unwrap().len();
    assert_eq!((by_label("ours:1"), by_label("else")), (1, 0));
    assert!(place.is_tidy());
}

#[test]
fn a_compressed_archive_is_imported_too() {
    let place = Place::new();
    let tar = small(&"text ".repeat(1000)).bytes();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&tar).unwrap();
    // Of two members, as images for lazy loading have.
    let gzip = [
        gzip.finish().unwrap(),
        flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()).finish().unwrap(),
    ]
    .concat();
    let mut layers = Vec::new();
    for (tag, bytes) in [("plain", tar.clone()), ("gzip", gzip), ("zstd", zstd_of(&tar))] {
        let import = ImageImport { tar: file(&bytes), tag: name(tag), env: vec![], labels: vec![] };
        let image = place.store.import(import).unwrap();
        layers.push(place.store.layer_dirs(&image.id).unwrap());
    }
    assert!(layers.iter().all(|it| *it == layers[0]), "{layers:?}");
}

/// Two frames with one between them that is skipped.
fn zstd_of(bytes: &[u8]) -> Vec<u8> {
    let (one, other) = bytes.split_at(bytes.len() / 2);
    let frame = |bytes: &[u8]| ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest);
    [&frame(one)[..], b"\x50\x2a\x4d\x18\x03\0\0\0abc", &frame(other)].concat()
}

#[test]
fn a_name_moves_and_its_old_image_stays_until_it_is_removed() {
    let place = Place::new();
    let (old, new) = (place.import("x:1", &small("old")), place.import("x:1", &small("new")));
    assert_eq!(place.ids(&["x:1", old.id.as_str()]), [new.id.clone(), old.id.clone()]);
    assert_eq!(place.store.image(&old.id).unwrap().unwrap().tags, Vec::<String>::new());
    assert_eq!(place.store.collect_garbage().unwrap(), GarbageReport::default());
    place.store.remove(&old.id).unwrap();
    place.store.remove(&old.id).unwrap();
    assert_eq!((place.ids(&[old.id.as_str()]), place.layers()), (vec![], 1));
}

#[test]
fn an_image_goes_with_its_last_name_and_not_by_id_from_several_repositories() {
    let place = Place::new();
    let image = place.import("one:1", &small("x"));
    place.store.tag(&image.id, &name("other:1")).unwrap();
    assert!(matches!(place.store.remove(&image.id), Err(StoreError::SeveralRepositories(_))));
    for _ in 0..2 {
        place.store.untag(&name("one:1")).unwrap();
        assert_eq!(place.ids(&["one:1", "other:1"]), std::slice::from_ref(&image.id));
    }
    place.store.tag(&image.id, &name("other:2")).unwrap();
    place.store.remove(&image.id).unwrap();
    assert_eq!((place.ids(&[image.id.as_str(), "other:1", "other:2"]), place.layers()), (vec![], 0));
    assert!(matches!(place.store.tag(&image.id, &name("x:1")), Err(StoreError::NoSuchImage(_))));
    assert!(place.is_tidy());
}

#[test]
fn what_a_container_or_a_process_uses_is_not_removed() {
    let place = Place::new();
    let image = place.import("used:1", &small("x"));
    let in_use = || matches!(place.store.remove(&image.id), Err(StoreError::InUse { .. }));
    let held = place.store.hold(&image.id).unwrap().unwrap();
    assert!(in_use() && held.layers.len() == 1);
    let container = place.container("c", &image.id);
    drop(held);
    assert!(in_use() && matches!(place.store.untag(&name("used:1")), Err(StoreError::InUse { .. })));
    assert_eq!(place.ids(&["used:1"]), std::slice::from_ref(&image.id));
    // One that cannot be read may use anything.
    std::fs::write(container.join("config.json"), "half").unwrap();
    assert!(in_use());
    std::fs::remove_dir_all(container).unwrap();
    place.store.remove(&image.id).unwrap();
    assert!(place.store.hold(&image.id).unwrap().is_none());
}

#[test]
fn a_layer_is_refused_for_another_digest_or_a_hostile_entry_and_nothing_stays() {
    let place = Place::new();
    let mut addition = place.store.begin_addition().unwrap();
    let good = small("x").bytes();
    let other = NewLayer { diff_id: DiffId::from_sha256([7; 32]), ..layer(&good) };
    let refused = addition.add_layer(other);
    assert!(
        matches!(refused, Err(StoreError::Refused { refusal: LayerRefusal::OtherContent { .. }, .. })),
        "{refused:?}"
    );
    let hostile =
        Tar::default().file("a", &"x".repeat(500_000)).file("../b", "").file("c", &"x".repeat(500_000)).bytes();
    let refused = addition.add_layer(layer(&hostile));
    assert!(matches!(refused, Err(StoreError::Refused { refusal: LayerRefusal::Entry { .. }, .. })), "{refused:?}");
    let limits = LayerLimits { bytes: 100_000, ..LayerLimits::default() };
    let refused = addition.add_layer(NewLayer { limits, ..layer(&small(&"x".repeat(200_000)).bytes()) });
    assert!(matches!(refused, Err(StoreError::Refused { refusal: LayerRefusal::TooLarge { .. }, .. })), "{refused:?}");
    let no_gzip = NewLayer { compression: Compression::Gzip, ..layer(&good) };
    let refused = addition.add_layer(no_gzip);
    assert!(matches!(refused, Err(StoreError::Refused { refusal: LayerRefusal::Unreadable(_), .. })), "{refused:?}");
    drop(addition);
    assert!(place.layers() == 0 && place.is_tidy());
}

#[test]
fn layers_are_kept_while_they_are_added_and_collected_after() {
    let place = Place::new();
    let bytes = small("x").bytes();
    let mut addition = place.store.begin_addition().unwrap();
    let record = addition.add_layer(layer(&bytes)).unwrap();
    assert_eq!(place.store.collect_garbage().unwrap(), GarbageReport::default());
    // As another process that found it there and died.
    let mut other = place.store.begin_addition().unwrap();
    assert!(other.has_layer(&record.diff_id).unwrap() && !other.has_layer(&DiffId::from_sha256([1; 32])).unwrap());
    std::mem::forget(addition.draft().unwrap());
    drop(addition);
    assert_eq!(place.store.collect_garbage().unwrap(), GarbageReport { leftovers: 1, ..GarbageReport::default() });
    drop(other);
    let report = place.store.collect_garbage().unwrap();
    assert_eq!((report.layers.as_slice(), report.bytes, place.layers()), (&[record.diff_id][..], 1, 0));
    assert!(place.is_tidy());
}

#[test]
fn intermediate_images_are_collected_without_a_name_or_a_user() {
    let place = Place::new();
    let base = place.import("base:1", &small("x"));
    let new =
        || NewImage { configuration: place.store.configuration(&base.id).unwrap().unwrap(), ..NewImage::default() };
    let mut addition = place.store.begin_addition().unwrap();
    let mut configuration = new().configuration;
    configuration.push(b' ');
    let made = addition.add_image(NewImage { configuration, intermediate: true, ..NewImage::default() }).unwrap();
    drop(addition);
    let container = place.container("c", &made.id);
    assert_eq!(place.store.collect_garbage().unwrap().images, []);
    std::fs::remove_dir_all(container).unwrap();
    assert_eq!(place.store.collect_garbage().unwrap().images, [made.id]);
    assert_eq!((place.ids(&["base:1"]), place.layers()), (vec![base.id], 1));
}

#[test]
fn an_image_of_missing_layers_is_refused_and_a_digest_leads_to_its_image() {
    let place = Place::new();
    let mut addition = place.store.begin_addition().unwrap();
    let bytes = small("x").bytes();
    let diff_id = layer(&bytes).diff_id;
    let configuration = format!(r#"{{"architecture":"amd64","rootfs":{{"type":"layers","diff_ids":["{diff_id}"]}}}}"#);
    let digest = format!("sha256:{}", "d".repeat(64));
    let image = || NewImage {
        configuration: configuration.clone().into_bytes(),
        names: vec![name("quay.io/a/b:1")],
        repo_digest: Some(format!("quay.io/a/b@{digest}")),
        intermediate: false,
    };
    assert!(matches!(addition.add_image(image()), Err(StoreError::NoSuchLayer(it)) if it == diff_id));
    addition.add_layer(layer(&bytes)).unwrap();
    let made = addition.add_image(image()).unwrap();
    assert_eq!(
        (made.digest.as_deref(), made.id.clone()),
        (Some(digest.as_str()), configuration::image_id(configuration.as_bytes()))
    );
    let found = |repository: &str| place.ids(&[&format!("{repository}@{digest}")]).len();
    assert_eq!((found("quay.io/a/b"), found("quay.io/a/b:1"), found("quay.io/a/c")), (1, 1, 0));
    // Again, with another name: the same image.
    let again = addition.add_image(NewImage { names: vec![name("c:1")], repo_digest: None, ..image() }).unwrap();
    assert_eq!((again.id, again.digest, again.tags.len()), (made.id, made.digest, 2));
}

#[test]
fn one_layer_added_by_many_at_once_is_there_once() {
    let place = Place::new();
    let bytes = small(&"x".repeat(300_000)).bytes();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let store = Place::open(place.dir.path());
                let mut addition = store.begin_addition().unwrap();
                addition.add_layer(layer(&bytes)).unwrap();
                let import = ImageImport { tar: file(&bytes), tag: name("same:1"), env: vec![], labels: vec![] };
                store.import(import).unwrap();
                store.collect_garbage().unwrap();
            });
        }
    });
    assert!(place.layers() == 1 && place.is_tidy());
    assert_eq!(place.damage(true), Vec::<String>::new());
}

#[test]
fn a_half_of_an_earlier_boot_is_unpacked_again() {
    let place = Place::new();
    let bytes = small("x").bytes();
    let diff_id = layer(&bytes).diff_id;
    let mut addition = place.store.begin_addition().unwrap();
    addition.add_layer(layer(&bytes)).unwrap();
    let record = place.store.layer_dir(&diff_id).join(layer::RECORD);
    let earlier = std::fs::read_to_string(&record).unwrap().replace(coracle_types::boot_id(), "earlier");
    std::fs::write(&record, &earlier).unwrap();
    std::fs::write(place.store.layer_dir(&diff_id).join(FILES).join("file"), "").unwrap();
    assert!(!addition.has_layer(&diff_id).unwrap());
    addition.add_layer(layer(&bytes)).unwrap();
    assert_eq!(place.damage(true), Vec::<String>::new());
    // One that an image has was on the disk before the image was.
    let configuration = format!(r#"{{"rootfs":{{"diff_ids":["{diff_id}"]}}}}"#).into_bytes();
    addition.add_image(NewImage { configuration, ..NewImage::default() }).unwrap();
    std::fs::write(&record, &earlier).unwrap();
    assert!(addition.has_layer(&diff_id).unwrap());
}

#[test]
fn damage_is_found() {
    let place = Place::new();
    let image = place.import("x:1", &Tar::default().file("file", "text").dir("d"));
    assert_eq!(place.damage(true), Vec::<String>::new());
    let files = place.store.layer_dirs(&image.id).unwrap().unwrap().remove(0);
    let set_time =
        |file: &File| file.set_modified(std::time::UNIX_EPOCH + std::time::Duration::new(1_000_000_000, 5)).unwrap();
    // The same length and time: only the content tells.
    let mut changed = File::options().write(true).open(files.join("file")).unwrap();
    changed.write_all(b"tex!").unwrap();
    set_time(&changed);
    assert_eq!(place.damage(false), Vec::<String>::new());
    assert!(place.damage(true)[0].contains("content was changed"), "{:?}", place.damage(true));
    changed.set_modified(std::time::SystemTime::now()).unwrap();
    assert!(place.damage(false)[0].contains("times or attributes were changed"));
    std::fs::remove_dir(files.join("d")).unwrap();
    assert!(place.damage(false)[0].contains("2 entries"), "{:?}", place.damage(false));
    std::fs::write(place.store.image_dir(&image.id).join(image::CONFIGURATION), "{}").unwrap();
    assert!(place.damage(false)[0].contains("its configuration has the digest"));
    std::fs::remove_dir_all(place.store.image_dir(&image.id)).unwrap();
    assert!(place.damage(false)[0].contains("there is no image"));
}

struct Container {
    upper: PathBuf,
    source: CommitSource,
}

fn container(place: &Place, base: &Image) -> Container {
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
    };
    Container { upper, source }
}

#[test]
fn a_container_s_files_become_a_layer_on_its_image() {
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
