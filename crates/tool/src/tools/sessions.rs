//! The containers of a session, made and kept by `lifecycle`.

use std::fmt;

use async_trait::async_trait;
use coracle_runtime::Link;
use coracle_workspace::{Code, Failure, Reason, Role, Session, Sessions};

use crate::context::Context;

pub(super) struct SessionContainers {}

impl SessionContainers {
    pub(super) fn new(_: &Context) -> Self {
        Self {}
    }
}

impl fmt::Debug for SessionContainers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionContainers")
    }
}

#[async_trait]
impl Sessions for SessionContainers {
    async fn ensure(&self, _: Role) -> Result<Session, Box<Failure>> {
        Err(Box::new(Failure::new(Code::Internal, "later")))
    }

    async fn held(&self, _: Role) -> Option<Link> {
        None
    }

    async fn touch(&self, _: Role) {}

    async fn discard(&self, _: Role, _: Reason) -> Result<(), Box<Failure>> {
        Ok(())
    }
}

/// The containers of the session.
pub(crate) async fn show(_: &Context) -> Result<serde_json::Map<String, serde_json::Value>, crate::Failure> {
    Ok(serde_json::Map::new())
}

/// Removes them.
pub(crate) async fn end(_: &Context) -> Result<serde_json::Map<String, serde_json::Value>, crate::Failure> {
    Ok(serde_json::Map::new())
}
