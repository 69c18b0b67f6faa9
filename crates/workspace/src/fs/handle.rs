//! The client of the guest's file service: a link, a user and a root directory.

use coracle_client::{FileContent, Link};
use coracle_protocol::workspace::{WorkspaceOp, WorkspaceReply};
use coracle_protocol::{FileRef, UserSpec};
use coracle_types::{ContainerPath, Ids};
use tokio::sync::OnceCell;

use crate::SessionHandle;

/// The files of a workspace. The guest of the container acts on them as the session's user.
///
/// The [`Link`] is the host's to a container, or within one that of a worker to its guest's socket.
#[derive(Clone, Debug)]
pub struct GuestFs {
    pub(super) link: Link,
    pub(super) user: Ids,
    pub(super) root: ContainerPath,
    pub(super) read_only: bool,
    /// The user's home; by default git reports it, once.
    pub(super) home: OnceCell<ContainerPath>,
}

impl GuestFs {
    /// The files below `root`, as `user` has them.
    #[must_use]
    pub fn new(link: Link, user: Ids, root: ContainerPath) -> Self {
        Self { link, user, root, read_only: false, home: OnceCell::new() }
    }

    /// The files of a session's container.
    #[must_use]
    pub fn for_session(session: &SessionHandle) -> Self {
        let it = Self::new(session.link.clone(), session.user, session.workdir.clone());
        let home = session.env.get("HOME").and_then(|it| ContainerPath::parse(it).ok());
        home.into_iter().fold(it, Self::with_home)
    }

    /// Sends one request to the guest.
    pub(crate) async fn request(&self, act: WorkspaceOp) -> coracle_types::Result<WorkspaceReply> {
        self.link.space(self.user, &self.root, act).await
    }

    /// Opens a file to stream its content.
    pub(crate) async fn open(&self, path: &str) -> coracle_types::Result<FileContent> {
        let at = FileRef {
            user: UserSpec::Ids { uid: self.user.uid, gid: Some(self.user.gid) },
            path: format!("{}/{path}", self.root.as_str().trim_end_matches('/')),
            follow: false,
        };
        Ok(self.link.open_file(at, 0, u64::MAX >> 1).await?.1)
    }

    /// The same files, with every change refused.
    #[must_use]
    pub fn only_reading(self) -> Self {
        Self { read_only: true, ..self }
    }

    /// Sets the home of the user, where it differs from `/etc/passwd` inside. Snapshots lie below it.
    #[must_use]
    pub fn with_home(self, home: ContainerPath) -> Self {
        Self { home: OnceCell::from(home), ..self }
    }
}
