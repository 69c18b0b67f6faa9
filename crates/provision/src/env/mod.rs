//! Selects variables of the host, and assembles those that all commands of a container share.

mod restore;
mod select;
mod session;
pub(crate) mod token;

pub use restore::{RestoredEnv, SessionEnvRecord};
pub use select::{BadPattern, DEFAULT_PATTERNS, EnvRequest, EnvRules, Excess, NEVER, SelectedEnv, is_name, select};
pub use session::{SessionEnv, Sources, VariableSource, is_plain, secrets_in};
