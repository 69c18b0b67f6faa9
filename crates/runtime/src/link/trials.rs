//! What a guest may do to a link, and what may happen in between.

mod broken;
mod outlets;
mod questions;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use coracle_guest::codec::Frame;
use coracle_guest::wire::{
    Answer, Ask, At, End, Entry, Fault, FaultCode, Hello, Kind, MAX_CHANNELS, MAX_UNKNOWN, Say, State, Stream, VERSION,
    WINDOW, Wait, Waited, Who,
};
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use super::script::{COMPLAINED, Cut, Guest, PRINTED, World, begun, cut_link, ended, link, out, play};
use super::{Link, Put};
use crate::{AtLimit, Command, ContainerPath, Error, Exec, ExecLimits, Exit, Ids, Input, JobId, LimitKind};

fn command() -> Exec {
    Exec::new(Command::Argv(vec!["say".into(), "it".into()]), Ids::ROOT, ContainerPath::root())
}

fn at(path: &str) -> At {
    At { user: Who::Name("root".into()), path: path.into(), follow: true }
}

fn file(name: &str) -> Say {
    let (kind, link) = (Kind::File, None);
    let name = name.to_owned();
    Say::Answer(Answer::File(Entry { name, kind, size: 0, mode: 0o644, uid: 0, gid: 0, changed_ns: 0, link }))
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
                Some(Frame { channel, head: Ask::Exec(exec), .. }) => (channel, exec.job),
                Some(Frame { channel, head: Ask::Attach { job, .. }, .. }) => (channel, job),
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
                let Some(Frame { channel, head: Ask::Stat(at), .. }) = guest.hear().await else { continue };
                asked.push((channel, at.path));
            }
            assert!(timeout(Duration::from_secs(1), guest.hear()).await.is_err(), "one more than may be open");
            left -= asked.len();
            for (channel, path) in asked.into_iter().rev() {
                guest.say(channel, file(&path), b"").await;
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
                Ask::Exec(exec) => {
                    flooded = channel;
                    guest.say(channel, begun(&exec.job), b"").await;
                }
                Ask::Credit(more) => room += more,
                Ask::Stat(at) => guest.say(channel, file(&at.path), b"").await,
                _ => {}
            }
            while room > 0 && sent < 4 * WINDOW {
                let piece = vec![b'x'; room.min(1000).min(4 * WINDOW - sent) as usize];
                guest.say(flooded, out(Stream::Stdout, sent), &piece).await;
                (room, sent) = (room - piece.len() as u64, sent + piece.len() as u64);
            }
            assert!(room <= WINDOW);
            if sent == 4 * WINDOW && flooded != 0 {
                guest.say(flooded, Say::End(ended(0, sent, 0)), b"").await;
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
        guest.say(channel, begun(&job), b"").await;
        let (mut taken, mut held) = (0, 0);
        while let Some(Frame { head: Ask::Data { last }, payload, .. }) = guest.hear().await {
            held += payload.len() as u64;
            assert!(held <= WINDOW, "more than there was room for");
            if held > WINDOW / 2 || last {
                guest.say(channel, Say::Credit(held), b"").await;
                (taken, held) = (taken + held, 0);
            }
            if last {
                let count = taken.to_string();
                guest.say(channel, out(Stream::Stdout, 0), count.as_bytes()).await;
                guest.say(channel, Say::End(ended(0, count.len() as u64, 0)), b"").await;
            }
        }
    });
    let input = Input::Stream(Box::new(tokio::io::repeat(7).take(LENGTH)));
    let output = link.exec(Exec { stdin: Some(input), ..command() }).await.unwrap();
    assert_eq!(output.stdout.text(), LENGTH.to_string());
}

