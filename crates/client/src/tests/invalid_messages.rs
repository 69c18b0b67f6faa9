//! Invalid messages of a guest: they end the connection, or their call, and never hang one.

use coracle_protocol::body::encode;
use coracle_protocol::{CHUNK, VERSION};
use proptest::prelude::*;

use super::*;

type Sent = (u32, GuestMessage, Vec<u8>);

fn started(channel: u32, job: &str) -> Sent {
    (channel, GuestMessage::Event, encode(&started_event(job)))
}

fn status(channel: u32, status: &ExecStatus) -> Sent {
    let (head, body) = whole(status);
    (channel, head, body)
}

#[tokio::test(start_paused = true)]
async fn an_invalid_message_ends_the_connection_with_its_reason() {
    type Case = (&'static str, fn(u32, &str) -> Vec<Sent>);
    let cases: &[Case] = &[
        ("not open", |channel, _| vec![(channel + 9, GuestMessage::WindowUpdate(0), vec![])]),
        ("not open", |_, _| vec![(0, GuestMessage::WindowUpdate(0), vec![])]),
        ("unexpected message", |channel, job| vec![started(channel, job), started(channel, job)]),
        ("unexpected message", |channel, _| vec![(channel, GuestMessage::Data { last: true }, vec![])]),
        ("unexpected message", |channel, _| vec![(channel, GuestMessage::PayloadChunk, vec![])]),
        ("unexpected message", |channel, _| vec![(channel, GuestMessage::Reply { bytes: 9 }, vec![0; 8])]),
        ("unexpected message", |channel, _| vec![(channel, GuestMessage::Reply { bytes: u32::MAX }, vec![0; CHUNK])]),
        ("unexpected message", |channel, _| vec![(channel, GuestMessage::Event, vec![0; 2 * CHUNK])]),
        ("with a message that must have none", |channel, _| vec![(channel, GuestMessage::WindowUpdate(0), vec![1])]),
        ("its window allows", |channel, _| {
            // The offset continues on the next connection, since otherwise the offset would be the error.
            static NEXT: AtomicUsize = AtomicUsize::new(0);
            let offset = || NEXT.fetch_add(1 << 17, Ordering::Relaxed) as u64;
            (0..4).map(|_| (channel, out(Stream::Stdout, offset()), vec![0; 1 << 17])).collect()
        }),
        ("than was used", |channel, _| vec![(channel, GuestMessage::WindowUpdate(1), vec![])]),
        ("than was used", |channel, _| vec![(channel, GuestMessage::WindowUpdate(u64::MAX), vec![])]),
        ("unexpected message", |channel, _| {
            vec![(channel, out(Stream::Stdout, 0), vec![1; 5]), (channel, out(Stream::Stdout, 4), vec![1])]
        }),
        ("unexpected message", |channel, _| vec![(channel, out(Stream::Stderr, u64::MAX), vec![1])]),
        ("another command", |channel, _| vec![started(channel, "00000000")]),
        ("does not know", |channel, _| vec![(channel, GuestMessage::Event, vec![0xff])]),
        ("does not know", |channel, _| vec![(channel, GuestMessage::Reply { bytes: 1 }, vec![0xff])]),
        ("how the command ended", |channel, _| vec![status(channel, &ExecStatus { code: None, ..ended(0, 0, 0) })]),
        ("how the command ended", |channel, _| {
            vec![status(channel, &ExecStatus { state: ExecState::Running, ..ended(0, 0, 0) })]
        }),
    ];
    for (reason, sent_messages) in cases {
        let sent_messages = *sent_messages;
        let link = against(move |mut guest, channel, job| async move {
            let mut bytes = Vec::new();
            for (channel, head, payload) in sent_messages(channel, &job) {
                Frame { channel, head, payload }.write_to(&mut bytes);
            }
            let _ = guest.writer.write_all(&bytes).await;
            guest.idle().await;
        });
        let (sender, _watched) = mpsc::channel(1);
        // The watcher does not read, so no credit is given back.
        let exec = Exec { live: Some(sender), ..command() };
        let outcome = timeout(Duration::from_secs(100), link.exec(exec)).await.expect("the call must end");
        let why = lost(outcome);
        assert!(why.contains(reason), "{reason}: {why}");
    }
}

#[tokio::test]
async fn a_message_after_the_last_one_ends_the_connection() {
    let link = link(|_, mut guest| async move {
        guest.greet("a run").await;
        while let Some(Frame { channel, head, .. }) = guest.receive_request().await {
            if let Request::Exec(exec) = head {
                guest.event(channel, &started_event(&exec.job)).await;
                guest.reply(channel, &ended(0, 0, 0)).await;
                guest.send(channel, out(Stream::Stdout, 0), b"more").await;
            }
        }
    });
    assert_eq!(link.exec(command()).await.unwrap().exit, Exit::Code(0));
    while link.transport().is_some() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_reply_of_another_type_or_beyond_its_limit_is_an_error() {
    for (sent_messages, why) in [(whole(&7u8), "does not know"), (whole(&vec![0u8; CHUNK - 8]), "unexpected message")] {
        let link = link(move |_, mut guest| {
            let (head, mut body) = sent_messages.clone();
            async move {
                guest.greet("a run").await;
                let Some(Frame { channel, .. }) = guest.receive_request().await else { return };
                if why == "unexpected message" {
                    body.push(0);
                }
                guest.send(channel, head, &body).await;
                guest.idle().await;
            }
        });
        let lost = lost(link.stat(at("x")).await);
        assert!(lost.contains(why), "{why}: {lost}");
    }
    let link = link(|_, mut guest| async move {
        guest.greet("a run").await;
        let Some(Frame { channel, .. }) = guest.receive_request().await else { return };
        guest.event(channel, &file("x")).await;
        guest.send(channel, GuestMessage::Data { last: true }, b"123456").await;
        guest.idle().await;
    });
    assert!(lost(link.get(at("x"), 0, 5).await).contains("unexpected message"));
}

#[tokio::test]
async fn a_reply_of_another_type_ends_only_its_own_call() {
    let link = link(|_, mut guest| async move {
        guest.greet("a run").await;
        while let Some(Frame { channel, head, .. }) = guest.receive_request().await {
            match head {
                Request::Stat(at) if at.path == "odd" => guest.reply(channel, &()).await,
                Request::Stat(at) => guest.reply(channel, &file(&at.path)).await,
                _ => {}
            }
        }
    });
    assert!(lost(link.stat(at("odd")).await).contains("does not know"));
    assert_eq!(link.stat(at("even")).await.unwrap().name, "even");
}

#[tokio::test(start_paused = true)]
async fn a_guest_must_greet_correctly() {
    type Script = fn(Hello) -> Option<FirstMessage>;
    let cases: &[(&str, Script)] = &[
        ("did not greet", |hello| Some(FirstMessage::Hello(Hello { nonce: "0".repeat(32), ..hello }))),
        ("why not", |_| Some(FirstMessage::Failed(RpcError::new(ErrorCode::Invalid, "why not")))),
        ("within 5 s", |_| None),
    ];
    for (reason, greeting_for) in cases {
        let greeting_for = *greeting_for;
        let link = link(move |_, mut guest| async move {
            let Some(hello) = guest.hello().await else { return };
            if let Some(greeting) = greeting_for(hello) {
                guest.greet_with(greeting).await;
            }
            guest.idle().await;
        });
        let started = Instant::now();
        let failed = link.open().await;
        assert!(matches!(&failed, Err(Error::GuestFailed { reason: it }) if it.contains(reason)), "{failed:?}");
        assert!(started.elapsed() <= Duration::from_secs(6));
    }
}

#[tokio::test]
async fn the_error_for_another_version_names_both_versions() {
    for version in [1, VERSION + 1] {
        let link = link(move |_, mut guest| async move {
            let Some(hello) = guest.hello().await else { return };
            // The greeting of a guest of version 1.
            let greeting =
                format!(r#"{{"hello":{{"version":{version},"nonce":"{}","run":"00ff","keep":null}}}}"#, hello.nonce);
            let length = u32::try_from(greeting.len()).unwrap().to_be_bytes();
            let bytes = [&length, &length, &[0; 4], greeting.as_bytes()].concat();
            let _ = guest.writer.write_all(&bytes).await;
            guest.idle().await;
        });
        let failed = link.open().await.unwrap_err();
        assert!(matches!(failed, Error::GuestVersion { guest, host: VERSION } if guest == version), "{failed:?}");
    }
}

#[tokio::test]
async fn a_call_that_the_guest_does_not_support_is_refused_locally() {
    let link = link(|_, mut guest| async move {
        let Some(hello) = guest.hello().await else { return };
        let capabilities = vec!["stat".to_owned()];
        let hello = Hello { capabilities, ..Hello::of_guest(hello.nonce, "a run".into()) };
        guest.greet_with(FirstMessage::Hello(hello)).await;
        let Some(Frame { channel, head: Request::Stat(_), .. }) = guest.receive_request().await else { return };
        guest.reply(channel, &file("x")).await;
        guest.idle().await;
    });
    let refused = [link.ping().await, link.exec(command()).await.map(drop)];
    for refused in refused {
        assert!(matches!(&refused, Err(Error::Refused(fault)) if fault.code == ErrorCode::Unsupported), "{refused:?}");
    }
    assert_eq!(link.stat(at("x")).await.unwrap().name, "x");
}

#[tokio::test]
async fn the_reason_of_a_guest_that_ends_the_connection_is_reported() {
    let link = link(|_, mut guest| async move {
        guest.greet("a run").await;
        guest.receive_request().await;
        let why = RpcError::new(ErrorCode::Invalid, "more data than a window has");
        guest.send(0, GuestMessage::Failed(why), b"").await;
        guest.idle().await;
    });
    assert_eq!(lost(link.stat(at("x")).await), "the guest ended the connection: more data than a window has");
}

/// Any message about a command.
fn sent_messages() -> impl Strategy<Value = (GuestMessage, Vec<u8>)> {
    let stream = prop_oneof![Just(Stream::Stdout), Just(Stream::Stderr)];
    let bytes = proptest::collection::vec(any::<u8>(), 0..4);
    let message = prop_oneof![
        (stream, 0..9u64).prop_map(|(stream, offset)| out(stream, offset)),
        any::<bool>().prop_map(|last| GuestMessage::Data { last }),
        (0..3u64).prop_map(GuestMessage::WindowUpdate),
        Just(GuestMessage::Event),
        Just(GuestMessage::PayloadChunk),
        (0..5u32).prop_map(|bytes| GuestMessage::Reply { bytes }),
        Just(GuestMessage::Failed(RpcError::new(ErrorCode::NoJob, "none"))),
        Just(GuestMessage::Failed(RpcError::new(ErrorCode::JobTaken, "taken"))),
    ];
    prop_oneof![
        (message, bytes),
        Just((GuestMessage::Event, encode(&started_event("00000000")))),
        Just((GuestMessage::Event, encode(&file("f")))),
        Just(whole(&())),
        Just(whole(&file("f"))),
        any::<u8>().prop_map(|code| whole(&ended(code, 3, 3))),
    ]
}

fn on_paused_time(work: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async { timeout(Duration::from_secs(3600), work).await.expect("the call must not hang") });
}

/// Makes three different calls concurrently and ignores their results.
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
    fn random_messages_end_every_call(
        messages in proptest::collection::vec((0..5u32, sent_messages()), 0..20),
        stays in any::<bool>(),
    ) {
        on_paused_time(all_calls(link(move |_, mut guest| {
            let messages = messages.clone();
            async move {
                guest.greet("a run").await;
                for (channel, (send, payload)) in messages {
                    guest.receive().await;
                    guest.send(channel, send, &payload).await;
                }
                if stays {
                    guest.idle().await;
                }
            }
        })));
    }
}
