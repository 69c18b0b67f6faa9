//! What a guest must not say: it ends the connection, or the call that it was said to, and never hangs one.

use coracle_protocol::body::encode;
use coracle_protocol::{CHUNK, VERSION};
use proptest::prelude::*;

use super::*;

type Sent = (u32, GuestMessage, Vec<u8>);

fn started(channel: u32, job: &str) -> Sent {
    (channel, GuestMessage::Event, encode(&begun(job)))
}

fn status(channel: u32, status: &ExecStatus) -> Sent {
    let (head, body) = whole(status);
    (channel, head, body)
}

#[tokio::test(start_paused = true)]
async fn what_fits_nothing_ends_the_connection_with_its_reason() {
    type Case = (&'static str, fn(u32, &str) -> Vec<Sent>);
    let cases: &[Case] = &[
        ("not open", |channel, _| vec![(channel + 9, GuestMessage::WindowUpdate(0), vec![])]),
        ("not open", |_, _| vec![(0, GuestMessage::WindowUpdate(0), vec![])]),
        ("nobody asked for", |channel, job| vec![started(channel, job), started(channel, job)]),
        ("nobody asked for", |channel, _| vec![(channel, GuestMessage::Data { last: true }, vec![])]),
        ("nobody asked for", |channel, _| vec![(channel, GuestMessage::PayloadChunk, vec![])]),
        ("nobody asked for", |channel, _| vec![(channel, GuestMessage::Reply { bytes: 9 }, vec![0; 8])]),
        ("nobody asked for", |channel, _| vec![(channel, GuestMessage::Reply { bytes: u32::MAX }, vec![0; CHUNK])]),
        ("nobody asked for", |channel, _| vec![(channel, GuestMessage::Event, vec![0; 2 * CHUNK])]),
        ("with a message that has none", |channel, _| vec![(channel, GuestMessage::WindowUpdate(0), vec![1])]),
        ("its window has", |channel, _| {
            // On the next connection it goes on, or else that would be what is wrong.
            static NEXT: AtomicUsize = AtomicUsize::new(0);
            let offset = || NEXT.fetch_add(1 << 17, Ordering::Relaxed) as u64;
            (0..4).map(|_| (channel, out(Stream::Stdout, offset()), vec![0; 1 << 17])).collect()
        }),
        ("than was used", |channel, _| vec![(channel, GuestMessage::WindowUpdate(1), vec![])]),
        ("than was used", |channel, _| vec![(channel, GuestMessage::WindowUpdate(u64::MAX), vec![])]),
        ("nobody asked for", |channel, _| {
            vec![(channel, out(Stream::Stdout, 0), vec![1; 5]), (channel, out(Stream::Stdout, 4), vec![1])]
        }),
        ("nobody asked for", |channel, _| vec![(channel, out(Stream::Stderr, u64::MAX), vec![1])]),
        ("another command", |channel, _| vec![started(channel, "00000000")]),
        ("does not know", |channel, _| vec![(channel, GuestMessage::Event, vec![0xff])]),
        ("does not know", |channel, _| vec![(channel, GuestMessage::Reply { bytes: 1 }, vec![0xff])]),
        ("how the command ended", |channel, _| vec![status(channel, &ExecStatus { code: None, ..ended(0, 0, 0) })]),
        ("how the command ended", |channel, _| {
            vec![status(channel, &ExecStatus { state: ExecState::Running, ..ended(0, 0, 0) })]
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
            if let Request::Exec(exec) = head {
                guest.event(channel, &begun(&exec.job)).await;
                guest.reply(channel, &ended(0, 0, 0)).await;
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
    for (said, why) in [(whole(&7u8), "does not know"), (whole(&vec![0u8; CHUNK - 8]), "nobody asked for")] {
        let link = link(move |_, mut guest| {
            let (head, mut body) = said.clone();
            async move {
                guest.greet("a run").await;
                let Some(Frame { channel, .. }) = guest.asked().await else { return };
                if why == "nobody asked for" {
                    body.push(0);
                }
                guest.say(channel, head, &body).await;
                guest.idle().await;
            }
        });
        let lost = lost(link.stat(at("x")).await);
        assert!(lost.contains(why), "{why}: {lost}");
    }
    let link = link(|_, mut guest| async move {
        guest.greet("a run").await;
        let Some(Frame { channel, .. }) = guest.asked().await else { return };
        guest.event(channel, &file("x")).await;
        guest.say(channel, GuestMessage::Data { last: true }, b"123456").await;
        guest.idle().await;
    });
    assert!(lost(link.get(at("x"), 0, 5).await).contains("nobody asked for"));
}

#[tokio::test]
async fn a_reply_of_another_type_ends_its_own_call_only() {
    let link = link(|_, mut guest| async move {
        guest.greet("a run").await;
        while let Some(Frame { channel, head, .. }) = guest.asked().await {
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
async fn who_does_not_say_a_proper_hello_is_no_guest() {
    type Script = fn(Hello) -> Option<FirstMessage>;
    let cases: &[(&str, Script)] = &[
        ("did not say hello", |hello| Some(FirstMessage::Hello(Hello { nonce: "0".repeat(32), ..hello }))),
        ("why not", |_| Some(FirstMessage::Failed(RpcError::new(ErrorCode::Invalid, "why not")))),
        ("within 5 s", |_| None),
    ];
    for (reason, answer) in cases {
        let answer = *answer;
        let link = link(move |_, mut guest| async move {
            let Some(hello) = guest.hello().await else { return };
            if let Some(greeting) = answer(hello) {
                guest.greet_with(greeting).await;
            }
            guest.idle().await;
        });
        let begun = Instant::now();
        let failed = link.open().await;
        assert!(matches!(&failed, Err(Error::GuestFailed { reason: it }) if it.contains(reason)), "{failed:?}");
        assert!(begun.elapsed() <= Duration::from_secs(6));
    }
}

#[tokio::test]
async fn a_guest_of_another_version_is_not_spoken_to_and_both_are_named() {
    for version in [1, VERSION + 1] {
        let link = link(move |_, mut guest| async move {
            let Some(hello) = guest.hello().await else { return };
            // As a guest of version 1 wrote it.
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
async fn a_call_that_the_guest_does_not_know_is_refused_without_a_word_to_it() {
    let link = link(|_, mut guest| async move {
        let Some(hello) = guest.hello().await else { return };
        let capabilities = vec!["stat".to_owned()];
        let hello = Hello { capabilities, ..Hello::of_guest(hello.nonce, "a run".into()) };
        guest.greet_with(FirstMessage::Hello(hello)).await;
        let Some(Frame { channel, head: Request::Stat(_), .. }) = guest.asked().await else { return };
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
async fn a_guest_that_ends_the_connection_says_why() {
    let link = link(|_, mut guest| async move {
        guest.greet("a run").await;
        guest.asked().await;
        let why = RpcError::new(ErrorCode::Invalid, "more data than a window has");
        guest.say(0, GuestMessage::Failed(why), b"").await;
        guest.idle().await;
    });
    assert_eq!(lost(link.stat(at("x")).await), "the guest ended the connection: more data than a window has");
}

/// What a guest may say about a command, in any order.
fn said() -> impl Strategy<Value = (GuestMessage, Vec<u8>)> {
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
        Just((GuestMessage::Event, encode(&begun("00000000")))),
        Just((GuestMessage::Event, encode(&file("f")))),
        Just(whole(&())),
        Just(whole(&file("f"))),
        any::<u8>().prop_map(|code| whole(&ended(code, 3, 3))),
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
        words in proptest::collection::vec((0..5u32, said()), 0..20),
        stays in any::<bool>(),
    ) {
        on_paused_time(all_calls(link(move |_, mut guest| {
            let words = words.clone();
            async move {
                guest.greet("a run").await;
                for (channel, (say, payload)) in words {
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
