//! `job_wait`: a job is waited for by its guest.

use std::time::Duration;

use coracle_context::arg_types::{Name, Seconds, inline_schema};
use coracle_context::config::Config;
use coracle_context::context::Context;
use coracle_context::document::{Document, ProgramOutput, Render};
use coracle_context::failure::{Code, Failure};
use coracle_context::humanize::{duration, millis};
use coracle_context::model_text::push_line;
use coracle_context::{redaction, suggest};
use coracle_jobs::{Job, JobState, Tail, Wait, WaitFor, WaitOutcome, WaitResult};
use coracle_runtime::{PolicyRefusal, Problem};
use coracle_types::{Handle, JobId, PortTarget};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::TIMED_OUT;
use super::job::{reach_guest, state_line};
use super::job_page::check_pattern;
use crate::dispatch::{Effect, Operation};
use crate::schema::result_schema;

/// Wait until a job ends, or until what `until` says, in one call: no polling. That `timeout` is over is a successful
/// call too, and does not end the job: see `reason`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct JobWait {
    /// Container to act on: its name, or an id of at least 12 digits.
    #[schemars(with = "Name")]
    pub(crate) container: Handle,
    /// The job: 8 hex digits, from `exec_background`, `exec` or `jobs`.
    #[schemars(with = "Name")]
    pub(crate) job_id: JobId,
    /// What to wait for, one or a list: `exit`, `regex` (a line matches `pattern`), `port` (it takes connections), `idle`
    /// (no output for `idle` seconds). The end of the job ends every wait.
    #[schemars(extend("default" = "exit"))]
    pub(crate) until: Option<WaitConditions>,
    /// Regular expression that a line has to match, at most 1 KiB.
    pub(crate) pattern: Option<String>,
    /// Port inside that has to take connections: a number on the loopback, or `address:port`.
    pub(crate) port: Option<PortRequest>,
    /// Seconds without output, 0.1 to 600.
    pub(crate) idle: Option<Seconds>,
    /// Byte of the output to begin at; negative counts from its end. `job_wait` looks at what comes from now on unless it
    /// is given.
    pub(crate) offset: Option<i64>,
    /// Seconds (or `90s`, `10m`) before a wait ends, or a command and everything it started is ended (`exec_background`: 0
    /// is never).
    #[schemars(extend("default" = 60))]
    pub(crate) timeout: Option<Seconds>,
}

/// The answer.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct JobWaitResponse {
    #[schemars(with = "String")]
    job_id: JobId,
    #[schemars(with = "String")]
    pub(crate) reason: WaitOutcome,
    running: bool,
    #[schemars(with = "String")]
    pub(crate) state: JobState,
    pub(crate) exit_code: Option<u8>,
    pub(crate) r#match: Option<OutputLine>,
    pub(crate) output: String,
    pub(crate) next_offset: u64,
    waited_ms: u64,
    /// The caller waited for the end of the job, maybe among other events.
    #[serde(skip)]
    waits_for_exit: bool,
}

#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct OutputLine {
    offset: u64,
    line: u64,
    pub(crate) text: String,
}

/// What a wait may be for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum WaitCondition {
    Exit,
    Regex,
    Port,
    Idle,
}

/// One word, or a list of them.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Value")]
pub(crate) struct WaitConditions(pub(crate) Vec<WaitCondition>);

impl TryFrom<Value> for WaitConditions {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        let words = match value {
            Value::Array(words) if words.is_empty() => return Err("at least one of exit, regex, port, idle".into()),
            Value::Array(words) => words,
            one => vec![one],
        };
        let read = |word: Value| {
            let shown = word.to_string();
            let meant = word.as_str().and_then(meant);
            let meant = meant.map(|it| format!("; did you mean `{it}`?")).unwrap_or_default();
            serde_json::from_value(word).map_err(|_| format!("{shown} is none of exit, regex, port, idle{meant}"))
        };
        words.into_iter().map(read).collect::<Result<_, _>>().map(Self)
    }
}

