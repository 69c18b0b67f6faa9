//! How a link handles guests and broken connections.

mod cancellation;
mod invalid_messages;
mod reconnect;
mod repetition;
mod slow;
mod tunnels;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use coracle_protocol::codec::Frame;
use coracle_protocol::{
    AttachRequest, ErrorCode, ExecState, ExecStatus, FileEntry, FileKind, FileRef, FirstMessage, GuestMessage, Hello,
    MAX_CHANNELS, RpcError, Stream, TerminalSize, UserSpec, WINDOW, WaitRequest, WaitResult,
};
use coracle_types::{AtLimit, Command, ContainerPath, Error, Exec, ExecLimits, Exit, Ids, Input, JobId, LimitKind};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout};

use crate::files::WriteFile;
use crate::link::Link;
use crate::test_support::{
    COMPLAINED, Cut, Fixture, Guest, PRINTED, Request, cut_link, ended, link, out, simulate_guest, started_event, whole,
};

fn command() -> Exec {
    Exec::new(Command::Argv(vec!["send".into(), "it".into()]), Ids::ROOT, ContainerPath::root())
}

fn at(path: &str) -> FileRef {
    FileRef { user: UserSpec::Name("root".into()), path: path.into(), follow: true }
}

fn file(name: &str) -> FileEntry {
    let (kind, link) = (FileKind::File, None);
    let name = name.to_owned();
    FileEntry { name, kind, size: 0, mode: 0o644, uid: 0, gid: 0, changed_ns: 0, link }
}

fn lost<T>(outcome: Result<T, Error>) -> String {
    match outcome {
        Err(Error::GuestLost { reason, .. }) => reason,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("the call must fail"),
    }
}

