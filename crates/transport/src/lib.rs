//! Shared parts of Coracle's servers: a client's [`Session`], its [`Token`], [`Http`], a listener on loopback addresses,
//! and [`MessageScan`], which finds the id of a rejected message.
//!
//! **Invariant:** a server listens on loopback addresses only.
//! **Invariant:** this crate knows no protocol above HTTP, except the fields that distinguish a request from a response.

mod http;
mod scan;
mod session;
mod token;

pub use self::http::{
    Http, HttpResponse, HttpService, Listener, OpenConnections, PATIENCE, is_local, refusal, refuse_stranger,
    unauthorized,
};
pub use self::scan::MessageScan;
pub use self::session::{LEAVING, Session, SessionLease, StreamGuard};
pub use self::token::Token;
