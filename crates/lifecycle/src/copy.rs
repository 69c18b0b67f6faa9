//! Files in and out, by our own tar reader and writer.
//!
//! **Invariant:** a copy runs no program of the container. The guest looks at paths by its own code, and the bytes travel by
//! the engine's archive calls or over the link.

mod destination;
mod host_file;
mod lookup;
mod meter;
mod request;
mod unfinished;
mod via_guest;

use std::fs::File;
use std::path::Path;

use coracle_archive::tar::{EntryKind, Reader};
use coracle_archive::transfer::{self, Writer};
use coracle_runtime::{ExecTarget, MountPoint, PolicyRefusal, Problem};
use coracle_types::{ContainerPath, EngineKind, Ids};

pub use self::host_file::{HostFile, HostFileRules};
use self::lookup::{Destination, GuestFiles, Lookup, Occupant, check_kind, joined};
pub use self::meter::{CopyAmount, CopyMeter};
pub use self::request::{CopyLimits, CopyReport, CopyRequest};
use self::request::{blocking, cannot_spool, pack, temporary};
pub use self::unfinished::{AbandonedCopy, abandoned_copies};
use crate::record::Record;
use crate::{Error, ManagedContainer, Result, guided_session, session};

/// Copies a file or directory of the host in, as the exec user's.
///
/// # Errors
/// [`Error::PathExists`], [`Error::Copy`] when a bound is reached.
pub async fn copy_in(found: &ManagedContainer, inside: &ExecTarget, request: CopyRequest) -> Result<CopyReport> {
    if let ExecTarget::Guest(link) = inside
        && !has_untouchable_guest(&found.record)
    {
        return Box::pin(via_guest::copy_in(link, &found.record, request)).await;
    }
    let container = found.present()?;
    let owner = match inside {
        ExecTarget::Guest(_) => guided_session(&found.record, false)?.user,
        ExecTarget::Plain(..) => session(found, false)?.user,
    };
    let look = lookup(found, inside)?;
    let name = request.host.real().file_name().and_then(|it| it.to_str()).unwrap_or("root").to_owned();
    let to = Destination { given: &request.container, name: &name, into_directory: request.into_directory };
    let (path, occupant) = look.target(to).await?;
    check_kind(&path, occupant, request.host.is_dir())?;
    check_writable(found, &path)?;
    if !request.overwrite {
        look.ensure_no_file(&path).await?;
    }
    let above = look.directory_above(&path).await?;
    let inner = path.as_str().strip_prefix(above.as_str()).unwrap_or_default().trim_start_matches('/').to_owned();
    let (host, limits, spool) = (request.host.clone(), request.limits, temporary(&request.scratch)?);
    request.meter.fills(&spool);
    let (tar, moved) = blocking(move || pack(&host, &inner, Writer::new(spool, owner, limits))).await?;
    if occupant == Some(Occupant::Dir) && !request.overwrite {
        ensure_nothing_is_replaced(look, &above, &tar).await?;
    }
    request.meter.sends(&tar);
    found.runtime.upload(&container.id, &above, tar).await?;
    Ok(CopyReport { moved, host_path: request.host.real().to_owned(), container_path: path })
}

/// Refuses a target on a read-only mount: an engine reports it as a fault of its own.
fn check_writable(found: &ManagedContainer, path: &ContainerPath) -> Result<()> {
    let holds = |mount: &&MountPoint| Path::new(path.as_str()).starts_with(&mount.target);
    let mount = found.present()?.mounts.iter().filter(holds).max_by_key(|mount| mount.target.len());
    let Some(mount) = mount.filter(|mount| !mount.writable) else { return Ok(()) };
    let is_requested = found.record.mounts.iter().any(|requested| requested.container.as_str() == mount.target);
    let (rule, setting, what) = if is_requested {
        ("copy.read_only", None, "mounted as `ro`")
    } else {
        ("files.protected", Some("workspace.protected"), "a protected path")
    };
    let message = format!("`{path}` is read-only in the container: `{}` is {what}", mount.target);
    Err(PolicyRefusal { problems: vec![Problem { rule, setting, value: path.to_string(), message }] }.into())
}