/// The condition that another word may stand for.
fn meant(word: &str) -> Option<String> {
    let same = [("pattern", "regex"), ("line", "regex"), ("end", "exit"), ("done", "exit"), ("silence", "idle")];
    if let Some((_, condition)) = same.iter().find(|it| it.0 == word) {
        return Some((*condition).to_owned());
    }
    suggest::nearest(word, &["exit", "regex", "port", "idle"].map(str::to_owned)).map(str::to_owned)
}

inline_schema!(WaitConditions, "Until", { "type": ["string", "array"], "items": { "type": "string" } });

/// A number, or `address:port`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Value")]
pub(crate) struct PortRequest(pub(crate) PortTarget);

impl TryFrom<Value> for PortRequest {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        let text = match value {
            Value::String(text) => text,
            Value::Number(number) => number.to_string(),
            _ => return Err("it is neither a number nor `address:port`".into()),
        };
        PortTarget::parse(&text).map(Self).map_err(|err| err.to_string())
    }
}

inline_schema!(PortRequest, "Port", { "type": ["integer", "string"] });

/// The time of a wait whose caller names none.
const USUAL: Duration = Duration::from_secs(60);

impl Operation for JobWait {
    const NAME: &'static str = "job_wait";
    const EFFECT: Effect = Effect::ReadOnly;
    const RESULT: fn() -> Value = result_schema::<JobWaitResponse>;
    type Response = JobWaitResponse;

    async fn run(self, cx: &Context) -> Result<JobWaitResponse, Failure> {
        let wait = self.resolve(&cx.config)?;
        let guided = reach_guest(cx, &self.container, false).await?;
        let redactor = guided.redactor(cx).await?;
        cx.call.progress.message(format!("waiting for job {}", self.job_id)).await;
        let waiting = async {
            let answer = coracle_jobs::wait(&guided.link, wait).await;
            guided.or_lost(&self.job_id, answer, long_gone).await
        };
        let waited = cx.unless_cancelled(waiting).await?;
        let WaitResult { reason, found, job, tail, waited } = waited;
        Ok(JobWaitResponse {
            reason,
            running: job.running(),
            state: job.state,
            exit_code: job.exit_code,
            r#match: found.map(|it| OutputLine {
                offset: it.offset,
                line: it.line,
                text: redaction::clean_text(&redactor, it.text.as_bytes()),
            }),
            output: redaction::clean_text(&redactor, &tail.bytes),
            next_offset: tail.next,
            waited_ms: millis(waited),
            job_id: job.id,
            waits_for_exit: self.until.as_ref().is_none_or(|it| it.0.contains(&WaitCondition::Exit)),
        })
    }
}

/// What was lost has ended, whatever was waited for.
fn long_gone(job: Job) -> WaitResult {
    WaitResult { reason: WaitOutcome::Exit, found: None, job, tail: Tail::default(), waited: Duration::ZERO }
}

impl JobWait {
    fn resolve(&self, config: &Config) -> Result<Wait, Failure> {
        let until = self.until.as_ref().map_or(&[WaitCondition::Exit][..], |it| &it.0);
        self.check_fields(until)?;
        let mut events = Vec::new();
        for condition in until {
            events.extend(match condition {
                WaitCondition::Exit => None,
                WaitCondition::Regex => {
                    self.pattern.clone().map(|pattern| WaitFor::Line { pattern, from: self.offset })
                }
                WaitCondition::Port => self.port.map(|it| WaitFor::Port(it.0)),
                WaitCondition::Idle => self.idle.map(|it| WaitFor::Idle(it.0)),
            });
        }
        Ok(Wait { job: self.job_id.clone(), events, limit: self.limit(config)?, lines: config.jobs.poll_lines })
    }

