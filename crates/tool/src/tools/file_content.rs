//! `download` and `upload`: the content of a file as raw bytes beside the answer, for programs with an open connection.

use coracle_client::{Link, WriteFile};
use coracle_context::arg_types::Name;
use coracle_context::context::Context;
use coracle_context::failure::{Code, Failure};
use coracle_prepare::process::Process;
use coracle_prepare::resolve::container_path;
use coracle_protocol::{FileRef, UserSpec};
use coracle_runtime::ExecTarget;
use coracle_types::{Capability, Chunk, Error, Handle, Stream};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::dispatch::{Effect, Operation};
use crate::target::{CommandTarget, reach_inside};

/// Permission bits of a file that is a program, and of one that is not.
const PROGRAM: u32 = 0o755;
const PLAIN: u32 = 0o644;

/// Gives the content of a file as output.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct Download {
    /// Container to act on: its name, or an id of at least 12 digits.
    #[schemars(with = "Name")]
    container: Handle,
    /// Path in the container: absolute, `~/…`, or relative to its `workdir`.
    path: String,
}

/// Writes a file whole, from the input of the call. Directories above it are made.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct Upload {
    /// Container to act on: its name, or an id of at least 12 digits.
    #[schemars(with = "Name")]
    container: Handle,
    /// Path in the container: absolute, `~/…`, or relative to its `workdir`.
    path: String,
    /// Whether the file can be run as a program. Without it a file that is there keeps its permissions.
    executable: Option<bool>,
}

/// The answer of both.
#[derive(Debug, Serialize)]
pub(crate) struct FileTransfer {
    path: String,
    /// Bytes of its content.
    size_bytes: u64,
}

impl Operation<Process> for Download {
    const NAME: &'static str = "download";
    const EFFECT: Effect = Effect::ReadOnly;
    type Response = FileTransfer;

    async fn run(self, process: &Process) -> Result<FileTransfer, Failure> {
        let cx = &process.context;
        let Some(live) = cx.call.progress.live() else {
            return Err(Failure::new(Code::MissingField, "required: `events`").hint("the content comes as output"));
        };
        let (link, at) = file(cx, &self.container, &self.path).await?;
        let path = at.path.clone();
        let (_, mut content) = link.open_file(at, 0, u64::MAX).await.map_err(unreadable)?;
        let send = async {
            let mut size_bytes = 0;
            while let Some(bytes) = content.next().await? {
                let (offset, count) = (size_bytes, bytes.len() as u64);
                if live.send(Chunk { stream: Stream::Stdout, bytes, offset }).await.is_err() {
                    return Err(Failure::cancelled());
                }
                size_bytes += count;
            }
            Ok(FileTransfer { path, size_bytes })
        };
        cx.unless_cancelled(send).await
    }
}

impl Operation<Process> for Upload {
    const NAME: &'static str = "upload";
    const EFFECT: Effect = Effect::Mutating;
    type Response = FileTransfer;

    async fn run(self, process: &Process) -> Result<FileTransfer, Failure> {
        let cx = &process.context;
        let Some(content) = cx.take_input() else {
            return Err(Failure::new(Code::MissingField, "required: `input`").hint("the content is the call's input"));
        };
        let (link, at) = file(cx, &self.container, &self.path).await?;
        let path = at.path.clone();
        let mode = self.executable.map(|it| if it { PROGRAM } else { PLAIN });
        let write = WriteFile { at, mode, exact: mode.is_some(), parents: true, replace: true, content };
        let written = cx.unless_cancelled(async { Ok(link.put(write).await?) }).await?;
        Ok(FileTransfer { path, size_bytes: written.size })
    }
}

/// The guest of a container, and a file there as the user of its commands.
async fn file(cx: &Context, container: &Handle, path: &str) -> Result<(Link, FileRef), Failure> {
    let CommandTarget { record, inside, session } = reach_inside(cx, container, false).await?;
    let ExecTarget::Guest(link) = inside else {
        return Err(Error::Unsupported { engine: record.engine, capability: Capability::Guest }.into());
    };
    let path = container_path(path, &record)?.as_str().to_owned();
    let user = UserSpec::Ids { uid: session.user.uid, gid: Some(session.user.gid) };
    Ok((link, FileRef { user, path, follow: true }))
}

/// The file tools' code for a file that is not there.
fn unreadable(err: Error) -> Failure {
    let failure = Failure::from(err);
    match failure.code {
        Code::PathNotFound => {
            Failure::new(Code::FileNotFound, failure.message.clone()).hint("`ls` shows which files are there")
        }
        _ => failure,
    }
}
