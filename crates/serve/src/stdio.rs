//! Requests as lines on standard input, answers and events as lines on standard output.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use coracle::CallInput;
use coracle_context::{Code, Event, Failure};
use coracle_prepare::Process;
use coracle_transport::{LEAVING, Session};
use serde_json::{Value, json};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::call::{self, CallTask, EventSender};
use crate::catalog::Catalog;
use crate::input::{InputSender, input_channel};
use crate::lines::{self, InputLine, Output};
use crate::request::{CallRequest, MAX_WINDOW, Request, RequestBody, RequestError, RequestId, too_long, wrong_frame};

/// Maximum number of concurrent calls. A program with a thousand containers needs a few for each.
const MOST_CALLS: usize = 4096;

/// Maximum number of events of one call that wait to be written.
const EVENTS: usize = 8;

/// How long the end of a session waits for a client that does not read its answers.
const UNREAD: Duration = Duration::from_secs(5);

/// How long writing the last answers may take. With `LEAVING` it is less than clients wait.
const FLUSHING: Duration = Duration::from_secs(5);

/// The running requests of a client.
#[derive(Clone, Debug, Default)]
struct RunningCalls(Arc<Mutex<HashMap<RequestId, RunningCall>>>);

/// A running request. Clones share the state.
#[derive(Clone, Debug)]
struct RunningCall {
    cancel: CancellationToken,
    /// Number of events that the client still accepts; unlimited if unset.
    window: Option<Arc<Semaphore>>,
    /// Receives frames of its input.
    input: Option<InputSender>,
    /// Its standard output is sent in frames.
    binary: bool,
}

/// Serves the client until its input ends, it stops reading, or the process is to end. Waits for `upkeep` at the end.
pub(crate) async fn serve(session: &Session, process: &Process, upkeep: impl Future<Output = ()>) {
    let client = Client::new(session, process);
    let gone = process.context.call.cancel.child_token();
    let (output, written) = Output::to(standard_output(), gone.clone());
    let mut input = lines::read(io::stdin());
    while let Some(Some(line)) = gone.run_until_cancelled(input.recv()).await {
        // An answer may wait for the client to read, but the end of the process does not.
        if gone.run_until_cancelled(client.handle(line, &output)).await.is_none() {
            break;
        }
    }
    // Running calls are cancelled, and their answers are written before the output closes.
    let work = async {
        tokio::join!(Box::pin(session.end()), process.end(), upkeep);
    };
    if tokio::time::timeout(LEAVING, wind_up(work, &output)).await.is_err() {
        tracing::warn!("the session's containers were not all removed in time; the next call continues");
    }
    drop(output);
    flush(written).await;
}

/// Standard output without line buffering, which would search for newlines in the content of files.
fn standard_output() -> Box<dyn Write + Send> {
    match io::stdout().as_fd().try_clone_to_owned() {
        Ok(own) => Box::new(File::from(own)),
        Err(_) => Box::new(io::stdout()),
    }
}

/// Ends the session. A client that keeps the pipe open without reading gets no more answers; its containers are removed.
async fn wind_up(work: impl Future<Output = ()>, output: &Output) {
    tokio::pin!(work);
    let is_done = tokio::select! {
        biased;
        () = &mut work => true,
        () = output.unread_for(UNREAD) => false,
    };
    if !is_done {
        output.give_up();
        work.await;
    }
}

async fn flush(written: oneshot::Receiver<()>) {
    if tokio::time::timeout(FLUSHING, written).await.is_err() {
        tracing::warn!("the client did not read its last answers");
    }
}

/// A client on standard input.
struct Client<'a> {
    session: &'a Session,
    process: &'a Process,
    catalog: Catalog,
    running: RunningCalls,
}

impl<'a> Client<'a> {
    fn new(session: &'a Session, process: &'a Process) -> Self {
        Self { session, process, catalog: Catalog::for_process(process), running: RunningCalls::default() }
    }

    async fn handle(&self, line: InputLine, output: &Output) {
        let request = match line {
            InputLine::Text(text) if text.trim_ascii().is_empty() => return,
            InputLine::Text(text) => Request::parse(&text, &self.catalog),
            InputLine::TooLong(id) => Err(too_long(id)),
            InputLine::Frame(id, bytes) => return self.running.feed(&id, bytes),
            InputLine::WrongFrame => Err(wrong_frame()),
        };
        match request {
            Ok(Request { id, body: RequestBody::Cancel(of) }) => {
                let result = json!({ "success": true, "cancelled": self.running.cancel(&of) });
                output.answer(Some(&id), result).await;
            }
            Ok(Request { id, body: RequestBody::More(of, events) }) => {
                let result = json!({ "success": true, "running": self.running.widen(&of, events) });
                output.answer(Some(&id), result).await;
            }
            Ok(Request { id, body: RequestBody::Call(request) }) => {
                match self.running.begin(&id, &request, self.process) {
                    Ok(running) => self.spawn(id, request, running, output.clone()),
                    Err(RequestError { id, failure }) => output.answer(id.as_ref(), failure.answer(None).into()).await,
                }
            }
            Err(RequestError { id, failure }) => output.answer(id.as_ref(), failure.answer(None).into()).await,
        }
    }

