//! A run with tools: calls the model and executes its tool calls until it returns a result.

mod context;
mod conversation;
mod generate;
mod submit;

use coracle_protocol::workspace::{WorkspaceOp, WorkspaceReply};
use coracle_sandbox::{Code, Failure, Result};
use coracle_types::ContainerPath;
use serde_json::{Map, Value, json};

pub(crate) use self::context::RunContext;
use self::conversation::Conversation;
pub(crate) use self::generate::generate;
use self::submit::{SUBMIT, arguments, submit, unwrapped};
use crate::Worker;
use crate::llm::{LlmError, ModelCall, Reply};
use crate::tools::{ToolOutput, Tools};

/// Maximum number of model calls of a run, and of replies that are cut at their length limit.
const TURNS: u64 = 50;
const CUT: u32 = 3;

/// Number of times that the same call may fail in a row.
const SAME: u32 = 5;

/// Runs until the model returns a final text, or JSON text of the schema.
pub(crate) async fn agentic(cx: RunContext<'_>) -> Result<String> {
    let root = &cx.worker.settings.root;
    let cwd = directory(cx.worker, cx.request.cwd.as_deref().unwrap_or(root.as_str())).await?;
    let tools = Tools::new(cx.worker, &cwd, cx.request.tools.as_deref())?;
    let system = system(&cwd, &cx.worker.settings.network, cx.request.instructions.as_deref());
    let talk = Conversation::new(&system, cx.request.prompt.as_deref().unwrap_or_default());
    let mut agent = Agent {
        cx,
        tools,
        talk,
        failing: (None, 0),
        retried_empty: false,
        cut: String::new(),
        cuts: 0,
        requested_submit: false,
    };
    loop {
        if let Some(text) = agent.turn().await? {
            return Ok(text);
        }
    }
}

fn system(cwd: &ContainerPath, network: &str, instructions: Option<&str>) -> String {
    let text = format!(
        "You work in {cwd} inside a private Linux container. Use the tools to read and change files and to run programs; \
         paths are relative to {cwd}. Network: {network}. If {cwd} is \
         in a git repository, commit what you changed before you finish: only commits are taken over. When the task is done, answer without a tool call and say what \
         you changed and how you checked it."
    );
    match instructions {
        Some(more) if !more.trim().is_empty() => format!("{text}\n\n{more}"),
        _ => text,
    }
}

/// Parses a directory beneath the root, and checks that it exists.
async fn directory(worker: &Worker, cwd: &str) -> Result<ContainerPath> {
    let root = &worker.settings.root;
    let invalid = |what: &str| Failure::new(Code::InvalidRequest, format!("The request is invalid: `cwd` {what}."));
    let path = ContainerPath::parse(cwd).map_err(|_| invalid("is not an absolute path"))?;
    let rest = path.as_str().strip_prefix(root.as_str()).filter(|it| it.is_empty() || it.starts_with('/'));
    if rest.is_none() {
        return Err(invalid(&format!("is not beneath {root}")));
    }
    match worker.link.space(worker.settings.agent, &path, WorkspaceOp::List { path: String::new(), most: 1 }).await {
        Ok(WorkspaceReply::Not(_)) => Err(invalid("is not an existing directory")),
        Ok(_) => Ok(path),
        Err(err) => Err(Failure::new(Code::SandboxLost, format!("The guest does not answer: {err}."))),
    }
}

struct Agent<'a> {
    cx: RunContext<'a>,
    tools: Tools,
    talk: Conversation,
    /// The call that failed last, and the number of failures in a row.
    failing: (Option<ModelCall>, u32),
    retried_empty: bool,
    /// Text and number of the replies that were cut at their length limit.
    cut: String,
    cuts: u32,
    requested_submit: bool,
}

