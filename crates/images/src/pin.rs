//! Pins names of images, which anybody may give to another image.
//!
//! The id of a name at its first use is stored in a file. From then on another image under that name is
//! an error, until the user trusts it.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use coracle_host::temporary;
use coracle_types::{EngineKind, ImageId, ImageRef};

use crate::Error;
use crate::digest::sum_of;
use crate::lock::make_private_dir;

/// Maximum size of such a file.
const MAX_BYTES: u64 = 256;

/// The pinned ids of names on one engine.
#[derive(Clone, Debug)]
pub struct Pins {
    /// The directory of the files.
    pub dir: PathBuf,
    /// The engine, since each has its own images.
    pub engine: EngineKind,
    /// The address of the engine.
    pub endpoint: String,
}

impl Pins {
    /// Returns the pinned image of a name, if the name was ever used.
    ///
    /// # Errors
    /// [`Error::State`] if the record cannot be read, or is damaged.
    pub fn pinned(&self, image: &ImageRef) -> Result<Option<ImageId>, Error> {
        let file = self.file(image);
        let text = match fs::metadata(&file) {
            Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(None),
            Ok(meta) if meta.len() > MAX_BYTES => Err(io::Error::other("it is too long")),
            _ => fs::read_to_string(&file),
        };
        let id = text.and_then(|it| ImageId::parse(it.trim()).map_err(io::Error::other));
        id.map(Some).map_err(|source| unusable("read", &file, source))
    }

    /// Checks that the current image of a name is the pinned one. The first use pins it.
    ///
    /// # Errors
    /// [`Error::Changed`] if another one is pinned; [`Error::State`].
    pub fn check(&self, image: &ImageRef, found: &ImageId) -> Result<(), Error> {
        let pinned = match self.pinned(image)? {
            Some(pinned) => pinned,
            None if self.write(image, found, false)? => return Ok(()),
            // Another process pinned it first.
            None => self.pinned(image)?.unwrap_or_else(|| found.clone()),
        };
        if pinned == *found {
            return Ok(());
        }
        Err(Error::Changed { image: image.clone(), pinned, found: found.clone() })
    }

    /// Pins a name to an image.
    ///
    /// # Errors
    /// [`Error::State`].
    pub fn pin(&self, image: &ImageRef, id: &ImageId) -> Result<(), Error> {
        self.write(image, id, true).map(drop)
    }

    fn write(&self, image: &ImageRef, id: &ImageId, replace: bool) -> Result<bool, Error> {
        let file = self.file(image);
        let write = || {
            make_private_dir(&self.dir)?;
            let mut whole = temporary::file_in(&self.dir)?;
            writeln!(whole, "{id}")?;
            whole.as_file().sync_all()?;
            let placed = if replace { whole.persist(&file) } else { whole.persist_noclobber(&file) };
            match placed.map_err(|it| it.error) {
                Err(err) if err.kind() == io::ErrorKind::AlreadyExists => return Ok(false),
                placed => placed.map(drop)?,
            }
            fs::File::open(&self.dir)?.sync_all().map(|()| true)
        };
        write().map_err(|source| unusable("write", &file, source))
    }

    fn file(&self, image: &ImageRef) -> PathBuf {
        self.dir.join(sum_of(&(self.engine, &self.endpoint, image.completed())).short())
    }
}

fn unusable(act: &str, file: &Path, source: io::Error) -> Error {
    Error::State { what: format!("{act} `{}`", file.display()), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(digit: &str) -> ImageId {
        ImageId::parse(format!("sha256:{}", digit.repeat(64))).unwrap()
    }

    fn pins(dir: &Path) -> Pins {
        Pins { dir: dir.join("pins"), engine: EngineKind::Docker, endpoint: "local".into() }
    }

    #[test]
    fn r04_the_first_image_of_a_name_is_pinned_until_the_user_trusts_another() {
        let dir = tempfile::tempdir().unwrap();
        let (pins, image) = (pins(dir.path()), ImageRef::parse("base").unwrap());
        assert_eq!(pins.pinned(&image).unwrap(), None);
        pins.check(&image, &id("a")).unwrap();
        pins.check(&ImageRef::parse("docker.io/library/base:latest").unwrap(), &id("a")).unwrap();
        let changed = pins.check(&image, &id("b")).unwrap_err();
        assert!(matches!(changed, Error::Changed { pinned, found, .. } if pinned == id("a") && found == id("b")));
        pins.pin(&image, &id("b")).unwrap();
        pins.check(&image, &id("b")).unwrap();
        assert!(pins.check(&image, &id("a")).is_err());
    }

    #[test]
    fn names_and_engines_are_separate() {
        let dir = tempfile::tempdir().unwrap();
        let (pins, image) = (pins(dir.path()), ImageRef::parse("base").unwrap());
        pins.check(&image, &id("a")).unwrap();
        pins.check(&ImageRef::parse("base:2").unwrap(), &id("b")).unwrap();
        Pins { engine: EngineKind::Podman, ..pins.clone() }.check(&image, &id("b")).unwrap();
        Pins { endpoint: "ssh://other".into(), ..pins }.check(&image, &id("b")).unwrap();
    }

    #[test]
    fn a_damaged_record_trusts_no_image() {
        let dir = tempfile::tempdir().unwrap();
        let (pins, image) = (pins(dir.path()), ImageRef::parse("base").unwrap());
        pins.check(&image, &id("a")).unwrap();
        for text in ["", "sha256:1", &"x".repeat(1000)] {
            fs::write(pins.file(&image), text).unwrap();
            assert!(matches!(pins.check(&image, &id("a")), Err(Error::State { .. })), "{text}");
        }
        pins.pin(&image, &id("a")).unwrap();
        pins.check(&image, &id("a")).unwrap();
    }
}
