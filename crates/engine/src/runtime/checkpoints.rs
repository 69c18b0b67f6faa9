//! Saved states of containers.

use async_trait::async_trait;
use coracle_runtime::{Checkpoint, CheckpointChange, CheckpointOutcome, CheckpointRequest, Checkpoints, Placed};
use coracle_types::{ContainerId, Result};

use super::EmbeddedRuntime;
use crate::checkpoint;
use crate::container::{self, ForkSource};
use crate::exchange::exchange_files;
use crate::repair::repair;
use crate::uninterrupted::uninterrupted;

#[async_trait]
impl Checkpoints for EmbeddedRuntime {
    async fn shares_content(&self) -> Result<bool> {
        checkpoint::shares_content(&self.engine).await
    }

    async fn checkpoint(&self, id: &ContainerId, request: &CheckpointRequest) -> Result<CheckpointOutcome> {
        let (engine, id, request) = (self.engine.clone(), id.clone(), request.clone());
        uninterrupted("checkpoint", async move { checkpoint::checkpoint(&engine, &id, &request).await }).await
    }

    async fn checkpoints(&self, id: &ContainerId) -> Result<Vec<Checkpoint>> {
        checkpoint::checkpoints(&self.engine, id).await
    }

    async fn rewind(&self, id: &ContainerId, number: u64) -> Result<()> {
        let (engine, id) = (self.engine.clone(), id.clone());
        uninterrupted("rewind", async move { checkpoint::rewind(&engine, &id, number).await }).await
    }

    async fn branch(&self, parent: &ContainerId, number: u64, spec: &Placed) -> Result<ContainerId> {
        repair(&self.engine).await;
        let (engine, parent, spec) = (self.engine.clone(), parent.clone(), spec.clone());
        let source = ForkSource::Checkpoint(number);
        uninterrupted("branch", async move { container::fork(&engine, &parent, source, &spec).await }).await
    }

    async fn checkpoint_diff(&self, id: &ContainerId, from: u64, to: u64) -> Result<Vec<CheckpointChange>> {
        checkpoint::checkpoint_diff(&self.engine, id, from, to).await
    }

    async fn exchange_files(&self, id: &ContainerId, other: &ContainerId) -> Result<()> {
        let (engine, id, other) = (self.engine.clone(), id.clone(), other.clone());
        uninterrupted("exchange", async move { exchange_files(&engine, &id, &other).await }).await
    }

    async fn remove_checkpoint(&self, id: &ContainerId, number: u64) -> Result<()> {
        let (engine, id) = (self.engine.clone(), id.clone());
        uninterrupted("remove a checkpoint", async move { checkpoint::remove_checkpoint(&engine, &id, number).await })
            .await
    }
}