/// Whether nothing that a copy writes as root can be the guest's own program. One that was bound is read-only; one that was
/// uploaded is a file of the container, and paths inside can be exchanged while the engine unpacks. A guest that is not root
/// has no root to copy as.
fn has_untouchable_guest(record: &Record) -> bool {
    record.guest.as_ref().is_none_or(|guest| guest.socket && guest.own.is_none())
}

fn lookup<'a>(found: &'a ManagedContainer, inside: &'a ExecTarget) -> Result<Lookup<'a>> {
    Ok(match inside {
        ExecTarget::Guest(link) => Lookup::Guest(GuestFiles { link, user: Ids::ROOT }),
        ExecTarget::Plain(..) => Lookup::Engine { runtime: &*found.runtime, id: &found.present()?.id },
    })
}

async fn ensure_nothing_is_replaced(look: Lookup<'_>, above: &ContainerPath, tar: &File) -> Result<()> {
    let mut names = Vec::new();
    let mut reader = tar.try_clone().and_then(Reader::open).map_err(cannot_spool)?;
    while let Some(entry) = reader.next_entry().map_err(|err| cannot_spool(err.into()))? {
        // Coracle wrote the archive, so its names are UTF-8.
        let name = String::from_utf8_lossy(&entry.path);
        names.push((name.trim_end_matches('/').to_owned(), entry.kind == EntryKind::Directory));
    }
    let mut missing: Option<&str> = None;
    for (name, is_dir) in &names {
        // Nothing is below a directory that is not there.
        if missing.is_some_and(|dir| Path::new(name).starts_with(dir)) {
            continue;
        }
        let path = joined(above, name)?;
        match look.ensure_no_file(&path).await? {
            true if !is_dir => return check_kind(&path, Some(Occupant::Dir), false),
            true => {}
            false => missing = Some(name),
        }
    }
    Ok(())
}

/// Copies a file or directory out of the container, owned by the user.
///
/// Everything is unpacked beside its target first and moved into place at the end: what fails leaves nothing.
///
/// # Errors
/// [`Error::NoSuchPath`], [`Error::PathExists`], [`Error::Copy`] when a bound is reached.
pub async fn copy_out(found: &ManagedContainer, inside: &ExecTarget, request: CopyRequest) -> Result<CopyReport> {
    if let ExecTarget::Guest(link) = inside
        && (found.record.guest.as_ref().is_some_and(|guest| guest.own.is_some()) || has_no_archives(found))
    {
        return Box::pin(via_guest::copy_out(link, &found.record, request)).await;
    }
    let container = found.present()?;
    let spool = temporary(&request.scratch)?;
    let into = spool.try_clone().map_err(cannot_spool)?;
    request.meter.fills(&spool);
    // A tar holds a header and padding for each entry beside the bytes themselves.
    let most = request.limits.max_bytes.saturating_add(request.limits.max_entries.saturating_mul(1536));
    match found.runtime.download(&container.id, &request.container, into, most).await {
        Ok(()) => {}
        Err(failure @ coracle_types::Error::Engine { .. }) => {
            return Err(diagnose(inside, &request.container, failure).await);
        }
        Err(coracle_types::Error::TooLarge { .. }) => {
            return Err(Error::Copy(transfer::Error::TooLarge(request.limits.max_bytes)));
        }
        Err(err) => return Err(err.into()),
    }
    let path = request.container.clone();
    let (moved, host_path) = blocking(move || destination::place(spool, &request)).await?;
    Ok(CopyReport { moved, host_path, container_path: path })
}

/// A node has no archive calls: it would run the container's own `tar`.
fn has_no_archives(found: &ManagedContainer) -> bool {
    found.runtime.kind() == EngineKind::Kubernetes
}

/// The engines have one error for a missing path and all else, so the guest looks. Without one, the engine's own
/// words are all there is.
async fn diagnose(inside: &ExecTarget, path: &ContainerPath, failure: coracle_types::Error) -> Error {
    let ExecTarget::Guest(link) = inside else { return failure.into() };
    match (GuestFiles { link, user: Ids::ROOT }).seen(path, false).await {
        Ok(None) => Error::NoSuchPath(path.clone()),
        Ok(Some(_)) => failure.into(),
        Err(err) => err,
    }
}