    fn spawn(&self, id: RequestId, request: CallRequest, own: RunningCall, output: Output) {
        let input = request.input.then(|| {
            let (sender, input) = input_channel(id.clone(), output.clone());
            self.running.takes_input(&id, sender);
            input
        });
        let (process, running) = (self.process.clone(), self.running.clone());
        // Not awaited here: the session awaits it at its end.
        drop(self.session.held().spawn(async move {
            let CallRequest { callee, arguments, events, .. } = request;
            let cancel = own.cancel.clone();
            let call = CallTask { callee, arguments: CallInput::Object(arguments), input };
            let answer = if events {
                let (to, events) = mpsc::channel(EVENTS);
                let sender = EventSender { to, form: |event| event };
                let forwarding = forward(&id, events, &own, &output);
                tokio::join!(call.answer(&process, cancel, Some(sender)), forwarding).0
            } else {
                call.answer::<()>(&process, cancel, None).await
            };
            // Before the answer, because the client may reuse the id once it has received the answer.
            running.end(&id);
            output.answer(Some(&id), Value::Object(answer)).await;
        }));
    }
}

/// Passes events on as the client accepts them, so that a slow client slows only its own command.
async fn forward(id: &RequestId, mut events: mpsc::Receiver<Event>, call: &RunningCall, output: &Output) {
    while let Some(event) = events.recv().await {
        if !call.takes_event().await {
            continue;
        }
        match event.stdout().filter(|_| call.binary) {
            Some(bytes) => output.frame(id, bytes).await,
            None => output.event(id, call::line(&event)).await,
        }
    }
}

impl RunningCall {
    /// Waits until the client accepts an event; `false` once the call is cancelled, whose events are dropped.
    async fn takes_event(&self) -> bool {
        let Some(window) = &self.window else { return true };
        match self.cancel.run_until_cancelled(window.acquire()).await {
            Some(Ok(permit)) => {
                permit.forget();
                true
            }
            Some(Err(_)) | None => false,
        }
    }
}

impl RunningCalls {
    fn lock(&self) -> MutexGuard<'_, HashMap<RequestId, RunningCall>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a call.
    fn begin(&self, id: &RequestId, request: &CallRequest, process: &Process) -> Result<RunningCall, RequestError> {
        let mut running = self.lock();
        if running.contains_key(id) {
            // The client waits for the answer of the first request under this id.
            let failure = Failure::invalid("id", format!("request {} is still carried out", id.json()))
                .hint("give each request an `id` of its own");
            return Err(RequestError { id: None, failure: failure.into() });
        }
        if running.len() >= MOST_CALLS {
            let failure = Failure::new(Code::Busy, format!("{MOST_CALLS} calls are carried out already"))
                .hint("wait for some of them, or cancel them");
            return Err(RequestError { id: Some(id.clone()), failure: failure.into() });
        }
        let window = request.window.map(|events| Arc::new(Semaphore::new(events)));
        let call = RunningCall {
            cancel: process.context.call.cancel.child_token(),
            window,
            input: None,
            binary: request.binary,
        };
        running.insert(id.clone(), call.clone());
        Ok(call)
    }

    /// Grants further events to a call; `false` if no running call has that id.
    fn widen(&self, id: &RequestId, events: usize) -> bool {
        let running = self.lock();
        let Some(call) = running.get(id) else { return false };
        if let Some(window) = &call.window {
            window.add_permits(events.min(MAX_WINDOW - window.available_permits().min(MAX_WINDOW)));
        }
        true
    }

    fn takes_input(&self, id: &RequestId, sender: InputSender) {
        if let Some(call) = self.lock().get_mut(id) {
            call.input = Some(sender);
        }
    }

    /// Passes a frame on. A frame for a call without input, or for an ended call, is dropped: the client has the answer or
    /// receives it soon.
    fn feed(&self, id: &RequestId, bytes: Vec<u8>) {
        if let Some(input) = self.lock().get(id).and_then(|it| it.input.as_ref()) {
            input.push(bytes);
        }
    }

    fn end(&self, id: &RequestId) {
        self.lock().remove(id);
    }

    /// Cancels a call; `false` if no running call has that id.
    fn cancel(&self, id: &RequestId) -> bool {
        self.lock().get(id).map(|call| call.cancel.cancel()).is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write};
    use std::sync::mpsc;
    use std::time::Duration;

    use serde_json::Value;
    use tokio::task::{JoinSet, spawn_blocking};
    use tokio::time::{Instant, sleep};
    use tokio_util::sync::CancellationToken;

    use super::{FLUSHING, Output, UNREAD, flush, wind_up};

    /// The pipe of a client that does not read, until the sender is dropped.
    struct FullPipe(mpsc::Receiver<()>);

    impl Write for FullPipe {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.0.recv();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_read_does_not_block_the_end_of_the_process() {
        let (release, pipe) = mpsc::channel();
        let (output, written) = Output::to(FullPipe(pipe), CancellationToken::new());
        let answers = async {
            for _ in 0..1000 {
                output.answer(None, Value::Null).await;
            }
        };
        let begin = Instant::now();
        wind_up(answers, &output).await;
        drop(output);
        flush(written).await;
        assert_eq!(begin.elapsed().as_secs(), (UNREAD + FLUSHING).as_secs());
        drop(release);
    }

    /// The pipe of a client that reads each line.
    struct CountedPipe(mpsc::Sender<()>);

    impl Write for CountedPipe {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.0.send(());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_gets_the_answers_of_calls_with_a_slow_rollback() {
        let (pipe, lines) = mpsc::channel();
        let (output, _written) = Output::to(CountedPipe(pipe), CancellationToken::new());
        let answers = async {
            sleep(2 * UNREAD).await;
            // The paused clock does not advance until it ends.
            let read = spawn_blocking(move || {
                (0..1000).take_while(|_| lines.recv_timeout(Duration::from_secs(5)).is_ok()).count()
            });
            let mut calls = JoinSet::new();
            for _ in 0..1000 {
                let output = output.clone();
                calls.spawn(async move { output.answer(None, Value::Null).await });
            }
            calls.join_all().await;
            assert_eq!(read.await.unwrap(), 1000);
        };
        wind_up(answers, &output).await;
    }
}
