//! What a guest may do to a link, and what may happen in between.

mod broken;
mod leaving;
mod nonsense;
mod outlets;
mod questions;
mod slow;

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
    COMPLAINED, Cut, Fixture, Guest, PRINTED, Request, begun, cut_link, ended, link, out, play, whole,
};

fn command() -> Exec {
    Exec::new(Command::Argv(vec!["say".into(), "it".into()]), Ids::ROOT, ContainerPath::root())
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
        Ok(_) => panic!("it is no result"),
    }
}

/// Runs one command against a guest that has heard of it.
fn against<F>(act: impl Fn(Guest, u32, String) -> F + Send + Sync + Clone + 'static) -> Link
where
    F: Future<Output = ()> + Send + 'static,
{
    link(move |_, mut guest| {
        let act = act.clone();
        async move {
            guest.greet("a run").await;
            let job = match guest.asked().await {
                Some(Frame { channel, head: Request::Exec(exec), .. }) => (channel, exec.job),
                Some(Frame { channel, head: Request::Attach(AttachRequest { job, .. }), .. }) => (channel, job),
                _ => return,
            };
            act(guest, job.0, job.1).await;
        }
    })
}

#[tokio::test(start_paused = true)]
async fn many_calls_at_once_get_each_its_own_answer_and_only_so_many_are_open() {
    const CALLS: usize = 600;
    let link = link(|_, mut guest| async move {
        guest.greet("a run").await;
        let mut left = CALLS;
        while left > 0 {
            let mut asked = Vec::new();
            while asked.len() < left.min(MAX_CHANNELS) {
                let Some(Frame { channel, head: Request::Stat(at), .. }) = guest.hear().await else { continue };
                asked.push((channel, at.path));
            }
            assert!(timeout(Duration::from_secs(1), guest.hear()).await.is_err(), "one more than may be open");
            left -= asked.len();
            for (channel, path) in asked.into_iter().rev() {
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
        let (asked, answered) = done.unwrap();
        assert_eq!(asked, answered);
    }
}

#[tokio::test(start_paused = true)]
async fn a_flood_waits_for_who_watches_it_and_holds_up_nobody_else() {
    let link = link(|_, mut guest| async move {
        guest.greet("a run").await;
        let (mut room, mut sent, mut flooded) = (WINDOW, 0, 0);
        while let Some(Frame { channel, head, .. }) = guest.hear().await {
            match head {
                Request::Exec(exec) => {
                    flooded = channel;
                    guest.event(channel, &begun(&exec.job)).await;
                }
                Request::WindowUpdate(more) => room += more,
                Request::Stat(at) => guest.reply(channel, &file(&at.path)).await,
                _ => {}
            }
            while room > 0 && sent < 4 * WINDOW {
                let piece = vec![b'x'; room.min(1000).min(4 * WINDOW - sent) as usize];
                guest.say(flooded, out(Stream::Stdout, sent), &piece).await;
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
async fn a_long_input_goes_as_fast_as_it_is_taken() {
    const LENGTH: u64 = 64 << 20;
    let link = against(|mut guest, channel, job| async move {
        guest.event(channel, &begun(&job)).await;
        let (mut taken, mut held) = (0, 0);
        while let Some(Frame { head: Request::Data { last }, payload, .. }) = guest.hear().await {
            held += payload.len() as u64;
            assert!(held <= WINDOW, "more than there was room for");
            if held > WINDOW / 2 || last {
                guest.say(channel, GuestMessage::WindowUpdate(held), b"").await;
                (taken, held) = (taken + held, 0);
            }
            if last {
                let count = taken.to_string();
                guest.say(channel, out(Stream::Stdout, 0), count.as_bytes()).await;
                guest.reply(channel, &ended(0, count.len() as u64, 0)).await;
            }
        }
    });
    let input = Input::Stream(Box::new(tokio::io::repeat(7).take(LENGTH)));
    let output = link.exec(Exec { stdin: Some(input), ..command() }).await.unwrap();
    assert_eq!(output.stdout.text(), LENGTH.to_string());
}

#[tokio::test]
async fn a_terminal_has_the_size_of_the_request_and_follows_its_changes() {
    let [first, second] = [(80, 24), (100, 50)].map(|(cols, rows)| TerminalSize { cols, rows });
    let (sender, sizes) = watch::channel(first);
    let link = link(move |_, mut guest| {
        let sender = sender.clone();
        async move {
            guest.greet("a run").await;
            let Some(Frame { channel, head: Request::Exec(request), .. }) = guest.asked().await else { panic!() };
            assert_eq!(request.terminal, Some(first));
            guest.event(channel, &begun(&request.job)).await;
            sender.send(second).unwrap();
            let Some(Frame { head, .. }) = guest.asked().await else { panic!() };
            assert_eq!(head, Request::Resize(second));
            guest.reply(channel, &ended(0, 0, 0)).await;
        }
    });
    let output = link.exec(Exec { terminal: Some(sizes), ..command() }).await.unwrap();
    assert_eq!(output.exit, Exit::Code(0));
}

#[tokio::test]
async fn what_is_sent_of_both_ends_is_what_is_kept() {
    let link = against(|mut guest, channel, job| async move {
        guest.event(channel, &begun(&job)).await;
        guest.say(channel, out(Stream::Stdout, 0), b"0123").await;
        guest.say(channel, out(Stream::Stdout, 96), b"wxyz").await;
        guest.reply(channel, &ExecStatus { left: 2, ..ended(1, 100, 50) }).await;
        guest.idle().await;
    });
    let output = link.exec(Exec { keep_bytes: 7, ..command() }).await.unwrap();
    assert_eq!((output.stdout.head(), output.stdout.tail().as_slice()), (&b"0123"[..], &b"wxyz"[..]));
    assert_eq!((output.stdout.left_out(), output.stderr.left_out(), output.left_running), (92, 50, 2));
    assert!(output.job.is_some(), "the rest can be asked for");
}

#[tokio::test]
async fn states_of_an_end_are_exits() {
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
async fn a_job_is_begun_when_the_guest_has_its_input() {
    let (told, mut tells) = mpsc::unbounded_channel();
    let link = against(move |mut guest, channel, job| {
        let told = told.clone();
        async move {
            guest.event(channel, &begun(&job)).await;
            while let Some(frame) = guest.hear().await {
                if matches!(frame.head, Request::Data { last: true }) {
                    guest.reply(channel, &ExecStatus { state: ExecState::Running, ..ended(0, 0, 0) }).await;
                }
                told.send(frame).unwrap();
            }
        }
    });
    let exec = Exec { stdin: Some(Input::Bytes(b"in".to_vec())), ..command() };
    assert_eq!(link.start(exec, Some(32)).await.unwrap().pid, 7);
    drop(link);
    let Some(Frame { head: Request::Data { last: true }, payload, .. }) = tells.recv().await else {
        panic!("no input")
    };
    assert_eq!(payload, b"in");
    assert_eq!(tells.recv().await, None, "nobody left it");
}
