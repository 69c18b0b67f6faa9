//! What an agent waits for: calls to `coracle mcp`, and for the embedded engine its own part, in this process.

use std::cell::RefCell;
use std::path::Path;
use std::time::{Duration, Instant};

use coracle_runtime::{ContainerRuntime as _, LabelFilter};
use serde_json::{Value, json};

use crate::Measured;
use crate::embedded::Embedded;
use crate::mcp::McpSession;
use crate::person::Person;

/// Makes a container and a fork of it, uses both, and removes them. All containers of the session are gone then.
pub(crate) fn calls(engine: &'static str, agent: &mut McpSession, image: &str, measured: &mut Measured) {
    let mut call = |case: &'static str, calls: &[Value]| {
        let mut last = Value::Null;
        let mut took = Duration::ZERO;
        for call in calls {
            let (answer, time) = agent.call(call);
            (last, took) = (answer, took + time);
        }
        measured.add(engine, case, "operation", took);
        last
    };
    let (name, fork) = ("bench-agent", "bench-fork");
    let ran = |container: &str| json!({ "operation": "exec", "container": container, "command": "true" });
    let create = json!({ "operation": "create", "name": name, "image": image, "mount_cwd": false });
    call("create_true", &[create, ran(name)]);
    call("status", &[json!({ "operation": "status", "container": name })]);
    call("list", &[json!({ "operation": "list" })]);
    call("fork_true", &[json!({ "operation": "fork", "container": name, "name": fork }), ran(fork)]);
    call("remove", &[json!({ "operation": "destroy", "container": fork })]);
    call("remove", &[json!({ "operation": "destroy", "container": name })]);
}

/// The embedded engine, by an agent's session and by itself.
pub(crate) struct EmbeddedAgent {
    image: String,
    agent: RefCell<Option<McpSession>>,
    _person: Person,
    engine: Embedded,
    tasks: tokio::runtime::Runtime,
}

impl EmbeddedAgent {
    /// Makes the image that a container without one gets.
    pub(crate) fn open(coracle: &Path) -> Self {
        let person = Person::with_nothing(coracle, "embedded");
        let (first, _) = person.call(&json!({ "operation": "create", "mount_cwd": false }));
        let image = first["image"].as_str().unwrap().to_owned();
        let tasks = tokio::runtime::Runtime::new().unwrap();
        let engine = tasks.block_on(Embedded::open());
        Self { image, agent: RefCell::new(Some(person.agent())), _person: person, engine, tasks }
    }

    pub(crate) fn round(&self, measured: &mut Measured) {
        calls("embedded", self.agent.borrow_mut().as_mut().unwrap(), &self.image, measured);
        self.tasks.block_on(async {
            let parent = self.engine.answering(true).await;
            measured.add("embedded", "create_true", "engine", parent.answered);
            let fork = self.engine.forked(&parent).await;
            measured.add("embedded", "fork_true", "engine", fork.answered);
            for container in [fork, parent] {
                measured.add("embedded", "remove", "engine", self.engine.remove(container).await);
            }
            let begun = Instant::now();
            let _ = self.engine.runtime.list(&LabelFilter::default()).await.unwrap();
            measured.add("embedded", "list", "engine", begun.elapsed());
        });
    }
}

impl Drop for EmbeddedAgent {
    fn drop(&mut self) {
        drop(self.agent.take());
        self.tasks.block_on(self.engine.remove_all());
    }
}
