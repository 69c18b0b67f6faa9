//! A command in a Pod, as a running program.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use async_trait::async_trait;
use coracle_host::drain::{ProgramPipe, RunningProgram};
use futures_util::FutureExt as _;
use futures_util::future::Shared;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use kube::api::AttachedProcess;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::exit_line::without_exit_line;

/// Standard input of a command. It stays open until the command has ended: on servers before 1.30, closing it would
/// close the whole connection before the exit code.
pub(crate) type Stdin = Box<dyn AsyncWrite + Send + Unpin>;

type ProcessExit = Shared<Pin<Box<dyn Future<Output = Option<i32>> + Send>>>;

/// A command whose connection is open.
pub(crate) struct PodProcess {
    attached: AttachedProcess,
    /// Its error output, once it is filtered.
    stderr: Option<ProgramPipe>,
    /// The server's report of its end.
    status: ProcessExit,
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
        let status = exit.boxed().shared();
        Self { attached, stderr: None, exit: status.clone(), status }
    }

    /// Reads the exit code also from a line with that mark, see [`without_exit_line`].
    pub(super) fn with_exit_line(mut self, mark: &str) -> Self {
        let Some(stderr) = self.attached_stderr() else { return self };
        let (stderr, line) = without_exit_line(stderr, mark);
        let status = self.status.clone();
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

    /// Closes its connection, which ends its outputs.
    pub(crate) fn cut(&self) {
        self.attached.abort();
    }

    /// Its input, once.
    pub(crate) fn stdin(&mut self) -> Option<Stdin> {
        self.attached.stdin().map(|it| Box::new(it) as Stdin)
    }

    /// Its outputs, once.
    pub(crate) fn outputs(&mut self) -> (Option<ProgramPipe>, Option<ProgramPipe>) {
        let stdout = self.attached.stdout().map(|it| ProcessOutput::pipe(it, &self.status));
        let stderr = self.stderr.take().or_else(|| self.attached_stderr());
        (stdout, stderr)
    }

    fn attached_stderr(&mut self) -> Option<ProgramPipe> {
        self.attached.stderr().map(|it| ProcessOutput::pipe(it, &self.status))
    }

    /// Its exit code; `None` if the connection broke before.
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

/// An output that also ends when its connection breaks, in which case the client library leaves it open.
struct ProcessOutput<R> {
    reader: R,
    /// Set until the end is reported. After a normal end of the command, the output ends by itself.
    status: Option<ProcessExit>,
    is_broken: bool,
}

impl<R: AsyncRead + Send + Sync + Unpin + 'static> ProcessOutput<R> {
    fn pipe(reader: R, status: &ProcessExit) -> ProgramPipe {
        Box::new(Self { reader, status: Some(status.clone()), is_broken: false })
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for ProcessOutput<R> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let it = self.get_mut();
        if let Poll::Ready(read) = Pin::new(&mut it.reader).poll_read(cx, buffer) {
            return Poll::Ready(read);
        }
        if let Some(Poll::Ready(code)) = it.status.as_mut().map(|status| status.poll_unpin(cx)) {
            (it.status, it.is_broken) = (None, code.is_none());
        }
        if it.is_broken { Poll::Ready(Ok(())) } else { Poll::Pending }
    }
}

/// Parses `Success`, or a failure with a cause `ExitCode`. A command that could not start has no such cause.
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

    #[tokio::test]
    async fn an_output_ends_with_its_connection_and_not_before_its_bytes() {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

        for (code, expected) in [(None, "all"), (Some(0), "all of it")] {
            let (reader, mut writer) = tokio::io::simplex(64);
            let status: ProcessExit = std::future::ready(code).boxed().shared();
            let mut output = ProcessOutput::pipe(reader, &status);
            writer.write_all(b"all").await.unwrap();
            let read = tokio::spawn(async move {
                let mut text = String::new();
                output.read_to_string(&mut text).await.map(|_| text)
            });
            tokio::task::yield_now().await;
            if code.is_some() {
                writer.write_all(b" of it").await.unwrap();
                writer.shutdown().await.unwrap();
            }
            assert_eq!(read.await.unwrap().unwrap(), expected);
        }
    }

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