#[tokio::test(start_paused = true)]
async fn what_fits_nothing_ends_the_connection_with_its_reason() {
    type Said = Vec<(u32, Say, Vec<u8>)>;
    type Case = (&'static str, fn(u32, &str) -> Said);
    let cases: &[Case] = &[
        ("not open", |channel, _| vec![(channel + 9, Say::Credit(0), vec![])]),
        ("not open", |_, _| vec![(0, Say::Credit(0), vec![])]),
        ("nobody asked for", |channel, job| vec![(channel, begun(job), vec![]), (channel, begun(job), vec![])]),
        ("nobody asked for", |channel, _| vec![(channel, Say::Answer(Answer::Done), vec![])]),
        ("nobody asked for", |channel, _| vec![(channel, Say::Data { last: true }, vec![])]),
        ("nobody asked for", |channel, job| vec![(channel, begun(job), vec![1])]),
        ("had room for", |channel, _| {
            // On the next connection it goes on, or else that would be what is wrong.
            static NEXT: AtomicUsize = AtomicUsize::new(0);
            let offset = || NEXT.fetch_add(1 << 17, Ordering::Relaxed) as u64;
            (0..4).map(|_| (channel, out(Stream::Stdout, offset()), vec![0; 1 << 17])).collect()
        }),
        ("than was used", |channel, _| vec![(channel, Say::Credit(1), vec![])]),
        ("than was used", |channel, _| vec![(channel, Say::Credit(u64::MAX), vec![])]),
        ("twice", |channel, _| {
            vec![(channel, out(Stream::Stdout, 0), vec![1; 5]), (channel, out(Stream::Stdout, 4), vec![1])]
        }),
        ("twice", |channel, _| vec![(channel, out(Stream::Stderr, u64::MAX), vec![1])]),
        ("unknown types", |_, _| vec![(0, Say::Unknown, vec![]); MAX_UNKNOWN]),
        ("another command", |channel, _| vec![(channel, begun("00000000"), vec![])]),
        ("does not know", |channel, _| vec![(channel, Say::Unknown, vec![])]),
        ("how the command ended", |channel, _| vec![(channel, Say::End(End { code: None, ..ended(0, 0, 0) }), vec![])]),
        ("how the command ended", |channel, _| {
            vec![(channel, Say::End(End { state: State::Running, ..ended(0, 0, 0) }), vec![])]
        }),
    ];
    for (reason, said) in cases {
        let said = *said;
        let link = against(move |mut guest, channel, job| async move {
            let mut bytes = Vec::new();
            for (channel, head, payload) in said(channel, &job) {
                Frame { channel, head, payload }.write_to(&mut bytes);
            }
            let _ = guest.writer.write_all(&bytes).await;
            guest.idle().await;
        });
        let (sender, _watched) = mpsc::channel(1);
        // Nobody takes what comes, so no room is given back.
        let exec = Exec { live: Some(sender), ..command() };
        let outcome = timeout(Duration::from_secs(100), link.exec(exec)).await.expect("it ends");
        let why = lost(outcome);
        assert!(why.contains(reason), "{reason}: {why}");
    }
}

#[tokio::test]
async fn what_comes_after_the_last_word_ends_the_connection() {
    let link = link(|_, mut guest| async move {
        guest.greet("a run").await;
        while let Some(Frame { channel, head, .. }) = guest.asked().await {
            if let Ask::Exec(exec) = head {
                guest.say(channel, begun(&exec.job), b"").await;
                guest.say(channel, Say::End(ended(0, 0, 0)), b"").await;
                guest.say(channel, out(Stream::Stdout, 0), b"more").await;
            }
        }
    });
    assert_eq!(link.exec(command()).await.unwrap().exit, Exit::Code(0));
    while link.transport().is_some() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_of_another_kind_or_beyond_its_limit_is_none() {
    for said in [Answer::Jobs(vec![]), Answer::Done] {
        let link = link(move |_, mut guest| {
            let said = said.clone();
            async move {
                guest.greet("a run").await;
                let Some(Frame { channel, .. }) = guest.asked().await else { return };
                guest.say(channel, Say::Answer(said), b"").await;
                guest.idle().await;
            }
        });
        assert!(lost(link.stat(at("x")).await).contains("nobody asked for"));
    }
    let link = link(|_, mut guest| async move {
        guest.greet("a run").await;
        let Some(Frame { channel, .. }) = guest.asked().await else { return };
        guest.say(channel, file("x"), b"").await;
        guest.say(channel, Say::Data { last: true }, b"123456").await;
        guest.idle().await;
    });
    assert!(lost(link.get(at("x"), 0, 5).await).contains("nobody asked for"));
}

#[tokio::test]
async fn an_unknown_word_ends_its_own_call_only() {
    let link = link(|_, mut guest| async move {
        guest.greet("a run").await;
        while let Some(Frame { channel, head, .. }) = guest.asked().await {
            match head {
                Ask::Stat(at) if at.path == "odd" => guest.say(channel, Say::Unknown, b"").await,
                Ask::Stat(at) => guest.say(channel, file(&at.path), b"").await,
                _ => {}
            }
        }
    });
    assert!(lost(link.stat(at("odd")).await).contains("does not know"));
    assert_eq!(link.stat(at("even")).await.unwrap().name, "even");
}

#[tokio::test(start_paused = true)]
async fn who_does_not_say_a_proper_hello_is_no_guest() {
    type Script = fn(Hello) -> Option<Say>;
    let cases: &[(&str, Script)] = &[
        ("version 2", |hello| Some(Say::Hello(Hello { version: VERSION + 1, ..hello }))),
        ("did not say hello", |hello| Some(Say::Hello(Hello { nonce: "0".repeat(32), ..hello }))),
        ("did not say hello", |_| Some(Say::Credit(1))),
        ("within 5 s", |_| None),
    ];
    for (reason, answer) in cases {
        let answer = *answer;
        let link = link(move |_, mut guest| async move {
            let Some(Frame { head: Ask::Hello(hello), .. }) = guest.hear().await else { return };
            if let Some(say) = answer(hello) {
                guest.say(0, say, b"").await;
            }
            guest.idle().await;
        });
        let begun = Instant::now();
        let failed = link.open().await;
        assert!(matches!(&failed, Err(Error::GuestFailed { reason: it }) if it.contains(reason)), "{failed:?}");
        assert!(begun.elapsed() <= Duration::from_secs(6));
    }
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_never_answers_holds_nobody_for_ever() {
    let silent = || {
        link(|_, mut guest| async move {
            guest.greet("a run").await;
            guest.idle().await;
        })
    };
    assert!(matches!(silent().stat(at("x")).await, Err(Error::TimedOut { verb: "stat", .. })));
    assert!(lost(silent().exec(command()).await).contains("does not tell"));
    let exec = command();
    exec.cancel.clone().cancel();
    assert_eq!(silent().exec(exec).await.unwrap().exit, Exit::Cancelled);
}

#[tokio::test(start_paused = true)]
async fn a_cancel_waits_for_the_end_of_the_tree_and_takes_the_output_along() {
    let link = against(|mut guest, channel, job| async move {
        guest.say(channel, begun(&job), b"").await;
        guest.say(channel, out(Stream::Stdout, 0), b"before").await;
        while let Some(Frame { head, .. }) = guest.asked().await {
            if head == Ask::Cancel {
                let end = End { state: State::Cancelled, tree_ended: Some(true), signal: Some(15), ..ended(143, 6, 0) };
                guest.say(channel, Say::End(end), b"").await;
            }
        }
    });
    // Nobody takes what the watcher gets, and that must not hold up the cancel.
    let (sender, watched) = mpsc::channel(1);
    sender.send(crate::Chunk { stream: crate::Stream::Stdout, bytes: vec![], offset: 0 }).await.unwrap();
    let exec = Exec { live: Some(sender), ..command() };
    let cancel = exec.cancel.clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(1)).await;
        cancel.cancel();
    });
    let output = link.exec(exec).await.unwrap();
    assert_eq!((output.exit, output.tree_ended, output.signal), (Exit::Cancelled, Some(true), Some(15)));
    assert_eq!(output.stdout.text(), "before");
    drop(watched);
}

