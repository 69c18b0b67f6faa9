//! Networks that containers share.

use serde_json::json;

use super::{Tool, with_rootful_engine, with_tool};
use crate::engines::{Lack, ran};

async fn network(tool: &Tool<'_>, operation: &str, name: &str) -> serde_json::Value {
    tool.call(json!({ "operation": operation, "name": name })).await
}

#[tokio::test]
async fn s70_containers_on_a_network_find_each_other_and_it_stays_while_they_use_it() {
    with_rootful_engine("", async |tool| {
        if tool.case.lacks(Lack::NamedNetworks) {
            return;
        }
        let name = tool.case.network_name("team").to_string();
        let made = network(tool, "create_network", &name).await;
        assert_eq!((&made["created"], &made["internal"]), (&true.into(), &false.into()), "{made:#}");
        let ours = network(tool, "create_network", &format!("coracle-sbx-{name}")).await;
        assert_eq!(ours["code"], "invalid_input", "{ours:#}");
        let again = network(tool, "create_network", &name).await;
        assert_eq!((&again["created"], &again["network_id"]), (&false.into(), &made["network_id"]), "{again:#}");
        let one = tool.created(json!({ "network": name })).await;
        let two = tool.created(json!({ "network": name })).await;
        for name in [&one, &two] {
            let serve = format!("mkdir -p /tmp/www; echo {name} >/tmp/www/index.html; httpd -p 8080 -h /tmp/www");
            tool.prints(name, &serve).await;
        }
        for (from, to) in [(&one, &two), (&two, &one)] {
            // A static busybox has no resolver for wget; ping lacks the rights to send, but prints the address first.
            let found =
                format!("at=$(ping -c 1 -w 1 {to} 2>/dev/null | sed -n 's/^PING [^(]*(\\([0-9.]*\\)).*/\\1/p')");
            let get = "printf 'GET /index.html HTTP/1.0\\r\\n\\r\\n' | nc \"$at\" 8080 | tail -n 1";
            assert_eq!(&tool.prints(from, &format!("{found}; {get}")).await, to);
        }
        let listed = tool.call(json!({ "operation": "networks" })).await;
        let row = listed["networks"].as_array().unwrap().iter().find(|it| it["name"] == name.as_str()).unwrap();
        let mut members: Vec<_> = row["containers"].as_array().unwrap().iter().filter_map(|it| it.as_str()).collect();
        let mut expected = [one.as_str(), two.as_str()];
        members.sort_unstable();
        expected.sort_unstable();
        assert_eq!(members, expected, "{listed:#}");
        let refused = network(tool, "destroy_network", &name).await;
        assert_eq!((&refused["code"], &refused["details"]["kind"]), (&"in_use".into(), &"network".into()));
        assert_eq!(refused["details"]["containers"].as_array().map(Vec::len), Some(2), "{refused:#}");
        for container in [one, two] {
            assert_eq!(tool.call(json!({ "operation": "destroy", "container": container })).await["success"], true);
        }
        assert_eq!(network(tool, "destroy_network", &name).await["removed"], true);
        assert_eq!(network(tool, "destroy_network", &name).await["removed"], false);
        foreign_is_left_alone(tool).await;
        ran("s70", tool.case.engine());
    })
    .await;
}

async fn foreign_is_left_alone(tool: &Tool<'_>) {
    let name = tool.case.network_name("theirs").to_string();
    let (label, run) = tool.case.label();
    assert!(tool.engine(&["network", "create", &format!("--label={label}={run}"), &name]).await.0);
    let taken = network(tool, "create_network", &name).await;
    assert_eq!((&taken["code"], &taken["details"]["kind"]), (&"name_taken".into(), &"network".into()), "{taken:#}");
    assert_eq!(taken["details"]["ours"], false);
    assert_eq!(network(tool, "destroy_network", &name).await["code"], "not_managed");
    assert_eq!(tool.create(json!({ "network": name })).await["code"], "not_managed");
    assert!(tool.engine(&["network", "inspect", &name]).await.0, "it is still there");
}

#[tokio::test]
async fn networks_of_a_session_go_with_its_containers_unless_they_are_used() {
    with_tool("", async |tool| {
        if tool.case.lacks(Lack::NamedNetworks) {
            return;
        }
        let (used, unused) = (tool.case.network_name("used").to_string(), tool.case.network_name("unused").to_string());
        for name in [&used, &unused] {
            assert_eq!(network(tool, "create_network", name).await["success"], true);
        }
        tool.created(json!({ "network": used, "persistent": true })).await;
        let answer = tool.call(json!({ "operation": "destroy_all", "confirm": true })).await;
        assert_eq!(answer["networks_removed"], json!([unused]), "{answer:#}");
        let answer =
            tool.call(json!({ "operation": "destroy_all", "confirm": true, "include_persistent": true })).await;
        assert_eq!(answer["networks_removed"], json!([used]), "{answer:#}");
        assert_eq!(tool.call(json!({ "operation": "networks" })).await["count"], 0);
    })
    .await;
}

#[tokio::test]
async fn an_open_network_is_not_taken_for_an_internal_one() {
    with_tool("", async |tool| {
        if tool.case.lacks(Lack::NamedNetworks) {
            return;
        }
        let name = tool.case.network_name("shut").to_string();
        assert_eq!(network(tool, "create_network", &name).await["created"], true);
        let call = json!({ "operation": "create_network", "name": name, "internal": true });
        let taken = tool.call(call).await;
        assert_eq!((&taken["code"], &taken["details"]["differs"]), (&"name_taken".into(), &json!(["internal"])));
        assert_eq!(network(tool, "destroy_network", &name).await["removed"], true);
        assert_eq!(network(tool, "destroy_network", "nobody-made-this").await["code"], "not_found");
    })
    .await;
}
