//! Checkpoints: saved states of a container's own files.

use std::time::SystemTime;

use async_trait::async_trait;
use coracle_types::{ContainerId, Result};

use crate::Placed;

/// An engine that can save the state of a container's files, and go back to it.
///
/// Its own files are all but those of mounts: volumes and directories of the host are not saved.
#[async_trait]
pub trait Checkpoints: Send + Sync {
    /// Whether a checkpoint shares the content of files with the container, and so costs little time and space.
    async fn shares_content(&self) -> Result<bool>;

    /// Saves the files that a container has at this moment, if they have changed since its current checkpoint. Its
    /// processes go on; they are frozen while what changed meanwhile is copied.
    async fn checkpoint(&self, id: &ContainerId, request: &CheckpointRequest) -> Result<CheckpointOutcome>;

    /// Lists the checkpoints of a container, by number.
    async fn checkpoints(&self, id: &ContainerId) -> Result<Vec<Checkpoint>>;

    /// Gives a container that does not run the files of a checkpoint, which becomes its current one. Later checkpoints
    /// stay. A rewind that was interrupted is finished by the next operation on the container.
    ///
    /// # Errors
    /// [`Error::Engine`](coracle_types::Error::Engine) if the container runs or has no such checkpoint.
    async fn rewind(&self, id: &ContainerId, number: u64) -> Result<()>;

    /// Creates a container with the files of a checkpoint of `parent`. Its image has to be that of the parent.
    async fn branch(&self, parent: &ContainerId, number: u64, spec: &Placed) -> Result<ContainerId>;

    /// Lists what differs between two checkpoints, by path.
    async fn checkpoint_diff(&self, id: &ContainerId, from: u64, to: u64) -> Result<Vec<CheckpointChange>>;

    /// Gives two containers that do not run the files of each other. Both have to be made from the same image. Their
    /// checkpoints stay where they are.
    ///
    /// # Errors
    /// [`Error::Engine`](coracle_types::Error::Engine) if one runs, or they have different images. Then nothing was changed. After an
    /// error of the disk, they may have been exchanged.
    async fn exchange_files(&self, id: &ContainerId, other: &ContainerId) -> Result<()>;

    /// Removes a checkpoint. Others keep their content. The current one cannot be removed.
    async fn remove_checkpoint(&self, id: &ContainerId, number: u64) -> Result<()>;
}

/// What to save, and how much.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckpointRequest {
    /// A text of the caller, such as the command that made the changes.
    pub note: String,
    /// It is not requested by a user: limits remove it before others, and it does not rename a checkpoint that has the same files.
    pub is_step: bool,
    /// Maximum number of bytes to copy on a file system that cannot share content between files.
    pub max_copied: Option<u64>,
    /// The oldest checkpoints beyond this number are removed, steps before others. The current one and its parent stay.
    pub max_count: Option<u64>,
    /// The same as long as all need more than this number of bytes. What files share counts for each.
    pub max_bytes: Option<u64>,
}

/// The result of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckpointOutcome {
    /// A new checkpoint.
    Saved(Checkpoint),
    /// Nothing has changed since the current checkpoint, which has this number.
    Unchanged(u64),
    /// More than `max_copied` had to be copied. Nothing was saved.
    TooLarge,
}

/// A checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// Its number, from 1. Numbers are not used again.
    pub number: u64,
    /// The checkpoint that its changes are relative to.
    pub parent: Option<u64>,
    /// When it was saved.
    pub created: SystemTime,
    /// The text of the request.
    pub note: String,
    /// The number of files and directories that differ from the parent.
    pub changes: u64,
    /// The bytes on the disk that it needs in addition to other checkpoints.
    pub bytes: u64,
    /// Whether the container's files come from this one.
    pub is_current: bool,
}

/// How a path differs between two checkpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// Only the second one has it.
    Added,
    /// Its content, owner, mode or time differs.
    Changed,
    /// Only the first one has it.
    Removed,
}

/// A difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointChange {
    /// The absolute path inside.
    pub path: String,
    /// What has happened to it.
    pub kind: ChangeKind,
    /// The length of the file in the second one, or in the first one if it was removed.
    pub bytes: u64,
}
