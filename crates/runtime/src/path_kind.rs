//! The kind of a path in a container without a guest. Only the engine's archive calls are used: a program of the
//! container would run as root and without a filter, and the image or an earlier copy may have replaced it.

use std::fs::File;

use coracle_archive::tar::{EntryKind, ReadError, Reader, TarEntry};
use coracle_types::{ContainerId, ContainerPath, Error, Result};

use crate::ContainerRuntime;

/// Bytes that are read of an archive: enough for the headers of its first entry.
const FIRST_BYTES: u64 = 16 << 10;

/// Links that lead to one another; the kernel's number.
const MAX_LINKS: usize = 40;

/// The kind of a path, with all links followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathKind {
    /// A directory.
    Dir,
    /// A regular file. Root may execute it, as far as its mode decides.
    File {
        /// One of its bits for execution is set.
        executable: bool,
    },
    /// Anything else, also a link that leads nowhere.
    Other,
}

/// The kind of a path; `None` for a missing path, or one that the engine cannot pack. Engines do not distinguish the
/// two, so callers must not conclude that the path is missing.
///
/// # Errors
/// Those of [`ContainerRuntime::download`], except [`Error::Engine`].
pub async fn path_kind(
    runtime: &dyn ContainerRuntime,
    id: &ContainerId,
    path: &ContainerPath,
) -> Result<Option<PathKind>> {
    let mut path = path.clone();
    for step in 0..MAX_LINKS {
        let Some(header) = first_header(runtime, id, &path).await? else {
            // The link that led here is there.
            return Ok((step > 0).then_some(PathKind::Other));
        };
        match header {
            FirstHeader::Entry(kind) => return Ok(Some(kind)),
            FirstHeader::Link(target) => match resolve(&path, &target) {
                Some(next) => path = next,
                None => return Ok(Some(PathKind::Other)),
            },
        }
    }
    Ok(Some(PathKind::Other))
}

enum FirstHeader {
    Entry(PathKind),
    Link(String),
}

async fn first_header(
    runtime: &dyn ContainerRuntime,
    id: &ContainerId,
    path: &ContainerPath,
) -> Result<Option<FirstHeader>> {
    let cannot = |source| Error::Host { what: "cannot use a temporary file".into(), source };
    let spool = tempfile::tempfile().map_err(cannot)?;
    let into = spool.try_clone().map_err(cannot)?;
    match runtime.download(id, path, into, FIRST_BYTES).await {
        // The file is larger than the limit, and the header is there.
        Ok(()) | Err(Error::TooLarge { .. }) => {}
        Err(Error::Engine { .. }) => return Ok(None),
        Err(err) => return Err(err),
    }
    Ok(Some(read(spool).map_err(|err| Error::Unreadable { verb: "download", detail: err.to_string() })?))
}

fn read(spool: File) -> std::result::Result<FirstHeader, ReadError> {
    let entry = Reader::open(spool)?.next_entry()?;
    Ok(match entry.ok_or(std::io::Error::from(std::io::ErrorKind::UnexpectedEof))? {
        TarEntry { kind: EntryKind::Directory, .. } => FirstHeader::Entry(PathKind::Dir),
        TarEntry { kind: EntryKind::Symlink(target), .. } => {
            FirstHeader::Link(String::from_utf8_lossy(&target).into_owned())
        }
        TarEntry { kind: EntryKind::File { .. } | EntryKind::HardLink(_), mode, .. } => {
            FirstHeader::Entry(PathKind::File { executable: mode & 0o111 != 0 })
        }
        _ => FirstHeader::Entry(PathKind::Other),
    })
}

/// Where a link leads. Links of directories above it are the engine's to follow, so `..` is taken by the names.
fn resolve(link: &ContainerPath, target: &str) -> Option<ContainerPath> {
    let mut parts: Vec<&str> = if target.starts_with('/') { Vec::new() } else { link.parts().collect() };
    if !target.starts_with('/') {
        parts.pop();
    }
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    ContainerPath::parse(format!("/{}", parts.join("/"))).ok()
}

#[cfg(test)]
mod tests {
    use std::io::Seek as _;

    use super::*;
    use crate::FakeRuntime;

    #[test]
    fn links_are_relative_to_their_directory_and_stay_below_the_root() {
        let at = |path: &str| ContainerPath::parse(path).unwrap();
        for (link, target, leads) in [
            ("/bin/sh", "busybox", "/bin/busybox"),
            ("/bin", "usr/bin", "/usr/bin"),
            ("/a/b/c", "../../../../etc/./x", "/etc/x"),
            ("/a", "/b//c", "/b/c"),
            ("/a", "/", "/"),
        ] {
            assert_eq!(resolve(&at(link), target), Some(at(leads)), "{link} -> {target}");
        }
        assert_eq!(resolve(&at("/a"), "b\u{7}"), None);
    }

    #[tokio::test]
    async fn a_look_follows_links_and_runs_nothing() {
        let fake = FakeRuntime::new();
        let id = fake.runs("web").await;
        let mut tar = tar::Builder::new(tempfile::tempfile().unwrap());
        for (name, target) in [("good", "bin/sh"), ("loop", "loop"), ("nowhere", "/none"), ("dir", "/etc")] {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(tar::EntryType::Symlink);
            header.set_size(0);
            tar.append_link(&mut header, name, target).unwrap();
        }
        let mut tar = tar.into_inner().unwrap();
        tar.rewind().unwrap();
        fake.upload(&id, &ContainerPath::root(), tar).await.unwrap();
        let executable = PathKind::File { executable: true };
        for (path, expected) in [
            ("/", Some(PathKind::Dir)),
            ("/etc/passwd", Some(PathKind::File { executable: false })),
            ("/bin/sh", Some(executable)),
            ("/good", Some(executable)),
            ("/dir", Some(PathKind::Dir)),
            ("/loop", Some(PathKind::Other)),
            ("/nowhere", Some(PathKind::Other)),
            ("/none", None),
            ("/etc/passwd/x", None),
        ] {
            let seen = path_kind(&fake, &id, &ContainerPath::parse(path).unwrap()).await.unwrap();
            assert_eq!(seen, expected, "{path}");
        }
        assert!(!fake.calls().contains(&crate::fake::Verb::Exec));
    }
}
