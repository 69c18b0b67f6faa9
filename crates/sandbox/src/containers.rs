//! The container of a sandbox, as its provider asks for it. Somebody else makes it.

use std::any::Any;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use async_trait::async_trait;
use coracle_runtime::IpNet;
use coracle_runtime::link::Link;

use crate::provider::spec_pending;
use crate::{Result, Warning};

/// Gives one sandbox its container: made when it is first asked for, started again when it ended, made anew on the same
/// volume when that is not enough.
#[async_trait]
pub trait Containers: fmt::Debug + Send + Sync {
    /// It, with a guest that answers. Without a call to the engine when it is there.
    ///
    /// # Errors
    /// Why there is none.
    async fn ensure(&self) -> Result<Held>;

    /// What is known of it without touching it.
    async fn look(&self) -> Result<Look>;

    /// Takes the container away. Its volume stays, and the next [`ensure`](Self::ensure) makes another.
    ///
    /// # Errors
    /// It could not be removed.
    async fn discard(&self) -> Result<()>;

    /// Takes container and volume away. Nothing of them is saved: that comes before.
    ///
    /// # Errors
    /// Something of it could not be removed; the next call goes on.
    async fn remove(&self, because: Because) -> Result<()>;
}

/// Why a sandbox goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Because {
    /// Somebody said so, or its last workflow went.
    Asked,
    /// It was there for as long as it may.
    Old,
}

/// A container that runs.
#[derive(Clone, Debug)]
pub struct Held {
    /// The way in.
    pub link: Link,
    /// The engine's id of it.
    pub id: String,
    /// Its image.
    pub image_id: Option<String>,
    /// From 1, one more for each start.
    pub generation: u32,
    /// Why this is another one than last time, if nobody was told yet.
    pub recreated: Option<String>,
    /// It is as earlier settings wanted it, since somebody is in it.
    pub spec_pending: bool,
    /// The network that the container is alone on with this host, if it is on one.
    pub between: Option<Between>,
    /// As long as this is held, somebody is in it.
    pub in_use: Arc<dyn Any + Send + Sync>,
}

/// A network on which there are a container and this host, and nobody else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Between {
    /// The address of this host.
    pub gateway: IpAddr,
    /// Where the container's is from.
    pub subnet: IpNet,
}

impl Between {
    /// Whether a connection from there is the container's: programs of this host come from the gateway, and containers of
    /// other networks from elsewhere.
    #[must_use]
    pub fn is_container(&self, peer: IpAddr) -> bool {
        peer != self.gateway && self.subnet.contains(&peer)
    }
}

impl Held {
    /// The first one of a sandbox, as it was wanted, on no network of its own.
    #[must_use]
    pub fn first(link: Link, id: String) -> Self {
        Self {
            link,
            id,
            image_id: None,
            generation: 1,
            recreated: None,
            spec_pending: false,
            between: None,
            in_use: Arc::new(()),
        }
    }

    /// What else there is to tell of it.
    #[must_use]
    pub fn warnings(&self) -> Vec<Warning> {
        self.spec_pending.then(spec_pending).into_iter().collect()
    }
}

/// What a look found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// It runs and answers.
    Answers,
    /// It is remembered, and does not answer.
    Silent,
    /// There is none.
    Missing,
}
