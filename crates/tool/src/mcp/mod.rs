//! `coracle mcp`: the tools for agents, over standard input and output.

mod tools;

use std::sync::Arc;
use std::time::{Duration, Instant};

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation, ListToolsResult,
    PaginatedRequestParams, ProgressNotificationParam, ProgressToken, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, Peer, RoleServer, ServerHandler, ServiceExt};
use serde_json::{Map, Value};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::tools::{Called, Tools};
use crate::context::{Context, Mouth, Options};
use crate::failure::Failure;
use crate::host::Host;
use crate::op::Input;
use crate::progress::{Event, Progress};
use crate::{mouth, ops, upkeep};

/// Output is told at most this often.
const OUTPUT_EVERY: Duration = Duration::from_millis(250);

/// What a session still does when its connection ends has this long to end.
const LEAVING: Duration = Duration::from_secs(30);

/// Serves until the input ends or a signal comes.
pub(crate) async fn run(host: Host, options: &Options) -> Result<(), Failure> {
    let cx = Context::open(host, options, Mouth::Mcp)?;
    mouth::log(&cx);
    mouth::cancel_on_signals(cx.cancel.clone()).map_err(Failure::internal)?;
    let calls = TaskTracker::new();
    // Preflight has found no engine yet, and nobody waits for this.
    calls.spawn(upkeep::keep_up(cx.clone()));
    let server = Server { cx: cx.clone(), tools: Arc::new(Tools::of(&cx)), calls: calls.clone() };
    serve(server, &cx).await?;
    cx.cancel.cancel();
    calls.close();
    let leave = async {
        calls.wait().await;
        on_session_end(&cx).await;
    };
    if tokio::time::timeout(LEAVING, leave).await.is_err() {
        tracing::warn!("the session's containers were not all removed in time; the next call goes on with it");
    }
    Ok(())
}

async fn serve(server: Server, cx: &Context) -> Result<(), Failure> {
    let starting = server.serve(rmcp::transport::stdio_pipes());
    // A client that goes away before it has said a word is no fault.
    let service = tokio::select! {
        service = starting => match service {
            Ok(service) => service,
            Err(err) => {
                tracing::info!("no session began: {err}");
                return Ok(());
            }
        },
        () = cx.cancel.cancelled() => return Ok(()),
    };
    let stop = service.cancellation_token();
    let waiting = service.waiting();
    tokio::pin!(waiting);
    let ended = tokio::select! {
        ended = &mut waiting => ended,
        () = cx.cancel.cancelled() => {
            stop.cancel();
            waiting.await
        }
    };
    ended.map(drop).map_err(Failure::internal)
}

/// What is done with the session's containers (containers.md 14.9).
async fn on_session_end(cx: &Context) {
    // The token of the process has fired, and this work goes on all the same.
    ops::end_session(&cx.for_call(CancellationToken::new(), Progress::none())).await;
}

#[derive(Debug)]
struct Server {
    cx: Context,
    tools: Arc<Tools>,
    /// Calls that run, so that the end of the session comes after theirs.
    calls: TaskTracker,
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("coracle", env!("CARGO_PKG_VERSION")))
            .with_instructions(self.tools.instructions())
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.tools.told.iter().find(|it| it.name == name).cloned()
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.tools.told.clone()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Some(called) = self.tools.find(&request.name) else {
            return Err(ErrorData::invalid_params(format!("no tool `{}`", request.name.escape_debug()), None));
        };
        let arguments = request.arguments.unwrap_or_default();
        // A task of its own: an act that has begun is finished or undone, even when the connection breaks.
        let work = self.calls.spawn(call(self.cx.clone(), called, arguments, context));
        let (answer, text) = work.await.unwrap_or_else(|err| (Failure::internal(err).answer(None), None));
        let success = answer.get("success") == Some(&Value::Bool(true));
        let answer = Value::Object(answer);
        let mut result =
            if success { CallToolResult::structured(answer) } else { CallToolResult::structured_error(answer) };
        if let Some(text) = text {
            result.content = vec![ContentBlock::text(text)];
        }
        Ok(result.into())
    }
}

