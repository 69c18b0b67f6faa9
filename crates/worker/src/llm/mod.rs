//! The model, through the proxy: one reply for each request, with retries.

mod http;
mod reply;
mod request;
mod retry;
mod sse;

pub(crate) use reply::{Meter, ModelCall, Reply};
pub(crate) use request::{Llm, LlmError};
pub use retry::RetryPolicy;
