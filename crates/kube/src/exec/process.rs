//! A command in a Pod, as a program whose outputs are read and whose end is awaited.

use std::io;
use std::pin::Pin;

use async_trait::async_trait;
use coracle_runtime::host::drain::{ProgramPipe, RunningProgram};
use futures_util::FutureExt as _;
use futures_util::future::Shared;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use kube::api::AttachedProcess;
use tokio::io::AsyncWrite;

use super::exit_line::without_exit_line;

/// Standard input of a command. It stays open until the command has ended: on servers before 1.30 its end would close the
/// whole connection, with the exit code in it.
pub(crate) type Stdin = Box<dyn AsyncWrite + Send + Unpin>;

type ProcessExit = Shared<Pin<Box<dyn Future<Output = Option<i32>> + Send>>>;

/// A command whose connection is open.
pub(crate) struct PodProcess {
    attached: AttachedProcess,
    /// Its error output, once it is filtered.
    stderr: Option<ProgramPipe>,
    exit: ProcessExit,
}

impl PodProcess {
    pub(crate) fn new(mut attached: AttachedProcess) -> Self {
        let status = attached.take_status();
        let exit = async move {
            let status = match status {
                Some(status) => status.await,
                None => None,
            };
            status.map(|it| exit_code(&it))
        };
        Self { attached, stderr: None, exit: exit.boxed().shared() }
    }

    /// One whose exit code is also a line with that mark, see [`without_exit_line`].
    pub(super) fn with_exit_line(mut self, mark: &str) -> Self {
        let Some(stderr) = self.attached.stderr() else { return self };
        let (stderr, line) = without_exit_line(Box::new(stderr), mark);
        let status = self.exit.clone();
        let exit = async move {
            tokio::pin!(status);
            tokio::select! {
                biased;
                code = &mut status => code,
                Ok(code) = line => Some(code),
            }
        };
        Self { stderr: Some(stderr), exit: exit.boxed().shared(), ..self }
    }

    /// Cuts its connection. Its outputs end then.
    pub(crate) fn cut(&self) {
        self.attached.abort();
    }

    /// Its input, once.
    pub(crate) fn stdin(&mut self) -> Option<Stdin> {
        self.attached.stdin().map(|it| Box::new(it) as Stdin)
    }

    /// Its outputs, once.
    pub(crate) fn outputs(&mut self) -> (Option<ProgramPipe>, Option<ProgramPipe>) {
        let stdout = self.attached.stdout().map(|it| Box::new(it) as ProgramPipe);
        let stderr = self.stderr.take().or_else(|| self.attached.stderr().map(|it| Box::new(it) as ProgramPipe));
        (stdout, stderr)
    }

    /// Its exit code; `None` when the connection broke before.
    pub(crate) fn exit(&self) -> impl Future<Output = Option<i32>> + Send + use<> {
        self.exit.clone()
    }
}

#[async_trait]
impl RunningProgram for PodProcess {
    fn take_outputs(&mut self) -> (Option<ProgramPipe>, Option<ProgramPipe>) {
        self.outputs()
    }

    async fn wait_for_exit(&mut self) -> io::Result<i32> {
        self.exit().await.ok_or_else(|| io::Error::other("the connection to the command broke"))
    }

    async fn end(&mut self) {
        self.attached.abort();
    }
}

/// `Success`, or a failure with a cause `ExitCode`. What cannot be started has no such cause.
fn exit_code(status: &Status) -> i32 {
    if status.status.as_deref() == Some("Success") {
        return 0;
    }
    let causes = status.details.iter().flat_map(|it| it.causes.iter().flatten());
    let mut codes = causes.filter(|it| it.reason.as_deref() == Some("ExitCode"));
    let code = codes.find_map(|it| it.message.as_deref()?.parse().ok());
    code.unwrap_or(if status.message.iter().any(|it| is_missing_program(it)) { 127 } else { 126 })
}

fn is_missing_program(message: &str) -> bool {
    message.contains("no such file or directory") || message.contains("executable file not found")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_code_is_a_cause_of_the_status() {
        let code = |json: serde_json::Value| exit_code(&serde_json::from_value(json).unwrap());
        let causes = serde_json::json!([{ "reason": "ExitCode", "message": "42" }]);
        let failed =
            serde_json::json!({ "status": "Failure", "reason": "NonZeroExitCode", "details": { "causes": causes } });
        assert_eq!(code(failed), 42);
        assert_eq!(code(serde_json::json!({ "status": "Success" })), 0);
        let missing = "exec failed: unable to start container process: exec: \"x\": executable file not found in $PATH";
        assert_eq!(code(serde_json::json!({ "status": "Failure", "message": missing })), 127);
        assert_eq!(code(serde_json::json!({ "status": "Failure", "message": "permission denied" })), 126);
    }
}
