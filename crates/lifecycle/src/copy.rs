//! Files in and out, by our own tar reader and writer (containers.md 11.1 to 11.4).

mod destination;
mod host_file;
mod meter;
mod request;
mod via_guest;

use std::fs::File;

use coracle_runtime::archive::{self, Writer};
use coracle_runtime::{Command, ContainerPath, Exec, Exit, Ids, Input};

pub use self::host_file::HostFile;
pub use self::meter::{CopyAmount, CopyMeter};
pub use self::request::{CopyLimits, CopyReport, CopyRequest};
use self::request::{blocking, cannot_spool, pack, temporary};
pub use self::via_guest::{copy_in_by, copy_out_by};
use crate::{Error, ManagedContainer, Result, session};

/// Says what stands at a target. `$1` is the path, `$2` the source's name, `$3` is 1 when the path is a directory.
/// Answers what stands at the final path, the deepest directory above it, and the final path. It runs at the root and
/// names everything from there, so that it serves a root that is a directory of something else.
const LOOK: &str = r#"target=$1 name=$2 final=$1
if [ -d ".$target" ] || [ "$3" = 1 ]; then final=${target%/}/$name; fi
if [ -d ".$final" ]; then echo dir; elif [ -e ".$final" ] || [ -L ".$final" ]; then echo file; else echo none; fi
above=${final%/*}
while [ -n "$above" ] && [ ! -d ".$above" ]; do above=${above%/*}; done
printf '%s\n' "${above:-/}" "$final""#;

/// Prints the first path of its input that exists.
const FIRST_EXISTING: &str = r#"while IFS= read -r path; do
  if [ ! -d ".$path" ] && { [ -e ".$path" ] || [ -L ".$path" ]; }; then printf '%s\n' "$path"; exit; fi
done"#;

/// What stands at the target inside.
struct CopyTarget {
    kind: String,
    above: ContainerPath,
    path: ContainerPath,
}

/// Copies a file or directory of the host in, as the exec user's.
///
/// # Errors
/// [`Error::PathExists`], [`Error::Copy`] when a bound is reached.
pub async fn copy_in(found: &ManagedContainer, request: CopyRequest) -> Result<CopyReport> {
    let container = found.present()?;
    let owner = session(found, false)?.user;
    let name = request.host.real().file_name().and_then(|it| it.to_str()).unwrap_or("root").to_owned();
    let target = inspect_target(found, &request, &name).await?;
    let clash = if request.host.is_dir() { "file" } else { "dir" };
    if target.kind == clash || (target.kind == "file" && !request.overwrite) {
        return Err(Error::PathExists { path: target.path.to_string(), side: "in the container" });
    }
    let inside = target.path.as_str().strip_prefix(target.above.as_str()).unwrap_or_default();
    let inside = inside.trim_start_matches('/').to_owned();
    let (host, limits, spool) = (request.host.clone(), request.limits, temporary(&request.scratch)?);
    request.meter.fills(&spool);
    let (tar, moved) = blocking(move || pack(&host, &inside, Writer::new(spool, owner, limits))).await?;
    if target.kind == "dir" && !request.overwrite {
        nothing_exists(found, &target, &tar).await?;
    }
    request.meter.sends(&tar);
    found.runtime.upload(&container.id, &target.above, tar).await?;
    Ok(CopyReport { moved, host_path: request.host.real().to_owned(), container_path: target.path })
}

async fn inspect_target(found: &ManagedContainer, request: &CopyRequest, name: &str) -> Result<CopyTarget> {
    let into = if request.into_directory { "1" } else { "0" };
    let answer = run_script(found, LOOK, &[request.container.as_str(), name, into], None).await?;
    let mut lines = answer.lines();
    let mut next = || lines.next().unwrap_or_default().to_owned();
    let (kind, above, path) = (next(), next(), next());
    let read = |text: String| {
        let unreadable = |err| coracle_runtime::Error::Unreadable { verb: "copy", detail: format!("{err}") };
        ContainerPath::parse(text).map_err(unreadable)
    };
    Ok(CopyTarget { kind, above: read(above)?, path: read(path)? })
}

/// Runs a constant program as root inside and gives what it printed.
async fn run_script(
    found: &ManagedContainer,
    program: &str,
    arguments: &[&str],
    stdin: Option<Vec<u8>>,
) -> Result<String> {
    let argv = ["/bin/sh", "-c", program, "coracle"].iter().chain(arguments).map(|it| (*it).to_owned()).collect();
    let mut exec = Exec::new(Command::Argv(argv), Ids::ROOT, ContainerPath::root());
    exec.stdin = stdin.map(Input::Bytes);
    exec.keep_bytes = 64 << 10;
    exec.limits.total = Some(std::time::Duration::from_secs(30));
    let output = found.runtime.exec(&found.present()?.id, exec).await?;
    match output.exit {
        Exit::Code(127) => return Err(coracle_runtime::Error::NoShell.into()),
        Exit::Code(_) => {}
        Exit::TimedOut(_) | Exit::Cancelled | Exit::Running(_) => {
            let after = std::time::Duration::from_secs(30);
            return Err(coracle_runtime::Error::TimedOut { verb: "copy", after }.into());
        }
    }
    Ok(output.stdout.text())
}

async fn nothing_exists(found: &ManagedContainer, target: &CopyTarget, tar: &File) -> Result<()> {
    use std::io::Seek;
    let again = |source| coracle_runtime::Error::Host { what: "cannot read the archive".into(), source };
    let mut tar = tar.try_clone().map_err(again)?;
    let mut paths = String::new();
    let mut archive = tar::Archive::new(&tar);
    for entry in archive.entries().map_err(again)?.flatten() {
        if let Some(path) = entry.path().ok().as_deref().and_then(std::path::Path::to_str) {
            paths.push_str(&format!("{}/{path}\n", target.above.as_str().trim_end_matches('/')));
        }
    }
    tar.rewind().map_err(again)?;
    let first = run_script(found, FIRST_EXISTING, &[], Some(paths.into_bytes())).await?;
    match first.lines().next() {
        Some(path) => Err(Error::PathExists { path: path.to_owned(), side: "in the container" }),
        None => Ok(()),
    }
}

/// Copies a file or directory of the container out, as the person's.
///
/// Everything is unpacked beside its target first and moved into place at the end: what fails leaves nothing.
///
/// # Errors
/// [`Error::NoSuchPath`], [`Error::PathExists`], [`Error::Copy`] when a bound is reached.
pub async fn copy_out(found: &ManagedContainer, request: CopyRequest) -> Result<CopyReport> {
    let container = found.present()?;
    let spool = temporary(&request.scratch)?;
    let into = spool.try_clone().map_err(cannot_spool)?;
    request.meter.fills(&spool);
    // A tar holds a header and padding for each entry beside the bytes themselves.
    let most = request.limits.max_bytes.saturating_add(request.limits.max_entries.saturating_mul(1536));
    match found.runtime.download(&container.id, &request.container, into, most).await {
        Ok(()) => {}
        Err(failure @ coracle_runtime::Error::Engine { .. }) => {
            return Err(diagnose(found, &request.container, failure).await);
        }
        Err(coracle_runtime::Error::TooLarge { .. }) => {
            return Err(Error::Copy(archive::Error::TooLarge(request.limits.max_bytes)));
        }
        Err(err) => return Err(err.into()),
    }
    let path = request.container.clone();
    let (moved, host_path) = blocking(move || destination::place(spool, &request)).await?;
    Ok(CopyReport { moved, host_path, container_path: path })
}

/// The engines fail alike for a path that is missing and for all else, so the container is asked.
async fn diagnose(found: &ManagedContainer, path: &ContainerPath, failure: coracle_runtime::Error) -> Error {
    const EXISTS: &str = r#"if [ -e ".$1" ] || [ -L ".$1" ]; then echo yes; else echo no; fi"#;
    match run_script(found, EXISTS, &[path.as_str()], None).await {
        Ok(answer) if answer.trim() == "no" => Error::NoSuchPath(path.clone()),
        Ok(_) => failure.into(),
        Err(err) => err,
    }
}
