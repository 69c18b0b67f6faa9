//! Copies a path out of a container, as an archive.

use std::fs::File;
use std::time::Duration;

use coracle_host::drain::ProgramPipe;
use coracle_types::{ContainerId, ContainerPath, Error, Excerpt, Result};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use crate::cluster::Cluster;
use crate::exec::spawn;
use crate::find::find_pod;

/// Packs the entry `$2` of the directory `$1`.
const PACK: &str = r#"cd -- "$1" && exec tar -c -f - -- "$2""#;

/// The prefix for a name that begins with `-`, since not every `tar` supports `--`.
const CURRENT: &str = "./";

/// Timeout without any data.
const SILENCE: Duration = Duration::from_secs(120);

const MAX_STDERR: u64 = 16 << 10;

pub(crate) async fn download(
    cluster: &Cluster,
    id: &ContainerId,
    path: &ContainerPath,
    into: File,
    max_bytes: u64,
) -> Result<()> {
    let pod = find_pod(cluster, &id.into()).await?;
    let (above, name) = split(path);
    let argv = ["/bin/sh", "-c", PACK, "coracle", above, &name].map(str::to_owned);
    let mut process = spawn(cluster, &pod, &argv, false).await?;
    let (Some(stdout), Some(stderr)) = process.outputs() else {
        return Err(Error::GuestFailed { reason: "the exec has no outputs".into() });
    };
    let complaints = tokio::spawn(complaints(stderr));
    store(stdout, into, max_bytes).await?;
    match process.exit().await {
        Some(0) => Ok(()),
        exit => {
            let excerpt = Excerpt::from_bytes(complaints.await.unwrap_or_default().as_bytes());
            Err(Error::Engine { verb: "download", exit: exit.unwrap_or(-1), excerpt })
        }
    }
}

/// Splits a path into its parent and its name. The root has the root as its parent.
fn split(path: &ContainerPath) -> (&str, String) {
    let (above, name) = path.as_str().rsplit_once('/').unwrap_or(("", path.as_str()));
    let above = if above.is_empty() { "/" } else { above };
    match name {
        "" => (above, ".".to_owned()),
        name if name.starts_with('-') => (above, format!("{CURRENT}{name}")),
        name => (above, name.to_owned()),
    }
}

async fn store(mut from: ProgramPipe, into: File, max_bytes: u64) -> Result<()> {
    let cannot_write = |source| Error::Host { what: "cannot write the archive".into(), source };
    let mut into = tokio::fs::File::from_std(into);
    let (mut buffer, mut total) = (vec![0; 64 << 10], 0_u64);
    loop {
        let read = timeout(SILENCE, from.read(&mut buffer)).await;
        let read = read.map_err(|_| Error::TimedOut { verb: "download", after: SILENCE })?;
        let count = read.map_err(|err| Error::Unreadable { verb: "download", detail: err.to_string() })?;
        if count == 0 {
            return into.flush().await.map_err(cannot_write);
        }
        let fits = usize::try_from(max_bytes - total).map_or(count, |left| left.min(count));
        into.write_all(&buffer[..fits]).await.map_err(cannot_write)?;
        total += fits as u64;
        if fits < count {
            into.flush().await.map_err(cannot_write)?;
            return Err(Error::TooLarge { max_bytes });
        }
    }
}

async fn complaints(pipe: ProgramPipe) -> String {
    let mut text = Vec::new();
    let mut pipe = pipe;
    let _ = (&mut pipe).take(MAX_STDERR).read_to_end(&mut text).await;
    let _ = tokio::io::copy(&mut pipe, &mut tokio::io::sink()).await;
    String::from_utf8_lossy(&text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_its_directory_and_a_name_that_is_no_option() {
        let parts = |it: &str| {
            let path = ContainerPath::parse(it).unwrap();
            let (above, name) = split(&path);
            format!("{above} {name}")
        };
        assert_eq!(parts("/a/b"), "/a b");
        assert_eq!(parts("/a"), "/ a");
        assert_eq!(parts("/"), "/ .");
        assert_eq!(parts("/a/-n"), "/a ./-n");
    }
}
