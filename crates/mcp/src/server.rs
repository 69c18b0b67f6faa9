//! The server's implementation of the protocol, for any number of clients.

use std::iter;
use std::sync::Arc;

use coracle::{CallInput, CallResponse, frontend, operations};
use coracle_context::{Event, Failure, Progress};
use coracle_prepare::Process;
use coracle_transport::{Session, SessionLease};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation, ListToolsResult,
    PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::{Map, Value};

use super::elicitation::{self, ShownRequests};
use super::progress_notifications::ProgressReporter;
use super::tools::{ToolCall, Tools};
#[cfg(feature = "http")]
use super::{clients::Clients, named_session::named_session};

/// The sessions that calls belong to.
#[derive(Clone, Debug)]
pub(super) enum SessionSource {
    /// All calls belong to the only client.
    One(Box<Session>),
    /// There are several clients; each call names its session.
    #[cfg(feature = "http")]
    Each(Clients),
}

#[derive(Clone, Debug)]
pub(super) struct Server {
    sessions: SessionSource,
    tools: Arc<Tools>,
    shown: ShownRequests,
}

impl Server {
    pub(super) fn new(sessions: SessionSource, tools: Arc<Tools>) -> Self {
        Self { sessions, tools, shown: ShownRequests::default() }
    }

    #[cfg_attr(not(feature = "http"), expect(unused_variables, reason = "the only client needs no name"))]
    fn session(&self, context: &RequestContext<RoleServer>) -> Option<SessionLease> {
        match &self.sessions {
            SessionSource::One(session) => Some(session.held()),
            #[cfg(feature = "http")]
            SessionSource::Each(clients) => {
                let head = || context.extensions.get::<hyper::http::request::Parts>();
                let name = || head().and_then(|head| named_session(head).ok().flatten());
                context.extensions.get::<SessionLease>().cloned().or_else(|| clients.without_protocol(name()))
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
            return Err(ErrorData::invalid_params(self.tools.unknown(&request.name), None));
        };
        let Some(session) = self.session(&context) else {
            return Err(ErrorData::invalid_request("the server stops", None));
        };
        let arguments = request.arguments.unwrap_or_default();
        let work = session.spawn(call(session.process().clone(), called, arguments, context, self.shown.clone()));
        let response = work.await.unwrap_or_else(|err| CallResponse::of_failure(&Failure::internal(err), None));
        Ok(tool_result(response, self.tools.has_data(called)).into())
    }
}

/// The answer as a result of the protocol. `with_data` adds it as an object, which some clients show to a model in place
/// of text and images.
fn tool_result(response: CallResponse, with_data: bool) -> CallToolResult {
    let (is_error, answer) = (response.is_error(), Value::Object(response.json));
    let text = response.text.unwrap_or_else(|| answer.to_string());
    let images = response.images.into_iter().map(|it| ContentBlock::image(it.data, it.media_type));
    let content = iter::once(ContentBlock::text(text)).chain(images).collect();
    let mut result = if is_error { CallToolResult::error(content) } else { CallToolResult::success(content) };
    result.structured_content = with_data.then_some(answer);
    result
}

/// One call, cancelled by the request's own cancellation or by the end of the session.
async fn call(
    process: Process,
    called: ToolCall,
    arguments: Map<String, Value>,
    context: RequestContext<RoleServer>,
    shown: ShownRequests,
) -> CallResponse {
    let cancel = process.context.call.cancel.child_token();
    let process = process.for_call(cancel.clone(), Progress::none());
    let request = context.ct.clone();
    let peer = context.peer.clone();
    let asks = elicitation::ask(&process, &peer, shown);
    let work = async {
        let token = context.meta.get_progress_token();
        let mut reporter = token.map(|token| ProgressReporter::new(token, context.peer));
        let mut report = reporter.as_mut().map(|reporter| move |event: Event| reporter.on_event(&event));
        let on_event = report.as_mut().map(|report| report as frontend::OnEvent<'_>);
        let response = match called {
            ToolCall::Containers => {
                frontend::execute(operations::ALL, &process, CallInput::Object(arguments), on_event).await
            }
            ToolCall::Tool(entry) => frontend::execute_tool(&process, entry, arguments, on_event).await,
        };
        if let Some(reporter) = reporter {
            reporter.finish().await;
        }
        response
    };
    let mut work = Box::pin(work);
    tokio::select! {
        response = &mut work => response,
        () = asks => unreachable!("it ends when it is dropped"),
        () = request.cancelled() => {
            cancel.cancel();
            work.await
        }
    }
}
