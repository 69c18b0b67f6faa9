//! The same over the link to the guest, as the exec user: where no process inside is root, the engine's own copy would
//! run as root, and cannot write what is in memory.

use std::fs::File;
use std::io::{self, Cursor, Read};
use std::path::Path;

use coracle_archive::tar::{EntryKind, FileSpan, Reader};
use coracle_archive::transfer::{self, TransferReport, Writer, plain_name};
use coracle_client::{Link, WriteFile};
use coracle_protocol::{FileEntry, FileKind};
use coracle_types::{ContainerPath, Error as Engine, Ids, Input};
use futures_util::stream::{self, Stream, StreamExt as _, TryStreamExt as _};
use tokio_util::io::StreamReader;

use super::destination;
use super::lookup::{Destination, GuestFiles, Lookup, Occupant, check_kind, exists, joined};
use super::request::{CopyReport, CopyRequest, blocking, cannot_spool, pack, temporary};
use crate::record::Record;
use crate::{Error, Result, guided_session};

/// The name of what comes out, in its archive.
const TOP: &str = "it";

/// A longer file is sent in pieces.
const AT_ONCE: u64 = 1 << 20;

/// Directories are nested no deeper.
const MAX_DEPTH: usize = 128;

/// Files that travel at the same time: on another machine each takes a round trip.
const AT_THE_SAME_TIME: usize = 8;

/// Times that are set by one call: a path has at most 4 KiB, and the call 1 MiB.
const TIMES_AT_ONCE: usize = 250;

/// As [`copy_in`](super::copy_in).
///
/// # Errors
/// As for that one; [`Error::Runtime`] for what the user may not write.
pub(super) async fn copy_in(link: &Link, record: &Record, request: CopyRequest) -> Result<CopyReport> {
    let inside = GuestFiles { link, user: guided_session(record, false)?.user };
    let look = Lookup::Guest(inside);
    let name = request.host.real().file_name().and_then(|it| it.to_str()).unwrap_or("root").to_owned();
    let to = Destination { given: &request.container, name: &name, into_directory: request.into_directory };
    let (path, occupant) = look.target(to).await?;
    check_kind(&path, occupant, request.host.is_dir())?;
    if occupant == Some(Occupant::File) && !request.overwrite {
        return Err(exists(&path));
    }
    let (host, top, spool) = (request.host.clone(), name.clone(), temporary(&request.scratch)?);
    request.meter.fills(&spool);
    let writer = Writer::new(spool, inside.user, request.limits);
    let (tar, moved) = blocking(move || pack(&host, &top, writer)).await?;
    request.meter.sends(&tar);
    let (dirs, others): (Vec<_>, Vec<_>) =
        parts(&tar, &name)?.into_iter().partition(|part| matches!(part.what, ArchiveEntryKind::Dir));
    if !request.overwrite {
        for part in &others {
            let at = below(&path, &part.path)?;
            if inside.seen(&at, false).await?.is_some() {
                return Err(exists(&at));
            }
        }
    }
    let changed = |part: &ArchiveEntry| (part.path.clone(), part.changed_s);
    // Directories last, and the innermost first: what is put into one changes its time.
    let times: Vec<_> = others.iter().chain(dirs.iter().rev()).map(changed).collect();
    for part in dirs {
        inside.put(&below(&path, &part.path)?, part).await?;
    }
    let put = async |part: ArchiveEntry| inside.put(&below(&path, &part.path)?, part).await;
    stream::iter(others).map(Ok).try_for_each_concurrent(AT_THE_SAME_TIME, put).await?;
    for times in times.chunks(TIMES_AT_ONCE) {
        link.set_times(inside.at(&path, false), times.to_vec()).await?;
    }
    Ok(CopyReport { moved, host_path: request.host.real().to_owned(), container_path: path })
}

