//! Schemas of values in answers whose types are in crates without schemas. Only the schemas are used.
#![expect(dead_code, reason = "the fields are read by the derived schemas alone")]

use coracle_workspace::arguments::result_schema;
use schemars::JsonSchema;
use serde_json::Value;

/// A published port.
#[derive(Debug, JsonSchema)]
pub(crate) struct PortShape {
    container: u16,
    host: u16,
    /// Address on the host.
    address: String,
    #[schemars(extend("enum" = ["tcp", "udp"]))]
    protocol: String,
}

/// What a container uses.
#[derive(Debug, JsonSchema)]
pub(crate) struct UsageShape {
    /// Memory, without what the kernel may drop at once.
    memory_bytes: u64,
    /// Processes and threads.
    pids: u64,
    /// Share of one core.
    cpu_percent: f64,
    /// Data written outside mounts, where the engine reports it.
    disk_bytes: Option<u64>,
}

/// A place of the host to look at.
#[derive(Debug, JsonSchema)]
pub(crate) struct FindingShape {
    path: String,
    /// Why: `new`, `changed`, `replaced`, or what kind of file it is.
    change: String,
}

/// What was saved of one place.
#[derive(Debug, JsonSchema)]
pub(crate) struct SaveShape {
    /// The place inside.
    path: String,
    #[schemars(extend("enum" = ["git", "tree", "files"]))]
    kind: String,
    files: u64,
    bytes: u64,
    /// Directory of the save on the host.
    location: String,
    /// How many files were left out; the manifest names them.
    left_out: u64,
}

/// A file that was not copied.
#[derive(Debug, JsonSchema)]
pub(crate) struct SkippedShape {
    path: String,
    reason: String,
}

/// An image that Coracle made.
#[derive(Debug, JsonSchema)]
pub(crate) struct ImageShape {
    /// Its name, or its id if it lost the name.
    image: String,
    image_id: String,
    purpose: Option<String>,
    key: Option<String>,
    base: Option<String>,
    /// With the layers that it shares.
    size_bytes: u64,
    created: String,
    in_use: bool,
}

/// An image that stays.
#[derive(Debug, JsonSchema)]
pub(crate) struct RetainedImageShape {
    image: String,
    reason: String,
}

/// A line that matches.
#[derive(Debug, JsonSchema)]
pub(crate) struct MatchShape {
    /// Where the line begins.
    offset: u64,
    /// Its number, from 1.
    line: u64,
    text: String,
    before: Vec<String>,
    after: Vec<String>,
}

/// A step of `create`.
#[derive(Debug, JsonSchema)]
pub(crate) struct StepShape {
    name: String,
    #[schemars(extend("enum" = ["success", "skipped", "partial", "failed"]))]
    status: String,
    /// One sentence.
    detail: String,
    error: Option<String>,
    /// The error's code, where it has one.
    code: Option<String>,
    /// What was checked to hold.
    probe: Option<String>,
    /// The parts of a step that has several. Each has `name`, `status` and `error`, and fields of its kind.
    items: Vec<serde_json::Map<String, Value>>,
    duration_ms: u64,
}

/// The schema of a step of `create`, as events and the report have it.
#[must_use]
pub fn step_schema() -> Value {
    result_schema::<StepShape>()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use coracle_provision::{Status, StepReport};
    use coracle_runtime::{ContainerUsage, Protocol, PublishedPort};
    use schemars::JsonSchema;
    use serde::Serialize;

    use super::*;

    /// The shape has the fields of the value, and no others.
    fn check<T: JsonSchema>(value: impl Serialize) {
        let names = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<BTreeSet<_>>();
        assert_eq!(
            names(&result_schema::<T>()["properties"]),
            names(&serde_json::to_value(value).unwrap()),
            "{}",
            T::schema_name()
        );
    }

    #[test]
    fn shapes_have_the_fields_of_their_values() {
        check::<PortShape>(PublishedPort {
            container: 1,
            host: 2,
            address: [127, 0, 0, 1].into(),
            protocol: Protocol::Tcp,
        });
        check::<UsageShape>(ContainerUsage {
            memory_bytes: 1,
            pids: 1,
            cpu_percent: 0.5,
            disk_bytes: None,
            cpu_seconds: None,
        });
        check::<StepShape>(StepReport {
            name: "repos".into(),
            status: Status::Success,
            detail: String::new(),
            error: None,
            code: None,
            probe: None,
            items: vec![],
            duration_ms: 1,
        });
    }
}