#[tokio::test]
async fn a_dropped_call_is_left_and_what_was_still_to_come_of_it_is_let_go() {
    let (told, mut tells) = mpsc::unbounded_channel();
    let link = link(move |_, mut guest| {
        let told = told.clone();
        async move {
            guest.greet("a run").await;
            let (mut room, mut sent, mut left) = (WINDOW, 0, 0);
            while let Some(Frame { channel, head, .. }) = guest.hear().await {
                match head {
                    Ask::Exec(exec) => guest.say(channel, begun(&exec.job), b"").await,
                    Ask::Leave => left = channel,
                    Ask::Credit(more) => room += more,
                    Ask::Stat(at) => guest.say(channel, file(&at.path), b"").await,
                    _ => {}
                }
                // The first window fills before anybody leaves, and nobody takes it.
                while room > 0 && sent < 3 * WINDOW {
                    let piece = vec![0; room.min(50_000).min(3 * WINDOW - sent) as usize];
                    guest.say(1, out(Stream::Stdout, sent), &piece).await;
                    (room, sent) = (room - piece.len() as u64, sent + piece.len() as u64);
                }
                if sent >= WINDOW && left == 0 {
                    told.send("full").unwrap();
                }
                if sent == 3 * WINDOW && left != 0 {
                    guest.say(left, Say::End(ended(0, sent, 0)), b"").await;
                    told.send("ended").unwrap();
                    sent += 1;
                }
            }
        }
    });
    let (sender, _watched) = mpsc::channel(1);
    let exec = Exec { live: Some(sender), ..command() };
    let running = tokio::spawn({
        let link = link.clone();
        async move { link.exec(exec).await }
    });
    assert_eq!(tells.recv().await, Some("full"));
    running.abort();
    while tells.recv().await != Some("ended") {}
    assert_eq!(link.stat(at("after")).await.unwrap().name, "after");
}

