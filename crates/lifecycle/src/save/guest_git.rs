//! Git in a container, over the link to its guest.
//!
//! A repository there is untrusted, and so may git itself be: it runs as a user who could start it at any time. Settings of
//! the repository that would start programs are overruled, and what git prints is data.

use coracle_client::Link;
use coracle_host::hardened as git;
use coracle_host::hardened::Side;
use coracle_types::{Command, ContainerPath, Exec, ExecOutput, Ids, Result, Stream};
use tokio::sync::mpsc;

/// Where git runs, and on which repository.
#[derive(Clone, Debug)]
pub struct GitPlace {
    /// Runs it.
    pub user: Ids,
    /// Its working directory.
    pub workdir: ContainerPath,
    /// Options that name the repository and the work tree, so that git looks for none elsewhere.
    pub options: Vec<String>,
}

impl GitPlace {
    /// A command of git.
    #[must_use]
    pub fn exec(self, args: &[&str]) -> Exec {
        let own = |it: &str| it.to_owned();
        let settings = git::settings(Side::Inside).flat_map(|it| ["-c", it]).map(own);
        let fixed = ["git", "--no-pager"].into_iter().map(own).chain(self.options);
        let argv = fixed.chain(settings).chain(args.iter().copied().map(own)).collect();
        let mut exec = Exec::new(Command::Argv(argv), self.user, self.workdir);
        exec.env = git::environment(Side::Inside).map(|(name, value)| (own(name), own(value))).collect();
        exec
    }
}

/// Takes what a command prints.
pub trait OutputReceiver: Send {
    /// Why it takes no more.
    type Error: Send;

    /// The next bytes.
    ///
    /// # Errors
    /// If it takes no more.
    fn receive(&mut self, bytes: &[u8]) -> impl Future<Output = Result<(), Self::Error>> + Send;
}

/// Runs a command, and passes on its standard output as it arrives. A receiver that fails ends the command.
///
/// # Errors
/// That of the receiver; `missing` if a part of the output is lost.
pub async fn stream_stdout<R: OutputReceiver>(
    link: &Link,
    mut exec: Exec,
    receiver: &mut R,
    missing: R::Error,
) -> Result<Result<ExecOutput>, R::Error> {
    let (live, mut chunks) = mpsc::channel(8);
    exec.live = Some(live);
    let cancel = exec.cancel.clone();
    let receiving = async move {
        let mut received = 0;
        while let Some(chunk) = chunks.recv().await {
            if chunk.stream != Stream::Stdout {
                continue;
            }
            if chunk.offset != received {
                return Err(missing);
            }
            received += chunk.bytes.len() as u64;
            receiver.receive(&chunk.bytes).await?;
        }
        Ok(())
    };
    let receiving = async {
        let received = receiving.await;
        if received.is_err() {
            cancel.cancel();
        }
        received
    };
    let (output, received) = tokio::join!(link.exec(exec), receiving);
    received.map(|()| output)
}
