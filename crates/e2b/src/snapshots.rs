//! Snapshots: the files of sandboxes, from which others are created.

use coracle_context::{Code, Failure};
use coracle_types::random_hex;
use serde_json::{Map, Value, json};

use crate::sandboxes::Sandboxes;

impl Sandboxes {
    /// Saves the files of a sandbox, by a generated name if none is given.
    pub(crate) async fn snapshot(&self, id: &str, name: Option<String>) -> Result<Value, Failure> {
        let names: Vec<_> = name.iter().cloned().collect();
        let snapshot = name.unwrap_or_else(|| format!("e2b-{}", random_hex::<10>()));
        let fields = [("container".to_owned(), json!(id)), ("snapshot".to_owned(), json!(snapshot))];
        self.client().call("snapshot", Map::from_iter(fields)).await?;
        Ok(json!({ "snapshotID": snapshot, "names": names }))
    }

    /// Lists snapshots of sandboxes: all, or those of a sandbox, or by name.
    pub(crate) async fn snapshots(&self, of: Option<&str>, name: Option<&str>) -> Result<Vec<Value>, Failure> {
        let found = self.client().call("snapshots", Map::new()).await?;
        let rows = found.get("snapshots").and_then(Value::as_array).cloned().unwrap_or_default();
        let is_wanted = |row: &Value| {
            is_of_sandbox(row)
                && of.is_none_or(|of| row["container"] == of)
                && name.is_none_or(|name| row["name"] == name)
        };
        Ok(rows.iter().filter(|it| is_wanted(it)).map(described).collect())
    }

    /// Removes a snapshot. `false`: there is none.
    pub(crate) async fn remove_snapshot(&self, name: &str) -> Result<bool, Failure> {
        if self.snapshots(None, Some(name)).await?.is_empty() {
            return Ok(false);
        }
        let fields = Map::from_iter([("snapshot".to_owned(), json!(name))]);
        match self.client().call("snapshot_delete", fields).await {
            Err(failure) if matches!(failure.code, Code::NotFound | Code::ImageNotFound) => Ok(false),
            done => done.map(|_| true),
        }
    }
}

fn described(row: &Value) -> Value {
    let is_generated = row["name"].as_str().is_some_and(|it| it.starts_with("e2b-"));
    let names = if is_generated { json!([]) } else { json!([row["name"]]) };
    json!({ "snapshotID": row["name"], "names": names })
}

/// Whether a snapshot is one of a sandbox, and not of another container of the user.
fn is_of_sandbox(row: &Value) -> bool {
    let id = row["container"].as_str().and_then(|it| it.strip_prefix('i'));
    id.is_some_and(|id| id.len() == 20 && id.bytes().all(|it| it.is_ascii_hexdigit()))
}