    /// Each condition has its field, and every given field is waited for.
    fn check_fields(&self, until: &[WaitCondition]) -> Result<(), Failure> {
        let fields = [
            (WaitCondition::Regex, "regex", "pattern", self.pattern.is_some()),
            (WaitCondition::Port, "port", "port", self.port.is_some()),
            (WaitCondition::Idle, "idle", "idle", self.idle.is_some()),
        ];
        let is_requested = |condition: WaitCondition| until.contains(&condition);
        let missing: Vec<_> = fields.iter().filter(|it| is_requested(it.0) && !it.3).map(|it| it.2).collect();
        if !missing.is_empty() {
            let named: Vec<_> = missing.iter().map(|it| format!("`{it}`")).collect();
            return Err(Failure::new(Code::MissingField, format!("required: {}", named.join(", ")))
                .detail("fields", missing)
                .hint("`until` names what to wait for, and each of `regex`, `port` and `idle` has a field"));
        }
        if let Some((_, word, field, _)) = fields.iter().find(|it| it.3 && !is_requested(it.0)) {
            return Err(Failure::invalid("until", format!("`{field}` is given, and nothing waits for it"))
                .hint(format!("add \"{word}\" to `until`, or leave `{field}` out")));
        }
        if let Some(pattern) = &self.pattern {
            check_pattern(pattern)?;
        }
        let idle_s = self.idle.map(|it| it.0.as_secs_f64());
        if idle_s.is_some_and(|it| !(0.1..=600.0).contains(&it)) {
            return Err(Failure::invalid("idle", "from 0.1 to 600 s").hint("wait until `exit` for longer"));
        }
        Ok(())
    }

    fn limit(&self, config: &Config) -> Result<Duration, Failure> {
        let most = config.jobs.wait_max;
        match self.timeout {
            None => Ok(USUAL.min(most.0)),
            Some(timeout) if timeout > most => {
                let (rule, setting) = ("limit.wait", Some("jobs.wait_max"));
                let message = format!("timeout {timeout} is above {most}");
                let problem = Problem { rule, setting, value: timeout.to_string(), message };
                Err(PolicyRefusal { problems: vec![problem] }.into())
            }
            Some(timeout) => Ok(timeout.0),
        }
    }
}

