//! `wait_healthy`, and a container's state in `status`.

use serde_json::{Value, json};

use super::{Tool, with_rootful_engine, with_tool};
use crate::engines::{Lack, ran};

async fn wait(tool: &Tool<'_>, container: &str, more: Value) -> Value {
    let mut call = json!({ "operation": "wait_healthy", "container": container });
    super::merge(call.as_object_mut().unwrap(), more);
    tool.call(call).await
}

#[tokio::test]
async fn s76_a_check_passes_at_the_third_attempt_or_never() {
    with_tool("", async |tool| {
        let name = tool.created(json!({})).await;
        let third = "echo x >>tries; test $(wc -l <tries) -ge 3";
        let healthy = wait(tool, &name, json!({ "health_command": third, "interval": 0.1 })).await;
        assert_eq!((&healthy["healthy"], &healthy["attempts"]), (&true.into(), &3.into()), "{healthy:#}");
        assert_eq!(healthy["detail"], "Health check passed on attempt 3/15");
        let never = json!({ "health_command": "echo not yet >&2; exit 4", "interval": 0, "retries": 2 });
        let failed = wait(tool, &name, never).await;
        assert_eq!((&failed["success"], &failed["code"]), (&false.into(), &"unhealthy".into()), "{failed:#}");
        assert_eq!((&failed["healthy"], &failed["attempts"]), (&false.into(), &2.into()), "{failed:#}");
        assert_eq!((&failed["last_error"], &failed["last_exit_code"]), (&"not yet".into(), &4.into()), "{failed:#}");
        let hangs = json!({ "health_command": "sleep 4711 & sleep 4711", "retries": 1, "attempt_timeout": 0.3 });
        let failed = wait(tool, &name, hangs).await;
        assert_eq!((&failed["last_error"], &failed["last_exit_code"]), (&"timed out".into(), &Value::Null));
        if tool.case.is_real() {
            assert_eq!(tool.prints(&name, "ps | grep -c '[s]leep 4711' || true").await, "0");
        }
        ran("s76", tool.case.engine());
    })
    .await;
}

#[tokio::test]
async fn a_port_is_waited_for_from_inside() {
    with_rootful_engine("", async |tool| {
        let name = tool.created(json!({})).await;
        let closed = wait(tool, &name, json!({ "port": 8123, "retries": 1 })).await;
        assert_eq!(closed["code"], "unhealthy", "{closed:#}");
        assert!(closed["last_error"].as_str().unwrap().contains("127.0.0.1:8123"), "{closed:#}");
        let serve = "sleep 0.5; mkdir -p /tmp/www && httpd -f -p 127.0.0.1:8123 -h /tmp/www";
        let call = json!({ "operation": "exec_background", "container": name, "command": serve });
        assert_eq!(tool.call(call).await["success"], true);
        let open = wait(tool, &name, json!({ "port": 8123, "interval": 0.1, "retries": 100 })).await;
        assert_eq!(open["healthy"], true, "{open:#}");
    })
    .await;
}

#[tokio::test]
async fn a_port_of_a_container_without_a_guest_is_waited_for_too() {
    with_rootful_engine("guest = \"never\"\n", async |tool| {
        let name = tool.created(json!({})).await;
        assert_eq!(wait(tool, &name, json!({ "port": 8124, "retries": 1 })).await["code"], "unhealthy");
        let serve = "mkdir -p /tmp/www && httpd -p 8124 -h /tmp/www";
        tool.prints(&name, serve).await;
        let open = wait(tool, &name, json!({ "port": 8124, "interval": 0.1, "retries": 20 })).await;
        assert_eq!(open["healthy"], true, "{open:#}");
    })
    .await;
}

#[tokio::test]
async fn waiting_for_a_stopped_container_or_an_unrun_check_fails() {
    with_tool("", async |tool| {
        let name = tool.created(json!({})).await;
        let none = wait(tool, &name, json!({ "health_check": true })).await;
        assert_eq!((&none["code"], &none["healthy"]), (&"unsupported".into(), &false.into()), "{none:#}");
        let nowhere = wait(tool, "coracle-env-000000", json!({ "health_command": "true" })).await;
        assert_eq!((&nowhere["code"], &nowhere["healthy"]), (&"not_found".into(), &false.into()), "{nowhere:#}");
        assert_eq!(wait(tool, &name, json!({})).await["code"], "missing_field");
        if tool.case.is_real() {
            let stop = async {
                let call = json!({ "operation": "job_wait", "container": name, "job_id": "00000000", "timeout": 1 });
                tool.call(call).await;
                assert!(tool.engine(&["kill", &name]).await.0);
            };
            let waiting = wait(tool, &name, json!({ "health_command": "exit 1", "interval": 0.2, "retries": 1000 }));
            let (waited, ()) = tokio::join!(waiting, stop);
            assert_eq!((&waited["code"], &waited["healthy"]), (&"not_running".into(), &false.into()), "{waited:#}");
        }
    })
    .await;
}

#[tokio::test]
async fn status_tells_what_is_used_what_runs_and_how_it_stands() {
    with_rootful_engine("", async |tool| {
        if tool.case.lacks(Lack::EnforcedLimits) {
            return;
        }
        let name = tool.created(json!({})).await;
        tool.prints(&name, "head -c 3000000 /dev/zero >/root.bin || head -c 3000000 /dev/zero >big.bin").await;
        let job = json!({ "operation": "exec_background", "container": name, "command": "sleep 600" });
        assert_eq!(tool.call(job).await["success"], true);
        let status = tool.call(json!({ "operation": "status", "container": name, "health_check": true })).await;
        assert_eq!(status["health"], json!({ "guest": "ok", "image": "none" }), "{status:#}");
        assert_eq!(status["jobs_running"], 1, "{status:#}");
        let usage = &status["usage"];
        assert!((2..50).contains(&usage["pids"].as_u64().unwrap()), "{usage}");
        assert!((100_000..500_000_000).contains(&usage["memory_bytes"].as_u64().unwrap()), "{usage}");
        assert!(usage["cpu_percent"].as_f64().unwrap() < 300.0, "{usage}");
        assert!(usage["disk_bytes"].as_u64().unwrap() >= 3_000_000, "{usage}");
        assert!(status["expires_at"].is_string(), "{status:#}");
        let listed = tool.call(json!({ "operation": "list" })).await;
        assert_eq!(listed["containers"][0]["jobs_running"], 1, "{listed:#}");
        assert_eq!(listed["containers"][0]["expires_at"], status["expires_at"], "{listed:#}");
        assert!(tool.engine(&["kill", &name]).await.0);
        let call = json!({ "operation": "status", "container": name, "health_check": true });
        let status = tool.call(call).await;
        assert_eq!((&status["usage"], &status["health"]["guest"]), (&Value::Null, &"lost".into()), "{status:#}");
    })
    .await;
}
