//! A worker for one run, as a command of a guest: its prompt is in a file of its own, and what it says is framed here.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use coracle_client::{Link, SecretFile};
use coracle_types::{Command, ContainerPath, Exec, Exit, Ids, Secret, random_hex};

use super::process::{WorkerProgram, WorkerStart, died};
use crate::protocol::{MessageType, Mode, ResponseFrame, WorkerMessage, WorkerRequest};
use crate::provider::WorkerProcess;
use crate::{Code, Failure, Result};

/// Bytes of a text that is placed in a file, at most.
const MAX_PLACED: usize = 1 << 20;

/// A worker for one run, in the container at the other end of a link.
pub struct LinkOnce {
    id: String,
    program: WorkerProgram,
    /// Its messages.
    messages: u64,
    /// The end of the run: none yet, success, or the failure.
    result: Option<std::result::Result<(), (String, String)>>,
    /// After its last message.
    last: VecDeque<ResponseFrame>,
}

impl fmt::Debug for LinkOnce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LinkOnce").field("messages", &self.messages).finish_non_exhaustive()
    }
}

impl LinkOnce {
    /// Has the guest place what is to be read, and starts it. An error of the program itself is reported by the first
    /// [`recv`](WorkerProcess::recv).
    ///
    /// # Errors
    /// `request_too_large`; `worker_died` when the guest does not take the files.
    pub async fn spawn(link: &Link, start: WorkerStart, request: &WorkerRequest) -> Result<Self> {
        let id = request.id.clone().unwrap_or_default();
        let (placed, words) = worker_arguments(request, &name(request))?;
        let user = start.user;
        let files: Vec<String> = placed.iter().map(|it| it.0.clone()).collect();
        let exec = Exec { files: files.clone(), ..start.exec(words) };
        let placing = Placed { link, user, files };
        for (name, text) in placed {
            let file = SecretFile { name, user, mode: 0o400, content: Secret::from(text.as_str()) };
            let put = link.put_command_secret(file).await;
            put.map_err(|err| Failure::new(Code::WorkerDied, format!("The worker is not given its prompt: {err}.")))?;
        }
        // From here on they go with the command.
        placing.given();
        let program = WorkerProgram::spawn(link, exec);
        Ok(Self { id, program, messages: 0, result: None, last: VecDeque::new() })
    }

    fn frame(&mut self, line: &[u8]) -> Result<ResponseFrame> {
        let text = std::str::from_utf8(line).map_err(|_| {
            Failure::new(Code::MalformedFrame, "Malformed worker frame: a message is not UTF-8".to_owned())
        })?;
        self.messages += 1;
        if let Ok(message) = WorkerMessage::parse(text)
            && message.r#type == MessageType::Result
        {
            let (code, text) = (message.code.unwrap_or_default(), message.content.unwrap_or_default());
            self.result = Some(if message.is_error { Err((code, text)) } else { Ok(()) });
        }
        Ok(ResponseFrame::Msg { text: text.to_owned(), id: self.id.clone() })
    }

    /// What a worker that serves says by itself: that the run failed, and that it is over.
    async fn over(&mut self) -> Result<Option<ResponseFrame>> {
        if let Some(output) = self.program.wait().await? {
            let done = ResponseFrame::Done { messages: self.messages, id: self.id.clone() };
            match self.result.take() {
                Some(Err((code, text))) => {
                    let id = self.id.clone();
                    self.last.extend([ResponseFrame::Error { text, code, id }, done]);
                }
                _ if output.exit != Exit::Code(0) => return Err(died(&output)),
                _ => self.last.push_back(done),
            }
        }
        Ok(self.last.pop_front())
    }
}

/// Files that are placed for a worker that may never start. What is dropped is taken away: by this while the link holds, by
/// the guest when it breaks.
struct Placed<'a> {
    link: &'a Link,
    user: Ids,
    files: Vec<String>,
}

impl Placed<'_> {
    /// They are a command's.
    fn given(mut self) {
        self.files.clear();
    }
}

