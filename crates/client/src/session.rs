//! What all commands of a container share: variables, and files that are kept nowhere.

use coracle_protocol::body::Bytes;
use coracle_protocol::{self as protocol, ErrorCode, MAX_SESSION, RpcError};
#[cfg(doc)]
use coracle_types::Error;
use coracle_types::{ContainerPath, Ids, Result, Secret};
use zeroize::Zeroize as _;

use crate::call::{refused, too_long};
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
        let mut call = protocol::SetSession { variables: variables(env)? };
        let set = self.call(&call).await;
        call.variables.iter_mut().for_each(|it| it.0.zeroize());
        set
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
    pub async fn put_command_secret(&self, file: SecretFile) -> Result<ContainerPath> {
        self.place(file, true).await
    }

    async fn place(&self, file: SecretFile, lent: bool) -> Result<ContainerPath> {
        let SecretFile { name, user: Ids { uid, gid }, mode, content } = file;
        let invalid = |_| refused(RpcError::new(ErrorCode::Invalid, "that is no name for a secret file"));
        let path = ContainerPath::parse(format!("/.coracle/run/{name}")).map_err(invalid)?;
        if content.len() > MAX_SESSION {
            return Err(too_long(format!("more than {} MiB", MAX_SESSION >> 20)));
        }
        let mut call = protocol::PutSecret { name, uid, gid, mode, content: Bytes::from(content.reveal()), lent };
        let put = self.call(&call).await;
        call.content.0.zeroize();
        put.map(|()| path)
    }

    /// Lets a worker in: from then on `/.coracle/run/worker.sock` takes the calls of a program of that user, which act as
    /// the agent beneath the root, and reach nothing else. Both users get a line in the image's tables, where those can
    /// be written. The same may be said again.
    ///
    /// # Errors
    /// [`Error::Refused`]: another worker was let in before, a user is root, or the root is no directory's path.
    pub async fn open_worker_socket(&self, worker: Ids, agent: Ids, root: &ContainerPath) -> Result<()> {
        let numbers = |it: Ids| (it.uid, it.gid);
        let (worker, agent) = (numbers(worker), numbers(agent));
        self.call(&protocol::OpenWorkerSocket { worker, agent, root: root.to_string() }).await
    }
}

/// `NAME=value` each.
fn variables(env: &[(String, Secret)]) -> Result<Vec<Bytes>> {
    let bytes = env.iter().map(|(name, value)| name.len() + value.len() + 2).sum::<usize>();
    if bytes > MAX_SESSION {
        return Err(too_long(format!("more than {} MiB", MAX_SESSION >> 20)));
    }
    let is_invalid =
        |(name, value): &(String, Secret)| name.is_empty() || name.contains(['=', '\0']) || value.reveal().contains(&0);
    if env.iter().any(is_invalid) {
        let message = "a variable without a name, with `=` in its name, or with a NUL";
        return Err(refused(RpcError::new(ErrorCode::Invalid, message)));
    }
    Ok(env.iter().map(|(name, value)| [name.as_bytes(), b"=", value.reveal()].concat().into()).collect())
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use coracle_protocol::call::Call as _;
    use coracle_types::Error;

    use super::*;
    use crate::test_support::{Asked, link};

    fn variable(name: &str, value: &[u8]) -> (String, Secret) {
        (name.into(), Secret::new(value.to_vec()))
    }

    /// A guest that says yes when it has all.
    fn listening(heard: &Arc<Mutex<Vec<Asked>>>) -> Link {
        let heard = heard.clone();
        link(move |_, mut guest| {
            let heard = heard.clone();
            async move {
                guest.greet("a run").await;
                while let Some(asked) = guest.request().await {
                    let channel = asked.channel;
                    heard.lock().unwrap().push(asked);
                    guest.reply(channel, &()).await;
                }
            }
        })
    }

    #[tokio::test]
    async fn variables_and_files_of_any_bytes_and_length_travel_whole() {
        let heard = Arc::default();
        let link = listening(&heard);
        let value = vec![b'x'; 100_000];
        let env = [variable("A", b"one\n\xff"), variable("LONG", &value), variable("EMPTY", b"")];
        link.set_session(&env).await.unwrap();
        let content = Secret::new(value.clone());
        let file = SecretFile { name: "ssh/id".into(), user: Ids { uid: 7, gid: 8 }, mode: 0o400, content };
        assert_eq!(link.put_secret(file).await.unwrap().as_str(), "/.coracle/run/ssh/id");
        let heard = std::mem::take(&mut *heard.lock().unwrap());
        assert_eq!(
            heard.iter().map(|it| it.call.as_str()).collect::<Vec<_>>(),
            [protocol::SetSession::NAME, protocol::PutSecret::NAME]
        );
        let session: protocol::SetSession = heard[0].decode();
        let long = [b"LONG=", &value[..]].concat();
        assert_eq!(session.variables, [Bytes::from(*b"A=one\n\xff"), long.into(), Bytes::from(*b"EMPTY=")]);
        let secret: protocol::PutSecret = heard[1].decode();
        let expected = protocol::PutSecret {
            name: "ssh/id".into(),
            uid: 7,
            gid: 8,
            mode: 0o400,
            content: value.into(),
            lent: false,
        };
        assert_eq!(secret, expected);
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
