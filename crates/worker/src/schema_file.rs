//! The schema of a request: inline, or in a file that the request names.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;

use coracle_sandbox::protocol::WorkerRequest;
use coracle_sandbox::schema::Schema;
use coracle_sandbox::{Code, Failure, Result};
use coracle_types::ContainerPath;
use coracle_workspace::{FsError, GuestFs};
use rustix::fs::OFlags;

use crate::Worker;

/// Maximum size of a schema, in bytes.
const MAX_SCHEMA: u64 = 1 << 20;

/// Prefix of the files to which the host writes inline schemas, for a worker that runs one request.
const SCHEMA_PREFIX: &str = "/.coracle/run/schema-";

/// The schema of a request.
pub(crate) async fn schema(worker: &Worker, request: &WorkerRequest) -> Result<Option<Schema>> {
    match (&request.schema, &request.schema_path) {
        (Some(value), _) => Schema::new(value.clone()).map(Some),
        (None, Some(path)) => read(worker, path).await.map(Some),
        (None, None) => Ok(None),
    }
}

async fn read(worker: &Worker, path: &str) -> Result<Schema> {
    if is_class(path) {
        let message = format!(
            "'{path}' names a Python class; this worker takes a JSON Schema. Export it (for example with \
             Class.model_json_schema()) to a file and pass the path, or send it inline as \"schema\"."
        );
        return Err(Failure::new(Code::SchemaUnsupported, message));
    }
    let invalid = |why: &str| {
        Failure::new(Code::SchemaInvalid, format!("The schema `{}` cannot be read: {why}.", path.escape_debug()))
    };
    let root = &worker.settings.root;
    let full = if path.starts_with('/') { path.to_owned() } else { format!("{root}/{path}") };
    if full.split('/').any(|it| it == "..") {
        return Err(invalid("its path has `..`"));
    }
    let bytes = if let Some(inside) = full.strip_prefix(&format!("{root}/")) {
        of_workspace(worker, root, inside).await.map_err(|why| invalid(&why))?
    } else if full.starts_with("/tmp/") || full.starts_with(SCHEMA_PREFIX) {
        let read = tokio::task::spawn_blocking(move || of_file(&full)).await;
        read.map_err(Failure::internal)?.map_err(|err| invalid(&err.to_string()))?
    } else {
        return Err(invalid("it is beneath neither /workspace nor /tmp"));
    };
    if bytes.len() as u64 > MAX_SCHEMA {
        return Err(invalid("it is larger than 1 MiB"));
    }
    Schema::new(serde_json::from_slice(&bytes).map_err(|err| invalid(&format!("it is not JSON, {err}")))?)
}

/// `module.path:Class`
fn is_class(path: &str) -> bool {
    let is_name = |it: &str| {
        !it.starts_with(|c: char| c.is_ascii_digit())
            && !it.is_empty()
            && it.chars().all(|it| it.is_alphanumeric() || it == '_')
    };
    path.split_once(':').is_some_and(|(module, class)| module.split('.').all(is_name) && class.split('.').all(is_name))
}

async fn of_workspace(worker: &Worker, root: &ContainerPath, path: &str) -> Result<Vec<u8>, String> {
    let fs = GuestFs::new(worker.link.clone(), worker.settings.agent, root.clone());
    let describe = |err: FsError| err.to_string();
    if fs.stat(path).await.map_err(describe)?.size > MAX_SCHEMA {
        return Err("it is larger than 1 MiB".into());
    }
    fs.read_bytes(path).await.map_err(describe)
}

/// Reads a regular file; links, pipes and devices are refused.
fn of_file(path: &str) -> std::io::Result<Vec<u8>> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(std::io::Error::other("it is not a regular file"));
    }
    let mut bytes = Vec::new();
    file.take(MAX_SCHEMA + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::is_class;

    #[test]
    fn a_class_is_distinguished_from_a_path() {
        assert!(is_class("pkg.mod:Class") && is_class("mod:Outer.Inner"));
        for path in ["schema.json", "a/b:c", "/tmp/x:y", ":Class", "mod:", "1:2", "C:\\x"] {
            assert!(!is_class(path), "{path}");
        }
    }
}
