//! Writes files.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;

use rustix::fs::{Mode, Stat, fchmod, fstat};

use super::WorkspaceOperation;
use super::fingerprint::Print;
use super::replace::{expect_changeable, expect_writable};
use super::tracker::ContentSource;
use crate::files::error::{FsError, OperationResult};
use crate::files::resolve::ResolvedPath;
use crate::files::{FinalLink, MAX_DISTURBED};
use crate::protocol::workspace::{MAX_CONTENT, OpenMode, WorkspaceErrorCode, WriteReport};

/// Limit of a new content in a reply, in bytes.
const MAX_BEGIN: usize = 32 << 10;

/// Mode of a new file that is not executable.
const PLAIN: u32 = 0o644;

/// The parameters of a write.
#[derive(Clone, Copy, Debug)]
pub(super) struct Write<'a> {
    pub(super) path: &'a str,
    pub(super) how: OpenMode,
    pub(super) executable: Option<bool>,
    pub(super) seen: bool,
    pub(super) tool: &'a str,
}

/// The new content of a file, and its status after the write.
pub(super) struct WrittenContent<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) stat: Stat,
}

impl WorkspaceOperation<'_> {
    pub(super) fn write(&self, write: &Write<'_>, content: &[u8]) -> OperationResult<WriteReport> {
        if content.len() as u64 > MAX_CONTENT {
            return Err(WorkspaceErrorCode::TooLarge.into());
        }
        self.change(write.path, true, |resolved| match (&resolved.entry, write.how) {
            (Some(_), OpenMode::Create) => Err(WorkspaceErrorCode::Exists.into()),
            (None, OpenMode::Create) if resolved.linked => Err(WorkspaceErrorCode::Exists.into()),
            (Some(_), _) => self.write_over(write, resolved, content),
            (None, _) => {
                let mode = if write.executable == Some(true) { PLAIN | 0o111 } else { PLAIN };
                let over = write.how != OpenMode::Create;
                let (_, stat) = self.replace(resolved, (mode, over), |file| Ok(file.write_all(content)?))?;
                let written =
                    self.report_content(write.path, resolved, WrittenContent { bytes: content, stat }, write.tool);
                Ok(WriteReport { created: true, ..written })
            }
        })
    }

    fn write_over(&self, write: &Write<'_>, resolved: &ResolvedPath, content: &[u8]) -> OperationResult<WriteReport> {
        let (file, stat) = self.old(resolved, write.seen)?;
        let old_mode = stat.st_mode & 0o777;
        let mode = match write.executable {
            None => old_mode,
            Some(true) => old_mode | 0o111,
            Some(false) => old_mode & !0o111,
        };
        let append = write.how == OpenMode::Append;
        let same = if append { content.is_empty() } else { has_content(&file, content)? };
        if same {
            if mode != old_mode {
                fchmod(&file, Mode::from_raw_mode(mode))?;
                self.tracker.record_change(&resolved.path, Some(&fstat(&file)?));
            }
            let stat = fstat(&file)?;
            return self
                .report_file(write.path, resolved, (file, stat), write.tool)
                .map(|it| WriteReport { changed: false, ..it });
        }
        // A longer file could not be read or changed by this code again.
        let before = if append { u64::try_from(stat.st_size).unwrap_or(u64::MAX) } else { 0 };
        if before.saturating_add(content.len() as u64) > MAX_CONTENT {
            return Err(WorkspaceErrorCode::TooLarge.into());
        }
        let created = self.replace(resolved, (mode, true), |fresh| {
            if append {
                io::copy(&mut &file, fresh)?;
            }
            Ok(fresh.write_all(content)?)
        })?;
        match append {
            true => self.report_file(write.path, resolved, created, write.tool),
            false => {
                let written = WrittenContent { bytes: content, stat: created.1 };
                Ok(self.report_content(write.path, resolved, written, write.tool))
            }
        }
    }

    /// Changes the file at a path, under a lock of its name.
    pub(super) fn change<T>(
        &self,
        path: &str,
        parents: bool,
        act: impl Fn(&ResolvedPath) -> OperationResult<T>,
    ) -> OperationResult<T> {
        for _ in 0..MAX_DISTURBED {
            let mut resolved = self.root.resolve(path, FinalLink::Target, parents)?;
            expect_changeable(&resolved)?;
            let key = resolved.key()?;
            let done = self.locks.with(key, || {
                if !resolved.refresh()? {
                    return Ok(None); // a link replaced it
                }
                expect_changeable(&resolved)?;
                act(&resolved).map(Some)
            })?;
            if let Some(done) = done {
                return Ok(done);
            }
        }
        Err(FsError::with_detail(WorkspaceErrorCode::Io, "the path keeps changing"))
    }

    /// Opens a file that will be changed, if the user and the tracker permit it.
    pub(super) fn old(&self, resolved: &ResolvedPath, seen: bool) -> OperationResult<(File, Stat)> {
        let entry = resolved.entry.as_ref().ok_or(WorkspaceErrorCode::NotFound)?;
        let file = entry.read()?;
        expect_writable(entry)?;
        if seen {
            let known = str::from_utf8(&resolved.path).ok().and_then(|it| self.tracker.seen(it));
            let known = known.ok_or(WorkspaceErrorCode::NotSeen)?;
            if Print::from_file(&file)?.seen() != known {
                return Err(WorkspaceErrorCode::Stale.into());
            }
        }
        Ok((file, entry.stat))
    }

    /// Reports the changed file.
    pub(super) fn report_file(
        &self,
        path: &str,
        resolved: &ResolvedPath,
        (file, stat): (File, Stat),
        tool: &str,
    ) -> OperationResult<WriteReport> {
        let (print, first) = (Print::from_file(&file)?, first(&file)?);
        Ok(self.report(path, resolved, NewFile { print: &print, stat: &stat, first: &first }, tool))
    }

    /// As [`report_file`](Self::report_file) for content in memory.
    pub(super) fn report_content(
        &self,
        path: &str,
        resolved: &ResolvedPath,
        WrittenContent { bytes, stat }: WrittenContent<'_>,
        tool: &str,
    ) -> WriteReport {
        let print = Print::of_content(bytes, &stat);
        self.report(path, resolved, NewFile { print: &print, stat: &stat, first: bytes }, tool)
    }

    fn report(&self, path: &str, resolved: &ResolvedPath, file: NewFile<'_>, tool: &str) -> WriteReport {
        let NewFile { print, stat, first } = file;
        let version = self.tracker.touch(&resolved.path, print, tool, ContentSource::Tool);
        let (begin, more) = begin(first);
        let file = self.written(path, stat, version);
        WriteReport { file, created: false, changed: true, replaced: 0, adapted: false, begin, more }
    }
}

