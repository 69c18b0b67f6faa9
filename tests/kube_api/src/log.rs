//! `pods/log`: output of PID 1.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, Response, header};
use futures_util::stream;

use crate::cluster::Cluster;
use crate::kinds::Target;
use crate::query::Query;
use crate::runs::ContainerRun;
use crate::status::Refusal;
use crate::store::Key;
use crate::stream::container_of;

const MAX_LOG: usize = 8 << 20;

/// The interval between two reads of a followed log.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

pub(crate) async fn serve(cluster: &Arc<Cluster>, target: &Target, query: &Query) -> Result<Response<Body>, Refusal> {
    let (namespace, name) =
        (target.namespace.as_deref().unwrap_or_default(), target.name.as_deref().unwrap_or_default());
    let pod = cluster.store.get(&Key::pod(namespace, name)).ok_or_else(|| Refusal::not_found("pods", name))?;
    let container = container_of(&pod, query.get("container"))?;
    let uid = pod["metadata"]["uid"].as_str().unwrap_or_default();
    let Some(run) = cluster.run_of(uid).and_then(|it| it.get(&container)) else {
        let message = format!("container \"{container}\" in pod \"{name}\" is waiting to start: PodInitializing");
        return Err(Refusal::bad_request(message));
    };
    let text = tail(read(cluster, &run).await, query);
    let body = if query.is_set("follow") { follow(Arc::clone(cluster), run, text) } else { Body::from(text) };
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    Ok(response)
}

async fn read(cluster: &Cluster, run: &ContainerRun) -> Vec<u8> {
    if run.is_init {
        return run.log();
    }
    cluster.backing.runtime.logs(&run.id, MAX_LOG).await.unwrap_or_default()
}

fn tail(text: Vec<u8>, query: &Query) -> Vec<u8> {
    let mut text = text;
    if let Some(lines) = query.number("tailLines").and_then(|it| usize::try_from(it).ok()) {
        let ends: Vec<usize> = text.iter().enumerate().filter(|(_, it)| **it == b'\n').map(|(at, _)| at + 1).collect();
        let whole = if text.ends_with(b"\n") { ends.len() } else { ends.len() + 1 };
        let skipped = whole.saturating_sub(lines);
        let from = skipped.checked_sub(1).and_then(|it| ends.get(it)).copied().unwrap_or(0);
        text.drain(..from);
    }
    if let Some(bytes) = query.number("limitBytes").and_then(|it| usize::try_from(it).ok()) {
        text.truncate(bytes);
    }
    text
}

/// Streams a container's output until it ends.
fn follow(cluster: Arc<Cluster>, run: Arc<ContainerRun>, begin: Vec<u8>) -> Body {
    let state = (cluster, run, begin, 0_usize);
    Body::from_stream(stream::unfold(state, |(cluster, run, begin, seen)| async move {
        if !begin.is_empty() {
            let seen = read(&cluster, &run).await.len();
            return Some((Ok::<_, std::convert::Infallible>(begin), (cluster, run, Vec::new(), seen)));
        }
        loop {
            let ended = run.has_ended();
            let text = read(&cluster, &run).await;
            if text.len() > seen {
                let more = text[seen..].to_vec();
                return Some((Ok(more), (cluster, run, Vec::new(), text.len())));
            }
            if ended {
                return None;
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }))
}
