//! What all commands of a container share: variables, and files that are kept nowhere.

use coracle_protocol::{self as protocol, CallReply, ErrorCode, GuestMessage, MAX_SESSION, Request, RpcError};
#[cfg(doc)]
use coracle_types::Error;
use coracle_types::{ContainerPath, Ids, Result, Secret};
use zeroize::Zeroizing;

use crate::call::{DEFAULT_TIMEOUT, Retry, answer, attempt, not_understood, refused, sendable};
use crate::channels::{Incoming, ReplyShape};
use crate::connection::ConnectionLost;
use crate::link::Link;

/// A file on the container's own tmpfs, out of reach of file calls and gone with the guest.
#[derive(Debug)]
pub struct SecretFile {
    /// Its path below `/.coracle/run`: `ssh/id_ed25519`. Directories on the way are the user's alone. Parts are letters,
    /// digits, `.`, `_` and `-`; the first is none of the guest's own: no dot before it, no `.sock` at its end, and
    /// none of `sock`, `shell` and `gitconfig`.
    pub name: String,
    /// Whose it is.
    pub user: Ids,
    /// 0400 or 0600.
    pub mode: u32,
    /// What is in it, at most 1 MiB.
    pub content: Secret,
}

impl Link {
    /// Variables that every command gets from now on, below those of its own. They replace what was set before, and are
    /// gone with the guest. Of a name that is there twice the last one counts.
    ///
    /// All together have at most 1 MiB, each with its name less than 128 KiB.
    ///
    /// # Errors
    /// [`Error::Refused`] for what no environment can hold; what was set before stays. [`Error::GuestLost`] when it is
    /// not known which of the two is.
    pub async fn set_session(&self, env: &[(String, Secret)]) -> Result<()> {
        let payload = payload(env)?;
        self.tell("set_session", &payload, |bytes| Request::Session { bytes }).await
    }

    /// Writes a file that must not be on a disk, in place of one that is there, and gives its path inside.
    ///
    /// # Errors
    /// [`Error::Refused`]: for a name or a mode that no such file has, and when a directory on the way is somebody
    /// else's.
    pub async fn put_secret(&self, file: SecretFile) -> Result<ContainerPath> {
        self.place(file, false).await
    }

    /// The same for a command to come, which has it among its [`files`](coracle_types::Exec::files) and takes it away with it.
    /// Should the connection break before that begins, the guest takes it away. It lies in no directory of its own.
    ///
    /// # Errors
    /// As for [`put_secret`](Self::put_secret).
    pub async fn lend_secret(&self, file: SecretFile) -> Result<ContainerPath> {
        self.place(file, true).await
    }

    async fn place(&self, file: SecretFile, lent: bool) -> Result<ContainerPath> {
        let SecretFile { name, user: Ids { uid, gid }, mode, content } = file;
        let invalid = |_| refused(RpcError::new(ErrorCode::Invalid, "that is no name for a secret file"));
        let path = ContainerPath::parse(format!("/.coracle/run/{name}")).map_err(invalid)?;
        let ask = |bytes| Request::Secret(protocol::PutSecret { name: name.clone(), uid, gid, mode, bytes, lent });
        self.tell("put_secret", content.reveal(), ask).await?;
        Ok(path)
    }

    /// Lets a worker in: from then on `/.coracle/run/worker.sock` takes the calls of a program of that user, which act as
    /// the agent beneath the root, and reach nothing else. Both users get a line in the image's tables, where those can
    /// be written. The same may be said again.
    ///
    /// # Errors
    /// [`Error::Refused`]: another worker was let in before, a user is root, or the root is no directory's path.
    pub async fn let_worker_in(&self, worker: Ids, agent: Ids, root: &ContainerPath) -> Result<()> {
        let numbers = |it: Ids| (it.uid, it.gid);
        let ask = protocol::OpenWorkerSocket { worker: numbers(worker), agent: numbers(agent), root: root.to_string() };
        self.tell("let_worker_in", &[], |_| Request::Worker(ask.clone())).await
    }

    /// Says something with bytes that may be more than a frame. It may be said again: it means the same then.
    pub(crate) async fn tell(&self, verb: &'static str, bytes: &[u8], ask: impl Fn(u32) -> Request) -> Result<()> {
        let count = u32::try_from(bytes.len()).ok().filter(|it| *it as usize <= MAX_SESSION);
        let too_long = || refused(RpcError::new(ErrorCode::TooLong, format!("more than {} MiB", MAX_SESSION >> 20)));
        let ask = sendable(ask(count.ok_or_else(too_long)?))?;
        let once = || self.tell_once(ask.clone(), bytes);
        match attempt(verb, DEFAULT_TIMEOUT, Retry::Once, once).await? {
            (GuestMessage::Answer(CallReply::Done), _) => Ok(()),
            (GuestMessage::Failed(fault), _) => Err(refused(fault)),
            _ => Err(not_understood()),
        }
    }

