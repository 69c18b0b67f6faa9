//! Sends a request until there is a reply or a final error.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use coracle_sandbox::{Code, Failure};
use coracle_types::Secret;
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout};

use super::http::{HttpError, post};
use super::reply::{Meter, Reply};
use super::retry::{RetryPolicy, is_worth_it};
use crate::ProxyUrl;
use crate::stop::StopSignal;

/// Limit of a provider's message in an error, in bytes.
const MAX_MESSAGE: usize = 1 << 10;

/// A model request without a reply.
#[derive(Debug)]
pub(crate) enum LlmError {
    /// The conversation exceeds the model's context.
    TooLong(String),
    /// The provider rejected the request.
    Unfit(Failure),
    /// Any other error, which ends the run.
    Failed(Failure),
}

impl From<LlmError> for Failure {
    fn from(it: LlmError) -> Self {
        match it {
            LlmError::TooLong(message) => Self::new(Code::ContextOverflow, message),
            LlmError::Unfit(failure) | LlmError::Failed(failure) => failure,
        }
    }
}

/// The failure of one attempt.
enum AttemptError {
    /// The request may be retried.
    Again {
        why: String,
        after: Option<Duration>,
        answered: bool,
    },
    /// The provider does not support a field; the request is retried without it.
    Without(&'static str),
    Refused(LlmError),
}

/// Sends requests to a model.
#[derive(Debug)]
pub(crate) struct Llm<'a> {
    url: &'a ProxyUrl,
    token: Option<&'a Secret>,
    retry_policy: RetryPolicy,
    /// The provider does not support `stream`, or `stream_options`.
    plain: AtomicBool,
    without_options: AtomicBool,
}

impl<'a> Llm<'a> {
    pub(crate) fn new(url: &'a ProxyUrl, token: Option<&'a Secret>, retry_policy: RetryPolicy) -> Self {
        Self { url, token, retry_policy, plain: false.into(), without_options: false.into() }
    }

    /// Sends a request, with retries, until there is a reply.
    ///
    /// # Errors
    /// The last failure.
    pub(crate) async fn complete(
        &self,
        request: &Value,
        meter: &mut Meter,
        stop: &StopSignal,
    ) -> Result<Reply, LlmError> {
        let (begun, mut attempt, mut answered) = (Instant::now(), 0, false);
        loop {
            attempt += 1;
            let missed = match stop.unless(self.once(request)).await.map_err(LlmError::Failed)? {
                Ok(mut reply) => {
                    meter.add(reply.usage.as_ref());
                    meter.turns += 1;
                    reply.normalize_calls(meter.turns);
                    return Ok(reply);
                }
                Err(missed) => missed,
            };
            let (why, after) = match missed {
                AttemptError::Refused(refusal) => return Err(refusal),
                AttemptError::Without(field) => {
                    tracing::info!(field, "the provider does not support a field");
                    attempt -= 1;
                    continue;
                }
                AttemptError::Again { why, after, answered: this } => {
                    answered |= this;
                    (why, after)
                }
            };
            let wait = self.retry_policy.after(attempt, after, random());
            if attempt >= self.retry_policy.attempts || begun.elapsed() + wait > self.retry_policy.all {
                return Err(LlmError::Failed(gave_up(&why, attempt, answered)));
            }
            tracing::info!(attempt, %why, "the model request is retried");
            stop.unless(sleep(wait)).await.map_err(LlmError::Failed)?;
        }
    }

    async fn once(&self, request: &Value) -> Result<Reply, AttemptError> {
        let mut body = request.clone();
        if !self.plain.load(Ordering::Relaxed) {
            body["stream"] = true.into();
            if !self.without_options.load(Ordering::Relaxed) {
                body["stream_options"] = serde_json::json!({ "include_usage": true });
            }
        }
        let body = serde_json::to_vec(&body).unwrap_or_default();
        let result = timeout(self.retry_policy.call, post(self.url, self.token, body, self.retry_policy.silence)).await;
        let again = |why, answered| AttemptError::Again { why, after: None, answered };
        match result.unwrap_or_else(|_| Err(HttpError::Broken("the call took too long".into()))) {
            Ok(reply) => Ok(reply),
            Err(HttpError::Unanswered(why)) => Err(again(why, false)),
            Err(HttpError::Broken(why)) => Err(again(why, true)),
            Err(HttpError::Status { status, retry_after, body }) => Err(self.judge(status, retry_after, &body)),
        }
    }

    fn judge(&self, status: u16, retry_after: Option<Duration>, body: &[u8]) -> AttemptError {
        let (message, code) = message(body);
        let failed = |code: Code| Failure::new(code, format!("The model refused (HTTP {status}): {message}"));
        let refused = |failure| AttemptError::Refused(LlmError::Failed(failure));
        match status {
            401 | 403 => refused(failed(Code::LlmUnauthorized)),
            429 if code == "budget_exhausted" => refused(failed(Code::BudgetExhausted)),
            _ if is_worth_it(status) => {
                AttemptError::Again { why: format!("HTTP {status}: {message}"), after: retry_after, answered: true }
            }
            _ if is_too_long(&message, &code) => {
                AttemptError::Refused(LlmError::TooLong(failed(Code::ContextOverflow).message))
            }
            400 if message.contains("stream_options") && !self.without_options.swap(true, Ordering::Relaxed) => {
                AttemptError::Without("stream_options")
            }
            400 if message.contains("stream") && !self.plain.swap(true, Ordering::Relaxed) => {
                AttemptError::Without("stream")
            }
            400 | 422 => AttemptError::Refused(LlmError::Unfit(failed(Code::LlmFailed))),
            _ => refused(failed(Code::LlmFailed)),
        }
    }
}

fn gave_up(why: &str, attempts: u32, answered: bool) -> Failure {
    if answered {
        let message = format!("The model did not answer after {attempts} attempts: {why}");
        return Failure::new(Code::LlmFailed, message);
    }
    Failure::new(Code::ProxyUnreachable, format!("The proxy did not answer after {attempts} attempts: {why}"))
}

/// The message of an error, and its code.
fn message(body: &[u8]) -> (String, String) {
    let value: Value = serde_json::from_slice(body).unwrap_or_default();
    let error = if value["error"].is_null() { &value } else { &value["error"] };
    let text = error["message"].as_str().or(error.as_str()).map(str::to_owned);
    let text = text.unwrap_or_else(|| String::from_utf8_lossy(body).trim().to_owned());
    let code = error["code"].as_str().or(error["type"].as_str()).unwrap_or_default().to_owned();
    (text[..text.floor_char_boundary(MAX_MESSAGE)].to_owned(), code)
}

fn is_too_long(message: &str, code: &str) -> bool {
    let message = message.to_lowercase();
    let words = ["context length", "context window", "maximum context", "prompt is too long", "too many tokens"];
    code == "context_length_exceeded" || words.iter().any(|it| message.contains(it))
}

fn random() -> u8 {
    let mut byte = [128];
    // Without randomness all delays are equal, which is acceptable.
    let _ = getrandom::fill(&mut byte);
    byte[0]
}