/// As [`copy_out`](super::copy_out).
///
/// # Errors
/// As for that one.
pub(super) async fn copy_out(link: &Link, record: &Record, request: CopyRequest) -> Result<CopyReport> {
    let inside = GuestFiles { link, user: guided_session(record, false)?.user };
    let path = request.container.clone();
    let entry = inside.seen(&path, false).await?.ok_or_else(|| Error::NoSuchPath(path.clone()))?;
    let spool = temporary(&request.scratch)?;
    request.meter.fills(&spool);
    let mut taken = ArchiveBuilder {
        inside,
        writer: Writer::new(spool, Ids::ROOT, request.limits),
        left_out: TransferReport::default(),
        most: request.limits.max_entries,
    };
    taken.all(&path, entry).await?;
    let (spool, _) = taken.writer.finish().map_err(Error::Copy)?;
    let (moved, host_path) = blocking(move || destination::place(spool, &request)).await?;
    let skipped = moved.skipped.into_iter().chain(taken.left_out.skipped).collect();
    Ok(CopyReport { moved: TransferReport { skipped, ..moved }, host_path, container_path: path })
}

/// An entry of one of Coracle's archives.
struct ArchiveEntry {
    /// Below the tree; empty for itself.
    path: String,
    mode: u32,
    changed_s: i64,
    what: ArchiveEntryKind,
}

enum ArchiveEntryKind {
    Dir,
    File(FileSpan),
    Link(String),
}

/// The content of one of Coracle's archives, in its order: each directory precedes its content.
fn parts(tar: &File, top: &str) -> Result<Vec<ArchiveEntry>> {
    let read = || {
        let mut parts = Vec::new();
        let mut reader = Reader::open(tar.try_clone()?)?;
        while let Some(entry) = reader.next_entry()? {
            let name = String::from_utf8_lossy(&entry.path);
            let path = name.trim_end_matches('/').strip_prefix(top).unwrap_or_default().trim_start_matches('/');
            let what = match &entry.kind {
                EntryKind::Directory => ArchiveEntryKind::Dir,
                EntryKind::Symlink(target) => ArchiveEntryKind::Link(String::from_utf8_lossy(target).into_owned()),
                _ => ArchiveEntryKind::File(reader.content()?),
            };
            let (mode, changed_s) = (entry.mode & 0o777, entry.mtime.seconds);
            parts.push(ArchiveEntry { path: path.to_owned(), mode, changed_s, what });
        }
        Ok(parts)
    };
    read().map_err(cannot_spool)
}

impl GuestFiles<'_> {
    async fn put(&self, path: &ContainerPath, part: ArchiveEntry) -> Result<()> {
        let at = self.at(path, false);
        match part.what {
            // A directory that its owner may not write to could not be filled inside.
            ArchiveEntryKind::Dir => drop(self.link.make_dir(self.at(path, true), part.mode | 0o700, true).await?),
            ArchiveEntryKind::Link(target) => drop(self.link.make_link(at, &target, true).await?),
            ArchiveEntryKind::File(content) => {
                let mode = Some(part.mode);
                let content = input(content).map_err(cannot_spool)?;
                let put = WriteFile { at, mode, exact: true, parents: true, replace: true, content };
                self.link.put(put).await?;
            }
        }
        Ok(())
    }
}

fn input(mut content: FileSpan) -> io::Result<Input> {
    if content.size() > AT_ONCE {
        return Ok(Input::Stream(Box::new(StreamReader::new(Box::pin(pieces(content))))));
    }
    let mut bytes = Vec::new();
    content.read_to_end(&mut bytes)?;
    Ok(Input::Bytes(bytes))
}

/// The content in pieces. Several files are sent at the same time, so none may use the archive's own offset.
fn pieces(content: FileSpan) -> impl Stream<Item = io::Result<Cursor<Vec<u8>>>> {
    stream::try_unfold(content, async |mut content| {
        let read = move || {
            let mut piece = Vec::new();
            (&mut content).take(AT_ONCE).read_to_end(&mut piece)?;
            io::Result::Ok((piece, content))
        };
        let (piece, content) = tokio::task::spawn_blocking(read).await.map_err(io::Error::other)??;
        Ok((!piece.is_empty()).then(|| (Cursor::new(piece), content)))
    })
}

/// What comes out. The guest's word on it is hostile: names are plain ones, and bytes and entries bounded.
struct ArchiveBuilder<'a> {
    inside: GuestFiles<'a>,
    writer: Writer,
    left_out: TransferReport,
    most: u64,
}

