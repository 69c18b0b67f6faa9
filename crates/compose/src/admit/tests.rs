mod planted;

use std::collections::BTreeMap;

use coracle_runtime::{Access, Protocol};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{AdmittedStack, LabelledPart};
use crate::fixtures::{Person, all};

/// The long form of a file with one service `app`.
fn model(app: Value) -> Value {
    let mut service = json!({ "command": null, "entrypoint": null, "image": "x", "networks": { "default": null } });
    let Value::Object(app) = app else { panic!("a service is a mapping") };
    service.as_object_mut().unwrap().extend(app);
    json!({ "name": "p", "services": { "app": service }, "networks": { "default": { "name": "p_default", "ipam": {} } } })
}

fn admitted(person: &Person, model: &Value) -> AdmittedStack {
    person.admit(model).unwrap_or_else(|err| panic!("{err}"))
}

/// The model as JSON.
fn written(stack: &AdmittedStack) -> Value {
    serde_json::to_value(stack.model()).unwrap()
}

fn app(person: &Person, more: Value) -> Value {
    written(&admitted(person, &model(more)))["services"]["app"].clone()
}

fn rules(person: &Person, model: &Value) -> Vec<&'static str> {
    person
        .admit(model)
        .err()
        .map_or_else(Vec::new, |refusal| refusal.problems.iter().map(|problem| problem.rule).collect())
}

fn broken(more: Value) -> Vec<&'static str> {
    rules(&Person::new(), &model(more))
}

