//! Runs a Pod from its creation to its end, like scheduler and kubelet together.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use coracle_runtime::{Container, Image};
use coracle_types::{Command, ContainerPath, Exec, Exit, Ids, Input};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until};

use crate::cluster::{Cluster, now};
use crate::conditions::{set_condition, set_container};
use crate::pod_plan::{PodPlan, container_status, pod_dir, words};
use crate::runs::{ContainerRun, PodRun, RunOptions};
use crate::store::Key;
use crate::{registry, scheduler};

/// The interval between two checks of a container.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Between two attempts to pull an image that is missing.
const PULL_AGAIN: Duration = Duration::from_secs(2);

/// PID 1 of an init container's container: its command is executed in it, for its input.
const WAIT: [&str; 2] = ["sleep", "2147483647"];

/// Takes care of a new Pod.
pub(crate) fn adopt(cluster: &Arc<Cluster>, key: &Key, uid: &str) {
    let run = Arc::new(PodRun::default());
    cluster.runs.lock().unwrap_or_else(PoisonError::into_inner).insert(uid.to_owned(), Arc::clone(&run));
    let kubelet = Kubelet { cluster: Arc::clone(cluster), key: key.clone(), uid: uid.to_owned(), run };
    tokio::spawn(async move { kubelet.care().await });
}

/// How a Pod ends.
#[derive(Debug)]
enum PodEnd {
    /// Its containers ended.
    Exited,
    /// It was ended, for that reason.
    Killed { reason: &'static str, message: String },
}

/// The care for one Pod.
#[derive(Debug)]
struct Kubelet {
    cluster: Arc<Cluster>,
    key: Key,
    uid: String,
    run: Arc<PodRun>,
}

impl Kubelet {
    async fn care(&self) {
        tokio::select! {
            biased;
            () = self.deleted() => {}
            () = self.run_pod() => self.deleted().await,
        }
        // An unreachable kubelet ends nothing.
        self.node_answers().await;
        self.tear_down().await;
        self.cluster.runs.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.uid);
    }

    fn pod(&self) -> Option<Value> {
        self.cluster.store.get(&self.key).filter(|it| it["metadata"]["uid"] == self.uid.as_str())
    }

    /// Waits until the Pod is marked for deletion or deleted.
    async fn deleted(&self) {
        let mut changed = self.cluster.store.subscribe();
        while self.pod().is_some_and(|it| it["metadata"]["deletionTimestamp"].is_null()) {
            if changed.changed().await.is_err() {
                return;
            }
        }
    }

    async fn tear_down(&self) {
        let pod = self.pod();
        if let Some(pod) = &pod {
            self.cluster.event(pod, "Killing", "Stopping container main");
            let grace = pod["metadata"]["deletionGracePeriodSeconds"].as_u64().unwrap_or(0);
            for spec in pod["spec"]["containers"].as_array().into_iter().flatten() {
                let name = spec["name"].as_str().unwrap_or_default();
                if let Some(run) = self.run.get(name) {
                    self.cluster.backing.stop(&run.id, Duration::from_secs(grace)).await;
                }
            }
        }
        self.cluster.backing.remove_pod(&self.uid).await;
        // It may have no volumes.
        let _ = std::fs::remove_dir_all(pod_dir(&self.cluster, &self.uid));
        sleep(self.cluster.options.finalize).await;
        if self.pod().is_some() {
            self.cluster.collect(&self.key);
        }
    }

    /// Changes the status once the node is reachable.
    async fn tell(&self, change: impl FnOnce(&mut Value)) {
        self.node_answers().await;
        self.cluster.set_status(&self.key, &self.uid, change);
    }

    async fn node_answers(&self) {
        let mut changed = self.cluster.store.subscribe();
        let node = self.pod().and_then(|it| it["spec"]["nodeName"].as_str().map(str::to_owned));
        let Some(node) = node else { return };
        while !scheduler::is_ready(&self.cluster, &node) {
            if changed.changed().await.is_err() {
                return;
            }
        }
    }

