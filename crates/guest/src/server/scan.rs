//! Handles scans of directories, optionally for secrets.

use crate::files::{Scan, SecretMatcher};
use crate::os::blocking::{TIME_SLICE, run_blocking};
use crate::protocol::body::encode;
use crate::protocol::{ErrorCode, RpcError, ScanEntry, ScanRequest, SecretQuery};
use crate::server::channel::ReplySender;
use crate::server::dispatch::{CallContext, UnaryHandler, UnaryReply};
use crate::server::services::Supervisor;
use crate::server::session_env::check_size;

impl UnaryHandler for ScanRequest {
    /// Scans in time slices: it stops if the caller disconnects, and others use the thread in between.
    async fn execute(self, cx: &CallContext, _: &ReplySender) -> Result<UnaryReply<(Vec<ScanEntry>, bool)>, RpcError> {
        let supervisor = cx.supervisor.clone();
        let begin = move || {
            let matcher = match &self.holding {
                None => None,
                // Without usable values, no file matches.
                Some(holding) => match secret_matcher(&supervisor, holding)? {
                    None => return Ok(None),
                    matcher => matcher,
                },
            };
            let files = supervisor
                .files
                .as_ref()
                .ok_or_else(|| RpcError::new(ErrorCode::Io, "the root directory cannot be opened"))?;
            files.scan(&self, matcher).map(Some)
        };
        let Some(mut scan) = run_blocking(begin).await?? else { return Ok(UnaryReply::Reply((Vec::new(), false))) };
        loop {
            let slice = move || {
                let finished = scan.run(TIME_SLICE);
                (scan, finished)
            };
            let (scanned, finished): (Scan, bool) = run_blocking(slice).await?;
            if finished {
                return run_blocking(move || UnaryReply::Encoded(encode(&scanned.end()))).await;
            }
            scan = scanned;
        }
    }
}

/// A matcher for the values in the request, and for the values of the session variables named in it.
fn secret_matcher(supervisor: &Supervisor, holding: &SecretQuery) -> Result<Option<SecretMatcher>, RpcError> {
    check_size(holding.values.iter().map(|it| it.len()).sum())?;
    let session = supervisor.session.variables();
    let is_named = |variable: &&Vec<u8>| {
        let name = variable.split(|it| *it == b'=').next().unwrap_or_default();
        holding.session.iter().any(|it| it.as_bytes() == name)
    };
    let value = |variable: &Vec<u8>| {
        let name = variable.iter().position(|it| *it == b'=').map_or(variable.len(), |it| it + 1);
        variable[name..].to_vec()
    };
    let of_session: Vec<_> = session.variables().iter().filter(is_named).map(value).collect();
    let all = holding.values.iter().map(|it| &**it).chain(of_session.iter().map(Vec::as_slice));
    Ok(SecretMatcher::new(all))
}
