//! The server as the protocol sees it, for any number of clients.

use std::sync::Arc;

use coracle::{Event, Failure, Input, Process, Progress, frontend};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation, ListToolsResult,
    PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::{Map, Value};

use super::clients::Clients;
use super::progress_notifications::ProgressReporter;
use super::session::{Held, Session};
use super::tools::{ToolCall, Tools};

/// SessionSource calls they are.
#[derive(Clone, Debug)]
pub(super) enum SessionSource {
    /// All are of the one client there is.
    One(Box<Session>),
    /// Of several; each call comes with its session.
    Each(Clients),
}

#[derive(Clone, Debug)]
pub(super) struct Server {
    sessions: SessionSource,
    tools: Arc<Tools>,
}

impl Server {
    pub(super) fn new(sessions: SessionSource, tools: Arc<Tools>) -> Self {
        Self { sessions, tools }
    }

    fn session(&self, context: &RequestContext<RoleServer>) -> Option<Held> {
        match &self.sessions {
            SessionSource::One(session) => Some(session.held()),
            SessionSource::Each(clients) => {
                context.extensions.get::<Held>().cloned().or_else(|| clients.of_the_token())
            }
        }
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("coracle", env!("CARGO_PKG_VERSION")))
            .with_instructions(self.tools.instructions())
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.tools.listed.iter().find(|it| it.name == name).cloned()
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.tools.listed.clone()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Some(called) = self.tools.find(&request.name) else {
            return Err(ErrorData::invalid_params(format!("no tool `{}`", request.name.escape_debug()), None));
        };
        let Some(session) = self.session(&context) else {
            return Err(ErrorData::invalid_request("the server stops", None));
        };
        let arguments = request.arguments.unwrap_or_default();
        let work = session.spawn(call(session.process().clone(), called, arguments, context));
        let told = work.await.unwrap_or_else(|err| ToolResponse::of_containers(Failure::internal(err).answer(None)));
        let answer = Value::Object(told.answer);
        let mut result =
            if told.is_error { CallToolResult::structured_error(answer) } else { CallToolResult::structured(answer) };
        if let Some(text) = told.text {
            result.content = vec![ContentBlock::text(text)];
        }
        Ok(result.into())
    }
}

/// What is told of a call.
struct ToolResponse {
    /// The object for programs.
    answer: Map<String, Value>,
    /// What a model reads, where that is something else.
    text: Option<String>,
    /// The call was not carried out.
    is_error: bool,
}

impl ToolResponse {
    fn of_containers(answer: Map<String, Value>) -> Self {
        let is_error = answer.get("success") != Some(&Value::Bool(true));
        Self { answer, text: None, is_error }
    }
}

/// One call, withdrawn by the request's own cancel and by the end of the session.
async fn call(
    process: Process,
    called: ToolCall,
    arguments: Map<String, Value>,
    context: RequestContext<RoleServer>,
) -> ToolResponse {
    let cancel = process.context.call.cancel.child_token();
    let withdrawn = tokio::spawn({
        let (request, cancel) = (context.ct.clone(), cancel.clone());
        async move {
            request.cancelled().await;
            cancel.cancel();
        }
    });
    let process = process.for_call(cancel, Progress::none());
    let told = match context.meta.get_progress_token() {
        None => drive(&process, called, arguments, None).await,
        Some(token) => {
            let mut reporter = ProgressReporter::new(token, context.peer);
            drive(&process, called, arguments, Some(&mut |event| reporter.on_event(&event))).await
        }
    };
    withdrawn.abort();
    told
}

async fn drive(
    process: &Process,
    called: ToolCall,
    arguments: Map<String, Value>,
    on_event: Option<&mut (dyn FnMut(Event) + Send)>,
) -> ToolResponse {
    match called {
        ToolCall::Containers => {
            ToolResponse::of_containers(frontend::drive(process, Input::Object(arguments), on_event).await)
        }
        ToolCall::Tool(entry) => {
            let said = frontend::drive_tool(process, entry, arguments, on_event).await;
            ToolResponse { is_error: said.is_error(), answer: said.answer, text: Some(said.text) }
        }
    }
}
