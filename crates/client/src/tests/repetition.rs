//! Calls without side effects and files: which ones are repeated.

use coracle_protocol::body::Bytes;

use super::*;

#[tokio::test]
async fn a_request_that_is_too_long_is_refused_locally() {
    let link = link(|_, mut guest| async move { guest.greet("a run").await });
    let long = "x".repeat(1 << 16);
    for refused in [link.stat(at(&long)).await.map(drop), link.get(at(&long), 0, 1).await.map(drop)] {
        assert!(matches!(refused, Err(Error::Refused(fault)) if fault.code == ErrorCode::TooLong));
    }
}

#[tokio::test]
async fn faults_are_converted_to_specific_errors() {
    for (code, expected) in [
        (ErrorCode::NoDirectory, "no `/` in the container"),
        (ErrorCode::NoShell, "the container has no `/bin/sh`"),
        (ErrorCode::CannotStart, "because"),
    ] {
        let link = against(move |mut guest, channel, _| async move {
            guest.send(channel, GuestMessage::Failed(RpcError::new(code, "because")), b"").await;
            guest.idle().await;
        });
        assert_eq!(link.exec(command()).await.unwrap_err().to_string(), expected);
    }
    let link = link(|_, mut guest| async move {
        guest.greet("a run").await;
        while let Some(Frame { channel, .. }) = guest.receive_request().await {
            guest.send(channel, GuestMessage::Failed(RpcError::new(ErrorCode::NoJob, "none")), b"").await;
        }
    });
    let job = JobId::random();
    assert!(matches!(link.job(&job).await, Err(Error::NoSuchJob(it)) if it == job));
}

#[tokio::test(start_paused = true)]
async fn a_read_only_call_is_repeated_once_and_a_wait_for_the_rest_of_its_time() {
    let dials = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&dials);
    let link = link(move |nth, mut guest| {
        count.fetch_add(1, Ordering::Relaxed);
        async move {
            guest.greet("a run").await;
            let Some(Frame { channel, head, .. }) = guest.receive_request().await else { return };
            tokio::time::sleep(Duration::from_secs(4)).await;
            if let (Request::Wait(wait), 1) = (head, nth) {
                let job = coracle_protocol::JobInfo {
                    job: wait.job,
                    pid: 1,
                    command: String::new(),
                    root: false,
                    foreground: false,
                    began_ms: 0,
                    ended_ms: None,
                    end: ended(0, 0, 0),
                };
                let reason = coracle_protocol::WaitOutcome::Limit;
                let waited = WaitResult { reason, found: None, job, ms: wait.limit_ms, tail: None };
                guest.reply(channel, &(waited, Bytes::default())).await;
                guest.receive_request().await;
            }
        }
    });
    let wait = WaitRequest {
        job: JobId::random().to_string(),
        pattern: None,
        ignore_case: false,
        from: None,
        port: None,
        idle_ms: None,
        limit_ms: 10_000,
        tail: None,
    };
    assert_eq!(link.wait(wait).await.unwrap().0.ms, 6_000);
    assert!(lost(link.stat(at("x")).await).contains("closed"));
    assert!(lost(link.remove(at("x"), true).await).contains("closed"));
    assert_eq!(dials.load(Ordering::Relaxed), 4, "the wait and stat are repeated once, the removal is not");
}

fn put(content: &[u8]) -> WriteFile {
    WriteFile {
        at: at("/f"),
        mode: None,
        exact: false,
        parents: false,
        replace: true,
        content: Input::Bytes(content.to_vec()),
    }
}

#[tokio::test]
async fn files_are_sent_and_received_in_pieces() {
    let link = link(|_, mut guest| async move {
        guest.greet("a run").await;
        let mut content = Vec::new();
        while let Some(Frame { channel, head, payload }) = guest.receive_request().await {
            match head {
                Request::Data { last } => {
                    guest.send(channel, GuestMessage::WindowUpdate(payload.len() as u64), b"").await;
                    content.extend(payload);
                    if last {
                        guest.reply(channel, &file("f")).await;
                    }
                }
                Request::Get => {
                    guest.event(channel, &file("f")).await;
                    for piece in content.chunks(20_000) {
                        guest.send(channel, GuestMessage::Data { last: false }, piece).await;
                    }
                    guest.send(channel, GuestMessage::Data { last: true }, b"").await;
                    guest.reply(channel, &()).await;
                }
                _ => {}
            }
        }
    });
    let content: Vec<u8> = (0..WINDOW - 1).map(|it| it as u8).collect();
    assert_eq!(link.put(put(&content)).await.unwrap().name, "f");
    assert_eq!(link.get(at("/f"), 0, WINDOW).await.unwrap().1, content);
}

#[tokio::test]
async fn a_file_that_may_be_partly_sent_is_not_sent_again() {
    let puts = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&puts);
    let link = link(move |_, mut guest| {
        let count = Arc::clone(&count);
        async move {
            guest.greet("a run").await;
            if guest.receive_request().await.is_some() {
                count.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    lost(link.put(put(b"content")).await);
    assert_eq!(puts.load(Ordering::Relaxed), 1);
}
