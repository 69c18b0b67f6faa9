//! Sends the guest and its files to the init container that waits for them.

use std::fs::File;
use std::io::Read as _;
use std::time::Duration;

use coracle_archive::tar::{EntryKind, Reader};
use coracle_host::drain::ProgramPipe;
use coracle_protocol::paths;
use coracle_types::{Error, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::api::AttachParams;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::time::{Instant, sleep, timeout};

use crate::cluster::Cluster;
use crate::error::is_transient;
use crate::exec::{PodProcess, refused};
use crate::names::GUEST;
use crate::pod::{DELIVERY_END, PodState, is_guest_waiting, is_starting_guest_done, main_state};
use crate::start::check_running;
use crate::wait::{PodWait, wait_for};

/// Timeout until the image is pulled and the init container runs.
const STARTUP: Duration = Duration::from_secs(300);

/// Timeout of a delivery.
const DELIVERY: Duration = Duration::from_secs(120);

/// Pauses between attempts to attach.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Size of the buffer.
const BUFFER: usize = 256 << 10;

/// A file for the directory of the guest.
struct DeliveredFile {
    name: String,
    bytes: Vec<u8>,
}

/// Whether a Pod waits for its guest, or will.
pub(crate) fn waits_for_guest(pod: &Pod) -> bool {
    let has_guest = pod.spec.iter().flat_map(|it| it.init_containers.iter().flatten()).any(|it| it.stdin == Some(true));
    let on_its_way = matches!(main_state(pod), PodState::Unscheduled(_) | PodState::Starting | PodState::Stuck { .. });
    has_guest && on_its_way && !is_starting_guest_done(pod)
}

/// Sends the files of an archive that are in the guest's directory.
///
/// # Errors
/// [`Error::GuestFailed`] if the init container does not accept them.
pub(crate) async fn deliver(cluster: &Cluster, pod: &Pod, tar: File) -> Result<()> {
    let files = tokio::task::spawn_blocking(move || read(tar)).await;
    let files = files.map_err(|err| cannot_read(err.into()))??;
    let process = attach(cluster, pod).await?;
    match timeout(DELIVERY, send(process, files)).await {
        Ok(sent) => sent,
        Err(_) => Err(Error::TimedOut { verb: "upload", after: DELIVERY }),
    }
}

/// Attaches as soon as the node allows it: its report that the container runs may be a second late.
async fn attach(cluster: &Cluster, pod: &Pod) -> Result<PodProcess> {
    let name = pod.metadata.name.clone().unwrap_or_default();
    let pods = cluster.api::<Pod>().await?;
    let params = AttachParams::default().container(GUEST).stdin(true).stdout(true).stderr(true);
    let params = params.max_stdin_buf_size(BUFFER).max_stdout_buf_size(BUFFER).max_stderr_buf_size(BUFFER);
    let (begun, mut pause) = (Instant::now(), FIRST_PAUSE);
    loop {
        let left = STARTUP.saturating_sub(begun.elapsed());
        let wait = PodWait { verb: "upload", pod: &name, uid: pod.metadata.uid.as_deref(), within: left };
        let is_running = wait_for(cluster, wait, |pod| match check_running(pod, begun.elapsed())? {
            Some(()) => Err(failed("it ended without it")),
            None if main_state(pod) == PodState::Starting => Ok(Some(is_guest_waiting(pod))),
            None => Ok(None),
        })
        .await?;
        match pods.attach(&name, &params).await {
            Ok(attached) => return Ok(PodProcess::new(attached)),
            Err(err) if is_running && !is_transient(&err) => return Err(refused(cluster, pod, "attach", err)),
            Err(err) => tracing::debug!(%err, "the init container does not run yet"),
        }
        sleep(pause).await;
        pause = (pause * 3 / 2).min(LONGEST_PAUSE);
    }
}

async fn send(mut process: PodProcess, files: Vec<DeliveredFile>) -> Result<()> {
    let (stdin, (stdout, stderr)) = (process.stdin(), process.outputs());
    let (Some(mut stdin), Some(stdout), Some(stderr)) = (stdin, stdout, stderr) else {
        return Err(failed("it has no streams"));
    };
    let complaints = tokio::spawn(collect(stderr));
    let mut names = BufReader::new(stdout).lines();
    for file in files {
        let head = format!("{} {}\n", file.bytes.len(), file.name);
        let write = async {
            stdin.write_all(head.as_bytes()).await?;
            stdin.write_all(&file.bytes).await?;
            stdin.flush().await
        };
        let taken = tokio::join!(write, names.next_line());
        if !matches!(&taken, (Ok(()), Ok(Some(name))) if *name == file.name) {
            drop(process);
            return Err(failed(&complaints.await.unwrap_or_default()));
        }
    }
    let last = format!("0 {DELIVERY_END}\n");
    let ended = async {
        stdin.write_all(last.as_bytes()).await?;
        stdin.flush().await
    };
    ended.await.map_err(|err| failed(&err.to_string()))?;
    // The input stays open until the script has read its last line, and the connection ends with it.
    let _ = names.next_line().await;
    Ok(())
}

async fn collect(pipe: ProgramPipe) -> String {
    let mut lines = BufReader::new(pipe).lines();
    let mut last = String::new();
    while let Ok(Some(line)) = lines.next_line().await {
        last = line;
    }
    last
}

fn failed(why: &str) -> Error {
    let why = if why.is_empty() { "it reported no reason" } else { why };
    Error::GuestFailed { reason: format!("the init container did not accept the guest: {why}") }
}

/// Accepts only files for volumes of the Pod, which its containers share: others would be lost.
fn read(tar: File) -> Result<Vec<DeliveredFile>> {
    let mut archive = Reader::open(tar).map_err(cannot_read)?;
    let mut files = Vec::new();
    while let Some(entry) = archive.next_entry().map_err(|err| cannot_read(err.into()))? {
        if entry.kind == EntryKind::Directory {
            continue;
        }
        let path = String::from_utf8_lossy(&entry.path);
        let Some(name) = path.strip_prefix(paths::DIR.trim_start_matches('/')).and_then(|it| it.strip_prefix('/'))
        else {
            let source = std::io::Error::other(format!("`{path}` can be copied in once the container runs"));
            return Err(Error::Host { what: "a container that was not started takes its guest alone".into(), source });
        };
        let mut bytes = Vec::new();
        archive.read_to_end(&mut bytes).map_err(cannot_read)?;
        files.push(DeliveredFile { name: name.to_owned(), bytes });
    }
    Ok(files)
}

fn cannot_read(source: std::io::Error) -> Error {
    Error::Host { what: "cannot read the archive".into(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn archive(files: &[(&str, &str)]) -> File {
        let mut builder = tar::Builder::new(tempfile::tempfile().unwrap());
        for (path, text) in files {
            let mut header = tar::Header::new_ustar();
            header.set_size(text.len() as u64);
            builder.append_data(&mut header, path, text.as_bytes()).unwrap();
        }
        builder.into_inner().unwrap()
    }

    #[test]
    fn only_files_of_the_guests_directory_are_sent_before_the_start() {
        let files = read(archive(&[(".coracle/guest", "program"), (".coracle/worker", "other")])).unwrap();
        let files: Vec<_> = files.iter().map(|it| (it.name.as_str(), it.bytes.as_slice())).collect();
        assert_eq!(files, [("guest", &b"program"[..]), ("worker", b"other")]);
        for elsewhere in ["etc/passwd", ".coracles/x"] {
            assert!(matches!(read(archive(&[(elsewhere, "x")])), Err(Error::Host { .. })), "{elsewhere}");
        }
    }
}
