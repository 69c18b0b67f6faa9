//! `forward`: a port of this host that leads to a server in a container.

use coracle_client::{PortForward, forward_port, join_port};
use coracle_context::arg_types::Name;
use coracle_context::context::{Context, Frontend};
use coracle_context::document::{Document, Render};
use coracle_context::failure::{Code, Failure};
use coracle_lifecycle::enter;
use coracle_prepare::forwards::{ForwardTarget, MAX_FORWARDS};
use coracle_prepare::process::Process;
use coracle_runtime::{ExecTarget, PolicyRefusal, Problem};
use coracle_sandbox::provider::Forward as HeldForward;
use coracle_types::{ContainerName, Handle, Ids, RecordId, WorkflowId};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::net::TcpStream;

use crate::dispatch::{Effect, Operation};
use crate::schema::result_schema;
use crate::target::{CommandTarget, reach_inside};
use crate::workflow::{has_workflow, workflow_sandbox};
use crate::worktree::Workflow;

/// Make a server of a container or a workflow reachable at a port of this machine's loopback, until the session ends.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct Forward {
    /// Container to act on: its name, or an id of at least 12 digits.
    #[schemars(with = "Option<Name>", extend("x-first" = true))]
    pub(crate) container: Option<Handle>,
    /// The workflow whose sandbox has the server, in place of a container.
    pub(crate) workflow: Option<Workflow>,
    /// Port that the server has inside, on the container's loopback.
    #[schemars(range(min = 1))]
    pub(crate) container_port: u16,
    /// Port of 127.0.0.1 on this machine; without it a free one.
    pub(crate) host_port: Option<u16>,
}

/// The answer.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub(crate) struct ForwardResponse {
    #[serde(skip_serializing_if = "Option::is_none")]
    container: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    workflow: Option<WorkflowId>,
    container_port: u16,
    address: String,
    url: String,
}

impl Operation<Process> for Forward {
    const NAME: &'static str = "forward";
    const EFFECT: Effect = Effect::Mutating;
    const RESULT: fn() -> Value = result_schema::<ForwardResponse>;
    type Response = ForwardResponse;

    async fn run(self, process: &Process) -> Result<ForwardResponse, Failure> {
        let cx = &process.context;
        outlives_the_call(cx)?;
        self.check(cx)?;
        close_unused_forwards(process);
        match (&self.container, &self.workflow) {
            (Some(container), None) => self.to_container(process, container).await,
            (None, Some(workflow)) => self.to_workflow(process, workflow).await,
            (Some(_), Some(_)) => Err(Failure::conflicting(&["container", "workflow"], "the server is in one of them")),
            (None, None) => {
                Err(Failure::invalid("container", "is missing").hint("name a `container`, or a `workflow`"))
            }
        }
    }
}

impl Forward {
    async fn to_container(&self, process: &Process, container: &Handle) -> Result<ForwardResponse, Failure> {
        let cx = &process.context;
        let CommandTarget { record, inside, session } = reach_inside(cx, container, false).await?;
        let ExecTarget::Guest(_) = inside else { return Err(no_guest(record.name.as_str())) };
        let target = ForwardTarget::Container(record.record_id.clone());
        let inside = ContainerPort {
            cx: cx.outliving_the_call(),
            container: record.name.clone(),
            record_id: record.record_id,
            user: session.user,
            port: self.container_port,
        };
        let listen = async {
            let forward = self.listen(inside).await?;
            Ok(HeldForward { port: forward.port, hold: Box::new(forward) })
        };
        let port = self.port(process, target, listen).await?;
        Ok(ForwardResponse { container: Some(record.name.to_string()), ..self.response(port) })
    }

    async fn to_workflow(&self, process: &Process, workflow: &Workflow) -> Result<ForwardResponse, Failure> {
        let sandbox = workflow_sandbox(process, workflow).await?;
        let target = ForwardTarget::Workflow { sandbox: sandbox.key.clone(), id: workflow.0.clone() };
        let at = self.host_port.unwrap_or_default();
        let listen = async {
            let failed = |err: coracle_sandbox::Failure| port_taken(at, &err.message);
            sandbox.provider().forward_at(self.container_port, at).await.map_err(failed)
        };
        let port = self.port(process, target, listen).await?;
        Ok(ForwardResponse { workflow: Some(workflow.0.clone()), ..self.response(port) })
    }

    /// The port of one that this session has, or of another one.
    async fn port(
        &self,
        process: &Process,
        target: ForwardTarget,
        listen: impl Future<Output = Result<HeldForward, Failure>>,
    ) -> Result<u16, Failure> {
        let forwards = process.forwards();
        match forwards.port(&target, self.container_port).filter(|it| self.host_port.is_none_or(|at| at == *it)) {
            Some(port) => Ok(port),
            None if forwards.is_full() => Err(too_many()),
            None => Ok(forwards.add(target, self.container_port, listen.await?)),
        }
    }

    fn response(&self, port: u16) -> ForwardResponse {
        ForwardResponse {
            container: None,
            workflow: None,
            container_port: self.container_port,
            address: format!("127.0.0.1:{port}"),
            url: format!("http://127.0.0.1:{port}"),
        }
    }

    async fn listen(&self, inside: ContainerPort) -> Result<PortForward, Failure> {
        let connect = move |stream| {
            let inside = inside.clone();
            async move {
                if let Err(failure) = inside.join(stream).await {
                    tracing::warn!(port = inside.port, %failure, "a connection to a port of a container failed");
                }
            }
        };
        let at = self.host_port.unwrap_or_default();
        forward_port(at, connect)
            .await
            .map_err(|err| port_taken(at, &format!("127.0.0.1:{at} cannot be listened at: {err}")))
    }

