//! Copies an archive into a container.

use std::fs::File;
use std::io::{Seek as _, SeekFrom};
use std::time::Duration;

use coracle_host::drain::{Drain, DrainOutcome};
use coracle_types::{ContainerId, ContainerPath, ContainerStatus, Error, Excerpt, ExecLimits, Result};
use k8s_openapi::api::core::v1::Pod;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::cluster::Cluster;
use crate::exec::spawn;
use crate::find::find_pod;
use crate::guest::{deliver, waits_for_guest};
use crate::pod::status;

/// Unpacks exactly `$1` bytes in the directory `$2`, with their owners and modes. Reads all of them even if that fails:
/// a node does not report the end of a command whose input is blocked.
const UNPACK: &str = r#"cd -- "$2" || { head -c "$1" >/dev/null; exit 3; }
head -c "$1" | { tar -x -p -f -; code=$?; cat >/dev/null; exit "$code"; }"#;

/// Timeout of a copy without progress.
const SILENCE: Duration = Duration::from_secs(600);

/// Captured bytes of `tar`'s output.
const KEEP: usize = 16 << 10;

/// A Pod that waits for its guest accepts only that; a running one accepts anything, with its own `tar`.
pub(crate) async fn upload(cluster: &Cluster, id: &ContainerId, at: &ContainerPath, tar: File) -> Result<()> {
    let pod = find_pod(cluster, &id.into()).await?;
    if waits_for_guest(&pod) {
        return deliver(cluster, &pod, tar).await;
    }
    // A configured image has provided the guest.
    if status(&pod) == ContainerStatus::Created && cluster.settings.guest_image.is_some() {
        return Ok(());
    }
    unpack(cluster, &pod, at, tar).await
}

async fn unpack(cluster: &Cluster, pod: &Pod, at: &ContainerPath, mut tar: File) -> Result<()> {
    let unreadable = |source| Error::Host { what: "cannot read the archive".into(), source };
    let size = tar.seek(SeekFrom::End(0)).map_err(unreadable)?;
    tar.rewind().map_err(unreadable)?;
    let argv = ["/bin/sh", "-c", UNPACK, "coracle", &size.to_string(), at.as_str()].map(str::to_owned);
    let mut process = spawn(cluster, pod, &argv, true).await?;
    let Some(mut stdin) = process.stdin() else {
        return Err(Error::GuestFailed { reason: "the exec has no input".into() });
    };
    let mut drain = Drain::new(&mut process, KEEP, None);
    let stalled = CancellationToken::new();
    let feeder = tokio::spawn({
        let stalled = stalled.clone();
        async move {
            feed(tokio::fs::File::from_std(tar), &mut stdin, SILENCE).await;
            stalled.cancel();
            // It is closed with the process: `tar` has its number of bytes.
            std::future::pending::<()>().await;
        }
    });
    let end = drain.until_end(&mut process, &ExecLimits::default(), &stalled).await;
    let (_, stderr) = drain.finish(&mut process).await;
    feeder.abort();
    match end {
        DrainOutcome::Exited(0) => Ok(()),
        DrainOutcome::Exited(exit @ 3) => {
            let excerpt = Excerpt::from_bytes(format!("there is no directory `{at}`").as_bytes());
            Err(Error::Engine { verb: "upload", exit, excerpt })
        }
        DrainOutcome::Exited(exit) => {
            Err(Error::Engine { verb: "upload", exit, excerpt: Excerpt::from_bytes(&stderr.bytes()) })
        }
        _ => Err(Error::TimedOut { verb: "upload", after: SILENCE }),
    }
}

/// Writes an archive, and returns when the container has made no progress for `silence`: when it did not read the next
/// chunk, or did not end after the last one.
async fn feed(mut from: impl AsyncRead + Unpin, to: &mut (impl AsyncWrite + Unpin), silence: Duration) {
    let mut piece = vec![0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut piece).await {
        match timeout(silence, to.write_all(&piece[..count])).await {
            Ok(Ok(())) => {}
            // The command ended and reports why.
            Ok(Err(_)) => break,
            Err(_) => return,
        }
    }
    let _ = timeout(silence, to.flush()).await;
    tokio::time::sleep(silence).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_upload_fails_only_without_progress() {
        let silence = Duration::from_secs(600);
        let archive = vec![b'x'; 200 << 10];
        let (mut to, mut from) = tokio::io::duplex(1 << 10);
        let begun = tokio::time::Instant::now();
        let container = async {
            let mut piece = vec![0; 10 << 10];
            // Slow, and longer in total than the limit.
            for _ in 0..20 {
                tokio::time::sleep(silence / 10).await;
                from.read_exact(&mut piece).await.unwrap();
            }
            tokio::time::Instant::now()
        };
        let ((), last) = tokio::join!(feed(&archive[..], &mut to, silence), container);
        assert!(last - begun >= 2 * silence);
        assert_eq!(last.elapsed(), silence);
    }
}
