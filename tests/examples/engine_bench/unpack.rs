//! An image of many files, imported by the engine and unpacked by `tar`.

use std::fs::File;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::time::Instant;

use coracle_runtime::{ImageImport, ImageStore as _};
use coracle_types::ImageRef;

use crate::busybox;
use crate::embedded::Embedded;
use crate::measured::Measured;
use crate::program::run;

/// Files of the image, and bytes of each: together 100 MB.
const FILES: u32 = 5000;
const BYTES: usize = 20_000;

pub(crate) async fn measure(engine: &Embedded, rounds: usize, measured: &mut Measured) {
    for round in 0..rounds.min(10) {
        let mut tar = archive(u8::try_from(round).unwrap());
        let file = engine.dir.path().join("image.tar");
        std::io::copy(&mut tar, &mut File::create(&file).unwrap()).unwrap();
        run("sync", &[]);
        let into = engine.dir.path().join("unpacked");
        std::fs::create_dir(&into).unwrap();
        let begun = Instant::now();
        run("tar", &["-x", "-f", file.to_str().unwrap(), "-C", into.to_str().unwrap()]);
        measured.add("embedded", "unpack", "tar", begun.elapsed());
        run("sync", &[]);
        measured.add("embedded", "unpack", "tar_sync", begun.elapsed());
        std::fs::remove_dir_all(&into).unwrap();
        run("sync", &[]);
        let tag = ImageRef::parse(format!("localhost/bench-unpack:{round}")).unwrap();
        let import =
            ImageImport { tar: File::open(&file).unwrap(), tag: tag.clone(), env: Vec::new(), labels: Vec::new() };
        let begun = Instant::now();
        engine.runtime.import_image(import).await.unwrap();
        measured.add("embedded", "unpack", "engine", begun.elapsed());
        engine.runtime.untag_image(&tag).await.unwrap();
    }
}

/// Different content each time, since an existing layer is not unpacked again.
fn archive(salt: u8) -> File {
    let mut content = vec![salt; BYTES];
    let mut file = busybox::tar_of(|tar| {
        for number in 0..FILES {
            content[..4].copy_from_slice(&number.to_le_bytes());
            let mut header = tar::Header::new_gnu();
            header.set_mode(0o644);
            header.set_size(BYTES as u64);
            tar.append_data(&mut header, format!("d{}/f{number}", number / 100), &content[..]).unwrap();
        }
    });
    file.flush().unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    file
}
