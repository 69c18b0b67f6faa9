//! The store as its callers see it.

mod commit;
mod damage;
mod images;
mod kill;
mod layers;

use std::fs::File;
use std::io::{Seek as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use coracle_archive::oci::LayerEncoding;
use coracle_runtime::{Image, ImageConfig, ImageImport, LabelFilter};
use coracle_types::{ImageId, ImageRef};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use super::layer::FILES;
use super::unpack::tests::Tar;
use super::*;

/// A store in a directory of the test. Without root, its files belong to other users.
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
        Store::open(&Directories::open(dir).unwrap(), Privileges::detect()).unwrap()
    }

    fn import(&self, tag: &str, tar: &Tar) -> Image {
        let labels = vec![("l".into(), tag.to_owned())];
        let import =
            ImageImport { tar: file(&tar.bytes()), tag: name(tag), env: vec![("A".into(), "b".into())], labels };
        self.store.import(import, LayerLimits::default()).unwrap()
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

impl Drop for Place {
    fn drop(&mut self) {
        let layers = self.dir.path().join("store/layers");
        if layers.exists() {
            self.store.trash.discard(&layers).unwrap();
        }
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
        diff_id: DiffId::from_bytes(Sha256::digest(bytes).into()),
        blob: file(bytes),
        compression: LayerEncoding::Plain,
        limits: LayerLimits::default(),
    }
}