#[tokio::test]
async fn what_was_left_is_told_before_the_last_link_goes() {
    let (told, mut tells) = mpsc::unbounded_channel();
    let link = against(move |mut guest, channel, job| {
        let told = told.clone();
        async move {
            guest.say(channel, begun(&job), b"").await;
            told.send(Ask::Hello(Hello { version: 0, nonce: String::new(), run: String::new(), keep: None })).unwrap();
            while let Some(frame) = guest.asked().await {
                let _ = told.send(frame.head);
            }
        }
    });
    let running = tokio::spawn(async move { link.exec(command()).await });
    tells.recv().await.unwrap();
    running.abort();
    assert_eq!(tells.recv().await, Some(Ask::Leave));
    assert_eq!(tells.recv().await, None);
}

#[tokio::test]
async fn what_is_sent_of_both_ends_is_what_is_kept() {
    let link = against(|mut guest, channel, job| async move {
        guest.say(channel, begun(&job), b"").await;
        guest.say(channel, out(Stream::Stdout, 0), b"0123").await;
        guest.say(channel, out(Stream::Stdout, 96), b"wxyz").await;
        guest.say(channel, Say::End(End { left: 2, ..ended(1, 100, 50) }), b"").await;
        guest.idle().await;
    });
    let output = link.exec(Exec { keep_bytes: 7, ..command() }).await.unwrap();
    assert_eq!((output.stdout.head(), output.stdout.tail().as_slice()), (&b"0123"[..], &b"wxyz"[..]));
    assert_eq!((output.stdout.left_out(), output.stderr.left_out(), output.left_running), (92, 50, 2));
    assert!(output.job.is_some(), "the rest can be asked for");
}