    async fn tell_once(&self, ask: Request, bytes: &[u8]) -> Result<Result<Incoming, ConnectionLost>> {
        let talk = ReplyShape::Answer { fits: |it| *it == CallReply::Done, payload: 0 };
        let mut channel = match self.connection().await?.open_with_payload(ask, bytes, talk).await {
            Ok(channel) => channel,
            Err(broken) => return Ok(Err(broken)),
        };
        Ok(answer(&mut channel).await)
    }
}

/// `NAME=value`, each ended by a NUL.
fn payload(env: &[(String, Secret)]) -> Result<Zeroizing<Vec<u8>>> {
    let room = env.iter().map(|(name, value)| name.len() + value.reveal().len() + 2).sum();
    let mut bytes = Zeroizing::new(Vec::with_capacity(room));
    for (name, value) in env {
        let value = value.reveal();
        if name.is_empty() || name.contains(['=', '\0']) || value.contains(&0) {
            let message = "a variable without a name, with `=` in its name, or with a NUL";
            return Err(refused(RpcError::new(ErrorCode::Invalid, message)));
        }
        bytes.extend_from_slice(name.as_bytes());
        bytes.push(b'=');
        bytes.extend_from_slice(value);
        bytes.push(0);
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use coracle_protocol::codec::Frame;

    use coracle_types::Error;

    use super::*;
    use crate::test_support::link;

    fn variable(name: &str, value: &[u8]) -> (String, Secret) {
        (name.into(), Secret::new(value.to_vec()))
    }

    /// A guest that says yes when it has all.
    fn listening(heard: &Arc<Mutex<Vec<Frame<Request>>>>) -> Link {
        let heard = heard.clone();
        link(move |_, mut guest| {
            let heard = heard.clone();
            async move {
                guest.greet("a run").await;
                let mut left = 0;
                while let Some(frame) = guest.asked().await {
                    if let Request::Session { bytes } | Request::Secret(protocol::PutSecret { bytes, .. }) = frame.head
                    {
                        left = bytes as usize;
                    }
                    left -= frame.payload.len();
                    let channel = frame.channel;
                    heard.lock().unwrap().push(frame);
                    if left == 0 {
                        guest.say(channel, GuestMessage::Answer(CallReply::Done), b"").await;
                    }
                }
            }
        })
    }

    #[tokio::test]
    async fn values_travel_in_payloads_and_never_in_a_header() {
        let heard = Arc::default();
        let link = listening(&heard);
        let value = vec![b'x'; 100_000];
        let env = [variable("A", b"one\n\xff"), variable("LONG", &value), variable("EMPTY", b"")];
        link.set_session(&env).await.unwrap();
        let content = Secret::new(value.clone());
        let file = SecretFile { name: "ssh/id".into(), user: Ids { uid: 7, gid: 8 }, mode: 0o400, content };
        assert_eq!(link.put_secret(file).await.unwrap().as_str(), "/.coracle/run/ssh/id");
        let frames = std::mem::take(&mut *heard.lock().unwrap());
        let session = [&b"A=one\n\xff\0LONG="[..], &value, b"\0EMPTY=\0"].concat();
        let bytes = u32::try_from(session.len()).unwrap();
        let secret =
            protocol::PutSecret { name: "ssh/id".into(), uid: 7, gid: 8, mode: 0o400, bytes: 100_000, lent: false };
        let heads: Vec<_> = frames.iter().map(|it| it.head.clone()).collect();
        assert_eq!(heads, [Request::Session { bytes }, Request::More, Request::Secret(secret), Request::More]);
        let payloads: Vec<_> = frames.chunks(2).map(|it| [&*it[0].payload, &it[1].payload].concat()).collect();
        assert!(payloads == [session, value], "payloads differ");
    }

    #[tokio::test]
    async fn what_no_environment_can_hold_is_not_sent() {
        let heard = Arc::default();
        let link = listening(&heard);
        let large = vec![b'x'; MAX_SESSION - 2];
        for (variable, code) in [
            (variable("", b"x"), ErrorCode::Invalid),
            (variable("A=B", b"x"), ErrorCode::Invalid),
            (variable("A\0", b"x"), ErrorCode::Invalid),
            (variable("A", b"x\0"), ErrorCode::Invalid),
            (variable("A", &large), ErrorCode::TooLong),
        ] {
            let refused = link.set_session(&[variable]).await;
            assert!(matches!(&refused, Err(Error::Refused(fault)) if fault.code == code), "{code:?}: {refused:?}");
        }
        assert_eq!(heard.lock().unwrap().len(), 0);
        link.set_session(&[variable("A", &large[1..])]).await.unwrap();
    }
}