impl ArchiveBuilder<'_> {
    async fn all(&mut self, root: &ContainerPath, entry: FileEntry) -> Result<()> {
        let mut left = vec![(String::new(), root.clone(), entry)];
        while let Some((within, path, entry)) = left.pop() {
            let name = if within.is_empty() { TOP.to_owned() } else { format!("{TOP}/{within}") };
            match entry.kind {
                FileKind::Dir if within.split('/').count() > MAX_DEPTH => self.skip(&within, "nested too deep"),
                FileKind::Dir => {
                    self.writer.dir(&name, entry.mode & 0o777, entry.changed_s()).map_err(Error::Copy)?;
                    let (entries, more) = self.inside.link.list(self.inside.at(&path, false), self.most).await?;
                    if more {
                        return Err(Error::Copy(transfer::Error::TooMany(self.most)));
                    }
                    for entry in entries {
                        let plain = plain_name(Path::new(&entry.name)).filter(|it| !it.is_empty() && !it.contains('/'));
                        let Some((path, name)) = plain.and_then(|it| Some((path.join(&it).ok()?, it))) else {
                            self.skip(&entry.name, "its name cannot be copied");
                            continue;
                        };
                        left.push((format!("{within}/{name}").trim_start_matches('/').to_owned(), path, entry));
                    }
                }
                FileKind::File => self.file(&name, &within, &path).await?,
                FileKind::Link => {
                    let changed = entry.changed_s();
                    let target = entry.link.unwrap_or_default();
                    if !self.writer.link_within(&name, &target, changed).map_err(Error::Copy)? {
                        self.skip(&within, "the link leads out of the tree");
                    }
                }
                FileKind::Special => self.skip(&within, "it is neither a file nor a directory"),
            }
        }
        Ok(())
    }

    async fn file(&mut self, name: &str, within: &str, path: &ContainerPath) -> Result<()> {
        let opened = self.inside.link.open_file(self.inside.at(path, false), 0, u64::MAX >> 1).await;
        let (entry, mut content) = match opened {
            Ok(opened) => opened,
            Err(Engine::Refused(_)) => {
                self.skip(within, "it may not be read, or went meanwhile");
                return Ok(());
            }
            Err(err) => return Err(err.into()),
        };
        let mut growing = self.writer.begin(name, entry.mode & 0o777, entry.changed_s()).map_err(Error::Copy)?;
        while let Some(piece) = content.next().await? {
            growing.write(&piece).map_err(Error::Copy)?;
        }
        growing.end().map_err(Error::Copy)?;
        Ok(())
    }

    fn skip(&mut self, path: &str, reason: &'static str) {
        self.left_out.skip(path, reason);
    }
}

fn below(path: &ContainerPath, within: &str) -> Result<ContainerPath> {
    if within.is_empty() { Ok(path.clone()) } else { joined(path, within) }
}

#[cfg(test)]
mod tests {
    use coracle_archive::tar::TarEntry;
    use tokio::io::AsyncReadExt as _;

    use super::*;

    #[tokio::test]
    async fn files_that_are_sent_at_the_same_time_do_not_mix() {
        let mut writer = coracle_archive::tar::Writer::new(tempfile::tempfile().unwrap());
        let size = 3 * AT_ONCE + 5;
        for byte in *b"ab" {
            let entry = TarEntry::new(format!("it/{}", char::from(byte)), EntryKind::file(size), 0o644);
            writer.write_file(&entry, io::repeat(byte)).unwrap();
        }
        let parts = parts(&writer.finish().unwrap(), "it").unwrap();
        let mut inputs = parts.into_iter().map(|part| match part.what {
            ArchiveEntryKind::File(content) => match input(content).unwrap() {
                Input::Stream(stream) => stream,
                _ => panic!("{} is sent at once", part.path),
            },
            _ => panic!("{} is no file", part.path),
        });
        let (mut a, mut b) = (inputs.next().unwrap(), inputs.next().unwrap());
        let (mut first, mut second) = (vec![0; 1000], Vec::new());
        a.read_exact(&mut first).await.unwrap();
        b.read_to_end(&mut second).await.unwrap();
        a.read_to_end(&mut first).await.unwrap();
        assert!(first == vec![b'a'; size as usize] && second == vec![b'b'; size as usize]);
    }
}
