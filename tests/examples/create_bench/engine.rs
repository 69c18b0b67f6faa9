//! An engine with containers of its own program and of a user.
#![expect(clippy::disallowed_methods, reason = "the engines' own programs are what is compared with")]

use std::cell::RefCell;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::leftovers;
use crate::mcp::McpSession;
use crate::person::Person;
use crate::{LABEL, Measured, agent};

/// The tool that creates and removes containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// The engine's own program, on the engine's default network.
    Engine,
    /// The same on a separate network, like containers of `coracle`.
    EngineOnNetwork,
    /// `coracle` without provisioning.
    Bare,
    /// `coracle` with a user's provisioning.
    Full,
    /// An agent's server without provisioning.
    Mcp,
}

impl Way {
    const ALL: [Self; 5] = [Self::Engine, Self::EngineOnNetwork, Self::Bare, Self::Full, Self::Mcp];

    fn name(self) -> &'static str {
        match self {
            Self::Engine => "engine",
            Self::EngineOnNetwork => "engine_network",
            Self::Bare => "bare",
            Self::Full => "full",
            Self::Mcp => "mcp",
        }
    }
}

/// An engine and the users of containers on it.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) name: &'static str,
    pub(crate) version: String,
    /// The image of the purpose, cached after the first `create`.
    image: String,
    /// A bridge network for the engine's own program.
    network: String,
    /// Containers of the engine's own program that are still there.
    own: RefCell<Vec<String>>,
    /// Goes first: its containers are of the other's image.
    bare: Person,
    full: Person,
    /// The session of the bare person. Ends before that person's containers are inspected.
    agent: RefCell<Option<McpSession>>,
}

impl Engine {
    /// Makes the image, which takes minutes. Both persons have looked at the engine when this is done, and have a container
    /// that stays: it is the next one that is measured, not the one that a shared network is made for.
    pub(crate) fn open(name: &str, coracle: &Path, measured: &mut Measured) -> Self {
        let (name, field) = match name {
            "docker" => ("docker", "Server"),
            "podman" => ("podman", "Client"),
            _ => panic!("no engine `{name}`"),
        };
        let version =
            timed_output(Command::new(name).args(["version", "--format", &format!("{{{{.{field}.Version}}}}")])).0;
        let (full, bare) = (Person::with_all(coracle, name), Person::with_nothing(coracle, name));
        let (first, took) = full.call(&for_the_purpose());
        assert_eq!(first["cache_used"], false, "{first:#}");
        eprintln!("{name}: the image was made in {:.1} s", took.as_secs_f64());
        measured.add(name, "first", Way::Full.name(), took);
        let image = text(&first, "image");
        let agent = RefCell::new(Some(bare.agent()));
        let network = format!("coracle-bench-{}", std::process::id());
        timed_output(Command::new(name).args(["network", "create", &label(), &network]));
        let it = Self { name, version, image, network, own: RefCell::default(), full, bare, agent };
        it.bare.call(&it.bare_call());
        it
    }

    /// Makes a container in each way, and removes them. Another way begins each time: what one leaves behind for the
    /// engine to do is not always the same other's burden.
    pub(crate) fn round(&self, round: usize, measured: &mut Measured) {
        let mut ways = Way::ALL;
        ways.rotate_left(round % Way::ALL.len());
        let made = ways.map(|way| (way, self.create(way, measured)));
        for (way, container) in made {
            measured.add(self.name, "destroy", way.name(), self.destroy(way, &container));
        }
        let mut agent = self.agent.borrow_mut();
        agent::calls(self.name, agent.as_mut().expect("it runs until the end"), &self.image, measured);
    }

    fn create(&self, way: Way, measured: &mut Measured) -> String {
        let (container, took) = match way {
            Way::Engine => self.run_by_engine(&[]),
            Way::EngineOnNetwork => self.run_by_engine(&[&format!("--network={}", self.network)]),
            Way::Bare => {
                let (answer, took) = self.bare.call(&self.bare_call());
                assert!(put_in(&answer).all(|it| it["status"] == "skipped"), "{answer:#}");
                (text(&answer, "container"), took)
            }
            Way::Mcp => {
                let (answer, took) = self.by_the_agent(&self.bare_call());
                (text(&answer, "container"), took)
            }
            Way::Full => {
                let (answer, took) = self.full.call(&for_the_purpose());
                assert!(answer["cache_used"] == true && answer["provisioning_ok"] == true, "{answer:#}");
                self.steps(&answer, measured);
                (text(&answer, "container"), took)
            }
        };
        measured.add(self.name, "create", way.name(), took);
        container
    }