    fn check(&self, cx: &Context) -> Result<(), Failure> {
        if self.container_port == 0 {
            return Err(Failure::invalid("container_port", "0 is no port"));
        }
        let lowest = cx.policy()?.port_min;
        let (rule, setting, message) = match self.host_port {
            _ if cx.config.is_strict() => return Err(no_port_opens(self.container_port)),
            Some(port) if port < lowest => {
                ("port.low", "security.port_min", format!("host port {port} is below {lowest}"))
            }
            _ => return Ok(()),
        };
        let value = self.container_port.to_string();
        Err(PolicyRefusal { problems: vec![Problem { rule, setting: Some(setting), value, message }] }.into())
    }
}

/// A port of a container, for connections that come later.
#[derive(Clone, Debug)]
struct ContainerPort {
    cx: Context,
    container: ContainerName,
    record_id: RecordId,
    user: Ids,
    port: u16,
}

impl ContainerPort {
    /// Passes a connection on to the container as it runs now: it may have been started again. One that has stopped is not
    /// started.
    async fn join(&self, stream: TcpStream) -> Result<(), Failure> {
        let (cx, handle) = (&self.cx, Handle::Name(self.container.clone()));
        let entered = enter(cx.engines(), &cx.store()?, cx.links(), &handle).await?;
        let Some((_, link)) = entered.filter(|it| it.0.record_id == self.record_id) else {
            return Err(Failure::new(Code::NotRunning, format!("`{}` does not run", self.container)));
        };
        Ok(join_port(&link, stream, self.user, self.port).await?)
    }
}

/// Closes the ports whose container or workflow is gone. Returns whether one is left.
pub fn close_unused_forwards(process: &Process) -> bool {
    let cx = &process.context;
    let records = cx.store().ok().and_then(|it| it.records().ok());
    process.forwards().retain(|target| match target {
        ForwardTarget::Container(id) => records.as_ref().is_none_or(|all| all.iter().any(|it| it.record_id == *id)),
        ForwardTarget::Workflow { sandbox, id } => has_workflow(cx, sandbox, id).unwrap_or(true),
    });
    !process.forwards().is_empty()
}

/// Whether a port of this host may lead to one inside: under `strict` none does.
///
/// # Errors
/// `policy_denied` under the rule `port.open`.
pub fn may_open_port(cx: &Context, container_port: u16) -> Result<(), Failure> {
    if cx.config.is_strict() { Err(no_port_opens(container_port)) } else { Ok(()) }
}

fn no_port_opens(container_port: u16) -> Failure {
    let message = "no port leads into a container".to_owned();
    let value = container_port.to_string();
    PolicyRefusal { problems: vec![Problem { rule: "port.open", setting: Some("policy"), value, message }] }.into()
}

/// A single call ends at once, and the port with it.
fn outlives_the_call(cx: &Context) -> Result<(), Failure> {
    if cx.call.frontend != Frontend::Call {
        return Ok(());
    }
    let message = "a forwarded port ends with the process that made it, and a single call is one";
    Err(Failure::new(Code::Unsupported, message)
        .detail("capability", "forward")
        .hint("`coracle forward NAME PORT` keeps it until it is interrupted; over MCP it stays until the session ends"))
}

fn port_taken(at: u16, message: &str) -> Failure {
    Failure::new(Code::PortTaken, message).detail("port", at).hint("leave `host_port` out to get a free one")
}

fn no_guest(name: &str) -> Failure {
    Failure::new(Code::Unsupported, format!("`{name}` has no guest, which connects to ports inside"))
        .detail("capability", "guest")
        .hint("publish the port with `ports` when the container is made")
}

fn too_many() -> Failure {
    Failure::new(Code::LimitReached, format!("this session forwards {MAX_FORWARDS} ports already"))
        .detail("limit", MAX_FORWARDS)
        .hint("use one of them, or another session")
}

impl Render for ForwardResponse {
    fn render(&self, _: Timestamp) -> Document {
        Document::line(self.address.clone())
    }

    fn render_for_model(&self) -> String {
        self.url.clone()
    }
}

#[cfg(test)]
mod tests {
    use coracle_context::{Context, Frontend, Host, Options};
    use coracle_prepare::process::Process;
    use coracle_runtime::FakeRuntime;
    use coracle_runtime::fake::LOCAL_IMAGE;
    use serde_json::json;

    use super::MAX_FORWARDS;
    use crate::{CallInput, execute, operations};

    #[tokio::test]
    async fn ports_of_containers_that_are_gone_are_given_back() {
        let dir = tempfile::tempdir().unwrap();
        let cx = Context::open(Host::below(dir.path()), &Options::default(), Frontend::Mcp).unwrap();
        let process = Process::new(cx.with_fake(FakeRuntime::new()));
        let calls = [
            json!({ "operation": "create", "name": "web", "image": LOCAL_IMAGE, "mount_cwd": false }),
            json!({ "operation": "forward", "container": "web", "container_port": 8000 }),
            json!({ "operation": "destroy", "container": "web" }),
        ];
        for call in calls.iter().cycle().take(calls.len() * (MAX_FORWARDS + 1)) {
            let answered = execute(operations::ALL, &process, CallInput::Text(call.to_string().into())).await.json;
            assert_eq!(answered["success"], true, "{answered:#?}");
        }
        assert!(!process.forwards().is_full());
    }
}