/// A file that was just written.
#[derive(Clone, Copy)]
struct NewFile<'a> {
    print: &'a Print,
    stat: &'a Stat,
    /// Its first bytes, one more than a reply contains.
    first: &'a [u8],
}

/// Whether the file has exactly this content.
fn has_content(file: &File, content: &[u8]) -> OperationResult<bool> {
    if file.metadata()?.len() != content.len() as u64 {
        return Ok(false);
    }
    let (mut block, mut at) = (vec![0; content.len().min(64 << 10)], 0);
    while at < content.len() {
        let read = file.read_at(&mut block, at as u64)?;
        if read == 0 || content.get(at..at + read) != Some(&block[..read]) {
            return Ok(false);
        }
        at += read;
    }
    Ok(true)
}

/// The first bytes of a file, one more than a reply contains.
fn first(file: &File) -> OperationResult<Vec<u8>> {
    let mut block = vec![0; MAX_BEGIN + 1];
    let mut got = 0;
    while got < block.len() {
        match file.read_at(&mut block[got..], got as u64)? {
            0 => break,
            read => got += read,
        }
    }
    block.truncate(got);
    Ok(block)
}

/// The beginning of the content as text, and whether more follows.
fn begin(content: &[u8]) -> (String, bool) {
    let more = content.len() > MAX_BEGIN;
    let mut block = &content[..content.len().min(MAX_BEGIN)];
    if let (true, Err(err)) = (more, str::from_utf8(block))
        && err.error_len().is_none()
    {
        block = &block[..err.valid_up_to()];
    }
    (String::from_utf8_lossy(block).into_owned(), more)
}
