//! Packs a directory of a container into an archive with its guest: it needs no program of the image.

use std::path::Path;

use coracle_archive::transfer::{Error, Writer, plain_name};
use coracle_lifecycle::Omissions;
use coracle_protocol::{FileEntry, FileKind};
use coracle_types::failure::{Code, Failure, Result};

use super::git_in_container::{Workdir, lost};

/// Maximum number of files, links and directories in one tree.
const MAX_ENTRIES: u64 = 200_000;

const OMITTED: &str = "it is not a regular file, or a link out of the tree";

/// A directory to pack.
#[derive(Clone, Copy, Debug)]
pub(super) struct PackSource<'a> {
    /// Its path below the root.
    pub(super) dir: &'a str,
    /// Its name in the archive.
    pub(super) top: &'a str,
}

/// Packs a directory below the root. A file that cannot be packed is an error; links that lead out of the directory,
/// and special files, are left out.
pub(super) async fn pack(
    at: &Workdir,
    source: PackSource<'_>,
    writer: &mut Writer,
    left_out: &mut Omissions,
) -> Result<()> {
    let PackSource { dir, top } = source;
    let changed = at.stat(dir).await?.and_then(|entry| entry.changed_s());
    writer.dir(top, 0o755, changed).map_err(save_failed)?;
    let mut dirs = vec![String::new()];
    while let Some(below) = dirs.pop() {
        let (entries, more) = at.link.list(at.file(&format!("{dir}/{below}")), MAX_ENTRIES).await.map_err(lost)?;
        if more {
            return Err(save_failed(Error::TooMany(MAX_ENTRIES)));
        }
        let twice = |name: &str| entries.iter().filter(|it| it.name == name).count() > 1;
        let marked: Vec<bool> = entries.iter().map(|it| it.name.contains(MARK) && twice(&it.name)).collect();
        for (entry, twice) in entries.into_iter().zip(marked) {
            let name = name_of(&below, &entry)?;
            let (packed, inside) = (format!("{top}/{name}"), format!("{dir}/{name}"));
            // A name that contains the mark itself can be opened, unless another entry is listed with the same name.
            if entry.name.contains(MARK) && (twice || at.stat(&inside).await?.is_none()) {
                return Err(unrepresentable(&name));
            }
            match entry.kind {
                FileKind::Dir => {
                    writer.dir(&packed, entry.mode & 0o777, entry.changed_s()).map_err(save_failed)?;
                    dirs.push(name);
                }
                FileKind::File => add(at, writer, &packed, &inside).await?,
                FileKind::Link => {
                    let changed = entry.changed_s();
                    let target = entry.link.unwrap_or_default();
                    if target.is_empty() || !writer.link_within(&packed, &target, changed).map_err(save_failed)? {
                        left_out.add(&name, OMITTED);
                    }
                }
                FileKind::Special => left_out.add(&name, OMITTED),
            }
        }
    }
    Ok(())
}

async fn add(at: &Workdir, writer: &mut Writer, packed: &str, inside: &str) -> Result<()> {
    let (entry, mut content) = at.link.open_file(at.file(inside), 0, u64::MAX >> 1).await.map_err(lost)?;
    let mut growing = writer.begin(packed, entry.mode & 0o777, entry.changed_s()).map_err(save_failed)?;
    while let Some(piece) = content.next().await.map_err(lost)? {
        growing.write(&piece).map_err(save_failed)?;
    }
    growing.end().map(drop).map_err(save_failed)
}

/// Returns the path below the directory.
fn name_of(below: &str, entry: &FileEntry) -> Result<String> {
    let name = if below.is_empty() { entry.name.clone() } else { format!("{below}/{}", entry.name) };
    match plain_name(Path::new(&entry.name)) {
        Some(plain) if plain == entry.name && !plain.contains('/') => Ok(name),
        _ => Err(unrepresentable(&name)),
    }
}

/// Replaces bytes that are not UTF-8 in a listed name, so the file cannot be opened by that name.
const MARK: char = '\u{fffd}';

fn unrepresentable(name: &str) -> Failure {
    let failure = Failure::new(Code::SaveFailed, format!("`{}` has a name that cannot be saved", name.escape_debug()));
    failure.hint("rename it inside: its name is no UTF-8").detail("path", name)
}

pub(super) fn save_failed(err: impl std::fmt::Display) -> Failure {
    Failure::new(Code::SaveFailed, err.to_string())
}
