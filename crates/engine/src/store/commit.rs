//! Creates images from a container's files.

use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use coracle_archive::tar::{EntryKind, Extent, TarEntry, Writer};
use coracle_runtime::{Image, ImageConfig};
use coracle_types::{ImageId, ImageRef};
use rustix::fs::{AtFlags, Mode, SeekFrom, ioctl_ficlone, mkdirat, seek, statat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::configuration::NewConfiguration;
use super::export::{CanonicalDigest, HashWriter};
use super::layer::{FILES, LayerRecord};
use super::tree::{
    EntryPosition, OverlayForm, Selection, TreeSink, WHITEOUT, WalkOptions, is_dir, names, open_beneath, walk,
};
use super::unpack::{ContentSource, Unpack, UnpackError, UnpackOptions, UnpackReport};
use super::{LayerLimits, LayerRefusal, NewImage, Result, Store, StoreError};
use crate::cancel::CancelFlag;
use crate::write_guard::WriteGuard;

/// A container's files, which nothing writes to during the commit.
#[derive(Clone, Debug)]
pub(crate) struct CommitSource {
    /// Its upper directory. Its overlay must be mounted without `redirect_dir` and `metacopy`.
    pub(crate) upper: PathBuf,
    /// The image that it was created from.
    pub(crate) base: ImageId,
    /// Absolute paths inside, which are omitted with everything below them.
    pub(crate) mount_points: Vec<PathBuf>,
    /// Absolute paths inside that the engine itself created for its mounts. They are omitted if they are empty, or contain
    /// only what is omitted.
    pub(crate) stubs: Vec<PathBuf>,
    /// The start configuration.
    pub(crate) config: ImageConfig,
    /// The whole environment, `NAME=value`.
    pub(crate) env: Vec<String>,
    /// The whole set of labels.
    pub(crate) labels: Vec<(String, String)>,
    pub(crate) tag: Option<ImageRef>,
    /// Whether it is an intermediate step to another image.
    pub(crate) intermediate: bool,
    /// The same limits as for imported layers, so that other engines can import the image.
    pub(crate) limits: LayerLimits,
}

impl Store {
    /// Creates an image from a container's files: a copy of its upper directory becomes one more layer on its image.
    pub(crate) fn commit(&self, source: CommitSource) -> Result<Image> {
        let CommitSource { upper, base, mount_points, stubs, config, env, labels, tag, intermediate, limits } = source;
        let mut addition = self.begin_addition()?;
        let base = self.configuration(&base)?.ok_or(StoreError::NoSuchImage(base))?;
        let draft = addition.draft()?;
        let left_out = SkippedPaths {
            mount_points: relative(&mount_points),
            stubs: relative(&stubs),
            whiteout_names: RefCell::default(),
        };
        let (dir, overlay) = (File::open(&draft.path), self.overlay());
        let copied = dir.and_then(|dir| {
            let options = CopyOptions { overlay, left_out: &left_out, limits };
            self.privileges.run_as_owner(|| match copy_layer(&upper, &dir, options) {
                Ok(copied) => Ok(Ok(copied)),
                Err(err) => err.downcast::<LayerRefusal>().map(Err),
            })
        });
        let copied = copied.map_err(StoreError::io("cannot copy a container's files"))?;
        let copied = copied.map_err(|refusal| match refusal {
            LayerRefusal::FileTooLarge { path, size, limit } => StoreError::FileTooLarge { path, size, limit },
            refusal => StoreError::Refused { layer: "of the commit".into(), refusal },
        })?;
        for name in &copied.whiteout_names {
            tracing::warn!("`{name}` is left out of the image: in a layer its name removes files");
        }
        let record = LayerRecord::new(copied.digest.digest, copied.report);
        let layer = match addition.find_layer(&record.diff_id)? {
            Some(found) => found,
            None => addition.publish_layer(&draft, record)?,
        };
        let configuration = NewConfiguration {
            base: Some(&base),
            config,
            env,
            labels,
            layer: &layer.diff_id,
            created: jiff::Timestamp::now().to_string(),
            comment: "commit of a container",
        };
        let configuration = configuration.to_bytes()?;
        let names = tag.into_iter().collect();
        addition.add_image(NewImage { configuration, names, intermediate, repo_digest: None })
    }
}

/// Relative paths of a container's files that belong to the engine and not to the image.
#[derive(Debug)]
struct SkippedPaths {
    mount_points: BTreeSet<Vec<u8>>,
    stubs: BTreeSet<Vec<u8>>,
    /// Files that were omitted because of their names. They are logged afterwards: without root, a forked child makes the
    /// copy, and another thread may have held the lock of the log during the fork.
    whiteout_names: RefCell<Vec<String>>,
}

/// Maximum number of names that are logged for one commit.
const MAX_WHITEOUT_NAMES: usize = 20;

/// A layer of a container's files.
#[derive(Debug, Serialize, Deserialize)]
struct CopiedLayer {
    digest: CanonicalDigest,
    report: UnpackReport,
    whiteout_names: Vec<String>,
}

struct CopyOptions<'a> {
    overlay: OverlayForm,
    left_out: &'a SkippedPaths,
    limits: LayerLimits,
}