impl Agent<'_> {
    /// One model request with its tool calls; returns the result if the model submitted it.
    async fn turn(&mut self) -> Result<Option<String>> {
        self.check_limits()?;
        let reply = self.request_reply().await?;
        self.talk.push(reply.message());
        if reply.calls.is_empty() {
            return self.text_reply(reply).await;
        }
        self.retried_empty = false;
        if !reply.text.is_empty() {
            self.cx.reporter.thinking(&reply.text).await;
        }
        for call in &reply.calls {
            if let Some(result) = self.call(call).await? {
                return Ok(Some(result));
            }
        }
        Ok(None)
    }

    fn check_limits(&self) -> Result<()> {
        let limits = self.cx.request.limits.unwrap_or_default();
        let most = limits.max_turns.unwrap_or(TURNS);
        if self.cx.meter.turns >= most {
            return Err(Failure::new(Code::MaxTurns, format!("Stopped after {most} turns.")));
        }
        match limits.max_total_tokens {
            Some(most) if self.cx.meter.total() >= most => Err(Failure::new(
                Code::BudgetExhausted,
                format!("Stopped: {} of {most} tokens are used.", self.cx.meter.total()),
            )),
            _ => Ok(()),
        }
    }

    async fn request_reply(&mut self) -> Result<Reply> {
        let mut tools = self.tools.definitions();
        if let Some(schema) = &self.cx.schema {
            tools.push(submit(schema));
        }
        loop {
            let mut body = json!({ "model": self.cx.reporter.model, "messages": self.talk.messages() });
            if !tools.is_empty() {
                body["tools"] = tools.clone().into();
                body["tool_choice"] = "auto".into();
            }
            match self.cx.llm.complete(&body, self.cx.meter, self.cx.stop).await {
                Ok(reply) => return Ok(reply),
                Err(LlmError::TooLong(_)) if self.talk.shorten() => {}
                Err(refusal) => return Err(refusal.into()),
            }
        }
    }

    /// Handles a reply without a tool call.
    async fn text_reply(&mut self, reply: Reply) -> Result<Option<String>> {
        let is_cut = reply.finish.as_deref() == Some("length");
        if reply.text.trim().is_empty() && !is_cut && self.cut.is_empty() {
            if std::mem::replace(&mut self.retried_empty, true) {
                return Err(Failure::new(Code::LlmFailed, "The model gave an empty answer twice."));
            }
            self.talk.user("Your answer was empty. Continue the task, or report what you did.");
            return Ok(None);
        }
        self.cut.push_str(&reply.text);
        if is_cut {
            self.cuts += 1;
            if self.cuts > CUT {
                return Err(Failure::new(
                    Code::LlmFailed,
                    format!("The answer was cut by its length more than {CUT} times."),
                ));
            }
            self.talk.user("Your answer was cut. Continue exactly where it ended.");
            return Ok(None);
        }
        let text = std::mem::take(&mut self.cut);
        if self.cx.schema.is_none() {
            return Ok(Some(text));
        }
        if std::mem::replace(&mut self.requested_submit, true) {
            let failure = Failure::new(Code::SchemaViolation, "The model answered without calling `submit_result`.");
            return Err(failure.detail("text", text));
        }
        self.cx.reporter.thinking(&text).await;
        self.talk.user("Call `submit_result` with the result.");
        Ok(None)
    }

    /// Runs a tool call, reports the call and its output, and returns the result if the call submitted it.
    async fn call(&mut self, call: &ModelCall) -> Result<Option<String>> {
        let arguments = arguments(&call.arguments);
        let input = arguments.clone().unwrap_or_default();
        self.cx.reporter.tool_call(call, &input).await;
        let mut result = None;
        let output: ToolOutput = match arguments {
            // Every reported call gets an output, even after the end of the run.
            _ if self.cx.stop.check().is_err() => ("The run was ended before this call.".into(), true),
            None => ("The arguments are not a JSON object.".into(), true),
            Some(arguments) if call.name == SUBMIT && self.cx.schema.is_some() => {
                let (output, value) = self.submitted(arguments);
                result = value;
                output
            }
            Some(arguments) => self.tools.run(call, arguments, &self.cx.stop.token()).await,
        };
        self.cx.reporter.tool_result(call, &output.0, output.1).await;
        self.talk.add_tool_result(call, &output.0);
        self.cx.stop.check()?;
        self.count(call, output.1)?;
        Ok(result)
    }

    fn submitted(&self, arguments: Map<String, Value>) -> (ToolOutput, Option<String>) {
        let Some(schema) = &self.cx.schema else { return ((String::new(), true), None) };
        let value = unwrapped(schema, arguments);
        match schema.check(&value) {
            Ok(()) => (("Accepted.".into(), false), Some(value.to_string())),
            Err(faults) => ((format!("The result does not fit: {}.", faults.join("; ")), true), None),
        }
    }

    /// Ends the run after repeated failures of the same call.
    fn count(&mut self, call: &ModelCall, is_error: bool) -> Result<()> {
        let same = self.failing.0.as_ref().is_some_and(|it| it.name == call.name && it.arguments == call.arguments);
        self.failing = match (is_error, same) {
            (false, _) => (None, 0),
            (true, true) => (self.failing.0.take(), self.failing.1 + 1),
            (true, false) => (Some(call.clone()), 1),
        };
        if self.failing.1 < SAME {
            return Ok(());
        }
        Err(Failure::new(Code::LlmFailed, format!("The same call of `{}` failed {SAME} times in a row.", call.name)))
    }
}
