//! Ports of a sandbox on the host.

use std::sync::Arc;

use coracle_client::{forward_port, join_port};
use tokio::net::TcpStream;

use super::Sandbox;
use super::sandbox_proxy::SandboxProxy;
use crate::provider::Forward;
use crate::{Code, Failure, Result};

/// Listens on a port of 127.0.0.1, a free one for 0, until the answer is dropped. The sandbox is made ready for each
/// connection: one that was stopped meanwhile is started.
pub(super) async fn forward(sandbox: Sandbox, proxy: Arc<SandboxProxy>, port: u16, at: u16) -> Result<Forward> {
    let connect = move |stream| {
        let (sandbox, proxy) = (sandbox.clone(), proxy.clone());
        async move {
            if let Err(failure) = join(&sandbox, &proxy, stream, port).await {
                tracing::warn!(port, %failure, "a connection to a port of a sandbox failed");
            }
        }
    };
    let forward = forward_port(at, connect).await.map_err(|err| {
        let failure = Failure::new(Code::InvalidInput, format!("127.0.0.1:{at} cannot be listened at: {err}."));
        failure.detail("port", at)
    })?;
    Ok(Forward { port: forward.port, hold: Box::new(forward) })
}

async fn join(sandbox: &Sandbox, proxy: &Arc<SandboxProxy>, stream: TcpStream, port: u16) -> Result<()> {
    let _open = proxy.open()?;
    let held = sandbox.ensure().await?;
    join_port(&held.link, stream, sandbox.agent(), port).await.map_err(Failure::internal)
}
