//! Services of a Compose file as containers of this engine.
//!
//! | module | content |
//! |---|---|
//! | `check` | what this engine cannot run. Pure |
//! | `config`, `mounts`, `user` | from a service of a model to what its container is made of |
//! | `parts` | networks and volumes |
//! | `order` | which service waits for which. Pure |
//! | `up`, `down` | a stack brought up and taken down |
//! | `health` | health checks of services and images |
//! | `labels` | Compose's labels, by which all parts are found |
//!
//! **Invariant:** a key of a model is acted on, means nothing for this engine, or is refused with its name.

mod check;
mod config;
mod down;
mod health;
mod labels;
mod mounts;
mod order;
mod parts;
mod up;
mod user;

use coracle_types::Error;

pub(crate) use self::check::check;
pub(crate) use self::down::down;
pub(crate) use self::health::run as check_health;
pub(crate) use self::up::up;

/// A stack that this engine cannot bring up as it is.
fn refused(why: &str) -> Error {
    crate::error::refused("compose up", why)
}