    async fn run_pod(&self) {
        scheduler::assign(&self.cluster, &self.key, &self.uid).await;
        let Some(pod) = self.pod() else { return };
        sleep(self.cluster.options.step).await;
        self.tell(begin).await;
        if !self.init(&pod).await {
            return;
        }
        if !self.start(&pod).await {
            return;
        }
        let end = self.watch_over(&pod).await;
        self.end(&pod, end).await;
    }

    /// Runs the init containers one after the other. Returns whether all succeeded.
    async fn init(&self, pod: &Value) -> bool {
        let specs = pod["spec"]["initContainers"].as_array().cloned().unwrap_or_default();
        for (at, spec) in specs.iter().enumerate() {
            let name = spec["name"].as_str().unwrap_or_default();
            let image = self.pull(pod, spec, "initContainerStatuses").await;
            let started = match self.container(pod, spec, at, &image, true).await {
                Ok(started) => started,
                Err(why) => {
                    self.fail_to_create(pod, spec, "initContainerStatuses", &why).await;
                    return false;
                }
            };
            let begun = now();
            let running = json!({ "running": { "startedAt": begun } });
            let status = container_status(spec, Some(&image), Some(started.id.as_str()), &running);
            self.tell(|pod| set_container(pod, "initContainerStatuses", name, status)).await;
            let code = self.execute(spec, &started).await;
            let reason = if code == 0 { "Completed" } else { "Error" };
            let ended = json!({ "terminated": {
                "exitCode": code, "reason": reason, "startedAt": begun, "finishedAt": now(),
                "containerID": format!("containerd://{}", started.id),
            } });
            let mut status = container_status(spec, Some(&image), Some(started.id.as_str()), &ended);
            status["ready"] = json!(code == 0);
            sleep(self.cluster.options.step).await;
            self.tell(|pod| {
                set_container(pod, "initContainerStatuses", name, status);
                if code != 0 {
                    pod["status"]["phase"] = json!("Failed");
                }
            })
            .await;
            if code != 0 {
                return false;
            }
        }
        self.tell(|pod| set_condition(pod, "Initialized", "True", "", "")).await;
        true
    }

    /// Executes an init container's command, with the input of the client that attaches.
    async fn execute(&self, spec: &Value, run: &Arc<ContainerRun>) -> u8 {
        let argv = [words(&spec["command"]), words(&spec["args"])].concat();
        let mut exec = Exec::new(Command::Argv(argv), run.user, run.workdir.clone());
        exec.keep_bytes = 64 << 10;
        exec.stdin = run.take_input().map(|it| Input::Stream(Box::new(it)));
        let (live, mut chunks) = mpsc::channel(16);
        exec.live = Some(live);
        let printing = async {
            while let Some(chunk) = chunks.recv().await {
                run.print(chunk);
            }
        };
        let (output, ()) = tokio::join!(self.cluster.backing.exec(&run.id, exec), printing);
        let code = match output.map(|it| it.exit) {
            Ok(Exit::Code(code)) => code,
            _ => 137,
        };
        run.exit.send_replace(Some(code));
        code
    }

    /// Starts the containers; whether all run.
    async fn start(&self, pod: &Value) -> bool {
        let specs = pod["spec"]["containers"].as_array().cloned().unwrap_or_default();
        let before = pod["spec"]["initContainers"].as_array().map_or(0, Vec::len);
        for (at, spec) in specs.iter().enumerate() {
            let name = spec["name"].as_str().unwrap_or_default();
            let image = self.pull(pod, spec, "containerStatuses").await;
            match self.container(pod, spec, before + at, &image, false).await {
                Ok(run) => {
                    self.cluster.event(pod, "Started", &format!("Started container {name}"));
                    let state = json!({ "running": { "startedAt": now() } });
                    let status = container_status(spec, Some(&image), Some(run.id.as_str()), &state);
                    sleep(self.cluster.options.step).await;
                    self.tell(|pod| set_container(pod, "containerStatuses", name, status)).await;
                }
                Err(why) => {
                    self.fail_to_create(pod, spec, "containerStatuses", &why).await;
                    return false;
                }
            }
        }
        self.tell(|pod| {
            pod["status"]["phase"] = json!("Running");
            set_condition(pod, "ContainersReady", "True", "", "");
            set_condition(pod, "Ready", "True", "", "");
        })
        .await;
        true
    }

