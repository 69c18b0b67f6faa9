//! Names and images.

use coracle_archive::oci::Platform;

use super::*;
use crate::cancel::{CancelFlag, Cancellation};
use crate::store::garbage::GarbageReport;

#[test]
fn an_imported_image_is_found_by_each_of_its_names() {
    let place = Place::new();
    let image = place.import("ours:1", &small("one"));
    assert_eq!(
        (image.tags.as_slice(), image.env.as_slice()),
        (&["docker.io/library/ours:1".to_owned()][..], &["A=b".to_owned()][..])
    );
    assert_eq!((image.size_bytes, &image.arch), (3, &Platform::of_this_machine().architecture));
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
fn an_image_that_is_given_up_gets_no_name() {
    let place = Place::new();
    let old = place.import("x:1", &small("old"));
    let cancel = CancelFlag::new().unwrap();
    let mut addition = place.store.begin_cancellable_addition(cancel.clone()).unwrap();
    let layer = addition.add_layer(layer(&small("new").bytes())).unwrap();
    let configuration = serde_json::json!({
        "architecture": Platform::of_this_machine().architecture, "os": "linux",
        "rootfs": { "type": "layers", "diff_ids": [layer.diff_id] },
    });
    let image = || NewImage {
        configuration: configuration.to_string().into_bytes(),
        names: vec![name("x:1")],
        ..NewImage::default()
    };
    cancel.cancel();
    assert!(matches!(addition.add_image(image()), Err(StoreError::Io { .. })));
    assert_eq!((place.ids(&["x:1"]), place.store.image_ids().unwrap().len()), (vec![old.id], 1));
    let other = super::layer(&small("other").bytes());
    assert!(addition.add_layer(other).is_err());
    drop(addition);
    assert!(place.is_tidy());
    // Once it is about to appear, it does.
    let cancel = CancelFlag::new().unwrap();
    let mut addition = place.store.begin_cancellable_addition(cancel.clone()).unwrap();
    let made = addition.add_image(image()).unwrap();
    assert_eq!((cancel.cancel(), place.ids(&["x:1"])), (Cancellation::TooLate, vec![made.id]));
}

#[test]
fn volumes_of_an_image_are_paths_inside_a_container() {
    let place = Place::new();
    let bytes = small("x").bytes();
    let mut addition = place.store.begin_addition().unwrap();
    let layer = addition.add_layer(layer(&bytes)).unwrap();
    let configuration = serde_json::json!({
        "architecture": Platform::of_this_machine().architecture, "os": "linux",
        "config": { "Volumes": { "/data/": {}, "/srv/../..": {}, "relative": {}, "/a\nb": {} } },
        "rootfs": { "type": "layers", "diff_ids": [layer.diff_id] },
    });
    let configuration = configuration.to_string().into_bytes();
    let image = addition.add_image(NewImage { configuration, ..NewImage::default() }).unwrap();
    assert_eq!(image.volumes, ["/data"]);
}

#[test]
fn a_layer_that_an_image_has_twice_is_mounted_once_where_it_is_topmost() {
    let place = Place::new();
    let mut addition = place.store.begin_addition().unwrap();
    let [twice, once] = ["twice", "once"].map(|it| addition.add_layer(layer(&small(it).bytes())).unwrap().diff_id);
    let configuration = serde_json::json!({
        "architecture": Platform::of_this_machine().architecture, "os": "linux",
        "rootfs": { "type": "layers", "diff_ids": [twice, once, twice] },
    });
    let configuration = configuration.to_string().into_bytes();
    let image = addition.add_image(NewImage { configuration, ..NewImage::default() }).unwrap();
    let dirs = place.store.layer_dirs(&image.id).unwrap().unwrap();
    assert_eq!(dirs, [&twice, &once].map(|it| place.store.layer_dir(it).join(FILES)));
}

#[test]
fn what_a_container_or_a_process_uses_is_not_removed() {
    let place = Place::new();
    let image = place.import("used:1", &small("x"));
    let in_use = || matches!(place.store.remove(&image.id), Err(StoreError::InUse { .. }));
    let held = place.store.hold(&image.id).unwrap().unwrap();
    assert!(in_use());
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
