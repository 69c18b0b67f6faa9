//! What all commands of a container share: environment variables, and secret files that are on no disk.

use coracle_protocol::body::Bytes;
use coracle_protocol::{self as protocol, ErrorCode, MAX_SESSION, RpcError};
#[cfg(doc)]
use coracle_types::Error;
use coracle_types::{ContainerPath, Ids, Result, Secret};
use zeroize::Zeroize as _;

use crate::call::{refused, too_long};
use crate::link::Link;

/// A file on the container's own tmpfs, not accessible to file calls and removed with the guest.
#[derive(Debug)]
pub struct SecretFile {
    /// Its path below `/.coracle/run`: `ssh/id_ed25519`. Its directories are accessible only to the user. Parts consist of
    /// letters, digits, `.`, `_` and `-`; the first one is not reserved for the guest: it does not begin with a dot or end
    /// with `.sock`, and is none of `sock`, `shell` and `gitconfig`.
    pub name: String,
    /// Its owner.
    pub user: Ids,
    /// 0400 or 0600.
    pub mode: u32,
    /// Its content, at most 1 MiB.
    pub content: Secret,
}

impl Link {
    /// Sets environment variables that every command gets from now on, unless it overrides them. They replace those set before,
    /// and are lost when the guest ends. If a name occurs twice, the last one counts.
    ///
    /// The limit is 1 MiB in total, and 128 KiB for each with its name.
    ///
    /// # Errors
    /// [`Error::Refused`] for invalid variables; then the previous ones remain. [`Error::GuestLost`] if it is unknown which
    /// ones are set.
    pub async fn set_session(&self, env: &[(String, Secret)]) -> Result<()> {
        let mut call = protocol::SetSession { variables: variables(env)? };
        let set = self.call(&call).await;
        call.variables.iter_mut().for_each(|it| it.0.zeroize());
        set
    }

    /// Writes a file that must not be on a disk, replacing an existing one, and returns its path inside.
    ///
    /// # Errors
    /// [`Error::Refused`]: for an invalid name or mode, and if a directory on the path belongs to another user.
    pub async fn put_secret(&self, file: SecretFile) -> Result<ContainerPath> {
        self.write_secret(file, false).await
    }

    /// As [`put_secret`](Self::put_secret) for a future command, which lists it in its [`files`](coracle_types::Exec::files);
    /// the file is removed with the command. If the connection breaks before the command starts, the guest removes it. It
    /// must not be in a subdirectory.
    ///
    /// # Errors
    /// As for [`put_secret`](Self::put_secret).
    pub async fn put_command_secret(&self, file: SecretFile) -> Result<ContainerPath> {
        self.write_secret(file, true).await
    }

    async fn write_secret(&self, file: SecretFile, lent: bool) -> Result<ContainerPath> {
        let SecretFile { name, user: Ids { uid, gid }, mode, content } = file;
        let invalid = |_| refused(RpcError::new(ErrorCode::Invalid, "invalid name for a secret file"));
        let path = ContainerPath::parse(format!("/.coracle/run/{name}")).map_err(invalid)?;
        if content.len() > MAX_SESSION {
            return Err(too_long(format!("the secret exceeds {} MiB", MAX_SESSION >> 20)));
        }
        let mut call = protocol::PutSecret { name, uid, gid, mode, content: Bytes::from(content.reveal()), lent };
        let put = self.call(&call).await;
        call.content.0.zeroize();
        put.map(|()| path)
    }

    /// Grants access to a worker: from then on `/.coracle/run/worker.sock` accepts calls of a program of that user, which run
    /// as the agent beneath the root, and can access nothing else. Both users are added to the image's tables, if those are
    /// writable. Repeating the call changes nothing.
    ///
    /// # Errors
    /// [`Error::Refused`]: another worker has access already, a user is root, or the root is not a path of a directory.
    pub async fn open_worker_socket(&self, worker: Ids, agent: Ids, root: &ContainerPath) -> Result<()> {
        let channel_permits = |ids: Ids| (ids.uid, ids.gid);
        let (worker, agent) = (channel_permits(worker), channel_permits(agent));
        self.call(&protocol::OpenWorkerSocket { worker, agent, root: root.to_string() }).await
    }
}

/// `NAME=value` each.
fn variables(env: &[(String, Secret)]) -> Result<Vec<Bytes>> {
    let bytes = env.iter().map(|(name, value)| name.len() + value.len() + 2).sum::<usize>();
    if bytes > MAX_SESSION {
        return Err(too_long(format!("the variables exceed {} MiB", MAX_SESSION >> 20)));
    }
    let is_invalid =
        |(name, value): &(String, Secret)| name.is_empty() || name.contains(['=', '\0']) || value.reveal().contains(&0);
    if env.iter().any(is_invalid) {
        let message = "an environment variable has an empty or invalid name, or contains a NUL";
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
    use crate::test_support::{ReceivedCall, link};

    fn variable(name: &str, value: &[u8]) -> (String, Secret) {
        (name.into(), Secret::new(value.to_vec()))
    }

    /// A guest that records every call and replies to it.
    fn recording_guest(received: &Arc<Mutex<Vec<ReceivedCall>>>) -> Link {
        let received = received.clone();
        link(move |_, mut guest| {
            let received = received.clone();
            async move {
                guest.greet("a run").await;
                while let Some(call) = guest.request().await {
                    let channel = call.channel;
                    received.lock().unwrap().push(call);
                    guest.reply(channel, &()).await;
                }
            }
        })
    }

    #[tokio::test]
    async fn variables_and_files_of_any_bytes_and_length_are_sent_completely() {
        let received = Arc::default();
        let link = recording_guest(&received);
        let value = vec![b'x'; 100_000];
        let env = [variable("A", b"one\n\xff"), variable("LONG", &value), variable("EMPTY", b"")];
        link.set_session(&env).await.unwrap();
        let content = Secret::new(value.clone());
        let file = SecretFile { name: "ssh/id".into(), user: Ids { uid: 7, gid: 8 }, mode: 0o400, content };
        assert_eq!(link.put_secret(file).await.unwrap().as_str(), "/.coracle/run/ssh/id");
        let received = std::mem::take(&mut *received.lock().unwrap());
        assert_eq!(
            received.iter().map(|it| it.call.as_str()).collect::<Vec<_>>(),
            [protocol::SetSession::NAME, protocol::PutSecret::NAME]
        );
        let session: protocol::SetSession = received[0].decode();
        let long = [b"LONG=", &value[..]].concat();
        assert_eq!(session.variables, [Bytes::from(*b"A=one\n\xff"), long.into(), Bytes::from(*b"EMPTY=")]);
        let secret: protocol::PutSecret = received[1].decode();
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
    async fn invalid_variables_are_not_sent() {
        let received = Arc::default();
        let link = recording_guest(&received);
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
        assert_eq!(received.lock().unwrap().len(), 0);
        link.set_session(&[variable("A", &large[1..])]).await.unwrap();
    }
}
