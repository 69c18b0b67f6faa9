//! Property tests: whatever is inserted into a valid model, no forbidden key is accepted, and nothing panics.

use super::*;

/// Keys that no accepted model contains, at any depth where a key has a meaning.
const FORBIDDEN: &[&str] = &[
    "privileged",
    "pid",
    "ipc",
    "uts",
    "userns_mode",
    "cgroup",
    "cgroup_parent",
    "runtime",
    "device_cgroup_rules",
    "volumes_from",
    "sysctls",
    "external_links",
    "annotations",
    "post_start",
    "pre_stop",
    "oom_kill_disable",
    "oom_score_adj",
    "driver_opts",
    "ipam",
    "container_name",
    "group_add",
    "credential_spec",
    "use_api_socket",
    "provider",
    "extends",
    "env_file",
    "include",
    "ssh",
    "entitlements",
    "isolation",
    "a_key_of_tomorrow",
];

/// Whether a key occurs, except where the file chooses the names.
fn has_key(value: &Value, key: &str) -> bool {
    const TEXTS: &[&str] = &["environment", "labels", "args", "content"];
    const NAMED: &[&str] = &["services", "networks", "volumes", "configs", "secrets", "depends_on", "ulimits"];
    match value {
        Value::Array(list) => list.iter().any(|it| has_key(it, key)),
        Value::Object(entries) => entries.iter().any(|(name, it)| match it {
            _ if name == key => true,
            _ if TEXTS.contains(&name.as_str()) => false,
            Value::Object(named) if NAMED.contains(&name.as_str()) => named.values().any(|it| has_key(it, key)),
            it => has_key(it, key),
        }),
        _ => false,
    }
}

/// Inserts a key into the n-th mapping of a model, counted over all depths.
fn plant(value: &mut Value, at: &mut usize, key: &str, planted: &Value) {
    match value {
        Value::Array(list) => list.iter_mut().for_each(|it| plant(it, at, key, planted)),
        Value::Object(entries) => {
            if *at == 0 {
                entries.insert(key.to_owned(), planted.clone());
            }
            *at = at.wrapping_sub(1);
            entries.values_mut().for_each(|it| plant(it, at, key, planted));
        }
        _ => {}
    }
}

fn junk() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!(true)),
        Just(json!("host")),
        Just(json!(["SYS_ADMIN"])),
        Just(json!({ "file": "/etc/shadow" })),
        Just(json!([{ "source": "/dev/sda", "target": "/dev/sda" }])),
        Just(json!(-1000)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 256 } else { 4096 }))]

    #[test]
    fn no_accepted_model_has_a_forbidden_key(
        which in 0..10_usize,
        plants in prop::collection::vec((0..200_usize, prop::sample::select(FORBIDDEN), junk()), 1..4),
    ) {
        let person = Person { allow_build: true, root_is_host: false, ..Person::new() };
        let file = all("idioms").swap_remove(which);
        let mut model = file.normalised(&person).unwrap();
        for (at, key, planted) in &plants {
            plant(&mut model, &mut at.clone(), key, planted);
        }
        if let Ok(stack) = person.admit(&model) {
            let made = written(&stack);
            for key in FORBIDDEN {
                prop_assert!(!has_key(&made, key), "{}: {key} in {made}", file.name);
            }
        }
    }

    #[test]
    fn no_shape_makes_admission_panic(
        which in 0..10_usize,
        at in 0..200_usize,
        key in prop::sample::select(&["image", "ports", "volumes", "networks", "deploy", "build", "healthcheck", "ulimits",
            "labels", "logging", "cap_add", "configs", "secrets", "extra_hosts", "scale", "user", "target", "published"][..]),
        planted in junk(),
    ) {
        let person = Person { allow_build: true, ..Person::new() };
        let file = all("idioms").swap_remove(which);
        let mut model = file.normalised(&person).unwrap();
        plant(&mut model, &mut at.clone(), key, &planted);
        if let Ok(stack) = person.admit(&model) {
            let _ = (stack.default_network(), stack.labelled(|_, _| BTreeMap::new()));
        }
    }
}
