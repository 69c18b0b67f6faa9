//! Work that was saved: a directory on the host, in which there are only finished saves.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use coracle_runtime::ContainerPath;
use serde::Serialize;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use crate::{Code, Failure, Result};

/// Where work is saved: a directory of its own for each save, below this one.
#[derive(Clone, Debug)]
pub struct SaveTo {
    /// `$STATE/saved/<container>`.
    pub dir: PathBuf,
    /// What the manifest says of the container, but for `at` and `items`, as `lifecycle` writes it.
    pub manifest: Map<String, Value>,
}

/// Work that was saved.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SavedWork {
    /// Its directory on the host.
    pub location: PathBuf,
    /// `git`: a bundle; `tree`: an archive of the files as they lay there.
    pub kind: &'static str,
    /// Bytes of it.
    pub bytes: u64,
    /// Files that were not committed, or all of an archive's directory.
    pub files: u64,
}

/// A save on its way, in a temporary directory: where it belongs there are only finished ones.
pub(super) struct Save<'a> {
    to: &'a SaveTo,
    temp: TempDir,
    pub(super) file: PathBuf,
    /// What the manifest says more of it.
    pub(super) item: Value,
}

impl<'a> Save<'a> {
    pub(super) fn begin(to: &'a SaveTo, temp: &Path, name: &str) -> Result<Self> {
        let temp = tempfile::Builder::new().prefix("save-").tempdir_in(temp).map_err(no_place)?;
        let file = temp.path().join(name);
        Ok(Self { to, temp, file, item: json!({}) })
    }

    /// In the directory that its time names; the next millisecond's when that is taken.
    fn place(self, mut manifest: Map<String, Value>) -> Result<PathBuf> {
        crate::files::own_directory(&self.to.dir).map_err(no_place)?;
        let mut at = jiff::Timestamp::now();
        for _ in 0..1000 {
            manifest.insert("at".into(), json!(at.to_string()));
            crate::files::write(&self.temp.path().join("manifest.json"), &manifest)?;
            let dir = self.to.dir.join(at.strftime("%Y%m%dT%H%M%S.%3fZ").to_string());
            match std::fs::rename(self.temp.path(), &dir) {
                Ok(()) => return Ok(dir),
                Err(err) if matches!(err.kind(), io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::AlreadyExists) => {
                    at += jiff::SignedDuration::from_millis(1);
                }
                Err(err) => return Err(no_place(err)),
            }
        }
        Err(no_place("there are too many"))
    }

    pub(super) fn finish(
        self,
        path: &ContainerPath,
        kind: &'static str,
        files: u64,
        max_bytes: u64,
    ) -> Result<SavedWork> {
        let (bytes, sha256) = sum(&self.file).map_err(Failure::internal)?;
        if bytes > max_bytes {
            return Err(Failure::new(Code::SaveFailed, format!("There are more than {max_bytes} bytes to save.")));
        }
        if let Some(saved) = saved_before(self.to, path, |item| item["parts"][0]["sha256"] == sha256.as_str()) {
            return Ok(SavedWork { files, ..saved });
        }
        let what = if kind == "git" { "bundle" } else { "archive" };
        let name = self.file.file_name().map(|it| it.to_string_lossy().into_owned());
        let part = json!({ "file": name, "what": what, "bytes": bytes, "sha256": sha256 });
        // What the archive has is its own; a bundle's files are in its commits.
        let in_archive = if kind == "git" { 0 } else { files };
        let mut item = json!({ "path": path, "kind": kind, "parts": [part], "files": in_archive, "bytes": bytes });
        if let (Some(item), Some(more)) = (item.as_object_mut(), self.item.as_object()) {
            item.extend(
                more.iter().filter(|(_, value)| !value.is_null()).map(|(key, value)| (key.clone(), value.clone())),
            );
        }
        let mut manifest = self.to.manifest.clone();
        manifest.insert("items".into(), json!([item]));
        Ok(SavedWork { location: self.place(manifest)?, kind, bytes, files })
    }
}

/// A finished save of a place, if it is the one that is meant and all of it is there.
pub(super) fn saved_before(to: &SaveTo, path: &ContainerPath, is_it: impl Fn(&Value) -> bool) -> Option<SavedWork> {
    std::fs::read_dir(&to.dir).ok()?.flatten().find_map(|entry| {
        let manifest: Value = crate::files::read(&entry.path().join("manifest.json")).ok()??;
        let item = manifest["items"].as_array()?.iter().find(|it| it["path"] == json!(path) && is_it(it))?;
        let part = &item["parts"][0];
        let (file, bytes) = (entry.path().join(part["file"].as_str()?), part["bytes"].as_u64()?);
        let kind = if item["kind"] == "git" { "git" } else { "tree" };
        let whole = sum(&file).is_ok_and(|(_, sha256)| part["sha256"] == sha256.as_str());
        whole.then(|| SavedWork { location: entry.path(), kind, bytes, files: item["files"].as_u64().unwrap_or(0) })
    })
}

fn no_place(err: impl std::fmt::Display) -> Failure {
    Failure::new(Code::SaveFailed, format!("There is no place to save it: {err}"))
}

fn sum(file: &Path) -> io::Result<(u64, String)> {
    let (mut file, mut digest, mut bytes) = (std::fs::File::open(file)?, Sha256::new(), 0);
    let mut buffer = vec![0; 1 << 16];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok((bytes, hex::encode(digest.finalize()))),
            read => {
                digest.update(&buffer[..read]);
                bytes += read as u64;
            }
        }
    }
}