    /// The image of a container. Waits while it is missing, and reports that.
    async fn pull(&self, pod: &Value, spec: &Value, list: &str) -> Image {
        let name = spec["name"].as_str().unwrap_or_default();
        let wanted = spec["image"].as_str().unwrap_or_default();
        let mut reason = "ErrImagePull";
        loop {
            if let Some(image) = registry::resolve(&self.cluster, wanted).await {
                return image;
            }
            let message = match reason {
                "ErrImagePull" => format!(
                    "failed to pull and unpack image \"{wanted}\": failed to resolve reference \"{wanted}\": {wanted}: not found"
                ),
                _ => format!("Back-off pulling image \"{wanted}\""),
            };
            self.cluster.event(pod, if reason == "ErrImagePull" { "Failed" } else { "BackOff" }, &message);
            let state = json!({ "waiting": { "reason": reason, "message": message } });
            let status = container_status(spec, None, None, &state);
            self.tell(|pod| set_container(pod, list, name, status)).await;
            let pause = if reason == "ErrImagePull" { PULL_AGAIN / 10 } else { PULL_AGAIN };
            sleep(pause).await;
            reason = "ImagePullBackOff";
        }
    }

    async fn fail_to_create(&self, pod: &Value, spec: &Value, list: &str, why: &str) {
        let name = spec["name"].as_str().unwrap_or_default();
        self.cluster.event(pod, "Failed", &format!("Error: {why}"));
        let reason = if why.contains("runAsNonRoot") { "CreateContainerConfigError" } else { "CreateContainerError" };
        let state = json!({ "waiting": { "reason": reason, "message": why } });
        let status = container_status(spec, None, None, &state);
        self.tell(|pod| set_container(pod, list, name, status)).await;
    }

    /// Creates and starts a container.
    async fn container(
        &self,
        pod: &Value,
        spec: &Value,
        number: usize,
        image: &Image,
        is_init: bool,
    ) -> Result<Arc<ContainerRun>, String> {
        let plan = PodPlan { cluster: &self.cluster, pod };
        let mut planned = plan.container(spec, number, image.clone())?;
        if is_init {
            planned.command = WAIT.map(str::to_owned).to_vec();
            planned.args.clear();
            planned.network = None;
        }
        let started: Container = self.cluster.backing.start(&planned).await?;
        let workdir = ContainerPath::parse(&started.workdir).unwrap_or_else(|_| ContainerPath::root());
        let options = RunOptions { is_init, has_stdin: is_init && spec["stdin"] == true };
        let run = Arc::new(ContainerRun::new(started.id, user_of(&started.user), workdir, options));
        self.run.add(spec["name"].as_str().unwrap_or_default(), Arc::clone(&run));
        Ok(run)
    }

    /// Waits for the end of a Pod that runs.
    async fn watch_over(&self, pod: &Value) -> PodEnd {
        let exited = async {
            let specs = pod["spec"]["containers"].as_array().into_iter().flatten();
            for name in specs.filter_map(|it| it["name"].as_str()) {
                let Some(run) = self.run.get(name) else { continue };
                while self.cluster.backing.inspect(&run.id).await.is_some_and(|it| it.running()) {
                    sleep(LOOK_AGAIN).await;
                }
            }
        };
        tokio::select! {
            () = exited => PodEnd::Exited,
            () = self.deadline() => PodEnd::Killed {
                reason: "DeadlineExceeded",
                message: "Pod was active on the node longer than the specified deadline".into(),
            },
            () = self.run.evict.notified() => PodEnd::Killed {
                reason: "Evicted",
                message: "The node was low on resource: memory. Threshold quantity: 100Mi, available: 64Mi.".into(),
            },
        }
    }

