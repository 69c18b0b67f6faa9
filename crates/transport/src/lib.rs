//! What servers of Coracle share: a client's [`Session`], its [`Token`], and [`Http`], a listener on loopback addresses.
//!
//! **Invariant:** a server listens on loopback addresses only.
//! **Invariant:** nothing here knows a protocol above HTTP.

mod http;
mod session;
mod token;

pub use self::http::{
    Http, HttpResponse, HttpService, Listener, OpenConnections, PATIENCE, is_local, refusal, unauthorized,
};
pub use self::session::{LEAVING, Session, SessionLease};
pub use self::token::Token;