fn relative(paths: &[PathBuf]) -> BTreeSet<Vec<u8>> {
    let relative = |it: &PathBuf| {
        let parts = it.components().filter_map(|it| match it {
            std::path::Component::Normal(part) => Some(part.as_bytes()),
            _ => None,
        });
        parts.collect::<Vec<_>>().join(&b'/')
    };
    paths.iter().map(relative).filter(|it| !it.is_empty()).collect()
}

/// Copies an upper directory, and returns the digest of its canonical archive. Runs as the owner of the files, and logs
/// nothing.
#[expect(clippy::needless_pass_by_value, reason = "its parts are borrowed, and it is made for this call")]
fn copy_layer(upper: &Path, dir: &File, options: CopyOptions<'_>) -> io::Result<CopiedLayer> {
    let CopyOptions { overlay, left_out, limits } = options;
    let upper = File::open(upper)?;
    mkdirat(dir, FILES, Mode::from_raw_mode(0o755))?;
    let into = open_beneath(dir.as_fd(), FILES.as_bytes())?;
    // The digest of the canonical archive is that of the layer, so contents need no digests of their own.
    let options = UnpackOptions { hash_contents: false, ..limits.unpack_options(overlay) };
    let guard = WriteGuard::begin("the image", dir, CancelFlag::NEVER)?;
    let mut sink = CopySink { tar: Writer::new(HashWriter::new(io::sink())), copy: Unpack::new(into, options), guard };
    walk(upper.as_fd(), &WalkOptions { overlay, select: &|path, at| left_out.select(path, at) }, &mut sink)?;
    let (digest, report) = (CanonicalDigest::from(sink.tar.finish()?), sink.copy.finish()?);
    Ok(CopiedLayer { digest, report, whiteout_names: left_out.whiteout_names.take() })
}

impl SkippedPaths {
    fn select(&self, path: &[u8], at: EntryPosition<'_>) -> io::Result<Selection> {
        let leave = self.mount_points.contains(path) || self.is_empty_stub(path, at)? || self.is_whiteout_name(at);
        Ok(if leave { Selection::Leave } else { Selection::Take })
    }

    /// Whether a file has the name of a whiteout in an archive. No layer can contain such a file.
    fn is_whiteout_name(&self, at: EntryPosition<'_>) -> bool {
        let is_whiteout = at.name.to_bytes().starts_with(WHITEOUT);
        let mut names = self.whiteout_names.borrow_mut();
        if is_whiteout && names.len() < MAX_WHITEOUT_NAMES {
            names.push(at.name.to_string_lossy().into_owned());
        }
        is_whiteout
    }

