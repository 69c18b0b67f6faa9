//! Watches: changes, bookmarks, and the error for a dropped version.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Response, header};
use futures_util::stream;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use crate::cluster::Cluster;
use crate::kinds::Target;
use crate::query::Query;
use crate::selector::Selector;
use crate::status::Refusal;
use crate::store::Change;

/// Between two bookmarks; a minute on a real server.
const BOOKMARK: Duration = Duration::from_millis(500);

const USUAL_TIMEOUT: u64 = 1800;

/// A watch that is under way.
struct Watch {
    cluster: Arc<Cluster>,
    target: Target,
    selector: Selector,
    /// The last version that was checked.
    version: u64,
    changed: watch::Receiver<u64>,
    has_bookmarks: bool,
    next_bookmark: Instant,
    ends: Instant,
    /// Lines that are due.
    ready: Vec<String>,
    over: bool,
}

/// Starts a watch.
pub(crate) fn serve(cluster: &Arc<Cluster>, target: &Target, query: &Query) -> Result<Response<Body>, Refusal> {
    let fields = query.get("fieldSelector").to_owned();
    let fields = match &target.name {
        Some(name) => format!("metadata.name={name},{fields}"),
        None => fields,
    };
    let selector = Selector::parse(query.get("labelSelector"), &fields)?;
    let since = query.get("resourceVersion");
    let since: u64 = match since {
        "" => 0,
        text => text.parse().map_err(|_| Refusal::bad_request(format!("invalid resource version \"{text}\"")))?,
    };
    let changed = cluster.store.subscribe();
    let seconds = query.number("timeoutSeconds").unwrap_or(USUAL_TIMEOUT);
    let mut watch = Watch {
        cluster: Arc::clone(cluster),
        target: target.clone(),
        selector,
        version: since,
        changed,
        has_bookmarks: query.is_set("allowWatchBookmarks"),
        next_bookmark: Instant::now() + BOOKMARK,
        ends: Instant::now() + Duration::from_secs(seconds),
        ready: Vec::new(),
        over: false,
    };
    if since == 0 || query.is_set("sendInitialEvents") {
        watch.begin(query.is_set("sendInitialEvents"));
    }
    let lines = stream::unfold(watch, |mut watch| async move {
        let lines = watch.next().await?;
        Some((Ok::<_, std::convert::Infallible>(lines), watch))
    });
    let mut response = Response::new(Body::from_stream(lines));
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    Ok(response)
}

impl Watch {
    /// Existing objects as additions.
    fn begin(&mut self, with_end: bool) {
        let listing = self.cluster.store.list(self.target.kind.plural, self.target.namespace.as_deref());
        self.version = listing.version;
        for (_, object) in listing.objects.iter().filter(|(_, it)| self.selector.admits(it)) {
            self.ready.push(line("ADDED", object));
        }
        if with_end {
            let mut end = self.bookmark();
            end["metadata"]["annotations"] = json!({ "k8s.io/initial-events-end": "true" });
            self.ready.push(line("BOOKMARK", &end));
        }
    }

    fn bookmark(&self) -> Value {
        let kind = self.target.kind;
        json!({
            "kind": kind.name, "apiVersion": kind.api_version(),
            "metadata": { "resourceVersion": self.version.to_string(), "creationTimestamp": null },
        })
    }

    /// The next lines; `None` at the end.
    async fn next(&mut self) -> Option<String> {
        loop {
            if !self.ready.is_empty() {
                return Some(self.ready.drain(..).collect());
            }
            if self.over || Instant::now() >= self.ends {
                return None;
            }
            self.changed.borrow_and_update();
            match self.cluster.store.changes(self.target.kind.plural, self.version) {
                Ok(changes) => self.take(&changes),
                Err(expired) => {
                    self.ready.push(line("ERROR", &expired.to_json()));
                    self.over = true;
                }
            }
            if !self.ready.is_empty() {
                continue;
            }
            let until = if self.has_bookmarks { self.ends.min(self.next_bookmark) } else { self.ends };
            if timeout_at(until, self.changed.changed()).await.is_err()
                && self.has_bookmarks
                && Instant::now() >= self.next_bookmark
            {
                self.next_bookmark = Instant::now() + BOOKMARK;
                self.ready.push(line("BOOKMARK", &self.bookmark()));
            }
        }
    }

    fn take(&mut self, changes: &[Change]) {
        let in_namespace = |it: &Change| self.target.namespace.as_ref().is_none_or(|name| *name == it.key.namespace);
        let lines = changes.iter().filter(|it| in_namespace(it)).filter_map(|it| {
            let was = it.before.as_ref().filter(|it| self.selector.admits(it));
            let is = it.after.as_ref().filter(|it| self.selector.admits(it));
            match (was, is) {
                (None, Some(object)) => Some(line("ADDED", object)),
                (Some(_), Some(object)) => Some(line("MODIFIED", object)),
                // An object that is no longer selected is reported in its present state.
                (Some(object), None) => Some(line("DELETED", it.after.as_ref().unwrap_or(object))),
                (None, None) => None,
            }
        });
        self.ready = lines.collect();
        if let Some(last) = changes.last() {
            self.version = self.version.max(last.version);
        }
    }
}

fn line(kind: &str, object: &Value) -> String {
    format!("{}\n", json!({ "type": kind, "object": object }))
}