impl Render for JobWaitResponse {
    fn render(&self, _: Timestamp) -> Document {
        let line = state_line(&self.job_id, self.state, self.exit_code, None);
        let after = duration(self.waited_ms);
        let line = match self.reason {
            WaitOutcome::Exit => line,
            WaitOutcome::Regex => {
                line.plain(format!(": line {} matches", self.r#match.as_ref().map_or(0, |it| it.line)))
            }
            WaitOutcome::Port => line.plain(format!(": the port answers after {after}")),
            WaitOutcome::Idle => line.plain(format!(": silent after {after}")),
            WaitOutcome::Timeout => line.plain(": ").doubtful(format!("still waiting after {after}")),
        };
        let document = Document::of_output(ProgramOutput::Job(self.output.clone().into_bytes())).note(line);
        Document { exit_code: self.command_line_code(), ..document }
    }

    /// The next wait for a line begins where this one ended, so that it does not find the same line.
    fn render_for_model(&self) -> String {
        let mut text = self.render(Timestamp::now()).for_model();
        if self.running {
            push_line(&mut text, &format!("[next offset {}]", self.next_offset));
        }
        text
    }
}

impl JobWaitResponse {
    /// Scripts ask whether what they waited for came, or how the job ended.
    fn command_line_code(&self) -> u8 {
        match self.reason {
            WaitOutcome::Timeout => TIMED_OUT,
            WaitOutcome::Exit if self.exit_code == Some(0) && !self.waits_for_exit => 1,
            WaitOutcome::Exit => self.exit_code.unwrap_or(1),
            WaitOutcome::Regex | WaitOutcome::Port | WaitOutcome::Idle => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(more: Value) -> Result<JobWait, String> {
        let mut call = json!({ "container": "web", "job_id": "0123abcd" });
        let Value::Object(more) = more else { panic!("no object") };
        call.as_object_mut().unwrap().extend(more);
        serde_json::from_value(call).map_err(|err| err.to_string())
    }

    fn check(more: Value) -> Result<Wait, String> {
        let resolved = read(more).unwrap().resolve(&Config::default());
        resolved.map_err(|failure| format!("{}: {}", failure.code.word(), failure.message))
    }

    #[test]
    fn a_wait_is_for_the_end_by_default() {
        let wait = check(json!({})).unwrap();
        assert_eq!((wait.events, wait.limit.as_secs()), (vec![], 60));
        let wait =
            check(json!({ "until": ["exit", "regex"], "pattern": "up", "offset": 0, "timeout": "10m" })).unwrap();
        assert_eq!(wait.events, [WaitFor::Line { pattern: "up".into(), from: Some(0) }]);
        assert_eq!(wait.limit.as_secs(), 600);
    }

    #[test]
    fn a_port_is_a_number_or_has_an_address() {
        for port in [json!(8080), json!("8080"), json!("localhost:8080")] {
            let wait = check(json!({ "until": "port", "port": port })).unwrap();
            assert!(matches!(&wait.events[..], [WaitFor::Port(it)] if it.to_string() == "localhost:8080"));
        }
        for port in [json!(0), json!(70000), json!(-1), json!(8.5), json!("db:80"), json!([80])] {
            assert!(read(json!({ "until": "port", "port": port })).is_err(), "{port}");
        }
    }

    #[test]
    fn what_is_waited_for_has_its_field_and_no_field_is_there_for_nothing() {
        assert_eq!(
            check(json!({ "until": ["regex", "port"] })).unwrap_err(),
            "missing_field: required: `pattern`, `port`"
        );
        let idle = check(json!({ "idle": 1 })).unwrap_err();
        assert_eq!(idle, "invalid_input: `until`: `idle` is given, and nothing waits for it");
    }

    #[test]
    fn limits_are_enforced() {
        assert!(check(json!({ "timeout": 601 })).unwrap_err().starts_with("policy_denied: timeout 601s is above 10m"));
        assert!(check(json!({ "until": "idle", "idle": 0.01 })).unwrap_err().starts_with("invalid_input"));
        assert!(read(json!({ "until": "later" })).unwrap_err().contains("\"later\" is none of exit"));
        assert!(read(json!({ "until": [] })).is_err());
        for (word, meant) in [("pattern", "regex"), ("exti", "exit"), ("ports", "port")] {
            let failure = read(json!({ "until": word })).unwrap_err();
            assert!(failure.ends_with(&format!("did you mean `{meant}`?")), "{failure}");
        }
    }

    fn response(reason: WaitOutcome, exit_code: Option<u8>, waits_for_exit: bool) -> JobWaitResponse {
        JobWaitResponse {
            job_id: JobId::parse("0123abcd").unwrap(),
            reason,
            running: false,
            state: JobState::Running,
            exit_code,
            r#match: Some(OutputLine { offset: 0, line: 7, text: String::new() }),
            output: String::new(),
            next_offset: 0,
            waited_ms: 1500,
            waits_for_exit,
        }
    }

    #[test]
    fn a_wait_gives_the_code_of_what_came_of_it() {
        let code = |reason, exit_code, waits_for_exit| response(reason, exit_code, waits_for_exit).command_line_code();
        assert_eq!(code(WaitOutcome::Exit, Some(3), true), 3);
        assert_eq!(code(WaitOutcome::Exit, Some(0), true), 0);
        assert_eq!(code(WaitOutcome::Port, None, false), 0);
        assert_eq!(code(WaitOutcome::Timeout, None, false), 124);
        // The end of the job is a success only if the call waited for it.
        assert_eq!(code(WaitOutcome::Exit, Some(0), false), 1);
        assert_eq!(code(WaitOutcome::Exit, Some(7), false), 7);
    }

    #[test]
    fn what_came_is_noted() {
        let note = |reason| response(reason, None, false).render(Timestamp::UNIX_EPOCH).notes[0].to_string();
        assert_eq!(note(WaitOutcome::Regex), "0123abcd running: line 7 matches");
        assert_eq!(note(WaitOutcome::Timeout), "0123abcd running: still waiting after 1.5 s");
    }
}