/// A guest that has received one command and then runs `act`.
fn against<F>(act: impl Fn(Guest, u32, String) -> F + Send + Sync + Clone + 'static) -> Link
where
    F: Future<Output = ()> + Send + 'static,
{
    link(move |_, mut guest| {
        let act = act.clone();
        async move {
            guest.greet("a run").await;
            let job = match guest.receive_request().await {
                Some(Frame { channel, head: Request::Exec(exec), .. }) => (channel, exec.job),
                Some(Frame { channel, head: Request::Attach(AttachRequest { job, .. }), .. }) => (channel, job),
                _ => return,
            };
            act(guest, job.0, job.1).await;
        }
    })
}

#[tokio::test(start_paused = true)]
async fn concurrent_calls_get_their_own_replies_and_their_number_is_limited() {
    const CALLS: usize = 600;
    let link = link(|_, mut guest| async move {
        guest.greet("a run").await;
        let mut left = CALLS;
        while left > 0 {
            let mut requests = Vec::new();
            while requests.len() < left.min(MAX_CHANNELS) {
                let Some(Frame { channel, head: Request::Stat(at), .. }) = guest.receive().await else { continue };
                requests.push((channel, at.path));
            }
            assert!(
                timeout(Duration::from_secs(1), guest.receive()).await.is_err(),
                "more channels are open than allowed"
            );
            left -= requests.len();
            for (channel, path) in requests.into_iter().rev() {
                guest.reply(channel, &file(&path)).await;
            }
        }
        guest.idle().await;
    });
    let call = |number: usize| {
        let link = link.clone();
        async move { (number.to_string(), link.stat(at(&number.to_string())).await.unwrap().name) }
    };
    let mut calls: tokio::task::JoinSet<_> = (0..CALLS).map(call).collect();
    while let Some(done) = calls.join_next().await {
        let (requested, replied) = done.unwrap();
        assert_eq!(requested, replied);
    }
}

#[tokio::test(start_paused = true)]
async fn output_waits_for_its_watcher_and_does_not_block_other_calls() {
    let link = link(|_, mut guest| async move {
        guest.greet("a run").await;
        let (mut room, mut sent, mut flooded) = (WINDOW, 0, 0);
        while let Some(Frame { channel, head, .. }) = guest.receive().await {
            match head {
                Request::Exec(exec) => {
                    flooded = channel;
                    guest.event(channel, &started_event(&exec.job)).await;
                }
                Request::WindowUpdate(more) => room += more,
                Request::Stat(at) => guest.reply(channel, &file(&at.path)).await,
                _ => {}
            }
            while room > 0 && sent < 4 * WINDOW {
                let piece = vec![b'x'; room.min(1000).min(4 * WINDOW - sent) as usize];
                guest.send(flooded, out(Stream::Stdout, sent), &piece).await;
                (room, sent) = (room - piece.len() as u64, sent + piece.len() as u64);
            }
            assert!(room <= WINDOW);
            if sent == 4 * WINDOW && flooded != 0 {
                guest.reply(flooded, &ended(0, sent, 0)).await;
                flooded = 0;
            }
        }
    });
    let (sender, mut watched) = mpsc::channel(1);
    let exec = Exec { live: Some(sender), ..command() };
    let running = tokio::spawn({
        let link = link.clone();
        async move { link.exec(exec).await }
    });
    let first = watched.recv().await.unwrap();
    assert_eq!(first.offset, 0);
    for _ in 0..3 {
        assert_eq!(link.stat(at("beside")).await.unwrap().name, "beside");
    }
    let mut bytes = first.bytes.len() as u64;
    while let Some(chunk) = watched.recv().await {
        assert_eq!(chunk.offset, bytes);
        bytes += chunk.bytes.len() as u64;
    }
    let output = running.await.unwrap().unwrap();
    assert_eq!((bytes, output.stdout.total_bytes()), (4 * WINDOW, 4 * WINDOW));
}

#[tokio::test]
async fn a_long_input_is_sent_as_fast_as_it_is_read() {
    const LENGTH: u64 = 64 << 20;
    let link = against(|mut guest, channel, job| async move {
        guest.event(channel, &started_event(&job)).await;
        let (mut taken, mut held) = (0, 0);
        while let Some(Frame { head: Request::Data { last }, payload, .. }) = guest.receive().await {
            held += payload.len() as u64;
            assert!(held <= WINDOW, "more than the window allows");
            if held > WINDOW / 2 || last {
                guest.send(channel, GuestMessage::WindowUpdate(held), b"").await;
                (taken, held) = (taken + held, 0);
            }
            if last {
                let count = taken.to_string();
                guest.send(channel, out(Stream::Stdout, 0), count.as_bytes()).await;
                guest.reply(channel, &ended(0, count.len() as u64, 0)).await;
            }
        }
    });
    let input = Input::Stream(Box::new(tokio::io::repeat(7).take(LENGTH)));
    let output = link.exec(Exec { stdin: Some(input), ..command() }).await.unwrap();
    assert_eq!(output.stdout.text(), LENGTH.to_string());
}

#[tokio::test]
async fn a_terminal_gets_the_initial_size_and_its_changes() {
    let [first, second] = [(80, 24), (100, 50)].map(|(cols, rows)| TerminalSize { cols, rows });
    let (sender, sizes) = watch::channel(first);
    let link = link(move |_, mut guest| {
        let sender = sender.clone();
        async move {
            guest.greet("a run").await;
            let Some(Frame { channel, head: Request::Exec(request), .. }) = guest.receive_request().await else {
                panic!()
            };
            assert_eq!(request.terminal, Some(first));
            guest.event(channel, &started_event(&request.job)).await;
            sender.send(second).unwrap();
            let Some(Frame { head, .. }) = guest.receive_request().await else { panic!() };
            assert_eq!(head, Request::Resize(second));
            guest.reply(channel, &ended(0, 0, 0)).await;
        }
    });
    let output = link.exec(Exec { terminal: Some(sizes), ..command() }).await.unwrap();
    assert_eq!(output.exit, Exit::Code(0));
}

#[tokio::test]
async fn both_ends_of_a_long_output_are_captured() {
    let link = against(|mut guest, channel, job| async move {
        guest.event(channel, &started_event(&job)).await;
        guest.send(channel, out(Stream::Stdout, 0), b"0123").await;
        guest.send(channel, out(Stream::Stdout, 96), b"wxyz").await;
        guest.reply(channel, &ExecStatus { left: 2, ..ended(1, 100, 50) }).await;
        guest.idle().await;
    });
    let output = link.exec(Exec { keep_bytes: 7, ..command() }).await.unwrap();
    assert_eq!((output.stdout.head(), output.stdout.tail().as_slice()), (&b"0123"[..], &b"wxyz"[..]));
    assert_eq!((output.stdout.left_out(), output.stderr.left_out(), output.left_running), (92, 50, 2));
    assert!(output.job.is_some(), "the rest can be requested");
}

#[tokio::test]
async fn states_are_converted_to_exits() {
    let end = |state, code| ExecStatus { state, code, ..ended(0, 0, 0) };
    for (at_limit, end, exit) in [
        (AtLimit::End, end(ExecState::Exited, Some(7)), Exit::Code(7)),
        (AtLimit::End, end(ExecState::TotalTime, Some(137)), Exit::TimedOut(LimitKind::Total)),
        (AtLimit::End, end(ExecState::Silence, None), Exit::TimedOut(LimitKind::Silence)),
        (AtLimit::Keep, end(ExecState::Silence, None), Exit::Running(LimitKind::Silence)),
        (AtLimit::Keep, end(ExecState::TotalTime, None), Exit::Running(LimitKind::Total)),
        (AtLimit::Keep, end(ExecState::Cancelled, Some(143)), Exit::Cancelled),
    ] {
        let link = against(move |mut guest, channel, _| {
            let end = end.clone();
            async move {
                guest.reply(channel, &end).await;
                guest.idle().await;
            }
        });
        let output = link.exec(Exec { at_limit, ..command() }).await.unwrap();
        assert_eq!((output.exit, output.job.is_some()), (exit, matches!(exit, Exit::Running(_))));
    }
}

#[tokio::test]
async fn a_job_has_started_when_the_guest_has_its_input() {
    let (event_sender, mut events) = mpsc::unbounded_channel();
    let link = against(move |mut guest, channel, job| {
        let event_sender = event_sender.clone();
        async move {
            guest.event(channel, &started_event(&job)).await;
            while let Some(frame) = guest.receive().await {
                if matches!(frame.head, Request::Data { last: true }) {
                    guest.reply(channel, &ExecStatus { state: ExecState::Running, ..ended(0, 0, 0) }).await;
                }
                event_sender.send(frame).unwrap();
            }
        }
    });
    let exec = Exec { stdin: Some(Input::Bytes(b"in".to_vec())), ..command() };
    assert_eq!(link.start(exec, Some(32)).await.unwrap().pid, 7);
    drop(link);
    let Some(Frame { head: Request::Data { last: true }, payload, .. }) = events.recv().await else {
        panic!("no input")
    };
    assert_eq!(payload, b"in");
    assert_eq!(events.recv().await, None, "the channel must not be closed");
}
