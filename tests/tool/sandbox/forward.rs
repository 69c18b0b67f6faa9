//! A port of a workflow's sandbox at the command line.

use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use super::with_bench;

#[tokio::test]
async fn the_command_line_forwards_a_port_of_a_workflow_that_no_agent_has_worked_in() {
    with_bench("", async |bench| {
        let id = bench.id("served");
        bench.created(&id).await;
        // The process that listens inside is the relay to the proxy.
        let mut forward = bench.tool.command(["forward", "--workflow", &id, "3129"]);
        let mut forward = forward.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(forward.stdout.take().unwrap()).lines();
        let line = tokio::time::timeout(Duration::from_secs(60), lines.next_line()).await.unwrap().unwrap();
        let address = line.expect("it prints where it listens");
        let mut stream = TcpStream::connect(&address).await.unwrap();
        stream.write_all(b"GET /proxy/v1/health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        let pid = rustix::process::Pid::from_raw(forward.id().unwrap().cast_signed()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        tokio::time::timeout(Duration::from_secs(20), forward.wait()).await.expect("it ends").unwrap();
    })
    .await;
}
