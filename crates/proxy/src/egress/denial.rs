//! The reasons why a destination is refused.

use hyper::{Response, StatusCode};
use serde_json::json;

use super::target::EgressTarget;
use crate::caller::Caller;
use crate::entry::Entry;
use crate::policy::{EgressHost, SecretDenial};
use crate::response::{Body, json_answer};

/// Why a destination is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EgressDenial {
    pub(crate) status: StatusCode,
    pub(crate) code: &'static str,
    pub(crate) message: &'static str,
}

/// Why a request is refused, and the rule that would allow it.
pub(crate) type Refusal = (EgressDenial, Option<String>);

const fn forbidden(code: &'static str, message: &'static str) -> EgressDenial {
    EgressDenial { status: StatusCode::FORBIDDEN, code, message }
}

const fn failed(code: &'static str, message: &'static str) -> EgressDenial {
    EgressDenial { status: StatusCode::BAD_GATEWAY, code, message }
}

impl From<SecretDenial> for EgressDenial {
    fn from(no: SecretDenial) -> Self {
        match no {
            SecretDenial::Host => Self::SECRET_HOST,
            SecretDenial::Place => Self::SECRET_PLACE,
            SecretDenial::Missing => Self::SECRET_MISSING,
        }
    }
}

impl EgressDenial {
    pub(crate) const HOST: Self = forbidden("host_not_allowed", "This name is not among those that may be reached.");
    pub(crate) const PORT: Self = forbidden("port_not_allowed", "This port of it may not be reached.");
    pub(crate) const IP: Self =
        forbidden("ip_not_allowed", "Addresses are reached by their names, or by a rule of their own.");
    pub(crate) const PRIVATE: Self =
        forbidden("private_address", "The name leads to an address that is not on the internet.");
    pub(crate) const NAME: Self = forbidden("name_not_found", "There is no such name.");
    pub(crate) const SNI: Self =
        forbidden("sni_mismatch", "The connection is for another name than the requested one.");
    pub(crate) const POLICY: Self = forbidden("policy_missing", "There is no policy, so nothing may be reached.");
    pub(crate) const CHANGED: Self = forbidden("policy_changed", "The policy does not allow this any more.");
    pub(crate) const TOKEN: Self =
        Self { status: StatusCode::UNAUTHORIZED, code: "token_invalid", message: "The token was revoked." };
    pub(crate) const REQUEST: Self = Self {
        status: StatusCode::BAD_REQUEST,
        code: "bad_request",
        message: "Ask with CONNECT host:port, or for a whole http:// address.",
    };
    pub(crate) const CONNECT: Self = failed("connect_failed", "It does not take the connection.");
    pub(crate) const CERTIFICATE: Self =
        failed("certificate_invalid", "The server has no certificate that this host trusts.");
    pub(crate) const COMPRESSED: Self =
        failed("answer_compressed", "The answer is compressed, so the secret cannot be removed from it.");
    pub(crate) const METHOD: Self =
        forbidden("request_not_allowed", "No rule allows this method and path of the host.");
    pub(crate) const OVERRIDE: Self =
        forbidden("request_not_allowed", "A header of the request names another method, path or host.");
    pub(crate) const AUTHORITY: Self =
        forbidden("host_mismatch", "The request is for another host than its connection.");
    pub(crate) const NO_TLS: Self =
        forbidden("tls_required", "The proxy has to see the requests to this host, and this connection has no TLS.");
    pub(crate) const UNTRUSTED: Self = forbidden(
        "certificate_refused",
        "The program does not trust the certificate of the proxy, which has to see its requests to this host.",
    );
    pub(crate) const SECRET_HOST: Self =
        forbidden("secret_not_for_host", "The request has a placeholder whose secret is not for this host.");
    pub(crate) const SECRET_PLACE: Self =
        forbidden("secret_misplaced", "The placeholder is not in the part of the request that gets the secret.");
    pub(crate) const SECRET_MISSING: Self = Self {
        status: StatusCode::UNAUTHORIZED,
        code: "key_missing",
        message: "This host has no value for the secret of the placeholder.",
    };

    pub(crate) const HOST_NOT_RECORDED: Self =
        forbidden("not_recorded", "The record that answers here has no request to this host.");
    pub(crate) const NOT_RECORDED: Self = Self {
        status: StatusCode::CONFLICT,
        code: "not_recorded",
        message: "The record that answers here has no such request. Nothing was sent.",
    };

    /// Records a refusal in the log, reports it to the observer, and answers it. `rule` would allow the request.
    pub(crate) fn refuse(
        self,
        caller: &Caller,
        mut entry: Entry,
        target: &EgressTarget,
        rule: Option<&str>,
    ) -> Response<Body> {
        if self.status == StatusCode::FORBIDDEN {
            caller.shared.report(self.code, Some(target.shown()), rule.map(str::to_owned));
        }
        self.logged(&mut entry).answer(rule)
    }

    /// Writes it into the log line of a request.
    pub(crate) fn logged(self, entry: &mut Entry) -> Self {
        (entry.line.status, entry.line.code) = (self.status.as_u16(), Some(self.code));
        self
    }

    /// The answer to a program in the container, with the rule that would allow the request.
    pub(crate) fn answer(self, rule: Option<&str>) -> Response<Body> {
        let mut error = json!({ "code": self.code, "message": self.message });
        if let Some(rule) = rule {
            error["rule"] = rule.into();
        }
        json_answer(self.status, &json!({ "error": error }))
    }

    /// Returns the rule of `egress.allow` that would allow a destination, if one can.
    pub(crate) fn rule(self, target: &EgressTarget) -> Option<String> {
        match (self.code, &target.host) {
            ("ip_not_allowed" | "port_not_allowed", EgressHost::Address(_)) => Some(format!("ip:{}", target.shown())),
            ("host_not_allowed" | "port_not_allowed", EgressHost::Name(_)) => Some(target.rule()),
            _ => None,
        }
    }
}