#[test]
fn an_empty_service_gets_the_defaults_of_every_service() {
    assert_eq!(
        app(&Person::new(), json!({})),
        json!({
            "image": "x",
            "pull_policy": "never",
            "restart": "no",
            "mem_limit": 4_u64 << 30,
            "memswap_limit": 4_u64 << 30,
            "pids_limit": 1024,
            "networks": { "default": {} },
            "cap_drop": ["ALL"],
            "cap_add": ["CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "NET_BIND_SERVICE", "SETGID", "SETUID"],
            "security_opt": ["no-new-privileges"],
            "logging": { "driver": "json-file", "options": { "max-size": "10m", "max-file": "3" } },
        })
    );
}

#[test]
fn limits_are_lowered_to_the_maximum_and_lower_ones_stay() {
    let mut person = Person::new();
    person.policy.cpus_max = Some(2.0);
    let high = json!({ "mem_limit": "1099511627776", "cpus": 64, "pids_limit": 100_000, "shm_size": "1099511627776", "scale": 50 });
    let high = app(&person, high);
    assert_eq!((&high["mem_limit"], &high["memswap_limit"]), (&json!(17_179_869_184_u64), &json!(17_179_869_184_u64)));
    assert_eq!((&high["cpus"], &high["pids_limit"], &high["scale"]), (&json!(2.0), &json!(4096), &json!(5)));
    assert_eq!(high["shm_size"], 17_179_869_184_u64);
    let low = json!({ "deploy": { "replicas": 2, "resources": { "limits": { "cpus": 0.5, "memory": "1048576", "pids": 7 } } } });
    let low = app(&person, low);
    assert_eq!((&low["mem_limit"], &low["cpus"], &low["pids_limit"]), (&json!(1_048_576), &json!(0.5), &json!(7)));
    assert_eq!((&low["scale"], low.get("deploy")), (&json!(2), None));
    let none = app(&person, json!({ "mem_limit": "0", "cpus": 0, "pids_limit": -1, "memswap_limit": "-1" }));
    assert_eq!(
        (&none["mem_limit"], &none["cpus"], &none["pids_limit"]),
        (&json!(4_294_967_296_u64), &json!(2.0), &json!(1024))
    );
    assert_eq!(none["memswap_limit"], none["mem_limit"]);
    let both =
        |memory: &str| json!({ "mem_limit": "1g", "deploy": { "resources": { "limits": { "memory": memory } } } });
    assert_eq!((broken(both("1g")), broken(both("2g"))), (Vec::new(), vec!["compose.mem_limit"]));
}

#[test]
fn ports_are_on_loopback_and_taken_ones_are_replaced() {
    let port = |target: u16, published: &str| json!({ "mode": "ingress", "host_ip": "0.0.0.0", "target": target, "published": published, "protocol": "tcp" });
    let open = json!({ "mode": "ingress", "target": 53, "protocol": "udp" });
    let ports = json!([port(1, "8080"), port(2, "8081"), port(3, "80"), port(4, "8080"), port(5, "9000-9010"), open]);
    let mut person = Person { taken: 8081, ..Person::new() };
    let stack = admitted(&person, &model(json!({ "ports": ports })));
    let made = written(&stack)["services"]["app"]["ports"].as_array().unwrap().clone();
    assert!(made.iter().all(|it| it["host_ip"] == "127.0.0.1"), "{made:?}");
    let published: Vec<_> = made.iter().map(|it| it["published"].as_u64()).collect();
    assert_eq!(published, [Some(8080), None, None, None, None, None]);
    let moved: Vec<_> = stack.moved_ports().iter().map(|it| (it.container, it.requested)).collect();
    assert_eq!(moved, [(2, 8081), (3, 80), (4, 8080), (5, 9000)]);
    assert_eq!(stack.moved_ports()[0].protocol, Protocol::Tcp);
    person.namespaced = true;
    let stack = admitted(&person, &model(json!({ "ports": [port(1, "8080")] })));
    assert_eq!(written(&stack)["services"]["app"]["ports"][0].get("published"), None);
    let several = json!({ "ports": [port(1, "8080")], "scale": 2 });
    assert_eq!(app(&Person::new(), several)["ports"][0].get("published"), None);
    for bad in
        [json!({ "target": 0 }), json!({ "target": 70_000 }), json!({ "target": 1, "protocol": "sctp" }), port(1, "x")]
    {
        assert_eq!(broken(json!({ "ports": [bad] })), ["compose.ports"], "{bad}");
    }
}

#[test]
fn container_names_become_aliases_within_the_stack() {
    let person = Person::new();
    let mut model =
        model(json!({ "container_name": "my-db", "networks": { "front": { "aliases": ["a"], "priority": 3 } } }));
    model["networks"] = json!({ "front": { "name": "mine", "driver": "bridge", "ipam": {}, "internal": true } });
    model["volumes"] = json!({ "data": { "name": "theirs", "driver": "local" } });
    let stack = admitted(&person, &model);
    let made = written(&stack);
    assert_eq!(made["services"]["app"].get("container_name"), None);
    assert_eq!(made["services"]["app"]["networks"], json!({ "front": { "aliases": ["a", "my-db"] } }));
    assert_eq!(
        (&made["networks"], &made["volumes"]),
        (&json!({ "front": { "internal": true } }), &json!({ "data": {} }))
    );
    assert_eq!(stack.default_network().as_deref(), Some("p_front"));
}

#[test]
fn the_default_network_is_the_one_with_services_on_it() {
    let person = Person { ours: ["team".to_owned()].into(), ..Person::new() };
    let network = |more: Value, networks: Value| {
        let mut model = model(more);
        model["networks"] = networks;
        admitted(&person, &model).default_network()
    };
    assert_eq!(network(json!({}), json!({})).as_deref(), Some("p_default"));
    assert_eq!(network(json!({ "network_mode": "bridge", "networks": null }), json!({})).as_deref(), Some("p_default"));
    assert_eq!(network(json!({ "network_mode": "none", "networks": null }), json!({})), None);
    let external = json!({ "default": { "external": true, "name": "team" } });
    assert_eq!(network(json!({}), external).as_deref(), Some("team"));
    assert_eq!(rules(&person, &model(json!({ "network_mode": "service:gone" }))), ["compose.network_mode"]);
}

#[test]
fn binds_stay_below_the_roots_and_need_a_user_without_root() {
    let mut person = Person::new();
    let work = person.work();
    std::fs::create_dir_all(work.join(".git/hooks")).unwrap();
    std::fs::write(work.join(".envrc"), "").unwrap();
    std::fs::create_dir(work.join("data")).unwrap();
    let bind = |source: &str, more: Value| {
        let mut it = json!({ "type": "bind", "source": work.join(source), "target": "/w", "bind": { "create_host_path": true } });
        it.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({ "volumes": [it] })
    };
    let with_user = |user: &str, mut it: Value| {
        it["user"] = user.into();
        it
    };
    for user in ["", "0", "root", "www-data", "0:0", "1000:0", "1000:root", "1:2:3", "-1", "4294967296"] {
        assert_eq!(broken_for(&person, with_user(user, bind("data", json!({})))), ["compose.volumes"], "{user}");
    }
    let made = app(&person, with_user("1000", bind("", json!({}))));
    assert_eq!(made["user"], "1000:1000", "a uid alone would get its groups from the image");
    let shown: Vec<_> = made["volumes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| (it["target"].as_str().unwrap(), &it["read_only"]))
        .collect();
    assert_eq!(shown, [("/w", &json!(false)), ("/w/.envrc", &json!(true)), ("/w/.git", &json!(true))]);
    assert!(
        made["volumes"]
            .as_array()
            .unwrap()
            .iter()
            .all(|it| it["bind"] == json!({ "create_host_path": false, "propagation": "rprivate" }))
    );
    assert_eq!(app(&person, bind("data", json!({ "read_only": true })))["volumes"][0]["read_only"], true);
    assert_eq!(broken_for(&person, with_user("7:7", bind(".git/hooks", json!({})))), ["compose.volumes"]);
    person.root_is_host = false;
    let stack = admitted(&person, &model(bind("data", json!({}))));
    let binds: Vec<_> = stack.binds().iter().map(|(name, it)| (name.as_str(), it.at.as_str(), it.access)).collect();
    assert_eq!(binds, [("app", "/w", Access::ReadWrite)]);
    person.policy.binds = false;
    assert_eq!(broken_for(&person, bind("data", json!({ "read_only": true }))), ["compose.volumes"]);
}

#[test]
fn a_bound_directory_is_a_mount_point_in_each_service_that_could_replace_it() {
    let person = Person { bound_by_others: Vec::new(), ..Person::new() };
    let work = person.work();
    std::fs::create_dir_all(work.join("a/b")).unwrap();
    std::fs::create_dir(work.join("other")).unwrap();
    let person = Person { bound_by_others: vec![work.join("other"), "/elsewhere".into()], ..person };
    let bind = |source: &str, target: &str, read_only: bool| json!({ "type": "bind", "source": work.join(source), "target": target, "read_only": read_only });
    let volume = json!({ "type": "volume", "target": "/w/other" });
    let writer = json!({ "image": "x", "user": "1000", "volumes": [bind("", "/w", false), volume] });
    let reader = json!({ "image": "x", "user": "1000", "volumes": [bind("", "/w", true)] });
    let victim = json!({ "image": "x", "user": "1000", "volumes": [bind("a/b", "/b", true)] });
    let stack = admitted(&person, &json!({ "services": { "writer": writer, "reader": reader, "victim": victim } }));
    let targets = |service: &str| {
        let volumes = stack.model().services[service].volumes.iter();
        volumes.map(|it| it.target.clone()).collect::<Vec<_>>()
    };
    assert_eq!(targets("writer"), ["/w", "/w/other", "/w/a", "/w/a/b"], "parents first, and none twice");
    assert_eq!((targets("reader"), targets("victim")), (vec!["/w".to_owned()], vec!["/b".to_owned()]));
    let held = stack.binds().iter().filter(|(service, _)| service == "writer").count();
    assert_eq!(held, 3, "they are recorded and compared like other binds");
}

fn broken_for(person: &Person, more: Value) -> Vec<&'static str> {
    rules(person, &model(more))
}

#[test]
fn no_path_is_mounted_twice_or_over_the_kernels_directories() {
    let tmpfs = |target: &str| json!({ "type": "tmpfs", "target": target });
    for target in ["/", "/proc", "/proc/sys", "/sys/fs", "/dev", "/.coracle/x", "relative", "/a/../proc", "", "/a\nb"] {
        assert_eq!(broken(json!({ "volumes": [tmpfs(target)] })), ["compose.volumes"], "{target}");
    }
    assert_eq!(broken(json!({ "volumes": [tmpfs("/a"), tmpfs("/a/")] })), ["compose.volumes"]);
    assert_eq!(broken(json!({ "volumes": [tmpfs("/a")], "tmpfs": ["/a:size=1m"] })), ["compose.tmpfs"]);
    assert_eq!(broken(json!({ "volumes": [tmpfs("/etc/app")], "tmpfs": ["/run"] })), [""; 0]);
}

#[test]
fn a_protected_path_is_not_hidden_by_another_mount() {
    let person = Person { root_is_host: false, ..Person::new() };
    let bind = json!({ "type": "bind", "source": person.work(), "target": "/w" });
    let over = |target: &str| json!({ "volumes": [bind, { "type": "volume", "target": target }] });
    for target in ["/w/.git", "/w/.git/hooks", "/w/.envrc"] {
        assert_eq!(broken_for(&person, over(target)), ["compose.volumes"], "{target}");
    }
    assert_eq!(broken_for(&person, over("/w/node_modules")), [""; 0]);
}

#[test]
fn capabilities_are_few_and_dropped_ones_stay_dropped() {
    let caps = |more: Value| app(&Person::new(), more)["cap_add"].as_array().map_or(0, Vec::len);
    assert_eq!(caps(json!({ "cap_add": ["IPC_LOCK", "CAP_SYS_NICE", "chown"] })), 10);
    assert_eq!(caps(json!({ "cap_drop": ["ALL"] })), 0);
    assert_eq!(caps(json!({ "cap_drop": ["all"], "cap_add": ["NET_BIND_SERVICE"] })), 1);
    assert_eq!(caps(json!({ "cap_drop": ["CHOWN"] })), 7);
    for cap in ["NET_ADMIN", "MKNOD", "SETFCAP", "SYS_PTRACE", "NET_RAW", "ALL", "CAP_ALL", ""] {
        assert_eq!(broken(json!({ "cap_add": [cap] })), ["compose.cap_add"], "{cap}");
    }
}

#[test]
fn variables_come_from_the_call_only() {
    let mut person = Person::new();
    person.env.insert("KEY".into(), "va$lue".into());
    let mut model = model(json!({
        "secrets": [{ "source": "s", "target": "/run/secrets/s" }, { "source": "s", "target": "other", "mode": 256 }],
        "configs": [{ "source": "c" }],
        "environment": { "A": "1", "B": null },
    }));
    model["secrets"] = json!({ "s": { "name": "p_s", "environment": "KEY" } });
    model["configs"] = json!({ "c": { "name": "p_c", "content": "text" } });
    let made = written(&admitted(&person, &model));
    assert_eq!(made["configs"], json!({ "c": { "content": "text" }, "secret.s": { "content": "va$lue" } }));
    assert_eq!(made.get("secrets"), None);
    assert_eq!(
        made["services"]["app"]["configs"],
        json!([
            { "source": "c", "target": "/c" },
            { "source": "secret.s", "target": "/run/secrets/s" },
            { "source": "secret.s", "target": "/run/secrets/other", "mode": 256 },
        ])
    );
    assert_eq!(
        made["services"]["app"]["environment"],
        json!({ "A": "1" }),
        "a name without a value is never filled in"
    );
    person.env.clear();
    assert_eq!(rules(&person, &model), ["compose.secrets"]);
    person.env.insert("KEY".into(), "x".into());
    model["configs"]["secret.s"] = json!({ "content": "clash" });
    assert_eq!(rules(&person, &model), ["compose.secrets"]);
}

#[test]
fn a_missing_grant_is_reported_with_its_setting() {
    let setting = |change: fn(&mut Person), more: Value| {
        let mut person = Person::new();
        change(&mut person);
        let refused = person.admit(&model(more)).unwrap_err();
        (refused.problems[0].rule, refused.problems[0].setting)
    };
    assert_eq!(
        setting(|it| it.policy.allow_gpu = false, json!({ "gpus": [{ "count": -1 }] })),
        ("compose.gpus", Some("security.allow_gpu"))
    );
    assert_eq!(setting(|it| it.policy.open_network = false, json!({})), ("compose.networks", Some("security.network")));
    assert_eq!(setting(|it| it.policy.allow_root = false, json!({})), ("compose.user", Some("security.allow_root")));
    assert_eq!(
        setting(|it| it.policy.images = coracle_runtime::PatternSet::default(), json!({})),
        ("compose.image", Some("security.images"))
    );
    let hosts = json!({ "extra_hosts": ["up=host-gateway"] });
    assert_eq!(
        setting(|it| it.policy.allow_host_gateway = false, hosts),
        ("compose.extra_hosts", Some("security.allow_host_gateway"))
    );
    assert_eq!(
        setting(|_| {}, json!({ "build": { "context": "/x" } })),
        ("compose.build", Some("compose.allow_build"))
    );
}

#[test]
fn a_built_image_gets_no_name_of_the_file() {
    let person = Person { allow_build: true, ..Person::new() };
    std::fs::write(person.work().join("Dockerfile"), "FROM x").unwrap();
    let build =
        json!({ "build": { "context": person.work(), "dockerfile": "Dockerfile", "args": { "A": "1", "B": null } } });
    let stack = admitted(&person, &model(build));
    assert!(stack.builds() && stack.images().is_empty());
    let contexts: Vec<_> = stack.build_contexts().iter().map(|it| it.real().to_owned()).collect();
    assert_eq!(contexts, [person.work()], "directories that are read later are checked again");
    let made = &written(&stack)["services"]["app"];
    assert_eq!((made.get("image"), made.get("pull_policy")), (None, None));
    assert_eq!(
        made["build"],
        json!({ "context": person.work(), "dockerfile": person.work().join("Dockerfile"), "args": { "A": "1" } })
    );
}

#[test]
fn gpus_are_passed_and_no_other_device() {
    let mut person = Person::new();
    person.policy.allow_gpu = true;
    let device = json!({ "driver": "nvidia", "count": -1, "capabilities": ["gpu"] });
    let stack =
        admitted(&person, &model(json!({ "deploy": { "resources": { "reservations": { "devices": [device] } } } })));
    assert!(stack.wants_gpu());
    let device = &written(&stack)["services"]["app"]["deploy"]["resources"]["reservations"]["devices"][0];
    assert_eq!(device, &json!({ "driver": "nvidia", "count": -1, "capabilities": ["gpu"] }));
    for device in [json!({ "driver": "cdi", "capabilities": ["gpu"] }), json!({ "capabilities": ["tpu"] })] {
        assert_eq!(broken_for(&person, json!({ "gpus": [device] })), ["compose.devices"], "{device}");
    }
}

#[test]
fn a_value_that_has_to_be_a_mapping_is_refused_otherwise() {
    let person = Person::new();
    for (part, rule) in [
        ("services", "compose.services"),
        ("networks", "compose.networks"),
        ("volumes", "compose.volumes"),
        ("configs", "compose.configs"),
        ("secrets", "compose.secrets"),
    ] {
        for invalid in [json!(["x"]), json!("x"), json!(7)] {
            let mut model = model(json!({}));
            model[part]["odd"] = invalid.clone();
            assert!(rules(&person, &model).contains(&rule), "{part} {invalid}");
            model[part] = invalid;
            assert!(rules(&person, &model).contains(&rule), "{part}");
        }
    }
    for key in [
        "deploy",
        "healthcheck",
        "logging",
        "networks",
        "depends_on",
        "ulimits",
        "ports",
        "volumes",
        "configs",
        "secrets",
    ] {
        assert!(!broken(json!({ (key): 7 })).is_empty(), "{key}");
    }
    for key in ["cap_add", "cap_drop", "security_opt", "links", "tmpfs", "extra_hosts", "gpus", "network_mode", "image"]
    {
        assert!(!broken(json!({ (key): { "a": [{}] } })).is_empty(), "{key}");
        assert!(!broken(json!({ (key): [{}] })).is_empty(), "{key}");
    }
}

#[test]
fn all_violations_are_reported_with_service_and_key() {
    let refused =
        Person::new().admit(&model(json!({ "privileged": true, "pid": "host", "new_thing": 1 }))).unwrap_err();
    let messages: Vec<_> = refused.problems.iter().map(|it| (it.rule, it.message.as_str())).collect();
    assert_eq!(
        messages,
        [
            ("compose.key", "service `app`: `new_thing` is not allowed in a stack"),
            ("compose.pid", "service `app`: `pid` is not allowed in a stack"),
            ("compose.privileged", "service `app`: `privileged` is not allowed in a stack"),
        ]
    );
}

#[test]
fn everything_that_the_stack_creates_has_our_labels() {
    let person = Person { ours: ["team".to_owned()].into(), ..Person::new() };
    let mut model = model(json!({ "labels": { "a": "b", "x": "theirs" } }));
    model["networks"]["ext"] = json!({ "external": true, "name": "team" });
    model["volumes"] = json!({ "data": { "name": "p_data" } });
    let label = |kind: LabelledPart, name: &str| BTreeMap::from([("x".to_owned(), format!("{kind:?} {name}"))]);
    let made = written(&admitted(&person, &model).labelled(label));
    assert_eq!(made["services"]["app"]["labels"], json!({ "a": "b", "x": "Service app" }));
    assert_eq!(made["networks"]["default"]["labels"], json!({ "x": "Network default" }));
    assert_eq!(made["volumes"]["data"]["labels"], json!({ "x": "Volume data" }));
    assert_eq!(made["networks"]["ext"], json!({ "external": true, "name": "team" }));
}

#[test]
fn no_limit_of_a_service_affects_the_host() {
    for limit in [
        json!({ "core": -1 }),
        json!({ "core": { "soft": 0, "hard": 1 } }),
        json!({ "rtprio": 99 }),
        json!({ "nice": { "hard": 40 } }),
    ] {
        assert!(!broken(json!({ "ulimits": limit })).is_empty(), "{limit}");
    }
    for limit in [json!({ "core": 0 }), json!({ "core": { "soft": 0, "hard": 0 }, "nofile": 100, "memlock": -1 })] {
        assert!(broken(json!({ "ulimits": limit })).is_empty(), "{limit}");
    }
}
