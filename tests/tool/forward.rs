//! `forward`: forwards a port of this host to a server in a container through its guest.

use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::Child;

use super::mcp::Client;
use super::{Tool, eventually, with_engine, with_rootful_engine, with_tool};

/// A container with a server on its loopback, and no network.
async fn serving(tool: &Tool<'_>) -> String {
    let name = tool.created(json!({ "network": "none" })).await;
    serve(tool, &name).await;
    name
}

async fn serve(tool: &Tool<'_>, name: &str) {
    let serve = "while :; do echo of the container | nc -l -p 8000; done";
    let call = json!({ "operation": "exec_background", "container": name, "command": serve });
    assert_eq!(tool.call(call).await["success"], true);
}

/// A server's first output.
async fn read_from(address: &str) -> String {
    let mut text = String::new();
    if let Ok(mut stream) = TcpStream::connect(address).await {
        let _ = stream.shutdown().await;
        let _ = stream.read_to_string(&mut text).await;
    }
    text
}

async fn leads(address: &str) {
    let answers = async || read_from(address).await == "of the container\n";
    eventually("the server answers at the port", Duration::from_secs(20), answers).await;
}

/// `coracle forward`, and the address at which the server answers.
async fn forwarding(tool: &Tool<'_>, name: &str) -> (Child, String) {
    let mut forward = tool.command(["forward", name, "8000"]);
    let mut forward = forward.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(forward.stdout.take().unwrap()).lines();
    let address = lines.next_line().await.unwrap().unwrap();
    leads(&address).await;
    (forward, address)
}

#[tokio::test]
async fn a_session_forwards_a_port_until_it_ends() {
    with_engine("", async |tool| {
        let name = serving(tool).await;
        let mut client = Client::start(&mut tool.command(["mcp"])).await;
        let forward = json!({ "operation": "forward", "container": name, "container_port": 8000 });
        let answer = client.result("containers", &forward).await["structuredContent"].take();
        let address = answer["address"].as_str().unwrap_or_else(|| panic!("{answer:#}")).to_owned();
        assert_eq!(
            (&answer["url"], &answer["container"]),
            (&format!("http://{address}").into(), &name.as_str().into())
        );
        leads(&address).await;
        // A second call returns the same port.
        assert_eq!(client.result("containers", &forward).await["structuredContent"]["address"], address.as_str());
        let port = address.rsplit_once(':').unwrap().1.parse::<u16>().unwrap();
        let taken = json!({ "operation": "forward", "container": name, "container_port": 8001, "host_port": port });
        assert_eq!(client.result("containers", &taken).await["structuredContent"]["code"], "port_taken");
        client.end().await;
        assert!(TcpStream::connect(&address).await.is_err(), "the port is open after the session");
    })
    .await;
}

#[tokio::test]
async fn a_forwarded_port_leads_to_a_container_that_was_started_again() {
    with_rootful_engine("", async |tool| {
        let name = serving(tool).await;
        let mut client = Client::start(&mut tool.command(["mcp"])).await;
        let forward = json!({ "operation": "forward", "container": name, "container_port": 8000 });
        let answer = client.result("containers", &forward).await["structuredContent"].take();
        let address = answer["address"].as_str().unwrap_or_else(|| panic!("{answer:#}")).to_owned();
        leads(&address).await;
        for words in [&["stop", name.as_str(), "--time", "1"][..], &["start", name.as_str()]] {
            let output = tool.run(words, b"").await;
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
        serve(tool, &name).await;
        leads(&address).await;
        assert_eq!(client.result("containers", &forward).await["structuredContent"]["address"], address.as_str());
        client.end().await;
    })
    .await;
}

#[tokio::test]
async fn the_command_line_forwards_a_port_until_it_is_interrupted() {
    with_engine("", async |tool| {
        let name = serving(tool).await;
        let (mut forward, address) = forwarding(tool, &name).await;
        let pid = rustix::process::Pid::from_raw(forward.id().unwrap().cast_signed()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        tokio::time::timeout(Duration::from_secs(20), forward.wait()).await.expect("it ends").unwrap();
        assert!(TcpStream::connect(&address).await.is_err());
    })
    .await;
}

#[tokio::test]
async fn a_forwarded_port_ends_with_its_container() {
    with_engine("", async |tool| {
        let name = serving(tool).await;
        let (forward, address) = forwarding(tool, &name).await;
        let destroyed = tool.call(json!({ "operation": "destroy", "container": name })).await;
        assert_eq!(destroyed["success"], true, "{destroyed:#}");
        let output = tokio::time::timeout(Duration::from_secs(20), forward.wait_with_output()).await;
        let output = output.expect("it ends with the container").unwrap();
        let printed = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{printed}");
        assert!(printed.contains("what it led to was removed"), "{printed}");
        assert!(TcpStream::connect(&address).await.is_err());
    })
    .await;
}

#[tokio::test]
async fn a_port_is_not_forwarded_by_a_call_that_ends_nor_where_none_may_be() {
    with_tool("", async |tool| {
        let name = tool.created(json!({})).await;
        let forward = |port: u16, host: Value| {
            json!({ "operation": "forward", "container": name, "container_port": port, "host_port": host })
        };
        let ends = tool.call(forward(8000, Value::Null)).await;
        assert_eq!((&ends["code"], &ends["details"]["capability"]), (&"unsupported".into(), &"forward".into()), "{ends:#}");
        assert!(ends["hint"].as_str().unwrap().contains("coracle forward"));
        let mistyped = tool.call(forward(0, Value::Null)).await;
        assert_eq!(mistyped["success"], false, "{mistyped:#}");
        if tool.case.is_real() {
            let low = tool.run(["forward", &name, "8000", "--host-port", "80", "--json"], b"").await;
            let low: Value = serde_json::from_slice(&low.stdout).unwrap();
            assert_eq!((&low["code"], &low["details"]["rule"]), (&"policy_denied".into(), &"port.low".into()), "{low:#}");
        }
    })
    .await;
}

#[tokio::test]
async fn localhost_is_what_it_is_inside_for_a_server_that_listens_at_ipv6_alone() {
    with_engine("", async |tool| {
        let name = tool.created(json!({})).await;
        let loopback = tool.prints(&name, "grep -c ' lo$' /proc/net/if_inet6; true").await;
        if loopback.trim() != "1" {
            // Docker has no IPv6 in containers unless its network has.
            return tool.case.left_out();
        }
        let serve = json!({ "operation": "exec_background", "container": name,
            "command": "mkdir -p /tmp/www; echo of the container > /tmp/www/index.html; httpd -f -p [::1]:5173 -h /tmp/www" });
        let job = tool.call(serve).await["job_id"].take();
        let wait = json!({ "operation": "job_wait", "container": name, "job_id": job, "until": "port",
            "port": "localhost:5173", "timeout": 20 });
        let waited = tool.call(wait).await;
        assert_eq!(waited["reason"], "port", "{waited:#}");
        let mut child = tool.command(["forward", &name, "5173"]).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = lines.next_line().await.unwrap().unwrap();
        let port: String = line.chars().skip_while(|it| *it != ':').filter(char::is_ascii_digit).collect();
        let mut stream = TcpStream::connect(format!("127.0.0.1:{port}")).await.unwrap();
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n").await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        assert!(text.contains("of the container"), "{line}: {text}");
    })
    .await;
}
