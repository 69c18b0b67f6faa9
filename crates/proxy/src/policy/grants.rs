//! The permissions of a container. They are replaced as a whole, and checked for each connection and request.

use std::sync::Arc;

use coracle_types::ProfileName;

use super::budget::Budget;
use super::egress::{EgressHost, EgressPolicy};
use super::git::GitRules;
use super::provider::ProviderConfig;
use super::secret::SecretRule;
use crate::token::{Scope, TokenHash};

/// The default maximum size of a request's body.
pub const MAX_BODY: u64 = 10 << 20;

/// The permissions of one container. Without them, a proxy refuses everything.
#[derive(Clone, Debug)]
pub struct Grants {
    /// The container's tokens.
    pub tokens: Tokens,
    /// The profile of the settings.
    pub profile: ProfileName,
    /// The provider of models; without one there are no model routes.
    pub provider: Option<ProviderConfig>,
    /// The model routes also accept the token for all connections.
    pub llm_for_agent: bool,
    /// Repositories; none disables the git routes.
    pub git: Option<GitRules>,
    /// Names outside; none means that the policy is missing, which allows nothing.
    pub egress: Option<Arc<EgressPolicy>>,
    /// Secrets whose placeholders the container has.
    pub secrets: Vec<SecretRule>,
    /// The version of the policy, for the log.
    pub generation: u64,
    /// The limits of model usage.
    pub budget: Budget,
    /// Maximum size of a request's body; pushes have their own limit.
    pub max_body: u64,
}

/// A container's tokens. A missing one grants nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tokens {
    /// For models: one per worker.
    pub llm: Vec<TokenHash>,
    /// For any connection.
    pub net: Option<TokenHash>,
}

impl Grants {
    /// Grants nothing except connections.
    #[must_use]
    pub fn new(profile: ProfileName, tokens: Tokens) -> Self {
        Self {
            tokens,
            profile,
            provider: None,
            llm_for_agent: false,
            git: None,
            egress: None,
            secrets: Vec::new(),
            generation: 0,
            budget: Budget::default(),
            max_body: MAX_BODY,
        }
    }

    /// Whether the proxy has to see the requests to a host, and so ends TLS.
    pub(crate) fn sees_requests(&self, host: &EgressHost, port: u16) -> bool {
        let by_rule = self.egress.as_ref().is_some_and(|it| it.checks_requests(host, port));
        by_rule || self.secrets.iter().any(|it| it.is_for(host, port))
    }

    /// Whether a token is valid for the scope.
    pub(crate) fn knows(&self, scope: Scope, token: &[u8]) -> bool {
        match scope {
            Scope::Llm => self.tokens.llm.iter().any(|it| it.is_of(token)),
            Scope::Net => self.tokens.net.as_ref().is_some_and(|it| it.is_of(token)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn x51_without_a_token_none_is_accepted() {
        let grants = Grants::new(ProfileName::parse("p").unwrap(), Tokens::default());
        assert!(!grants.knows(Scope::Net, b"") && !grants.knows(Scope::Llm, b"x"));
    }
}
