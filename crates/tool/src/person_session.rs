//! The guest of a container, for a protocol that a person's own programs speak.

use coracle_client::Link;
use coracle_context::context::Context;
use coracle_context::failure::Failure;
use coracle_lifecycle::{ExecContext, Record};
use coracle_runtime::ExecTarget;
use coracle_types::{Capability, Command, ContainerPath, Error, Exec, Handle, Ids};

use crate::target::{CommandTarget, reach_inside};

/// A container that is reached by its guest, and how commands run there.
#[derive(Clone, Debug)]
pub struct PersonSession {
    /// The container's name.
    pub name: String,
    /// The connection to its guest.
    pub link: Link,
    /// The shell of its user.
    pub shell: String,
    /// Whether commands run as root because the user requested root.
    pub as_root: bool,
    context: ExecContext,
}

impl PersonSession {
    /// Finds a container for commands, as `exec` does: a persistent one that stopped is started again.
    ///
    /// # Errors
    /// Those of `exec`; `unsupported` for a container without a guest; `policy_denied` where root is not granted.
    pub async fn open(cx: &Context, container: &Handle, as_root: bool) -> Result<Self, Failure> {
        let CommandTarget { record, inside, session } = reach_inside(cx, container, as_root).await?;
        for warning in cx.take_warnings() {
            tracing::warn!(container = %record.name, "{}", warning.message);
        }
        let ExecTarget::Guest(link) = inside else {
            return Err(Error::Unsupported { engine: record.engine, capability: Capability::Guest }.into());
        };
        let Record { name, shell, .. } = record;
        let shell = shell.as_ref().map_or("/bin/sh", ContainerPath::as_str).to_owned();
        Ok(Self { name: name.to_string(), link, shell, as_root, context: session })
    }

    /// A command as it runs there.
    #[must_use]
    pub fn exec(&self, command: Command) -> Exec {
        self.context.exec(command)
    }

    /// Who runs commands.
    #[must_use]
    pub fn user(&self) -> Ids {
        self.context.user
    }

    /// Where commands run.
    #[must_use]
    pub fn workdir(&self) -> &ContainerPath {
        &self.context.workdir
    }
}
