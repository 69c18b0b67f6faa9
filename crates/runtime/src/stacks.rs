//! Operations on containers that may not be Coracle's: services of a stack, their volumes, logs and health checks.

use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use coracle_types::{ContainerId, Excerpt, ProjectName, Result};
use serde::{Deserialize, Serialize};

use crate::stack_model::StackModel;

/// Stacks of services by Compose, and what comes with them. Every engine fulfils it, as it does
/// [`ContainerRuntime`](crate::ContainerRuntime).
///
/// An engine gets the model of a stack, and never the text that it was made from: what it runs is what was checked.
#[async_trait]
pub trait Stacks: Send + Sync {
    /// Version of Compose for this engine, if there is one. It may start a program for it.
    async fn compose_version(&self) -> Option<String>;

    /// Refuses a stack that this engine cannot run, before its images are pulled. Creates nothing.
    ///
    /// # Errors
    /// [`Error::Unsupported`](coracle_types::Error::Unsupported) for what the engine lacks, such as Compose 2.20;
    /// [`Error::Engine`](coracle_types::Error::Engine) with the key that it does not support.
    async fn check_stack(&self, model: &StackModel) -> Result<()>;

    /// Makes and starts a stack and waits until it is up, at most for its patience. The verdict is the state of its
    /// services, since Compose calls a service that did its work and ended a failure: what it had to say, if it was not
    /// content, is given for the case that they are not good.
    ///
    /// # Errors
    /// When Compose cannot be run, or does not come to an end.
    async fn stack_up(&self, stack: &StackUp) -> Result<Option<Excerpt>>;

    /// Removes the containers, networks and volumes of a project. One that is gone is no error.
    async fn stack_down(&self, project: &ProjectName) -> Result<()>;

    /// The last bytes of what a container's PID 1 printed, both streams in one.
    async fn logs(&self, id: &ContainerId, max_bytes: usize) -> Result<Vec<u8>>;

    /// The result of the image's own health check, or `None` without one. Podman runs it on request, where nothing else
    /// does; Docker runs it by itself.
    async fn check_health(&self, id: &ContainerId) -> Result<Option<Health>>;
}

/// A stack to be brought up.
#[derive(Clone, Debug)]
pub struct StackUp {
    /// Its project.
    pub project: ProjectName,
    /// Its model, as it was checked.
    pub model: StackModel,
    /// The directory that its relative paths start from.
    pub dir: PathBuf,
    /// Limit of the time until it is up.
    pub patience: Duration,
    /// Images may be built.
    pub build: bool,
}

/// The result of an image's health check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Health {
    /// It has not passed yet, and not failed for good.
    Starting,
    /// It passed.
    Healthy,
    /// It failed as often as it may.
    Unhealthy,
}

/// Current usage of a container.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ContainerUsage {
    /// Bytes of memory, without what the kernel may drop at once.
    pub memory_bytes: u64,
    /// Processes and threads.
    pub pids: u64,
    /// Share of one core, in percent: since the reading before, if that was within the last minute, else over a tenth of a
    /// second.
    pub cpu_percent: f64,
    /// Bytes of its own layer: data written outside mounts. Missing where it is not reported.
    pub disk_bytes: Option<u64>,
    /// Processor time since its start, for metrics. Missing where it is not reported.
    #[serde(skip)]
    pub cpu_seconds: Option<f64>,
}
