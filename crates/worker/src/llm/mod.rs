//! The model, by the proxy: one reply for each question, however often it has to be asked.

mod http;
mod reply;
mod request;
mod retry;
mod sse;

pub(crate) use reply::{Meter, ModelCall, Reply};
pub(crate) use request::{Llm, LlmError};
pub use retry::RetryPolicy;
