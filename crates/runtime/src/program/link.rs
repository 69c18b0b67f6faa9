//! The way to the guest of a container: its socket, or a program that the engine runs inside.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use tokio::io::AsyncReadExt;
use tokio::process::{Child, ChildStderr};

use super::RunsCommands;
use crate::host::process::{self, Stdin};
use crate::link::{Dial, GuestStream, Link, LinkSettings, Mounts, SocketAt, Transport, by_socket};
use crate::{ContainerId, ContainerMounts, Error, Excerpt, ProcessId, Result, ended};
use coracle_protocol::SOCKET_GONE;

/// Limit of error output that is read, in bytes; its end is reported.
const MAX_STDERR: usize = 64 << 10;

pub(crate) fn link<R: RunsCommands>(
    runtime: &R,
    id: &ContainerId,
    socket: Option<&SocketAt>,
    settings: LinkSettings,
) -> Link {
    // A socket on another host is no socket here.
    let socket = socket.filter(|_| runtime.shares_sockets()).cloned().map(Mutex::new);
    let mounts = ContainerMounts { runtime: runtime.clone(), id: id.clone() };
    Link::new(Arc::new(EngineDial { mounts, socket }), settings)
}

#[derive(Debug)]
struct EngineDial<R> {
    /// The container, and its engine.
    mounts: ContainerMounts<R>,
    /// PID 1 is updated when the engine reports another one.
    socket: Option<Mutex<SocketAt>>,
}

#[async_trait]
impl<R: RunsCommands> Dial for EngineDial<R> {
    async fn dial(&self) -> Result<GuestStream> {
        match self.by_socket().await? {
            Some(dialled) => Ok(dialled),
            None => self.by_stream(),
        }
    }

    async fn diagnose(&self, failure: Error) -> Error {
        if let Some(err) = ended(&self.mounts.runtime, &self.mounts.id).await {
            return err;
        }
        match failure {
            Error::GuestFailed { reason } if self.lost_its_socket() || reason.contains(SOCKET_GONE) => {
                Error::FilesRemoved { missing: "the socket of the guest is gone".into() }
            }
            failure => failure,
        }
    }

    fn mounts(&self) -> Option<&dyn Mounts> {
        Some(&self.mounts)
    }
}

impl<R: RunsCommands> EngineDial<R> {
    /// `None` if the peer is not the container's PID 1 according to the engine.
    async fn by_socket(&self) -> Result<Option<GuestStream>> {
        let Some(socket) = &self.socket else { return Ok(None) };
        let at = socket.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some((stream, peer)) = at.connect().await else { return Ok(None) };
        if at.pid1.as_ref() != Some(&peer) {
            let container = self.mounts.runtime.inspect(&(&self.mounts.id).into()).await?;
            if container.pid.and_then(ProcessId::from_pid).as_ref() != Some(&peer) {
                tracing::warn!(
                    id = self.mounts.id.short(),
                    pid = peer.pid,
                    "another process answers at the guest's socket"
                );
                return Ok(None);
            }
            socket.lock().unwrap_or_else(PoisonError::into_inner).pid1 = Some(peer.clone());
        }
        Ok(Some(by_socket(stream, peer)))
    }

    /// Whether the guest answered at its socket before, and the directory has none now.
    fn lost_its_socket(&self) -> bool {
        let Some(socket) = &self.socket else { return false };
        let at = socket.lock().unwrap_or_else(PoisonError::into_inner).clone();
        at.pid1.is_some() && at.is_empty()
    }

    fn by_stream(&self) -> Result<GuestStream> {
        let words = self.mounts.runtime.connect_words(&self.mounts.id);
        let mut child = process::spawn(&self.mounts.runtime.program().invocation(words), Stdin::Open)?;
        let (Some(reader), Some(writer)) = (child.stdout.take(), child.stdin.take()) else {
            return Err(Error::GuestFailed { reason: "the engine's program has no pipes".into() });
        };
        let error_output = child.stderr.take().map(|it| tokio::spawn(complaints(it)));
        Ok(GuestStream {
            error_output,
            hold: Box::new(ChildGuard(child)),
            ..GuestStream::plain(reader, writer, Transport::Stream)
        })
    }
}

