//! `coracle call`: one call as JSON, and only its answer on standard output.

use std::io;
use std::process::ExitCode;

use coracle::{CallInput, MAX_BYTES, frontend, operations, tool_schema};
use coracle_context::{Event, Failure, Frontend, Host, Options};
use coracle_prepare::Process;
use rustix::event::{PollFd, PollFlags, poll};
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use crate::stdin::read_stdin;
use crate::stdio::write_stdout;
use crate::{logging, render, signals, startup};

/// The arguments of `coracle call`.
#[derive(Debug)]
pub(crate) struct Call {
    /// The object; read from standard input if missing or `-`.
    pub(crate) text: Option<String>,
    /// Print events, one a line, before the answer.
    pub(crate) stream: bool,
}

/// Executes a call and prints its answer.
pub(crate) async fn run(call: Call, host: Host, options: &Options) -> ExitCode {
    let answer = match open(host, options) {
        Ok(process) => answer(call, &process).await,
        Err(failure) => {
            let answer = failure.answer(None);
            if call.stream { result(answer) } else { answer }
        }
    };
    let status = status(&answer);
    // If no program reads the output, the exit code still shows the result.
    let _ = print(&Value::Object(answer));
    status
}

/// Prints the tool's description and schema, as a model gets them.
pub(crate) fn print_schema() -> ExitCode {
    let _ = print(&tool_schema::tool(operations::ALL));
    ExitCode::SUCCESS
}

fn open(host: Host, options: &Options) -> Result<Process, Failure> {
    let process = Process::open(host, options, Frontend::Call)?;
    let cx = &process.context;
    logging::start(cx);
    startup::leave_proxies_running(&process);
    signals::cancel_on_signals(cx.call.cancel.clone()).map_err(Failure::internal)?;
    cancel_on_closed_stdout(cx.call.cancel.clone());
    Ok(process)
}

async fn answer(call: Call, process: &Process) -> Map<String, Value> {
    let cx = &process.context;
    if call.text.is_none() && cx.host.stdin_is_terminal {
        render::note("reading a call from standard input, to its end (Ctrl-D)");
    }
    let text = match call.text.filter(|it| it != "-") {
        Some(text) => Ok(text.into_bytes()),
        // Reads one byte more than the limit, to detect larger input.
        None => read_stdin(MAX_BYTES as u64 + 1).await,
    };
    let text = match text {
        Ok(text) => text,
        Err(err) => return Failure::internal(format!("cannot read standard input: {err}")).answer(None),
    };
    if !call.stream {
        return frontend::execute(operations::ALL, process, CallInput::Text(text), None).await.json;
    }
    let cancel = cx.call.cancel.clone();
    let mut on_event = move |event: Event| {
        if print(&event.line()).is_err() {
            cancel.cancel();
        }
    };
    result(frontend::execute(operations::ALL, process, CallInput::Text(text), Some(&mut on_event)).await.json)
}

/// The last line of a stream.
fn result(answer: Map<String, Value>) -> Map<String, Value> {
    Map::from_iter([("event".into(), "result".into()), ("result".into(), answer.into())])
}

/// 2 means that the request could not be parsed.
fn status(answer: &Map<String, Value>) -> ExitCode {
    let answer = answer.get("result").and_then(Value::as_object).unwrap_or(answer);
    match (answer.get("success"), answer.get("code")) {
        (Some(Value::Bool(true)), _) => ExitCode::SUCCESS,
        (_, Some(code)) if *code == json!("invalid_json") => ExitCode::from(2),
        _ => ExitCode::FAILURE,
    }
}

fn print(value: &Value) -> io::Result<()> {
    write_stdout(format!("{value}\n").as_bytes())
}

/// Cancels when the reader of standard output disconnects, which a pipe reports as an error. Files and terminals do not
/// report it. The thread waits in the kernel and ends with the process.
fn cancel_on_closed_stdout(cancel: CancellationToken) {
    std::thread::spawn(move || {
        let out = io::stdout();
        let mut watched = [PollFd::new(&out, PollFlags::empty())];
        if poll(&mut watched, None).is_ok() && watched[0].revents().intersects(PollFlags::ERR | PollFlags::HUP) {
            cancel.cancel();
        }
    });
}

#[cfg(test)]
mod tests {
    use std::process::ExitCode;

    use serde_json::{Map, Value, json};

    use super::{result, status};

    fn check(answer: Value, code: u8) {
        let Value::Object(answer) = answer else { panic!("no object") };
        let same = |it: &Map<String, Value>| format!("{:?}", status(it));
        assert_eq!(same(&answer), format!("{:?}", ExitCode::from(code)));
        assert_eq!(same(&result(answer)), format!("{:?}", ExitCode::from(code)));
    }

    #[test]
    fn the_exit_status_tells_success_failure_and_nonsense_apart() {
        check(json!({ "success": true }), 0);
        check(json!({ "success": false, "code": "not_found" }), 1);
        check(json!({ "success": false, "code": "invalid_json" }), 2);
    }
}
