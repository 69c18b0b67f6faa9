//! A scan: what is searched for, and what was met.

use crate::files::{Scan, SecretMatcher};
use crate::os::blocking::{TIME_SLICE, run_blocking};
use crate::protocol::body::encode;
use crate::protocol::{ErrorCode, RpcError, ScanEntry, ScanRequest, SecretQuery};
use crate::server::channel::ReplySender;
use crate::server::dispatch::{CallContext, UnaryHandler, UnaryReply};
use crate::server::services::Supervisor;
use crate::server::session_env::check_size;

impl UnaryHandler for ScanRequest {
    /// In turns: a caller that leaves ends it, and others have the thread in between.
    async fn answer(self, cx: &CallContext, _: &ReplySender) -> Result<UnaryReply<(Vec<ScanEntry>, bool)>, RpcError> {
        let supervisor = cx.supervisor.clone();
        let begin = move || {
            let sought = match &self.holding {
                None => None,
                // Nothing holds what is in any file by chance.
                Some(holding) => match sought(&supervisor, holding)? {
                    None => return Ok(None),
                    sought => sought,
                },
            };
            let files =
                supervisor.files.as_ref().ok_or_else(|| RpcError::new(ErrorCode::Io, "the root cannot be opened"))?;
            files.scan(&self, sought).map(Some)
        };
        let Some(mut scan) = run_blocking(begin).await?? else { return Ok(UnaryReply::Reply((Vec::new(), false))) };
        loop {
            let turn = move || {
                let over = scan.go(TIME_SLICE);
                (scan, over)
            };
            let (back, over): (Scan, bool) = run_blocking(turn).await?;
            if over {
                return run_blocking(move || UnaryReply::Encoded(encode(&back.end()))).await;
            }
            scan = back;
        }
    }
}

/// The values that were sent, and those of the session's variables that were named.
fn sought(supervisor: &Supervisor, holding: &SecretQuery) -> Result<Option<SecretMatcher>, RpcError> {
    check_size(holding.values.iter().map(|it| it.len()).sum())?;
    let session = supervisor.session.variables();
    let named = |variable: &&Vec<u8>| {
        let name = variable.split(|it| *it == b'=').next().unwrap_or_default();
        holding.session.iter().any(|it| it.as_bytes() == name)
    };
    let value = |variable: &Vec<u8>| {
        let name = variable.iter().position(|it| *it == b'=').map_or(variable.len(), |it| it + 1);
        variable[name..].to_vec()
    };
    let of_session: Vec<_> = session.variables().iter().filter(named).map(value).collect();
    let all = holding.values.iter().map(|it| &**it).chain(of_session.iter().map(Vec::as_slice));
    Ok(SecretMatcher::new(all))
}
