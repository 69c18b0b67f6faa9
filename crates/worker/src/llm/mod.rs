//! The model, by the proxy: one reply for each question, however often it has to be asked.

mod ask;
mod http;
mod reply;
mod retry;
mod sse;

pub(crate) use ask::{Llm, Refusal};
pub(crate) use reply::{Call, Meter, Reply};
pub use retry::Patience;
