//! What servers of Coracle share: a client's [`Session`], its [`Token`], [`Http`], a listener on loopback addresses, and
//! [`MessageScan`], which finds the id of a message that is refused.
//!
//! **Invariant:** a server listens on loopback addresses only.
//! **Invariant:** nothing here knows a protocol above HTTP, but which fields tell a request from an answer.

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
