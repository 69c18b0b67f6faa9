//! Files in and out: the engine copies paths, and has no archives.

use std::fs::File;
use std::path::Path;

use coracle_archive::restore::restore;
use coracle_archive::tar::{LimitedWriter, Reader, Writer, pack_tree};
use coracle_engine_program::{EngineProgram, deadline};
use coracle_host::process::Stdin;
use coracle_runtime::LabelFilter;
use coracle_runtime::plain_exec::IS_DIR;
use coracle_types::{ContainerId, ContainerPath, Error, Excerpt, Input, Result};

use crate::args as words;
use crate::containers::{ids_of, list};
use crate::query::{host_error, query};

/// Unpacks one of Coracle's tars here, copies its top-level entries, and sets the owners, which the copy does not
/// preserve.
pub(super) async fn upload(program: &EngineProgram, id: &ContainerId, at: &ContainerPath, tar: File) -> Result<()> {
    let temp = program.temp_dir("copy")?;
    words::copy_in(temp.path(), id, at)?;
    let dir = temp.path().to_owned();
    let unpacked = tokio::task::spawn_blocking(move || unpack(tar, &dir)).await.map_err(std::io::Error::other);
    let owners = unpacked.and_then(|it| it).map_err(|source| host_error("cannot unpack the archive", source))?;
    let names = entries(temp.path())?;
    if names.is_empty() && ids_of(program, &id.into()).await?.is_empty() {
        return Err(Error::NoSuchContainer(id.to_string()));
    }
    into_directory(program, id, at).await?;
    for name in names {
        let it = words::copy_in(&temp.path().join(&name), id, at)?;
        query(program, "upload", it, deadline::COPY).await?;
    }
    let at = at.as_str().trim_end_matches('/');
    let lines: String = owners.iter().map(|(owner, path)| format!("{owner}\n{at}/{path}\n")).collect();
    if !lines.is_empty() {
        program.feed("upload", words::own(id), Stdin::Input(Input::Bytes(lines.into_bytes())), deadline::COPY).await?;
    }
    Ok(())
}

/// A copy may create the target directory where it should only fill it. In a container that is not running, or has no
/// shell, this cannot be checked.
async fn into_directory(program: &EngineProgram, id: &ContainerId, at: &ContainerPath) -> Result<()> {
    let look = words::constant_program(id, coracle_types::Ids::ROOT, IS_DIR).word(at.as_str());
    if program.run("exec", look, deadline::READ).await?.exit != 1 {
        return Ok(());
    }
    let all = list(program, &LabelFilter::default()).await?;
    if !all.iter().any(|it| it.id == *id && it.running()) {
        return Ok(());
    }
    let excerpt = Excerpt::from_bytes(format!("no directory {at}").as_bytes());
    Err(Error::Engine { verb: "upload", exit: 1, excerpt })
}

/// Unpacks, and gives the owners that are not root, with their paths.
fn unpack(tar: File, into: &Path) -> std::io::Result<Vec<(String, String)>> {
    let (mut reader, mut owners) = (Reader::open(tar.try_clone()?)?, Vec::new());
    while let Some(entry) = reader.next_entry()? {
        let path = String::from_utf8_lossy(&entry.path).into_owned();
        if path.contains('\n') {
            return Err(std::io::Error::other("a name has a line break"));
        }
        if (entry.uid, entry.gid) != (0, 0) {
            owners.push((format!("{}:{}", entry.uid, entry.gid), path));
        }
    }
    restore(&mut Reader::open(tar)?, File::open(into)?, Path::new("")).map(|()| owners)
}

fn entries(dir: &Path) -> Result<Vec<std::ffi::OsString>> {
    let read = || std::fs::read_dir(dir)?.map(|it| it.map(|it| it.file_name())).collect::<std::io::Result<Vec<_>>>();
    read().map_err(|source| host_error("cannot read what was copied", source))
}

/// Copies a path out and packs it, up to a limit.
pub(super) async fn download(
    program: &EngineProgram,
    id: &ContainerId,
    path: &ContainerPath,
    into: File,
    max_bytes: u64,
) -> Result<()> {
    let temp = program.temp_dir("copy")?;
    query(program, "download", words::copy_out(id, path, temp.path())?, deadline::COPY).await?;
    let dir = temp.path().to_owned();
    let packed = tokio::task::spawn_blocking(move || pack(&dir, into, max_bytes)).await;
    match packed.map_err(std::io::Error::other).and_then(|it| it) {
        Ok(true) => Ok(()),
        Ok(false) => Err(Error::TooLarge { max_bytes }),
        Err(source) => Err(host_error("cannot pack what was copied", source)),
    }
}

/// Whether it fitted.
fn pack(dir: &Path, into: File, max_bytes: u64) -> std::io::Result<bool> {
    let mut tar = Writer::new(LimitedWriter::new(into, max_bytes));
    let work = || {
        for entry in std::fs::read_dir(dir)? {
            let entry = entry?;
            pack_tree(&mut tar, &entry.path(), Path::new(&entry.file_name()))?;
        }
        tar.finish().map(drop)
    };
    match work() {
        Err(err) if err.kind() == std::io::ErrorKind::FileTooLarge => Ok(false),
        other => other.map(|()| true),
    }
}
