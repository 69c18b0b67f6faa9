//! Services of a Compose file as containers of this engine.
//!
//! | module | content |
//! |---|---|
//! | `check` | refuses what this engine cannot run. Pure |
//! | `config`, `mounts`, `user` | convert a service of a model to the configuration of its container |
//! | `parts` | networks and volumes |
//! | `order` | which service waits for which. Pure |
//! | `up`, `down` | start and remove a stack |
//! | `health` | health checks of services and images |
//! | `labels` | Compose's labels, by which all parts are found |
//!
//! **Invariant:** a key of a model is implemented, has no meaning for this engine, or is refused by name.

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

/// The error for a stack that this engine cannot start.
fn refused(why: &str) -> Error {
    crate::error::refused("compose up", why)
}