impl Drop for Placed<'_> {
    fn drop(&mut self) {
        if self.files.is_empty() {
            return;
        }
        // A guest takes files away with the command that has them, also with one that cannot be started.
        let nothing = Exec::new(Command::Argv(vec!["true".into()]), self.user, ContainerPath::root());
        let (link, exec) = (self.link.clone(), Exec { files: std::mem::take(&mut self.files), bare: true, ..nothing });
        tokio::spawn(async move {
            if let Err(err) = link.exec(exec).await {
                tracing::debug!(%err, "the guest takes away what was placed for a worker");
            }
        });
    }
}

/// What files of a run are called: no two runs share one, also without an id of the caller.
fn name(request: &WorkerRequest) -> String {
    request.id.clone().filter(|it| !it.is_empty()).unwrap_or_else(random_hex::<16>)
}

/// The name of a file, and its text.
type Text = (String, String);

/// Files to place, and the words that name them.
fn worker_arguments(request: &WorkerRequest, id: &str) -> Result<(Vec<Text>, Vec<String>)> {
    let mode = if request.mode == Mode::Generate { "generate" } else { "agentic" };
    let mut words = vec![mode.to_owned()];
    let mut say = |name: &str, value: Option<String>| words.extend(value.into_iter().flat_map(|it| [name.into(), it]));
    let mut placed = Vec::new();
    let schema = request.schema.as_ref().map(ToString::to_string);
    for (option, kind, text) in [
        ("--prompt-file", "prompt", request.prompt.clone()),
        ("--instructions-file", "instructions", request.instructions.clone()),
        ("--schema", "schema", schema),
    ] {
        let Some(text) = text else { continue };
        if text.len() > MAX_PLACED {
            let message = format!("Request is too large: {} bytes (max {MAX_PLACED})", text.len());
            return Err(Failure::new(Code::RequestTooLarge, message));
        }
        let name = format!("{kind}-{id}");
        say(option, Some(format!("/.coracle/run/{name}")));
        placed.push((name, text));
    }
    let agentic = request.mode == Mode::Agentic;
    let cwd = || request.cwd.clone().unwrap_or_else(|| "/workspace".to_owned());
    let number = |it: Option<u64>| it.map(|it| it.to_string());
    let limits = request.limits.unwrap_or_default();
    say("--model", Some(request.model.clone().unwrap_or_default()));
    say("--cwd", agentic.then(cwd));
    say("--schema", request.schema_path.clone());
    say("--tools", request.tools.as_ref().filter(|_| agentic).map(|it| it.join(",")));
    say("--max-turns", number(limits.max_turns));
    say("--wall-seconds", number(limits.wall_seconds));
    say("--max-total-tokens", number(limits.max_total_tokens));
    say("--session-id", request.session_id.clone());
    Ok((placed, words))
}

#[async_trait]
impl WorkerProcess for LinkOnce {
    async fn send(&mut self, request: &WorkerRequest) -> Result<()> {
        if request.mode == Mode::Cancel {
            // TERM: it ends the run by itself, and says so.
            self.program.cancel();
            return Ok(());
        }
        Err(Failure::new(Code::WorkerDied, "The worker takes no request but the one it has."))
    }

    async fn recv(&mut self) -> Result<Option<ResponseFrame>> {
        match self.program.next_line().await? {
            Some(line) => self.frame(&line).map(Some),
            None => self.over().await,
        }
    }

    async fn close(&mut self) -> Result<()> {
        self.program.cancel();
        self.program.close(Duration::ZERO).await
    }

