//! Handles calls about the terminals of commands.
//!
//! **Invariant:** attaching to a terminal and detaching does not affect its command.

use crate::protocol::{
    AttachTerminal, ErrorCode, ListTerminals, MAX_PAYLOAD, OutputMode, RpcError, StreamSelector, TerminalInfo, body,
};
use crate::server::channel::ReplySender;
use crate::server::dispatch::{CallContext, Channel, StreamHandler, UnaryHandler, UnaryReply};
use crate::server::exec::OutputSubscriber;

impl UnaryHandler for ListTerminals {
    async fn execute(self, cx: &CallContext, _: &ReplySender) -> Result<UnaryReply<Self::Reply>, RpcError> {
        let mut left = MAX_PAYLOAD / 2;
        let infos = cx.supervisor.jobs.all().into_iter().rev().filter_map(|job| {
            let terminal = job.terminal()?;
            Some(TerminalInfo { job: job.info(), size: terminal.size(), attached: terminal.attached() })
        });
        // If there are too many, the newest.
        let fitting = infos.take_while(|info| {
            let bytes = body::encoded_len(info);
            let fits = bytes <= left;
            left = left.saturating_sub(bytes);
            fits
        });
        let mut infos: Vec<TerminalInfo> = fitting.collect();
        infos.reverse();
        Ok(UnaryReply::Reply(infos))
    }
}

impl StreamHandler for AttachTerminal {
    async fn serve(self, cx: &CallContext, Channel { mut inbox, out }: Channel) {
        inbox.release_payload();
        let supervisor = &cx.supervisor;
        let found = supervisor.jobs.find(&self.job).and_then(|job| match job.terminal() {
            Some(terminal) => Ok((job, terminal)),
            None => Err(RpcError::new(ErrorCode::NoJob, format!("the command `{}` has no terminal", self.job))),
        });
        let (job, terminal) = match found {
            Ok(found) => found,
            Err(failure) => return out.send_failure(failure).await,
        };
        let input = match terminal.open_input() {
            Ok(input) => input,
            Err(error) => return out.send_failure(RpcError::new(ErrorCode::Io, error.to_string())).await,
        };
        out.send_event(&job.started_event()).await;
        let from = job.log(|log| {
            let total = log.total(StreamSelector::Stdout);
            total.saturating_sub(self.replay).max(log.first(StreamSelector::Stdout))
        });
        // If a caller waits for the command, only that caller applies backpressure.
        let subscriber = match job.is_background() {
            true => OutputSubscriber::new(supervisor, job, OutputMode::All, [from, 0]),
            false => OutputSubscriber::observer(supervisor, job, [from, 0]),
        };
        let _attached = terminal.attach(self.size);
        subscriber.watch((Some(input), Some(terminal.clone())), inbox, &out).await;
    }
}
