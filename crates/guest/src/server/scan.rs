//! The channel of a walk: what is searched for, and what was met.

use std::sync::Arc;

use crate::files::{Scan, SecretMatcher};
use crate::os::blocking::{TURN, apart};
use crate::protocol::{CallReply, ErrorCode, RpcError, ScanRequest, SecretQuery};
use crate::server::channel::{Inbox, ReplySender, left};
use crate::server::payload::within;
use crate::server::services::Supervisor;

/// Goes through files and tells what it met, unless the caller leaves before.
pub(crate) async fn walk(
    supervisor: &Arc<Supervisor>,
    ask: ScanRequest,
    (payload, mut inbox): (Vec<u8>, Inbox),
    out: &ReplySender,
) {
    let met = async {
        let values = within(payload, ask.holding.as_ref().map_or(0, |it| it.bytes), &mut inbox).await?;
        tokio::select! {
            met = go(supervisor, ask, values) => met,
            fault = left(&mut inbox) => Err(fault),
        }
    };
    out.say_whole(met.await.map(|(entries, more)| (CallReply::Walked { more }, entries))).await;
}

/// In turns: who leaves ends it, and others have the thread in between.
async fn go(supervisor: &Arc<Supervisor>, ask: ScanRequest, values: Vec<u8>) -> Result<(Vec<u8>, bool), RpcError> {
    let begun = supervisor.clone();
    let begin = move || {
        let sought = match &ask.holding {
            None => None,
            // Nothing holds what is in any file by chance.
            Some(holding) => match sought(&begun, holding, &values)? {
                None => return Ok(None),
                sought => sought,
            },
        };
        let files = begun.files.as_ref().ok_or_else(|| RpcError::new(ErrorCode::Io, "the root cannot be opened"))?;
        files.scan(&ask, sought).map(Some)
    };
    let Some(mut scan) = apart(begin).await?? else { return Ok((b"[]".to_vec(), false)) };
    loop {
        let turn = move || {
            let over = scan.go(TURN);
            (scan, over)
        };
        let (back, over): (Scan, bool) = apart(turn).await?;
        if over {
            return Ok(back.end());
        }
        scan = back;
    }
}

/// The values that were sent, and those of the session's variables that were named.
fn sought(supervisor: &Supervisor, holding: &SecretQuery, values: &[u8]) -> Result<Option<SecretMatcher>, RpcError> {
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
    let all = split(values)?.into_iter().chain(of_session.iter().map(Vec::as_slice));
    Ok(SecretMatcher::new(all))
}

/// Each has its length before it.
fn split(mut bytes: &[u8]) -> Result<Vec<&[u8]>, RpcError> {
    let mut values = Vec::new();
    while !bytes.is_empty() {
        let value = bytes.split_first_chunk().and_then(|(length, rest)| {
            let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
            rest.split_at_checked(length)
        });
        let (value, rest) = value.ok_or_else(|| RpcError::new(ErrorCode::Invalid, "a value breaks off"))?;
        values.push(value);
        bytes = rest;
    }
    Ok(values)
}
