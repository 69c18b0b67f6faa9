//! Options of containers, commands and waits. Unset options have the defaults of the configuration.

use std::time::Duration;

use coracle_context::failure::Failure;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::session::CallFields;

/// Fields of `create`. Fields without a method here are set with [`with`](Self::with).
///
/// A field that is set twice has the last value; lists and maps grow with each call.
#[derive(Clone, Debug, Default)]
pub struct ContainerOptions {
    fields: Map<String, Value>,
    /// The first value that JSON cannot represent, reported by the call.
    fault: Option<Failure>,
}

impl ContainerOptions {
    /// Options of a container for a purpose: `python`, `node`, `rust`, `go`, `general`, ….
    #[must_use]
    pub fn purpose(purpose: &str) -> Self {
        Self::default().with("purpose", purpose)
    }

    /// Options of a container from an image.
    #[must_use]
    pub fn image(image: &str) -> Self {
        Self::default().with("image", image)
    }

    /// Sets the container's name. By default, one is generated.
    #[must_use]
    pub fn name(self, name: &str) -> Self {
        self.with("name", name)
    }

    /// Installs Debian packages in the image.
    #[must_use]
    pub fn packages(self, packages: &[&str]) -> Self {
        self.with("packages", packages)
    }

    /// Publishes a port of the container on the host's loopback, at a free host port: see
    /// [`Container::ports`](super::Container::ports).
    #[must_use]
    pub fn port(self, port: u16) -> Self {
        self.push("ports", json!({ "container": port }))
    }

    /// Whether to mount the working directory of this process.
    #[must_use]
    pub fn mount_cwd(self, mount: bool) -> Self {
        self.with("mount_cwd", mount)
    }

    /// Mounts a host file or directory, with mode `ro` or `rw`.
    #[must_use]
    pub fn mount(self, host: &str, inside: &str, mode: &str) -> Self {
        self.push("mounts", json!({ "host": host, "container": inside, "mode": mode }))
    }

    /// Clones a repository into the work directory.
    #[must_use]
    pub fn repo(self, url: &str) -> Self {
        self.push("repos", json!({ "url": url }))
    }

    /// Sets a variable for every command. Secrets are not written to the container's configuration.
    #[must_use]
    pub fn env(self, name: &str, value: &str) -> Self {
        self.insert("env", name, value)
    }

    /// Sets a label of the container.
    #[must_use]
    pub fn label(self, name: &str, value: &str) -> Self {
        self.insert("labels", name, value)
    }

    /// Runs a shell command when the container is created, after everything else is in place.
    #[must_use]
    pub fn setup_command(self, command: &str) -> Self {
        self.push("setup_commands", json!(command))
    }

    /// Sets the memory limit, such as `512m` or `2g`.
    #[must_use]
    pub fn memory_limit(self, limit: &str) -> Self {
        self.with("memory_limit", limit)
    }

    /// Sets the CPU limit, in cores.
    #[must_use]
    pub fn cpu_limit(self, cores: f64) -> Self {
        self.with("cpu_limit", cores)
    }

    /// Sets the network: `default`, `none`, `proxy`, or the name of a network.
    #[must_use]
    pub fn network(self, network: &str) -> Self {
        self.with("network", network)
    }

    /// Keeps the container when its session ends.
    #[must_use]
    pub fn persistent(self) -> Self {
        self.with("persistent", true)
    }

    /// Sets any field of `create`. A value that JSON cannot represent, such as a map with keys that are not strings, makes
    /// the call fail with `invalid_input`.
    #[must_use]
    pub fn with(mut self, field: &str, value: impl Serialize) -> Self {
        match serde_json::to_value(value) {
            Ok(value) => drop(self.fields.insert(field.to_owned(), value)),
            Err(err) => drop(self.fault.get_or_insert_with(|| Failure::invalid(field, err.to_string()))),
        }
        self
    }

    /// Adds to a list. A field that [`with`](Self::with) set to another type makes the call fail: nothing is dropped.
    fn push(mut self, field: &str, value: Value) -> Self {
        match self.fields.entry(field).or_insert_with(|| json!([])) {
            Value::Array(list) => list.push(value),
            _ => self.mixed(field),
        }
        self
    }

    /// Adds to a map, as [`push`](Self::push) to a list.
    fn insert(mut self, field: &str, name: &str, value: &str) -> Self {
        match self.fields.entry(field).or_insert_with(|| json!({})) {
            Value::Object(map) => drop(map.insert(name.to_owned(), value.into())),
            _ => self.mixed(field),
        }
        self
    }

    fn mixed(&mut self, field: &str) {
        let message = "it was set to a value of another type, to which nothing can be added";
        self.fault.get_or_insert_with(|| Failure::invalid(field, message).hint("set the whole field with `with`"));
    }

    pub(super) fn into_fields(self) -> Result<CallFields, Failure> {
        self.fault.map_or(Ok(self.fields), Err)
    }
}

/// A command, and how it runs. A string converts to a shell command, an array of strings to an argument vector.
#[derive(Clone, Debug)]
pub struct ExecOptions(Map<String, Value>);

impl From<&str> for ExecOptions {
    fn from(command: &str) -> Self {
        Self::shell(command)
    }
}

impl From<String> for ExecOptions {
    fn from(command: String) -> Self {
        Self::shell(&command)
    }
}

impl<const N: usize> From<[&str; N]> for ExecOptions {
    fn from(argv: [&str; N]) -> Self {
        Self::argv(argv)
    }
}

