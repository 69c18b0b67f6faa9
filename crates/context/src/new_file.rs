//! A file on the host that an operation creates for its caller.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use coracle_host::fs::sync_entry;
use coracle_host::temporary;
use coracle_host::tree_sweep::sweep_path;
use tempfile::NamedTempFile;

use crate::context::Context;
use crate::failure::{Code, Failure};

/// A file that gets its name when it is complete, and never replaces another.
#[derive(Debug)]
pub struct NewFile {
    path: PathBuf,
    unfinished: NamedTempFile,
}

impl NewFile {
    /// # Errors
    /// `path_exists` if a file of that name exists, `path_not_found` without its directory, else `copy_failed`.
    pub fn create(cx: &Context, file: &str) -> Result<Self, Failure> {
        let path = cx.host.path(Path::new(file));
        if path.symlink_metadata().is_ok() {
            return Err(taken(&path));
        }
        sweep_path(path.parent().unwrap_or(Path::new("/")));
        let beside = temporary::file_in(path.parent().unwrap_or(Path::new("/")));
        let unfinished = beside.map_err(|err| failed(&path, &err))?;
        Ok(Self { path, unfinished })
    }

    /// Opens it for writing.
    pub fn open(&self) -> Result<File, Failure> {
        self.unfinished.reopen().map_err(|err| failed(&self.path, &err))
    }

    /// Renames it to its final name, which is returned, once its content is synced to disk.
    ///
    /// # Errors
    /// Those of [`create`](Self::create).
    pub fn finish(self) -> Result<String, Failure> {
        let Self { path, unfinished } = self;
        unfinished.as_file().sync_all().map_err(|err| failed(&path, &err))?;
        unfinished.persist_noclobber(&path).map_err(|err| match err.error.kind() {
            io::ErrorKind::AlreadyExists => taken(&path),
            _ => failed(&path, &err.error),
        })?;
        sync_entry(&path).map_err(|err| failed(&path, &err))?;
        Ok(path.display().to_string())
    }
}

fn taken(path: &Path) -> Failure {
    Failure::new(Code::PathExists, format!("`{}` exists on this host", path.display()))
        .detail("path", path.display().to_string())
        .hint("name a file that is not there yet")
}

fn failed(path: &Path, err: &io::Error) -> Failure {
    let code = if err.kind() == io::ErrorKind::NotFound { Code::PathNotFound } else { Code::CopyFailed };
    Failure::new(code, format!("cannot write `{}`: {err}", path.display())).detail("path", path.display().to_string())
}
