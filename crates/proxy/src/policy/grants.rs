//! What a container's record allows it. It is replaced as a whole, and looked at for each connection and request.

use coracle_types::ProfileName;

use super::budget::Budget;
use super::egress::EgressPolicy;
use super::git::GitRules;
use super::provider::ProviderConfig;
use crate::token::{Scope, TokenHash};

/// Bytes of a request's body, unless something else is said.
pub const MAX_BODY: u64 = 10 << 20;

/// What one container may do. A proxy without any denies all.
#[derive(Clone, Debug)]
pub struct Grants {
    /// The container's tokens.
    pub tokens: Tokens,
    /// Whose settings these are.
    pub profile: ProfileName,
    /// Where models are; none has no model routes.
    pub provider: Option<ProviderConfig>,
    /// The model routes take the token for any connection, too.
    pub llm_for_agent: bool,
    /// Repositories; none has no git routes.
    pub git: Option<GitRules>,
    /// Names outside; none is a policy that is missing, which allows nothing.
    pub egress: Option<EgressPolicy>,
    /// Which version of the policy it is, for the log.
    pub generation: u64,
    /// How much models may be used.
    pub budget: Budget,
    /// Bytes of a request's body, at most; pushes have a limit of their own.
    pub max_body: u64,
}

/// A container's tokens. One that is missing opens nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tokens {
    /// For models: one of each worker.
    pub llm: Vec<TokenHash>,
    /// For any connection.
    pub net: Option<TokenHash>,
}

impl Grants {
    /// Allows nothing but to connect, until more is said.
    #[must_use]
    pub fn new(profile: ProfileName, tokens: Tokens) -> Self {
        Self {
            tokens,
            profile,
            provider: None,
            llm_for_agent: false,
            git: None,
            egress: None,
            generation: 0,
            budget: Budget::default(),
            max_body: MAX_BODY,
        }
    }

    /// Whether a token opens that.
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
    fn x51_without_a_token_nothing_is_known() {
        let grants = Grants::new(ProfileName::parse("p").unwrap(), Tokens::default());
        assert!(!grants.knows(Scope::Net, b"") && !grants.knows(Scope::Llm, b"x"));
    }
}
