//! Stacks of services.

use async_trait::async_trait;
use coracle_runtime::{
    Capability, ContainerId, Error, Excerpt, Health, ProjectName, Result, StackSource, StackUp, Stacks,
};
use serde_json::Value;

use super::{EmbeddedRuntime, unsupported};
use crate::service::model_of;

#[async_trait]
impl Stacks for EmbeddedRuntime {
    async fn stack_model(&self, source: &StackSource) -> Result<Value> {
        model_of(source).map_err(|why| {
            let excerpt = Excerpt::from_bytes(why.as_bytes());
            Error::Engine { verb: "compose config", exit: 1, excerpt }
        })
    }

    async fn stack_up(&self, _stack: &StackUp) -> Result<Option<Excerpt>> {
        Err(unsupported(Capability::Compose))
    }

    async fn stack_down(&self, _project: &ProjectName) -> Result<()> {
        Ok(())
    }

    async fn logs(&self, _id: &ContainerId, _max_bytes: usize) -> Result<Vec<u8>> {
        Ok(Vec::new())
    }

    async fn check_health(&self, _id: &ContainerId) -> Result<Option<Health>> {
        Ok(None)
    }
}
