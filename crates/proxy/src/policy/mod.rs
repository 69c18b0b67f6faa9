//! The permissions of a container: repositories, names outside, models and their budget.

mod budget;
mod egress;
mod git;
mod grants;
mod known_secrets;
mod patterns;
mod provider;
mod request;
mod secret;

pub use self::budget::Budget;
pub use self::egress::EgressPolicy;
pub(crate) use self::egress::{Denial, EgressHost};
pub use self::git::{GitCredentials, GitLogin, GitMode, GitRules, GitSettings, NoCredentials};
pub(crate) use self::git::{GitHost, is_plain};
pub use self::grants::{Grants, MAX_BODY, Tokens};
pub use self::known_secrets::KnownSecret;
pub(crate) use self::known_secrets::shape;
pub use self::provider::{FixedKey, KeySource, ProviderConfig, ProviderKind, is_listed};
pub(crate) use self::secret::{FilledSecret, SecretDenial, fill, refuse_in_plain};
pub use self::secret::{SecretPlace, SecretRule, is_secret_host};