/// Killed when it is dropped. It holds nothing that it should put away first.
struct ChildGuard(#[expect(dead_code, reason = "it is held for its drop")] Child);

/// Reads all error output, so that the program never blocks on it, and keeps the end.
async fn complaints(mut pipe: ChildStderr) -> String {
    let (mut kept, mut buffer) = (crate::Capture::new(MAX_STDERR), vec![0; 4 << 10]);
    while let Ok(count @ 1..) = pipe.read(&mut buffer).await {
        kept.push(&buffer[..count]);
    }
    Excerpt::from_bytes(&kept.bytes()).to_string()
}

#[cfg(test)]
mod tests {
    use crate::cli::scripted::docker as engine;
    use std::time::Duration;

    use coracle_protocol::VERSION;

    use super::*;
    use crate::ContainerRuntime as _;

    fn id() -> ContainerId {
        ContainerId::parse("a".repeat(64)).unwrap()
    }

    #[tokio::test]
    async fn a_program_that_ends_at_once_is_a_guest_that_failed_for_its_reason() {
        let (engine, _temp) = engine("case \"$*\" in *exec*) echo 'no such file' >&2; exit 126;; esac; exit 1");
        let failed = engine.link(&id(), None, LinkSettings::default()).await.unwrap().open().await;
        assert!(
            matches!(&failed, Err(Error::GuestFailed { reason }) if reason.ends_with("no such file")),
            "{failed:?}"
        );
    }

    #[tokio::test]
    async fn a_container_that_is_gone_is_told_from_a_guest_that_failed() {
        let (engine, _temp) = engine("case \"$*\" in *\" ps \"*) exit 0;; esac; exit 1");
        let failed = engine.link(&id(), None, LinkSettings::default()).await.unwrap().open().await;
        assert!(matches!(&failed, Err(Error::NoSuchContainer(_))), "{failed:?}");
    }

    #[tokio::test]
    async fn a_guest_whose_socket_was_removed_is_told_from_one_that_failed() {
        let gone = |failed: Result<()>| matches!(failed, Err(Error::FilesRemoved { .. }));
        let inspected = r#"[{"Id":"IDIDID","Name":"/c","State":{"Status":"running","Running":true,"Pid":1}}]"#;
        let script = |said: &str| {
            let inspected = inspected.replace("IDIDID", id().as_str());
            format!("case \"$*\" in *exec*) {said}; exit 1;; *inspect*) echo '{inspected}'; exit 0;; esac; exit 1")
        };
        let dir = tempfile::tempdir().unwrap();
        let at = |pid1| SocketAt { dir: dir.path().to_owned(), pid1 };
        // By its own program inside.
        let (engine, _temp) = engine(&script(&format!("echo 'coracle-guest: {SOCKET_GONE}' >&2")));
        assert!(gone(engine.link(&id(), None, LinkSettings::default()).await.unwrap().open().await));
        // Where nothing runs inside any more, by the directory that both sides share.
        let (engine, _temp) = crate::cli::scripted::docker(&script("echo 'OCI runtime exec failed: no /dev/null'"));
        let seen = at(Some(ProcessId::current()));
        assert!(gone(engine.link(&id(), Some(&seen), LinkSettings::default()).await.unwrap().open().await));
        // One that never answered did not lose anything.
        let failed = engine.link(&id(), Some(&at(None)), LinkSettings::default()).await.unwrap().open().await;
        assert!(matches!(&failed, Err(Error::GuestFailed { .. })), "{failed:?}");
    }

    #[tokio::test]
    async fn a_program_in_between_is_killed_with_its_link() {
        let hello = format!(r#"{{"hello":{{"version":{VERSION},"nonce":"'$nonce'","run":"r"}}}}"#);
        // Reads a prelude and a header of the length that ours has, and gives the nonce back.
        let script = format!(
            "head -c 12 >/dev/null; echo $$ >\"$TMPDIR/pid\"\n\
             nonce=$(head -c 70 | grep -o '[0-9a-f]\\{{32\\}}')\n\
             said='{hello}'\n\
             octal=$(printf %o ${{#said}}); printf \"\\\\000\\\\000\\\\000\\\\$octal\\\\000\\\\000\\\\000\\\\$octal\\\\000\\\\000\\\\000\\\\000\"\n\
             printf %s \"$said\"; exec sleep 600"
        );
        let (engine, temp) = engine(&script);
        let link = engine.link(&id(), None, LinkSettings::default()).await.unwrap();
        link.open().await.unwrap();
        assert_eq!(link.transport(), Some(Transport::Stream));
        let pid = std::fs::read_to_string(temp.path().join("pid")).unwrap().trim().parse().unwrap();
        let process = ProcessId::from_pid(pid).unwrap();
        drop(link);
        while process.alive() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}
