//! Damage, and what dead processes leave.

use super::*;

#[test]
fn a_half_of_an_earlier_boot_is_unpacked_again() {
    if !coracle_skips::has_root() {
        return;
    }
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
    if !coracle_skips::has_root() {
        return;
    }
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

#[test]
fn what_dead_processes_left_is_repaired_and_nothing_of_running_ones() {
    let place = Place::new();
    assert_eq!(place.store.repair().unwrap(), None);
    let bytes = small("x").bytes();
    let mut addition = place.store.begin_addition().unwrap();
    addition.add_layer(layer(&bytes)).unwrap();
    let draft = addition.draft().unwrap();
    assert_eq!(place.store.repair().unwrap(), None);
    assert!(place.layers() == 1 && draft.path.exists());
    // As if the process had died: its lock is gone, its files are not.
    drop(draft);
    drop(addition);
    std::fs::write(place.store.holds().join("dead"), "").unwrap();
    std::fs::create_dir(place.store.temporary().join("dead-1")).unwrap();
    std::os::unix::fs::symlink("x", place.store.temporary().join("name-1")).unwrap();
    let report = place.store.repair().unwrap().unwrap();
    assert_eq!((report.layers.len(), report.leftovers, place.layers()), (1, 1, 0));
    assert!(place.is_tidy());
}

#[test]
fn a_layer_that_an_image_has_keeps_its_files_when_its_record_is_replaced() {
    let place = Place::new();
    let bytes = small("x").bytes();
    let image = place.import("x:1", &small("x"));
    let dir = place.store.layer_dir(&layer(&bytes).diff_id);
    let files = || dir.join(FILES).metadata().unwrap().ino();
    let before = files();
    std::fs::write(dir.join(layer::RECORD), "half").unwrap();
    place.store.begin_addition().unwrap().add_layer(layer(&bytes)).unwrap();
    assert_eq!((files(), place.damage(true)), (before, Vec::<String>::new()));
    assert_eq!((place.ids(&["x:1"]), place.is_tidy()), (vec![image.id], true));
}

#[test]
fn a_collection_that_failed_is_made_up_for_later() {
    let place = Place::new();
    place.store.begin_addition().unwrap().add_layer(layer(&small("x").bytes())).unwrap();
    let image = place.import("x:1", &small("y"));
    let configuration = place.store.image_dir(&image.id).join(image::CONFIGURATION);
    let whole = std::fs::read(&configuration).unwrap();
    std::fs::write(&configuration, "half").unwrap();
    for _ in 0..2 {
        assert!(place.store.collect_garbage().is_err());
        assert!(place.store.repair().is_err());
        assert_eq!(std::fs::read_dir(place.store.holds()).unwrap().count(), 1);
    }
    std::fs::write(&configuration, whole).unwrap();
    assert_eq!(place.store.repair().unwrap().unwrap().layers.len(), 1);
    assert!(place.is_tidy());
}

#[test]
fn a_duplicate_of_the_lock_does_not_keep_it() {
    let place = Place::new();
    let lock = place.store.lock().unwrap();
    // As in a child that was forked meanwhile.
    let duplicate = lock.0.try_clone().unwrap();
    drop(lock);
    place.store.lock_file().unwrap().try_lock().unwrap();
    drop(duplicate);
}

#[test]
fn records_that_a_newer_version_wrote_are_used_or_stay_as_they_are() {
    let place = Place::new();
    let image = place.import("x:1", &small("x"));
    let layer_record = place.store.layer_dir(&layer(&small("x").bytes()).diff_id).join(layer::RECORD);
    let image_record = place.store.image_dir(&image.id).join(image::RECORD);
    let add = || {
        let mut addition = place.store.begin_addition()?;
        addition.add_layer(layer(&small("x").bytes()))?;
        let configuration = place.store.configuration(&image.id)?.unwrap();
        addition.add_image(NewImage { configuration, ..NewImage::default() })
    };
    for (file, field) in [(&layer_record, "size_bytes"), (&image_record, "size_bytes")] {
        let whole = std::fs::read(file).unwrap();
        let changed = |name: &str, content: serde_json::Value| {
            let mut record: serde_json::Value = serde_json::from_slice(&whole).unwrap();
            record[name] = content;
            serde_json::to_vec(&record).unwrap()
        };
        std::fs::write(file, changed("later", 1.into())).unwrap();
        assert_eq!(add().unwrap().id, image.id);
        assert!(std::fs::read_to_string(file).unwrap().contains("later"), "{}", file.display());
        for newer in [changed("schema", 2.into()), changed(field, "many".into())] {
            std::fs::write(file, &newer).unwrap();
            let Err(StoreError::Io { source, .. }) = add() else { panic!("{} was passed over", file.display()) };
            assert_eq!(coracle_types::StoredFileError::newer_file(&source), Some(file.as_path()));
            let _ = (place.store.collect_garbage(), place.store.repair());
            assert_eq!(std::fs::read(file).unwrap(), newer);
        }
        std::fs::write(file, &whole).unwrap();
        assert_eq!(place.damage(true), Vec::<String>::new());
    }
}