    fn is_empty_stub(&self, path: &[u8], at: EntryPosition<'_>) -> io::Result<bool> {
        if !self.stubs.contains(path) {
            return Ok(false);
        }
        let stat = statat(at.dir, at.name, AtFlags::SYMLINK_NOFOLLOW)?;
        if !is_dir(stat.st_mode) {
            return Ok(stat.st_size == 0);
        }
        let dir = open_beneath(at.dir, at.name.to_bytes())?;
        for name in names(&dir)? {
            let path = [path, name.to_bytes()].join(&b'/');
            let inner = EntryPosition { dir: dir.as_fd(), name: &name, inode: 0 };
            if !self.mount_points.contains(&path) && !self.is_empty_stub(&path, inner)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Copies the visited entries, and hashes them as an archive at the same time.
#[derive(Debug)]
struct CopySink {
    tar: Writer<HashWriter>,
    copy: Unpack,
    guard: WriteGuard,
}

impl TreeSink for CopySink {
    fn take_entry(&mut self, entry: &TarEntry, at: EntryPosition<'_>) -> io::Result<()> {
        self.tar.write_entry(entry)?;
        let EntryKind::File { size: size @ 1.., .. } = entry.kind else {
            return Ok(self.copy.entry(entry, &mut NoContent)?);
        };
        let file = at.open()?;
        let extents = extents(&file, size)?;
        let entry = TarEntry { kind: EntryKind::File { size, extents: Some(extents.clone()) }, ..entry.clone() };
        let mut source =
            FileSource { file, extents: extents.into(), at: 0, tar: &mut self.tar, guard: &mut self.guard };
        self.copy.entry(&entry, &mut source)?;
        source.pad(size)
    }
}

struct NoContent;

impl ContentSource for NoContent {
    fn read_content(&mut self, _: &mut [u8]) -> Result<usize, UnpackError> {
        Ok(0)
    }
}

/// A file that is copied, and hashed as it is read.
struct FileSource<'a> {
    file: File,
    /// Extents that were not read yet.
    extents: VecDeque<Extent>,
    /// Bytes of the file that the archive has already.
    at: u64,
    tar: &'a mut Writer<HashWriter>,
    guard: &'a mut WriteGuard,
}

impl FileSource<'_> {
    /// Fills the archive with zeros up to an offset.
    fn pad(&mut self, to: u64) -> io::Result<()> {
        const ZEROS: [u8; 16 * 1024] = [0; 16 * 1024];
        while self.at < to {
            let part = usize::try_from(to - self.at).map_or(ZEROS.len(), |it| it.min(ZEROS.len()));
            self.tar.write_all(&ZEROS[..part])?;
            self.at += part as u64;
        }
        Ok(())
    }
}

impl ContentSource for FileSource<'_> {
    fn read_content(&mut self, buffer: &mut [u8]) -> Result<usize, UnpackError> {
        let Some(extent) = self.extents.front_mut() else { return Ok(0) };
        let Extent { offset, length } = *extent;
        let wanted = usize::try_from(length).map_or(buffer.len(), |it| it.min(buffer.len()));
        let count = self.file.read_at(&mut buffer[..wanted], offset)?;
        *extent = Extent { offset: offset + count as u64, length: length - count as u64 };
        if extent.length == 0 {
            self.extents.pop_front();
        }
        self.pad(offset)?;
        self.tar.write_all(&buffer[..count])?;
        self.guard.written(count as u64)?;
        self.at += count as u64;
        Ok(count)
    }

    fn reflink(&mut self, file: BorrowedFd<'_>) -> bool {
        ioctl_ficlone(file, &self.file).is_ok()
    }
}

/// The parts of a file that have content.
fn extents(file: &File, size: u64) -> io::Result<Vec<Extent>> {
    let whole = vec![Extent { offset: 0, length: size }];
    if file.metadata()?.blocks().saturating_mul(512) >= size {
        return Ok(whole);
    }
    let (mut extents, mut at) = (Vec::new(), 0);
    while at < size {
        let start = match seek(file, SeekFrom::Data(at)) {
            Err(Errno::NXIO) => break,
            Err(Errno::INVAL) => return Ok(whole),
            done => done?,
        };
        let end = seek(file, SeekFrom::Hole(start))?.min(size);
        extents.push(Extent { offset: start, length: end - start });
        at = end;
    }
    Ok(extents)
}
