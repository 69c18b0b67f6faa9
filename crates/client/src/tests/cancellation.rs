//! Calls that are cancelled or dropped.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_cancel_waits_for_the_end_of_the_tree_and_returns_the_output() {
    let link = against(|mut guest, channel, job| async move {
        guest.event(channel, &started_event(&job)).await;
        guest.send(channel, out(Stream::Stdout, 0), b"before").await;
        while let Some(Frame { head, .. }) = guest.receive_request().await {
            if head == Request::Cancel {
                let end = ExecStatus {
                    state: ExecState::Cancelled,
                    tree_ended: Some(true),
                    signal: Some(15),
                    ..ended(143, 6, 0)
                };
                guest.reply(channel, &end).await;
            }
        }
    });
    // The watcher does not read, which must not delay the cancel.
    let (sender, watched) = mpsc::channel(1);
    sender
        .send(coracle_types::Chunk { stream: coracle_types::Stream::Stdout, bytes: vec![], offset: 0 })
        .await
        .unwrap();
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
async fn a_dropped_call_closes_its_channel_and_later_output_is_discarded() {
    let (event_sender, mut events) = mpsc::unbounded_channel();
    let link = link(move |_, mut guest| {
        let event_sender = event_sender.clone();
        async move {
            guest.greet("a run").await;
            let (mut room, mut sent, mut left) = (WINDOW, 0, 0);
            while let Some(Frame { channel, head, .. }) = guest.receive().await {
                match head {
                    Request::Exec(exec) => guest.event(channel, &started_event(&exec.job)).await,
                    Request::CloseChannel => left = channel,
                    Request::WindowUpdate(more) => room += more,
                    Request::Stat(at) => guest.reply(channel, &file(&at.path)).await,
                    _ => {}
                }
                // The first window fills before the call is dropped, and no watcher reads it.
                while room > 0 && sent < 3 * WINDOW {
                    let piece = vec![0; room.min(50_000).min(3 * WINDOW - sent) as usize];
                    guest.send(1, out(Stream::Stdout, sent), &piece).await;
                    (room, sent) = (room - piece.len() as u64, sent + piece.len() as u64);
                }
                if sent >= WINDOW && left == 0 {
                    event_sender.send("full").unwrap();
                }
                if sent == 3 * WINDOW && left != 0 {
                    guest.reply(left, &ended(0, sent, 0)).await;
                    event_sender.send("ended").unwrap();
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
    assert_eq!(events.recv().await, Some("full"));
    running.abort();
    while events.recv().await != Some("ended") {}
    assert_eq!(link.stat(at("after")).await.unwrap().name, "after");
}

#[tokio::test]
async fn a_dropped_call_is_reported_before_the_last_link_closes() {
    let (event_sender, mut events) = mpsc::unbounded_channel();
    let link = against(move |mut guest, channel, job| {
        let event_sender = event_sender.clone();
        async move {
            guest.event(channel, &started_event(&job)).await;
            event_sender.send(Request::Other).unwrap();
            while let Some(frame) = guest.receive_request().await {
                let _ = event_sender.send(frame.head);
            }
        }
    });
    let running = tokio::spawn(async move { link.exec(command()).await });
    events.recv().await.unwrap();
    running.abort();
    assert_eq!(events.recv().await, Some(Request::CloseChannel));
    assert_eq!(events.recv().await, None);
}
