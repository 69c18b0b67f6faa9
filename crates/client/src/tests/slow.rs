//! A guest that takes its time, or never answers.

use super::*;

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
async fn a_command_whose_start_is_slow_is_found_and_not_started_again() {
    let link = link(|nth, mut guest| async move {
        guest.greet("a run").await;
        let mut looks = 0;
        while let Some(Frame { channel, head, .. }) = guest.asked().await {
            match head {
                Request::Exec(_) if nth == 0 => return,
                Request::Exec(_) => {
                    guest.say(channel, GuestMessage::Failed(RpcError::new(ErrorCode::JobTaken, "taken")), b"").await;
                }
                Request::Attach(_) if looks < 9 => {
                    looks += 1;
                    guest.say(channel, GuestMessage::Failed(RpcError::new(ErrorCode::NoJob, "not yet")), b"").await;
                }
                _ => guest.reply(channel, &ended(3, 0, 0)).await,
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
    assert_eq!(tells.recv().await, Some(Request::CloseChannel));
}

#[tokio::test(start_paused = true)]
async fn what_was_sent_long_ago_is_not_sent_again() {
    for (after, sent_again) in [(50, true), (57, false)] {
        let link = link(move |nth, mut guest| async move {
            guest.greet("a run").await;
            while let Some(Frame { channel, head, .. }) = guest.asked().await {
                match head {
                    Request::Exec(_) if nth == 0 => {
                        tokio::time::sleep(Duration::from_secs(after)).await;
                        return;
                    }
                    Request::Exec(_) => guest.reply(channel, &ended(3, 0, 0)).await,
                    _ => {
                        tokio::time::sleep(Duration::from_secs(5)).await;
                        guest.say(channel, GuestMessage::Failed(RpcError::new(ErrorCode::NoJob, "none")), b"").await;
                    }
                }
            }
        });
        assert_eq!(link.exec(command()).await.is_ok(), sent_again, "after {after} s");
    }
}
