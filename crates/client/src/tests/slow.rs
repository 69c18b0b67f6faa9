//! A guest that is slow or never replies.

use super::*;

#[tokio::test(start_paused = true)]
async fn calls_to_a_guest_that_never_replies_time_out() {
    let silent = || {
        link(|_, mut guest| async move {
            guest.greet("a run").await;
            guest.idle().await;
        })
    };
    assert!(matches!(silent().stat(at("x")).await, Err(Error::TimedOut { verb: "stat", .. })));
    assert!(lost(silent().exec(command()).await).contains("does not report"));
    let exec = command();
    exec.cancel.clone().cancel();
    assert_eq!(silent().exec(exec).await.unwrap().exit, Exit::Cancelled);
}

#[tokio::test(start_paused = true)]
async fn a_command_that_starts_slowly_is_attached_to_and_not_started_again() {
    let link = link(|nth, mut guest| async move {
        guest.greet("a run").await;
        let mut looks = 0;
        while let Some(Frame { channel, head, .. }) = guest.receive_request().await {
            match head {
                Request::Exec(_) if nth == 0 => return,
                Request::Exec(_) => {
                    guest.send(channel, GuestMessage::Failed(RpcError::new(ErrorCode::JobTaken, "taken")), b"").await;
                }
                Request::Attach(_) if looks < 9 => {
                    looks += 1;
                    guest.send(channel, GuestMessage::Failed(RpcError::new(ErrorCode::NoJob, "not yet")), b"").await;
                }
                _ => guest.reply(channel, &ended(3, 0, 0)).await,
            }
        }
    });
    assert_eq!(link.exec(command()).await.unwrap().exit, Exit::Code(3));
}

#[tokio::test(start_paused = true)]
async fn hanging_calls_do_not_block_later_calls_for_ever() {
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
    let started = Instant::now();
    for refused in [link.exec(command()).await.map(drop), link.stat(at("x")).await.map(drop)] {
        assert!(matches!(refused, Err(Error::TimedOut { verb: "exec" | "stat", .. })), "{refused:?}");
    }
    assert_eq!(started.elapsed().as_secs(), 20);
    hanging.into_iter().for_each(|it| it.abort());
}

#[tokio::test(start_paused = true)]
async fn a_command_that_does_not_start_is_given_up_after_its_limit() {
    let (event_sender, mut events) = mpsc::unbounded_channel();
    let link = against(move |mut guest, _, _| {
        let event_sender = event_sender.clone();
        async move {
            while let Some(frame) = guest.receive_request().await {
                event_sender.send(frame.head).unwrap();
            }
        }
    });
    let (total, grace, started) = (Duration::from_secs(5), Duration::from_secs(2), Instant::now());
    let limits = ExecLimits { total: Some(total), grace, ..ExecLimits::default() };
    assert_eq!(lost(link.exec(Exec { limits, ..command() }).await), "the command did not start");
    assert_eq!(started.elapsed().as_secs(), 17);
    assert_eq!(events.recv().await, Some(Request::CloseChannel));
}

#[tokio::test(start_paused = true)]
async fn a_command_that_was_sent_long_ago_is_not_sent_again() {
    for (after, sent_again) in [(50, true), (57, false)] {
        let link = link(move |nth, mut guest| async move {
            guest.greet("a run").await;
            while let Some(Frame { channel, head, .. }) = guest.receive_request().await {
                match head {
                    Request::Exec(_) if nth == 0 => {
                        tokio::time::sleep(Duration::from_secs(after)).await;
                        return;
                    }
                    Request::Exec(_) => guest.reply(channel, &ended(3, 0, 0)).await,
                    _ => {
                        tokio::time::sleep(Duration::from_secs(5)).await;
                        guest.send(channel, GuestMessage::Failed(RpcError::new(ErrorCode::NoJob, "none")), b"").await;
                    }
                }
            }
        });
        assert_eq!(link.exec(command()).await.is_ok(), sent_again, "after {after} s");
    }
}
