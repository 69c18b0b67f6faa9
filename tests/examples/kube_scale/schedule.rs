//! A watch of all Pods: when each of them got a node.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{WatchEvent, WatchParams};
use kube::{Api, Client};

use crate::NAMESPACE;

#[derive(Default)]
struct ScheduleLog {
    scheduled: HashMap<String, Instant>,
    events: usize,
}

pub(crate) struct Schedule {
    seen: Arc<Mutex<ScheduleLog>>,
}

impl Schedule {
    pub(crate) async fn watch(client: &Client) -> Self {
        let pods = Api::<Pod>::namespaced(client.clone(), NAMESPACE);
        let seen = Arc::<Mutex<ScheduleLog>>::default();
        let mut version = pods.list(&Default::default()).await.unwrap().metadata.resource_version.unwrap();
        let noted = Arc::clone(&seen);
        tokio::spawn(async move {
            loop {
                // The server ends a watch from time to time. The next one continues where it ended.
                let mut events = pods.watch(&WatchParams::default(), &version).await.unwrap().boxed();
                while let Some(Ok(event)) = events.next().await {
                    let (WatchEvent::Added(pod) | WatchEvent::Modified(pod)) = event else { continue };
                    version = pod.metadata.resource_version.clone().unwrap();
                    let mut seen = noted.lock().unwrap();
                    seen.events += 1;
                    if pod.spec.is_some_and(|it| it.node_name.is_some()) {
                        seen.scheduled.entry(pod.metadata.name.unwrap()).or_insert_with(Instant::now);
                    }
                }
            }
        });
        Self { seen }
    }

    /// When a Pod got its node. Waits for it.
    pub(crate) async fn of(&self, pod: &str, within: Duration) -> Instant {
        let deadline = Instant::now() + within;
        loop {
            if let Some(at) = self.seen.lock().unwrap().scheduled.get(pod) {
                return *at;
            }
            assert!(Instant::now() < deadline, "`{pod}` got no node");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub(crate) fn events_per_pod(&self) -> f64 {
        let seen = self.seen.lock().unwrap();
        seen.events as f64 / seen.scheduled.len().max(1) as f64
    }
}