    fn run_by_engine(&self, options: &[&str]) -> (String, Duration) {
        let label = label();
        let words = ["run", "--detach", &label].into_iter().chain(options.iter().copied());
        let words = words.chain([self.image.as_str(), "sleep", "1000000"]);
        let (id, took) = timed_output(Command::new(self.name).args(words));
        self.own.borrow_mut().push(id.clone());
        (id, took)
    }

    /// Reported durations of the steps, and the sum of those that provision something.
    fn steps(&self, answer: &Value, measured: &mut Measured) {
        let done = |it: &&Value| it["status"] != "skipped";
        for must in ["env_passthrough", "forward_git"] {
            assert!(put_in(answer).filter(done).any(|it| it["name"] == must), "{answer:#}");
        }
        let took = |it: &Value| Duration::from_millis(it["duration_ms"].as_u64().unwrap());
        for step in report(answer).iter().filter(done) {
            measured.add(self.name, "step", &text(step, "name"), took(step));
        }
        measured.add(self.name, "steps", Way::Full.name(), put_in(answer).map(took).sum());
    }

    fn destroy(&self, way: Way, container: &str) -> Duration {
        let call = json!({ "operation": "destroy", "container": container });
        match way {
            Way::Engine | Way::EngineOnNetwork => {
                let (_, took) = timed_output(&mut self.removal(container));
                self.own.borrow_mut().retain(|it| it != container);
                took
            }
            Way::Bare => self.bare.call(&call).1,
            Way::Full => self.full.call(&call).1,
            Way::Mcp => self.by_the_agent(&call).1,
        }
    }

    fn by_the_agent(&self, call: &Value) -> (Value, Duration) {
        self.agent.borrow_mut().as_mut().expect("it runs until the end").call(call)
    }

    fn bare_call(&self) -> Value {
        json!({ "operation": "create", "image": self.image, "mount_cwd": false })
    }

    fn removal(&self, container: &str) -> Command {
        let mut command = Command::new(self.name);
        command.args(["rm", "--force"]);
        if self.name == "podman" {
            command.arg("--time=0"); // Docker kills at once; Podman would send TERM and wait
        }
        command.arg(container);
        command
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        drop(self.agent.take());
        // They are removed before the user's images, which they use.
        for container in self.own.take() {
            let _ = self.removal(&container).stdin(Stdio::null()).output();
        }
        // The id of a container that was created during an interruption is unknown.
        leftovers::remove_labelled(self.name, &format!("{}={}", LABEL, std::process::id()));
        let _ = Command::new(self.name).args(["network", "rm", &self.network]).stdin(Stdio::null()).output();
    }
}

fn label() -> String {
    format!("--label={}={}", LABEL, std::process::id())
}

fn for_the_purpose() -> Value {
    json!({ "operation": "create", "purpose": "python" })
}

fn report(answer: &Value) -> &[Value] {
    answer["provisioning_report"].as_array().unwrap()
}

/// The steps after the work directory.
fn put_in(answer: &Value) -> impl Iterator<Item = &Value> {
    report(answer).iter().skip_while(|it| it["name"] != "workspace").skip(1)
}

fn text(value: &Value, name: &str) -> String {
    value[name].as_str().unwrap().to_owned()
}

/// A program's output and duration.
fn timed_output(command: &mut Command) -> (String, Duration) {
    let begun = Instant::now();
    let Output { status, stdout, stderr } = command.stdin(Stdio::null()).output().unwrap();
    let took = begun.elapsed();
    assert!(status.success(), "{command:?}: {status}: {}", String::from_utf8_lossy(&stderr));
    (String::from_utf8(stdout).unwrap().trim().to_owned(), took)
}
