//! The reasons why a destination is refused.

use hyper::{Response, StatusCode};
use serde_json::json;

use crate::response::{Body, json_answer};

/// Why a destination is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EgressDenial {
    pub(crate) status: StatusCode,
    pub(crate) code: &'static str,
    message: &'static str,
}

const fn forbidden(code: &'static str, message: &'static str) -> EgressDenial {
    EgressDenial { status: StatusCode::FORBIDDEN, code, message }
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
    pub(crate) const CONNECT: Self =
        Self { status: StatusCode::BAD_GATEWAY, code: "connect_failed", message: "It does not take the connection." };

    pub(crate) fn answer(self) -> Response<Body> {
        json_answer(self.status, &json!({ "error": { "code": self.code, "message": self.message } }))
    }
}