#[tokio::test]
async fn states_of_an_end_are_exits() {
    let end = |state, code| End { state, code, ..ended(0, 0, 0) };
    for (at_limit, end, exit) in [
        (AtLimit::End, end(State::Exited, Some(7)), Exit::Code(7)),
        (AtLimit::End, end(State::TotalTime, Some(137)), Exit::TimedOut(LimitKind::Total)),
        (AtLimit::End, end(State::Silence, None), Exit::TimedOut(LimitKind::Silence)),
        (AtLimit::Keep, end(State::Silence, None), Exit::Running(LimitKind::Silence)),
        (AtLimit::Keep, end(State::TotalTime, None), Exit::Running(LimitKind::Total)),
        (AtLimit::Keep, end(State::Cancelled, Some(143)), Exit::Cancelled),
    ] {
        let link = against(move |mut guest, channel, _| {
            let end = end.clone();
            async move {
                guest.say(channel, Say::End(end), b"").await;
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
            guest.say(channel, begun(&job), b"").await;
            while let Some(frame) = guest.hear().await {
                if matches!(frame.head, Ask::Data { last: true }) {
                    guest.say(channel, Say::End(End { state: State::Running, ..ended(0, 0, 0) }), b"").await;
                }
                told.send(frame).unwrap();
            }
        }
    });
    let exec = Exec { stdin: Some(Input::Bytes(b"in".to_vec())), ..command() };
    assert_eq!(link.start(exec, Some(32)).await.unwrap().pid, 7);
    drop(link);
    let Some(Frame { head: Ask::Data { last: true }, payload, .. }) = tells.recv().await else { panic!("no input") };
    assert_eq!(payload, b"in");
    assert_eq!(tells.recv().await, None, "nobody left it");
}

#[tokio::test(start_paused = true)]
async fn a_command_whose_start_is_slow_is_found_and_not_started_again() {
    let link = link(|nth, mut guest| async move {
        guest.greet("a run").await;
        let mut looks = 0;
        while let Some(Frame { channel, head, .. }) = guest.asked().await {
            match head {
                Ask::Exec(_) if nth == 0 => return,
                Ask::Exec(_) => guest.say(channel, Say::Failed(Fault::new(FaultCode::JobTaken, "taken")), b"").await,
                Ask::Attach { .. } if looks < 9 => {
                    looks += 1;
                    guest.say(channel, Say::Failed(Fault::new(FaultCode::NoJob, "not yet")), b"").await;
                }
                _ => guest.say(channel, Say::End(ended(3, 0, 0)), b"").await,
            }
        }
    });
    assert_eq!(link.exec(command()).await.unwrap().exit, Exit::Code(3));
}

#[tokio::test(start_paused = true)]
async fn what_hangs_holds_no_later_call_for_ever() {
    let link = link(|_, mut guest| async move {
        guest.greet("a run").await;
        guest.idle().await;
    });
    let hanging: Vec<_> = (0..MAX_CHANNELS)
        .map(|_| {
            let link = link.clone();
            tokio::spawn(async move { link.exec(command()).await })
        })
        .collect();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let begun = Instant::now();
    for refused in [link.exec(command()).await.map(drop), link.stat(at("x")).await.map(drop)] {
        assert!(matches!(refused, Err(Error::TimedOut { verb: "exec" | "stat", .. })), "{refused:?}");
    }
    assert_eq!(begun.elapsed().as_secs(), 20);
    hanging.into_iter().for_each(|it| it.abort());
}

#[tokio::test(start_paused = true)]
async fn what_does_not_begin_is_not_waited_for_beyond_its_limit() {
    let (told, mut tells) = mpsc::unbounded_channel();
    let link = against(move |mut guest, _, _| {
        let told = told.clone();
        async move {
            while let Some(frame) = guest.asked().await {
                told.send(frame.head).unwrap();
            }
        }
    });
    let (total, grace, begun) = (Duration::from_secs(5), Duration::from_secs(2), Instant::now());
    let limits = ExecLimits { total: Some(total), grace, ..ExecLimits::default() };
    assert_eq!(lost(link.exec(Exec { limits, ..command() }).await), "it did not begin");
    assert_eq!(begun.elapsed().as_secs(), 17);
    assert_eq!(tells.recv().await, Some(Ask::Leave));
}

#[tokio::test(start_paused = true)]
async fn what_was_sent_long_ago_is_not_sent_again() {
    for (after, sent_again) in [(50, true), (57, false)] {
        let link = link(move |nth, mut guest| async move {
            guest.greet("a run").await;
            while let Some(Frame { channel, head, .. }) = guest.asked().await {
                match head {
                    Ask::Exec(_) if nth == 0 => {
                        tokio::time::sleep(Duration::from_secs(after)).await;
                        return;
                    }
                    Ask::Exec(_) => guest.say(channel, Say::End(ended(3, 0, 0)), b"").await,
                    _ => {
                        tokio::time::sleep(Duration::from_secs(5)).await;
                        guest.say(channel, Say::Failed(Fault::new(FaultCode::NoJob, "none")), b"").await;
                    }
                }
            }
        });
        assert_eq!(link.exec(command()).await.is_ok(), sent_again, "after {after} s");
    }
}

/// What a guest may say about a command, in any order.
fn said() -> impl Strategy<Value = Say> {
    let stream = prop_oneof![Just(Stream::Stdout), Just(Stream::Stderr)];
    prop_oneof![
        Just(begun("00000000")),
        (stream, 0..9u64).prop_map(|(stream, offset)| out(stream, offset)),
        any::<bool>().prop_map(|last| Say::Data { last }),
        (0..3u64).prop_map(Say::Credit),
        Just(Say::Answer(Answer::Done)),
        Just(Say::Unknown),
        Just(file("f")),
        any::<u8>().prop_map(|code| Say::End(ended(code, 3, 3))),
        Just(Say::Failed(Fault::new(FaultCode::NoJob, "none"))),
        Just(Say::Failed(Fault::new(FaultCode::JobTaken, "taken"))),
    ]
}

fn on_paused_time(work: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async { timeout(Duration::from_secs(3600), work).await.expect("it does not hang") });
}

/// Three calls of three kinds at once; whatever comes of them comes.
async fn all_calls(link: Link) {
    let limits = ExecLimits { total: Some(Duration::from_secs(10)), ..ExecLimits::default() };
    let exec = Exec { limits, stdin: Some(Input::Bytes(vec![0; 1000])), ..command() };
    let _ = tokio::join!(link.exec(exec), link.stat(at("x")), link.get(at("x"), 0, 5));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn random_bytes_end_every_call(bytes in proptest::collection::vec(any::<u8>(), 0..200), stays in any::<bool>()) {
        on_paused_time(all_calls(link(move |_, mut guest| {
            let bytes = bytes.clone();
            async move {
                guest.greet("a run").await;
                let _ = guest.writer.write_all(&bytes).await;
                if stays {
                    guest.idle().await;
                }
            }
        })));
    }

    #[test]
    fn random_words_end_every_call(
        words in proptest::collection::vec((0..5u32, said(), proptest::collection::vec(any::<u8>(), 0..4)), 0..20),
        stays in any::<bool>(),
    ) {
        on_paused_time(all_calls(link(move |_, mut guest| {
            let words = words.clone();
            async move {
                guest.greet("a run").await;
                for (channel, say, payload) in words {
                    guest.hear().await;
                    guest.say(channel, say, &payload).await;
                }
                if stays {
                    guest.idle().await;
                }
            }
        })));
    }
}
