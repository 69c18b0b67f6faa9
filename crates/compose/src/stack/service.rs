//! A container of a stack, as callers see it.

use coracle_runtime::{Health, PublishedPort};
use coracle_types::{ContainerId, ContainerStatus};
use serde::Serialize;

/// A container of a stack, as callers see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Service {
    /// Its service.
    pub service: String,
    /// Its name.
    pub name: String,
    /// The first twelve digits of its id.
    pub container_id: String,
    /// A name of its image, else the image's id.
    pub image: String,
    /// Its state.
    pub state: ContainerStatus,
    /// The result of its health check, if it has one.
    pub health: Option<Health>,
    /// Exit code of its PID 1, once it ended.
    pub exit_code: Option<i64>,
    /// Ports on the host.
    pub ports: Vec<PublishedPort>,
    /// Its full id.
    #[serde(skip)]
    pub id: ContainerId,
}
