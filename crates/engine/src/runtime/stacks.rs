//! Stacks of services.

use async_trait::async_trait;
use coracle_runtime::stack_model::StackModel;
use coracle_runtime::{Health, StackUp, Stacks};
use coracle_types::{ContainerId, Excerpt, ProjectName, Result};

use super::EmbeddedRuntime;
use crate::blocking::blocking;
use crate::{container, service};

#[async_trait]
impl Stacks for EmbeddedRuntime {
    /// The engine runs services itself, without Compose. They need a named network, which only root can create.
    async fn compose_version(&self) -> Option<String> {
        self.engine.privileges.is_root().then(|| env!("CARGO_PKG_VERSION").to_owned())
    }

    async fn check_stack(&self, model: &StackModel) -> Result<()> {
        service::check(model)
    }

    async fn stack_up(&self, stack: &StackUp) -> Result<Option<Excerpt>> {
        service::up(&self.engine, stack).await
    }

    async fn stack_down(&self, project: &ProjectName) -> Result<()> {
        service::down(&self.engine, project).await
    }

    async fn logs(&self, id: &ContainerId, max_bytes: usize) -> Result<Vec<u8>> {
        let stored = container::find(&self.engine, &id.into())?;
        blocking("logs", move || container::log(&stored, max_bytes)).await
    }

    async fn check_health(&self, id: &ContainerId) -> Result<Option<Health>> {
        service::check_health(&self.engine, id).await
    }
}
