//! Calls that are cancelled, or that nobody waits for any more.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_cancel_waits_for_the_end_of_the_tree_and_takes_the_output_along() {
    let link = against(|mut guest, channel, job| async move {
        guest.event(channel, &begun(&job)).await;
        guest.say(channel, out(Stream::Stdout, 0), b"before").await;
        while let Some(Frame { head, .. }) = guest.asked().await {
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
    // Nobody takes what the watcher gets, and that must not hold up the cancel.
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
async fn a_dropped_call_is_left_and_what_was_still_to_come_of_it_is_let_go() {
    let (told, mut tells) = mpsc::unbounded_channel();
    let link = link(move |_, mut guest| {
        let told = told.clone();
        async move {
            guest.greet("a run").await;
            let (mut room, mut sent, mut left) = (WINDOW, 0, 0);
            while let Some(Frame { channel, head, .. }) = guest.hear().await {
                match head {
                    Request::Exec(exec) => guest.event(channel, &begun(&exec.job)).await,
                    Request::CloseChannel => left = channel,
                    Request::WindowUpdate(more) => room += more,
                    Request::Stat(at) => guest.reply(channel, &file(&at.path)).await,
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
                    guest.reply(left, &ended(0, sent, 0)).await;
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
            guest.event(channel, &begun(&job)).await;
            told.send(Request::Other).unwrap();
            while let Some(frame) = guest.asked().await {
                let _ = told.send(frame.head);
            }
        }
    });
    let running = tokio::spawn(async move { link.exec(command()).await });
    tells.recv().await.unwrap();
    running.abort();
    assert_eq!(tells.recv().await, Some(Request::CloseChannel));
    assert_eq!(tells.recv().await, None);
}
