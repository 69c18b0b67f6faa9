//! A process inside, as root, replaces the guest, or kills it.

use std::collections::BTreeSet;
use std::os::unix::net::UnixListener;

use coracle_client::{Link, Transport};
use coracle_types::{Chunk, Error, Exec, ExecOutput, Result};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::AsyncReadExt;
use tokio::sync::mpsc;

use super::{argv, perl, sh, until, with_perl};
use crate::engines::{Running, Way, with_a_real_guest, with_real_engines};

/// A link by what is now at the place of the socket: it comes by the stream, and commands run. Where there is no stream it
/// is refused.
async fn works_by_the_stream(running: &Running<'_>) {
    assert!(Link::by_socket(&running.socket, Default::default()).await.is_none(), "that is not the guest");
    if running.case.second_way() == Way::Socket {
        assert!(running.link_by(Way::Socket).await.exec(argv(&["true"])).await.is_err());
        return;
    }
    let link = running.link_by(Way::Socket).await;
    let it = link.exec(argv(&["echo", "a word"])).await.unwrap();
    assert_eq!((it.stdout.text().as_str(), link.transport()), ("a word\n", Some(Transport::Stream)));
}

#[tokio::test]
async fn a_socket_that_leads_to_another_of_the_host_gets_not_a_byte() {
    with_a_real_guest(async |running| {
        let elsewhere = running.socket.dir.parent().unwrap().join("elsewhere");
        let listener = UnixListener::bind(&elsewhere).unwrap();
        listener.set_nonblocking(true).unwrap();
        let listener = tokio::net::UnixListener::from_std(listener).unwrap();
        let words = ["ln", "-sfn", elsewhere.to_str().unwrap(), "/.coracle/link/sock"];
        assert_eq!(running.printed(argv(&words)).await, "");
        works_by_the_stream(running).await;
        // Both attempts reached this listener, and failed.
        for _ in 0..2 {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut received = Vec::new();
            stream.read_to_end(&mut received).await.unwrap();
            assert_eq!(received, b"");
        }
        std::fs::remove_file(elsewhere).unwrap();
    })
    .await;
}

/// Listens in place of the guest, accepts everybody, and records the bytes of each connection.
const LISTENER: &str = r#"
    $| = 1; my ($at, $unix, $stream) = ("/.coracle/link/sock", 1, 1);
    socket(S, $unix, $stream, 0) or die;
    unlink $at; bind(S, pack("S a*", $unix, "$at\0")) or die; listen(S, 9) or die;
    chmod 0777, $at;
    print "listens\n";
    while (accept(C, S)) {
        my ($all, $piece) = ("", ""); $all .= $piece while sysread(C, $piece, 9);
        printf "heard %d\n", length $all; close C;
    }"#;

#[tokio::test]
async fn a_listener_inside_in_the_place_of_the_guest_gets_not_a_byte() {
    with_real_engines(async |case| {
        let running = with_perl(case).await;
        let (live, mut received) = mpsc::channel::<Chunk>(8);
        let listens = running.exec(Exec { live: Some(live), ..perl(LISTENER) });
        let attempts = async {
            let mut text = String::new();
            while !text.contains("listens\n") {
                text += &String::from_utf8(received.recv().await.unwrap().bytes).unwrap();
            }
            works_by_the_stream(&running).await;
            while text.matches("heard").count() < 2 {
                text += &String::from_utf8(received.recv().await.unwrap().bytes).unwrap();
            }
            assert_eq!(text, "listens\nheard 0\nheard 0\n");
        };
        tokio::select! {
            ended = listens => panic!("{ended:?}"),
            () = attempts => {}
        }
    })
    .await;
}

fn lost(ended: Result<ExecOutput>) -> String {
    match ended {
        Err(Error::NotRunning { output: Some(output), .. } | Error::GuestLost { output: Some(output), .. }) => {
            output.stdout.text()
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_killed_guest_ends_its_container_and_no_command_succeeds() {
    with_real_engines(async |case| {
        for way in BTreeSet::from([Way::Socket, case.second_way()]) {
            let running = case.runs(way).await;
            let (live, mut received) = mpsc::channel::<Chunk>(8);
            let command = running.exec(Exec { live: Some(live), ..sh("echo so far; sleep 300") });
            let kill = async {
                assert_eq!(received.recv().await.unwrap().bytes, b"so far\n");
                kill_process(Pid::from_raw(running.pid1().cast_signed()).unwrap(), Signal::KILL).unwrap();
                while received.recv().await.is_some() {}
            };
            let (ended, ()) = tokio::join!(command, kill);
            assert_eq!(lost(ended), "so far\n", "{way}");
            until("the container ends", async || !running.seen().await.running()).await;
            let next = running.exec(sh("true")).await;
            assert!(matches!(next, Err(Error::NotRunning { .. })), "{way}: {next:?}");
        }
    })
    .await;
}
