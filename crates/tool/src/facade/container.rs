//! One container, and what is done in it.

use coracle_context::failure::Failure;
use coracle_context::progress::{Event, Progress};
use coracle_runtime::Input;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::answers::{CallFields, CommandResult, fields, typed};
use super::client::Client;

/// Fields of `create`. Those without a method here are set by [`with`](Self::with).
#[derive(Clone, Debug, Default)]
pub struct ContainerOptions {
    fields: Map<String, Value>,
    /// The first value that is none in JSON, which the call reports.
    fault: Option<Failure>,
}

/// A container. It stays until [`destroy`](Self::destroy): dropping the value removes nothing.
#[derive(Clone, Debug)]
pub struct ClientContainer {
    client: Client,
    name: String,
    created: CallFields,
}

impl ContainerOptions {
    /// A container for that purpose: `python`, `node`, `rust`, `go`, `general`, ….
    #[must_use]
    pub fn purpose(purpose: &str) -> Self {
        Self::default().with("purpose", purpose)
    }

    /// A container of that image.
    #[must_use]
    pub fn image(image: &str) -> Self {
        Self::default().with("image", image)
    }

    /// Under that name, in place of a fresh one.
    #[must_use]
    pub fn name(self, name: &str) -> Self {
        self.with("name", name)
    }

    /// With packages of Debian.
    #[must_use]
    pub fn packages(self, packages: &[&str]) -> Self {
        self.with("packages", packages)
    }

    /// With these ports on the host's loopback.
    #[must_use]
    pub fn ports(self, ports: &[u16]) -> Self {
        self.with("ports", ports)
    }

    /// With the working directory of this process mounted, or without it.
    #[must_use]
    pub fn mount_cwd(self, mount: bool) -> Self {
        self.with("mount_cwd", mount)
    }

    /// With any other field of `create`. A value that JSON cannot have, such as a map whose keys are no texts, is the
    /// error `invalid_input` of the call.
    #[must_use]
    pub fn with(mut self, field: &str, value: impl Serialize) -> Self {
        match serde_json::to_value(value) {
            Ok(value) => drop(self.fields.insert(field.to_owned(), value)),
            Err(err) => drop(self.fault.get_or_insert_with(|| Failure::invalid(field, err.to_string()))),
        }
        self
    }

    pub(super) fn into_fields(self) -> Result<CallFields, Failure> {
        self.fault.map_or(Ok(self.fields), Err)
    }
}

impl ClientContainer {
    /// Makes a container in a session of its own: see [`Client::open`] and [`Client::create`].
    ///
    /// # Errors
    /// Those of both.
    pub async fn create(options: ContainerOptions) -> Result<Self, Failure> {
        Client::open()?.create(options).await
    }

    pub(super) async fn made(client: &Client, operation: &str, fields: CallFields) -> Result<Self, Failure> {
        let created = client.call(operation, fields).await?;
        let name = created.get("container").and_then(Value::as_str).unwrap_or_default().to_owned();
        Ok(Self { client: client.clone(), name, created })
    }

    pub(super) fn attached(client: &Client, name: &str) -> Self {
        Self { client: client.clone(), name: name.to_owned(), created: CallFields::new() }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What `create` answered: image, ports, the report of provisioning. Empty for one that was there.
    #[must_use]
    pub fn created(&self) -> &CallFields {
        &self.created
    }

    /// Runs a shell command and waits for it. A command that fails is a result.
    ///
    /// # Errors
    /// Those of `exec`.
    pub async fn exec(&self, command: &str) -> Result<CommandResult, Failure> {
        self.exec_with(json!({ "command": command })).await
    }

    /// The same with other fields of `exec`: `command` may be a list of words, and there are `timeout`, `env`, `workdir`,
    /// `stdin`, `as_root`.
    ///
    /// # Errors
    /// Those of `exec`.
    pub async fn exec_with(&self, options: Value) -> Result<CommandResult, Failure> {
        typed(self.call("exec", fields(options)).await?)
    }

    /// Calls an operation or a session tool on this container.
    ///
    /// # Errors
    /// Those of [`Client::call`].
    pub async fn call(&self, name: &str, mut fields: CallFields) -> Result<CallFields, Failure> {
        fields.insert("container".into(), self.name.clone().into());
        self.client.call(name, fields).await
    }

    /// The bytes of a file that the user inside may read. A relative path begins at the work directory.
    ///
    /// # Errors
    /// `file_not_found`, and those of [`Client::call`].
    pub async fn read_file(&self, path: &str) -> Result<Vec<u8>, Failure> {
        let (progress, mut events) = Progress::channel();
        let fields = fields(json!({ "container": self.name, "path": path }));
        let mut content = Vec::new();
        let collect = async {
            while let Some(event) = events.recv().await {
                if let Event::Output(chunk) = event {
                    content.extend(chunk.bytes);
                }
            }
        };
        let (answer, ()) = tokio::join!(self.client.call_with("download", fields, progress, None), collect);
        answer.map(|_| content)
    }

    /// Writes a file where the user inside may, in place of one that is there: whole, or not at all. Directories above it are
    /// made.
    ///
    /// # Errors
    /// Those of [`Client::call`].
    pub async fn write_file(&self, path: &str, content: impl AsRef<[u8]>) -> Result<(), Failure> {
        let fields = fields(json!({ "container": self.name, "path": path }));
        let input = Input::Bytes(content.as_ref().to_vec());
        self.client.call_with("upload", fields, Progress::none(), Some(input)).await.map(drop)
    }

    /// Makes another container with its files as they are now.
    ///
    /// # Errors
    /// Those of `fork`.
    pub async fn fork(&self, options: ContainerOptions) -> Result<Self, Failure> {
        let mut fields = options.into_fields()?;
        fields.insert("container".into(), self.name.clone().into());
        Self::made(&self.client, "fork", fields).await
    }

    /// Keeps its files under a name, for [`Client::restore`].
    ///
    /// # Errors
    /// Those of `snapshot`.
    pub async fn snapshot(&self, name: &str) -> Result<CallFields, Failure> {
        self.call("snapshot", fields(json!({ "name": name }))).await
    }

    /// Saves its unsaved work on the host and removes it.
    ///
    /// # Errors
    /// Those of `destroy`.
    pub async fn destroy(self) -> Result<CallFields, Failure> {
        self.call("destroy", CallFields::new()).await
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::ContainerOptions;

    #[test]
    fn a_value_that_is_none_in_json_is_an_error_of_the_call_and_no_panic() {
        let pairs = BTreeMap::from([((1, 2), "of two numbers")]);
        let failure = ContainerOptions::purpose("python").with("labels", pairs).into_fields().unwrap_err();
        assert_eq!((failure.code.word().as_str(), &failure.details["field"]), ("invalid_input", &"labels".into()));
        assert!(ContainerOptions::purpose("python").with("labels", [1]).into_fields().is_ok());
    }
}
