//! Layers that are added.

use coracle_archive::oci::LayerEncoding;

use super::*;
use crate::cancel::CancelFlag;
use crate::store::garbage::GarbageReport;

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
        let image = place.store.import(import, LayerLimits::default()).unwrap();
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
fn a_layer_is_refused_for_another_digest_or_a_hostile_entry_and_nothing_stays() {
    let place = Place::new();
    let mut addition = place.store.begin_addition().unwrap();
    let good = small("x").bytes();
    let other = NewLayer { diff_id: DiffId::from_bytes([7; 32]), ..layer(&good) };
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
    let no_gzip = NewLayer { compression: LayerEncoding::Gzip, ..layer(&good) };
    let refused = addition.add_layer(no_gzip);
    assert!(matches!(refused, Err(StoreError::Refused { refusal: LayerRefusal::Unreadable(_), .. })), "{refused:?}");
    drop(addition);
    assert!(place.layers() == 0 && place.is_tidy());
}

/// Without root a child process hashes the hole: it sees the flag, too.
#[test]
fn a_layer_that_is_given_up_ends_within_a_hole() {
    let place = Place::new();
    let mut hole = tar::Header::new_gnu();
    hole.set_entry_type(tar::EntryType::GNUSparse);
    hole.set_path("hole").unwrap();
    hole.as_gnu_mut().unwrap().set_real_size(1 << 50);
    hole.set_mode(0o644);
    hole.set_cksum();
    let cancel = CancelFlag::new().unwrap();
    let mut addition = place.store.begin_cancellable_addition(cancel.clone()).unwrap();
    let limits = LayerLimits { bytes: u64::MAX, ..LayerLimits::default() };
    std::thread::scope(|scope| {
        let added = scope.spawn(move || addition.add_layer(NewLayer { limits, ..layer(hole.as_bytes()) }));
        let is_begun = |draft: std::fs::DirEntry| draft.path().join(FILES).join("hole").exists();
        while !std::fs::read_dir(place.store.temporary()).unwrap().any(|it| is_begun(it.unwrap())) {
            std::thread::yield_now();
        }
        cancel.cancel();
        assert!(matches!(added.join().unwrap(), Err(StoreError::Io { .. })));
    });
    assert!(place.layers() == 0 && place.is_tidy());
}

#[test]
fn layers_are_retained_while_they_are_added_and_collected_after() {
    let place = Place::new();
    let bytes = small("x").bytes();
    let mut addition = place.store.begin_addition().unwrap();
    let record = addition.add_layer(layer(&bytes)).unwrap();
    assert_eq!(place.store.collect_garbage().unwrap(), GarbageReport::default());
    // As another process that found it there and died.
    let mut other = place.store.begin_addition().unwrap();
    assert!(other.has_layer(&record.diff_id).unwrap() && !other.has_layer(&DiffId::from_bytes([1; 32])).unwrap());
    std::mem::forget(addition.draft().unwrap());
    drop(addition);
    assert_eq!(place.store.collect_garbage().unwrap(), GarbageReport { leftovers: 1, ..GarbageReport::default() });
    drop(other);
    let report = place.store.collect_garbage().unwrap();
    assert_eq!((report.layers.as_slice(), report.bytes, place.layers()), (&[record.diff_id][..], 1, 0));
    assert!(place.is_tidy());
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
                store.import(import, LayerLimits::default()).unwrap();
                store.collect_garbage().unwrap();
            });
        }
    });
    assert!(place.layers() == 1 && place.is_tidy());
    assert_eq!(place.damage(true), Vec::<String>::new());
}
