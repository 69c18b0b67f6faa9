use serde_json::json;

use super::*;

fn model(file: &Value) -> Result<Value, ModelError> {
    let env = BTreeMap::from([("GIVEN".to_owned(), "a$b".to_owned())]);
    let context = Context { project: &ProjectName::parse("p").unwrap(), dir: Path::new("/w"), env: &env };
    normalise(file.as_object().unwrap().clone(), context)
}

#[test]
fn a_file_gets_its_defaults() {
    let model = model(&json!({
        "services": {
            "a": { "image": "x", "command": "run it", "environment": ["A=${GIVEN}", "GIVEN", "NO"], "links": ["b:other"],
                "volumes": ["data:/d"], "deploy": { "replicas": "2", "resources": { "limits": { "memory": "1g" } } } },
            "b": { "image": "y", "network_mode": "none" },
            "tests": { "image": "z", "profiles": ["dev"], "volumes": ["unused:/u"] },
        },
        "volumes": { "data": null, "unused": {} },
    }))
    .unwrap();
    let a = &model["services"]["a"];
    assert_eq!(a["command"], json!(["run", "it"]));
    assert_eq!(a["environment"], json!({ "A": "a$b", "GIVEN": "a$b", "NO": null }));
    assert_eq!(a["depends_on"]["b"]["condition"], "service_started");
    assert_eq!((&a["deploy"]["replicas"], &a["networks"]), (&json!(2), &json!({ "default": null })));
    assert_eq!(model["networks"], json!({ "default": { "name": "p_default" } }));
    assert_eq!(model["volumes"], json!({ "data": { "name": "p_data" } }));
    assert!(model["services"].get("tests").is_none() && model["services"]["b"].get("networks").is_none());
}

#[test]
fn unknown_keys_are_passed_on_for_the_admission_to_refuse() {
    let model = model(&json!({ "services": { "a": { "image": "x", "privileged": "true", "news": [1] } }, "odd": 1 }));
    let model = model.unwrap();
    assert_eq!(model["services"]["a"]["privileged"], true);
    assert_eq!((&model["services"]["a"]["news"], &model["odd"]), (&json!([1]), &json!(1)));
}

#[test]
fn unreadable_values_are_reported_with_their_place() {
    for (file, expected) in [
        (json!({ "services": "none" }), "services must be"),
        (json!({ "services": { "a": 1 } }), "services.a must be"),
        (json!({ "services": { "a": { "command": "a && b" } } }), "services.a.command"),
        (json!({ "services": { "a": { "ports": ["x"] } } }), "services.a.ports"),
        (json!({ "services": { "a": { "mem_limit": "much" } } }), "services.a.mem_limit"),
        (json!({ "services": { "a": { "image": "${NO?name one}" } } }), "name one"),
        (json!({ "services": { "a": { "network_mode": "none", "networks": ["d"] } } }), "services.a: network_mode"),
    ] {
        let why = model(&file).unwrap_err();
        assert!(why.contains(expected), "{why}");
    }
}
