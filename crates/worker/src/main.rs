//! `coracle-worker`: the agent loop of a sandbox.
#![expect(clippy::print_stderr, reason = "standard error is the only output for errors")]

use std::ffi::OsString;
use std::process::ExitCode;

use coracle_sandbox::protocol::{Mode, WorkerRequest};
use coracle_sandbox::{Code, Failure, Result};
use coracle_types::{ContainerPath, Ids};
use coracle_worker::arguments::{RunArguments, USAGE, WorkerMode, parse};
use coracle_worker::{GuestSocket, Private, ProxyUrl, RetryPolicy, Worker, WorkerSettings, once, serve};
use tokio_util::sync::CancellationToken;

/// The directory that contains all working directories.
const ROOT: &str = "/workspace";

/// Maximum size of a prompt or of an instructions file, in bytes.
const MAX_TEXT: u64 = 16 << 20;

/// Makes cargo link this program again after `cargo xtask guest` has linked it statically, and the other way round.
const _: Option<&str> = option_env!("CORACLE_STATIC_PROGRAM");

fn main() -> ExitCode {
    // Before the arguments are read: afterwards no other process can inspect this one.
    let private = match coracle_worker::take() {
        Ok(private) => private,
        Err(err) => return exit_with_message(&format!("the channel cannot be taken: {err}"), 1),
    };
    let words: Vec<String> = std::env::args_os().skip(1).map(|it| it.to_string_lossy().into_owned()).collect();
    let mode = match parse(&words) {
        Ok(mode) => mode,
        Err(wrong) => return exit_with_message(&format!("{wrong}\n{USAGE}"), 2),
    };
    tracing_subscriber::fmt().with_max_level(tracing::Level::INFO).with_writer(std::io::stderr).with_ansi(false).init();
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(8).build() {
        Ok(runtime) => runtime,
        Err(err) => return exit_with_message(&err.to_string(), 1),
    };
    let done = runtime.block_on(work(mode, private));
    // A pending read of the channel must not delay the exit.
    runtime.shutdown_background();
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => exit_with_message(&failure.message, exit(&failure.code)),
    }
}

fn exit_with_message(text: &str, code: u8) -> ExitCode {
    eprintln!("coracle-worker: {text}");
    ExitCode::from(code)
}

fn exit(code: &Code) -> u8 {
    match code {
        Code::InvalidRequest | Code::InvalidRequestLength | Code::TruncatedRequest | Code::InvalidInput => 2,
        Code::SchemaInvalid | Code::SchemaUnsupported | Code::SchemaViolation => 3,
        Code::LlmUnauthorized | Code::LlmFailed | Code::ProxyUnreachable | Code::ProxyRequired => 4,
        Code::Cancelled => 5,
        _ => 1,
    }
}

async fn work(mode: WorkerMode, private: Private) -> Result<()> {
    let proxy = match variable("LLM_PROXY_URL") {
        Some(url) => Some(ProxyUrl::parse(&url)?),
        None => None,
    };
    let settings = WorkerSettings {
        proxy,
        token: private.token,
        network: variable("CORACLE_NETWORK").unwrap_or_else(|| "none".into()),
        root: ContainerPath::parse(ROOT).map_err(Failure::internal)?,
        agent: Ids { uid: 10_002, gid: 10_002 },
        patience: RetryPolicy::default(),
    };
    let socket = variable("CORACLE_GUEST_SOCKET").unwrap_or_else(|| "/.coracle/run/worker.sock".into());
    let worker = Worker::new(settings, GuestSocket::link(socket));
    let quit = CancellationToken::new();
    let mut term =
        tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).map_err(Failure::internal)?;
    let fired = quit.clone();
    tokio::spawn(async move {
        term.recv().await;
        fired.cancel();
    });
    let (input, output) = (tokio::fs::File::from_std(private.input), tokio::fs::File::from_std(private.output));
    match mode {
        WorkerMode::Serve => serve(&worker, input, output, quit).await,
        WorkerMode::Once(arguments) => once(&worker, &request(*arguments)?, output, quit).await,
    }
}

fn request(arguments: RunArguments) -> Result<WorkerRequest> {
    let instructions = match arguments.instructions_file {
        Some(path) => Some(text(&path)?),
        None => arguments.instructions,
    };
    let request = WorkerRequest {
        prompt: Some(text(&arguments.prompt_file)?),
        model: Some(arguments.model),
        cwd: arguments.cwd,
        instructions,
        schema_path: arguments.schema,
        tools: arguments.tools,
        limits: Some(arguments.limits),
        session_id: arguments.session_id,
        ..WorkerRequest::new(if arguments.agentic { Mode::Agentic } else { Mode::Generate }, &"0".repeat(32))
    };
    if request.prompt.as_ref().is_none_or(|it| it.trim().is_empty()) {
        return Err(Failure::new(Code::InvalidInput, "Prompt cannot be empty"));
    }
    Ok(request)
}

fn text(path: &std::path::Path) -> Result<String> {
    use std::io::Read as _;
    let mut text = String::new();
    let read = std::fs::File::open(path).and_then(|it| it.take(MAX_TEXT).read_to_string(&mut text));
    read.map_err(|err| Failure::new(Code::InvalidInput, format!("`{}` cannot be read: {err}", path.display())))?;
    Ok(text)
}

/// An empty value counts as unset.
#[expect(clippy::disallowed_methods, reason = "the guest's environment is read here only")]
fn variable(name: &str) -> Option<String> {
    std::env::var_os(name).map(OsString::into_string)?.ok().filter(|it| !it.is_empty())
}