/// The object for programs, and what a model reads where that is something else.
type Told = (Map<String, Value>, Option<String>);

/// One call, withdrawn by the request's own cancel and by the end of the session.
async fn call(cx: Context, called: Called, arguments: Map<String, Value>, context: RequestContext<RoleServer>) -> Told {
    let cancel = cx.cancel.child_token();
    let withdrawn = tokio::spawn({
        let (request, cancel) = (context.ct.clone(), cancel.clone());
        async move {
            request.cancelled().await;
            cancel.cancel();
        }
    });
    let cx = cx.for_call(cancel, Progress::none());
    let told = match context.meta.get_progress_token() {
        None => drive(&cx, called, arguments, None).await,
        Some(token) => {
            let mut teller = Teller::new(token, context.peer);
            drive(&cx, called, arguments, Some(&mut |event| teller.hear(&event))).await
        }
    };
    withdrawn.abort();
    told
}

async fn drive(
    cx: &Context,
    called: Called,
    arguments: Map<String, Value>,
    hear: Option<&mut (dyn FnMut(Event) + Send)>,
) -> Told {
    match called {
        Called::Containers => (mouth::drive(cx, Input::Object(arguments), hear).await, None),
        Called::Tool(entry) => {
            let said = mouth::drive_tool(cx, entry, arguments, hear).await;
            (said.answer, Some(said.text))
        }
    }
}

/// News of one call on its way to the client.
struct Teller {
    lines: mpsc::UnboundedSender<String>,
    told_output: Option<Instant>,
}

impl Teller {
    fn new(token: ProgressToken, peer: Peer<RoleServer>) -> Self {
        let (lines, mut received) = mpsc::unbounded_channel::<String>();
        tokio::spawn(async move {
            let mut count = 0.0;
            while let Some(line) = received.recv().await {
                count += 1.0;
                let told = ProgressNotificationParam::new(token.clone(), count).with_message(line);
                if peer.notify_progress(told).await.is_err() {
                    break;
                }
            }
        });
        Self { lines, told_output: None }
    }

    fn hear(&mut self, event: &Event) {
        if let Event::Output(_) = event {
            if self.told_output.is_some_and(|it| it.elapsed() < OUTPUT_EVERY) {
                return;
            }
            self.told_output = Some(Instant::now());
        }
        if let Some(line) = line(event) {
            // The client has gone: the call ends by its token.
            let _ = self.lines.send(line);
        }
    }
}

/// One line for a person who watches.
fn line(event: &Event) -> Option<String> {
    match event {
        Event::Message(message) => Some(message.clone()),
        Event::Step(step) => {
            let text = |key: &str| step.get(key).and_then(Value::as_str).unwrap_or_default();
            Some(format!("{}: {}: {}", text("name"), text("status"), text("detail")))
        }
        Event::Output(chunk) => {
            let text = String::from_utf8_lossy(&chunk.bytes);
            let complete = text.rsplit_once('\n')?.0;
            let last = complete.lines().rev().find(|it| !it.trim().is_empty())?;
            Some(last.chars().filter(|it| !it.is_control()).take(500).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use coracle_runtime::{Chunk, Stream};
    use serde_json::json;

    use super::line;
    use crate::progress::Event;

    fn check(event: &Event, told: Option<&str>) {
        assert_eq!(line(event).as_deref(), told);
    }

    #[test]
    fn news_are_one_line_each() {
        let output = |text: &str| Event::Output(Chunk { stream: Stream::Stdout, bytes: text.into(), offset: 0 });
        check(&output("one\n\x1b[1mtwo\nthr"), Some("[1mtwo"));
        check(&output("thr"), None);
        check(
            &Event::Step(json!({ "name": "user", "status": "success", "detail": "1000" })),
            Some("user: success: 1000"),
        );
        check(&Event::Message("pulling".into()), Some("pulling"));
    }
}