    fn alive(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;
    use std::path::PathBuf;
    use std::time::Duration;

    use coracle_runtime::fake::FakeRuntime;
    use tokio::time::timeout;

    use super::*;
    use crate::protocol::RunLimits;

    /// A container, the directory of its secret files, and its user.
    async fn container(fake: &FakeRuntime) -> (Link, PathBuf, Ids) {
        let (id, link) = fake.runs_guest("c").await;
        let run = fake.root(&id).unwrap().join(".coracle/run");
        let own = std::fs::metadata("/proc/self").unwrap();
        (link, run, Ids { uid: own.uid(), gid: own.gid() })
    }

    #[tokio::test]
    async fn what_was_placed_for_a_worker_that_does_not_start_is_taken_away() {
        let fake = FakeRuntime::new();
        let (link, run, user) = container(&fake).await;
        // Where the second file is to be there is a directory already.
        std::fs::create_dir_all(run.join("instructions-0a")).unwrap();
        let request = WorkerRequest {
            prompt: Some("canary".into()),
            instructions: Some("be brief".into()),
            ..WorkerRequest::new(Mode::Agentic, "0a")
        };
        let start = WorkerStart {
            program: ContainerPath::parse(WorkerStart::PROGRAM).unwrap(),
            user,
            proxy_url: String::new(),
            network: String::new(),
            token: Secret::from("t"),
        };
        let failure = LinkOnce::spawn(&link, start, &request).await.unwrap_err();
        assert_eq!(failure.code, Code::WorkerDied);
        assert!(failure.message.contains("instructions-0a"), "the prompt was placed: {}", failure.message);
        timeout(Duration::from_secs(30), async {
            while run.join("prompt-0a").exists() {
                tokio::task::yield_now().await;
            }
        })
        .await
        .expect("the prompt is gone");
    }

    #[tokio::test]
    async fn what_was_placed_is_gone_when_the_link_breaks_before_the_worker_starts() {
        let fake = FakeRuntime::new();
        let (link, run, user) = container(&fake).await;
        let file = |name: &str| SecretFile { name: name.into(), user, mode: 0o400, content: Secret::from("canary") };
        link.put_command_secret(file("prompt-0a")).await.unwrap();
        link.put_secret(file("stays")).await.unwrap();
        assert!(run.join("prompt-0a").exists());
        drop(link);
        timeout(Duration::from_secs(30), async {
            while run.join("prompt-0a").exists() {
                tokio::task::yield_now().await;
            }
        })
        .await
        .expect("the prompt is gone");
        assert!(run.join("stays").exists());
    }

    #[test]
    fn no_two_runs_share_a_file() {
        let without = WorkerRequest { id: None, ..WorkerRequest::new(Mode::Agentic, "0a") };
        let empty = WorkerRequest { id: Some(String::new()), ..without.clone() };
        let names = [&without, &without, &empty].map(name);
        assert!(names.iter().all(|it| it.len() == 32) && names[0] != names[1], "{names:?}");
        assert_eq!(name(&WorkerRequest::new(Mode::Agentic, "0a")), "0a");
    }

    #[test]
    fn what_a_person_says_is_placed_and_only_its_place_is_a_word() {
        let limits = Some(RunLimits { max_turns: Some(3), ..RunLimits::default() });
        let request = WorkerRequest {
            prompt: Some("--secret".into()),
            instructions: Some("be brief".into()),
            schema: Some(serde_json::json!({ "type": "object" })),
            model: Some("m".into()),
            tools: Some(vec!["ls".into(), "rm".into()]),
            limits,
            ..WorkerRequest::new(Mode::Agentic, "0a")
        };
        let (placed, words) = worker_arguments(&request, "0a").unwrap();
        let expected = "agentic --prompt-file /.coracle/run/prompt-0a --instructions-file /.coracle/run/instructions-0a \
            --schema /.coracle/run/schema-0a --model m --cwd /workspace --tools ls,rm --max-turns 3";
        assert_eq!(words.join(" "), expected);
        let texts: Vec<_> = placed.iter().map(|it| it.1.as_str()).collect();
        assert_eq!(texts, ["--secret", "be brief", r#"{"type":"object"}"#]);
        let long = WorkerRequest { prompt: Some("x".repeat(MAX_PLACED + 1)), ..request };
        assert_eq!(worker_arguments(&long, "0a").unwrap_err().code, Code::RequestTooLarge);
    }
}