impl ExecOptions {
    /// A command for `/bin/sh -c`.
    #[must_use]
    pub fn shell(command: &str) -> Self {
        Self(Map::new()).with("command", command.into())
    }

    /// A program and its arguments, without a shell.
    #[must_use]
    pub fn argv<I: IntoIterator<Item = T>, T: Into<String>>(argv: I) -> Self {
        let argv = argv.into_iter().map(|argument| Value::String(argument.into())).collect();
        Self(Map::new()).with("command", argv)
    }

    /// Sets the directory that it runs in. The default is the container's work directory.
    #[must_use]
    pub fn workdir(self, directory: &str) -> Self {
        self.with("workdir", directory.into())
    }

    /// Sets a variable for this command.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        if let Value::Object(env) = self.0.entry("env").or_insert_with(|| json!({})) {
            env.insert(name.to_owned(), value.into());
        }
        self
    }

    /// Sets the text for standard input, at most 4 MiB. By default, standard input is empty.
    #[must_use]
    pub fn stdin(self, text: &str) -> Self {
        self.with("stdin", text.into())
    }

    /// Ends the command and every process that it started after this time. By default, the configured limit applies, and
    /// none to a command of [`start`](super::Container::start).
    #[must_use]
    pub fn timeout(self, limit: Duration) -> Self {
        self.with("timeout", json!(limit.as_secs_f64()))
    }

    /// Ends the command if it prints nothing for this time.
    #[must_use]
    pub fn silence_timeout(self, limit: Duration) -> Self {
        self.with("silence_timeout", json!(limit.as_secs_f64()))
    }

    /// Runs as root inside the container.
    #[must_use]
    pub fn as_root(self) -> Self {
        self.with("as_root", true.into())
    }

    fn with(mut self, field: &str, value: Value) -> Self {
        self.0.insert(field.to_owned(), value);
        self
    }

    pub(super) fn into_fields(self) -> CallFields {
        self.0
    }
}

/// What [`Job::wait_for`](super::Job::wait_for) waits for, and how long. The first condition that holds ends the wait, and
/// so does the end of the job. The default is the end of the job, for at most 60 s.
#[derive(Clone, Debug, Default)]
pub struct WaitOptions {
    until: Vec<&'static str>,
    fields: Map<String, Value>,
}

impl WaitOptions {
    /// Waits for a line of the output that matches this regular expression.
    #[must_use]
    pub fn pattern(pattern: &str) -> Self {
        Self::default().or("regex", "pattern", pattern.into())
    }

    /// Waits until a port inside accepts connections.
    #[must_use]
    pub fn port(port: u16) -> Self {
        Self::default().or("port", "port", port.into())
    }

    /// Waits until the job prints nothing for this time, 0.1 to 600 s.
    #[must_use]
    pub fn idle(time: Duration) -> Self {
        Self::default().or("idle", "idle", json!(time.as_secs_f64()))
    }

    /// Also waits for a line that matches.
    #[must_use]
    pub fn or_pattern(self, pattern: &str) -> Self {
        self.or("regex", "pattern", pattern.into())
    }

    /// Also waits for a port that accepts connections.
    #[must_use]
    pub fn or_port(self, port: u16) -> Self {
        self.or("port", "port", port.into())
    }

    /// Searches the output from this byte on. By default, only output that is printed after the call is searched.
    #[must_use]
    pub fn from_offset(mut self, offset: u64) -> Self {
        self.fields.insert("offset".to_owned(), offset.into());
        self
    }

    /// Sets the time limit of the wait.
    #[must_use]
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.fields.insert("timeout".to_owned(), json!(limit.as_secs_f64()));
        self
    }

    fn or(mut self, condition: &'static str, field: &str, value: Value) -> Self {
        self.until.push(condition);
        self.fields.insert(field.to_owned(), value);
        self
    }

    pub(super) fn into_fields(mut self) -> CallFields {
        if !self.until.is_empty() {
            self.fields.insert("until".to_owned(), json!(self.until));
        }
        self.fields
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_value_that_json_cannot_represent_is_an_error_of_the_call() {
        let pairs = BTreeMap::from([((1, 2), "of two numbers")]);
        let failure = ContainerOptions::purpose("python").with("labels", pairs).into_fields().unwrap_err();
        assert_eq!((failure.code.word().as_str(), &failure.details["field"]), ("invalid_input", &"labels".into()));
        assert!(ContainerOptions::purpose("python").with("labels", [1]).into_fields().is_ok());
        let mixed = ContainerOptions::image("debian").with("env", ["A=1"]).env("B", "2").into_fields().unwrap_err();
        assert_eq!(mixed.details["field"], "env", "neither value is dropped");
    }

    #[test]
    fn lists_and_maps_grow() {
        let options = ContainerOptions::image("debian").env("A", "1").env("B", "2").port(80).port(443);
        let expected = json!({ "image": "debian", "env": { "A": "1", "B": "2" },
            "ports": [{ "container": 80 }, { "container": 443 }] });
        assert_eq!(Value::Object(options.into_fields().unwrap()), expected);
        let wait = WaitOptions::pattern("ready").or_port(80).timeout(Duration::from_millis(1500));
        let expected = json!({ "until": ["regex", "port"], "pattern": "ready", "port": 80, "timeout": 1.5 });
        assert_eq!(Value::Object(wait.into_fields()), expected);
    }
}
