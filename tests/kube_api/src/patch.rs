//! Merge patches (RFC 7386). A strategic one is taken for the same: lists are replaced.

use serde_json::Value;

pub(crate) fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(serde_json::Map::new());
    }
    for (name, value) in fields {
        if value.is_null() {
            target.as_object_mut().map(|it| it.remove(name));
        } else {
            merge(&mut target[name], value);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::merge;

    #[test]
    fn a_patch_sets_and_removes() {
        let mut it = json!({ "a": { "b": 1, "c": 2 }, "d": [1] });
        merge(&mut it, &json!({ "a": { "b": null, "x": { "y": 3 } }, "d": [2, 3] }));
        assert_eq!(it, json!({ "a": { "c": 2, "x": { "y": 3 } }, "d": [2, 3] }));
    }
}