    /// Waits until the Pod has run for as long as it may, which can be changed while it runs.
    async fn deadline(&self) {
        let begun = Instant::now();
        let mut changed = self.cluster.store.subscribe();
        loop {
            let seconds = self.pod().and_then(|it| it["spec"]["activeDeadlineSeconds"].as_u64());
            let until = begun + Duration::from_secs(seconds.unwrap_or(u64::from(u32::MAX)));
            tokio::select! {
                () = sleep_until(until) => return,
                alive = changed.changed() => if alive.is_err() { return },
            }
        }
    }

    async fn end(&self, pod: &Value, end: PodEnd) {
        let mut failed = false;
        for spec in pod["spec"]["containers"].as_array().into_iter().flatten() {
            let name = spec["name"].as_str().unwrap_or_default();
            let Some(run) = self.run.get(name) else { continue };
            if !matches!(end, PodEnd::Exited) {
                self.cluster.backing.stop(&run.id, Duration::ZERO).await;
            }
            let seen = self.cluster.backing.inspect(&run.id).await;
            let code = seen.as_ref().and_then(|it| it.exit_code).unwrap_or(137);
            let reason = match &seen {
                Some(it) if it.oom_killed => "OOMKilled",
                _ if code == 0 => "Completed",
                _ => "Error",
            };
            failed |= code != 0;
            run.exit.send_replace(Some(u8::try_from(code).unwrap_or(255)));
            let state = json!({ "terminated": {
                "exitCode": code, "reason": reason, "finishedAt": now(), "containerID": format!("containerd://{}", run.id),
            } });
            let status = container_status(spec, None, Some(run.id.as_str()), &state);
            self.tell(|pod| set_container(pod, "containerStatuses", name, status)).await;
        }
        if let PodEnd::Killed { reason, message } = &end {
            failed = true;
            self.cluster.event(pod, reason, message);
        }
        self.tell(|pod| {
            pod["status"]["phase"] = json!(if failed { "Failed" } else { "Succeeded" });
            for condition in ["ContainersReady", "Ready"] {
                set_condition(pod, condition, "False", if failed { "PodFailed" } else { "PodCompleted" }, "");
            }
            if let PodEnd::Killed { reason, message } = end {
                pod["status"]["reason"] = json!(reason);
                pod["status"]["message"] = json!(message);
            }
        })
        .await;
    }
}

/// The first status of a kubelet.
fn begin(pod: &mut Value) {
    pod["status"]["startTime"] = json!(now());
    pod["status"]["hostIP"] = json!("10.98.0.11");
    pod["status"]["podIP"] = json!("10.97.1.2");
    for (list, statuses) in [("initContainers", "initContainerStatuses"), ("containers", "containerStatuses")] {
        let specs = pod["spec"][list].as_array().cloned().unwrap_or_default();
        for spec in &specs {
            let waiting = json!({ "waiting": { "reason": "PodInitializing" } });
            set_container(
                pod,
                statuses,
                spec["name"].as_str().unwrap_or_default(),
                container_status(spec, None, None, &waiting),
            );
        }
    }
    set_condition(pod, "Initialized", "False", "ContainersNotInitialized", "");
    set_condition(pod, "ContainersReady", "False", "ContainersNotReady", "");
    set_condition(pod, "Ready", "False", "ContainersNotReady", "");
}

/// A user in an engine's notation.
fn user_of(text: &str) -> Ids {
    let mut numbers = text.split(':').map(|it| it.parse().ok());
    let uid = numbers.next().flatten().unwrap_or(0);
    Ids { uid, gid: numbers.next().flatten().unwrap_or(0) }
}
