//! Conditions and containers in a Pod's status.

use serde_json::{Value, json};

use crate::cluster::now;

/// Sets a condition of an object's status.
pub(crate) fn set_condition(object: &mut Value, kind: &str, status: &str, reason: &str, message: &str) {
    let conditions = &mut object["status"]["conditions"];
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    let Some(list) = conditions.as_array_mut() else { return };
    let mut condition = json!({ "type": kind, "status": status, "lastTransitionTime": now() });
    for (field, text) in [("reason", reason), ("message", message)] {
        if !text.is_empty() {
            condition[field] = json!(text);
        }
    }
    match list.iter_mut().find(|it| it["type"] == kind) {
        Some(found) => *found = condition,
        None => list.push(condition),
    }
}

/// Sets the status of a container.
pub(crate) fn set_container(pod: &mut Value, list: &str, name: &str, status: Value) {
    let statuses = &mut pod["status"][list];
    if !statuses.is_array() {
        *statuses = json!([]);
    }
    let Some(list) = statuses.as_array_mut() else { return };
    match list.iter_mut().find(|it| it["name"] == name) {
        Some(found) => {
            let image = found["imageID"].clone();
            *found = status;
            if found["imageID"] == "" {
                found["imageID"] = image;
            }
        }
        None => list.push(status),
    }
}
