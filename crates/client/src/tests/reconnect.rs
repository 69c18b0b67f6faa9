//! Broken connections, and how their commands are recovered.

use super::*;

async fn exec_cut_at(cut: Cut, stdin: Option<&[u8]>) -> (Result<coracle_types::ExecOutput, Error>, usize) {
    let world = Arc::new(Mutex::new(Fixture::default()));
    let link = cut_link(cut, {
        let world = Arc::clone(&world);
        move |_, guest| simulate_guest(Arc::clone(&world), guest)
    });
    let (sender, mut watched) = mpsc::channel(100);
    let exec = Exec { stdin: stdin.map(|it| Input::Bytes(it.to_vec())), live: Some(sender), ..command() };
    let outcome = timeout(Duration::from_secs(300), link.exec(exec)).await.expect("the call must end");
    if let Ok(output) = &outcome {
        let mut seen: [Vec<u8>; 2] = Default::default();
        while let Some(chunk) = watched.recv().await {
            let seen = &mut seen[usize::from(chunk.stream == coracle_types::Stream::Stderr)];
            assert_eq!(chunk.offset, seen.len() as u64, "no byte may be repeated or missing");
            seen.extend(chunk.bytes);
        }
        assert_eq!(seen, [output.stdout.bytes(), output.stderr.bytes()]);
    }
    let started = world.lock().unwrap().started;
    (outcome, started)
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_connection_is_noticed_without_a_call() {
    let link = link(|number, mut guest| async move {
        guest.greet("a run").await;
        if number > 0 {
            guest.idle().await;
        }
    });
    timeout(Duration::from_secs(1), link.closed()).await.expect("none is open");
    link.open().await.unwrap();
    timeout(Duration::from_secs(60), link.closed()).await.expect("it has ended");
    assert_eq!(link.run_id().await.unwrap(), "a run");
    assert!(timeout(Duration::from_secs(60), link.closed()).await.is_err(), "the next one is open");
}

/// More bytes than a whole connection needs.
const CUTS: usize = 900;

#[tokio::test(start_paused = true)]
async fn a_connection_that_breaks_at_any_byte_loses_no_output_and_starts_no_command_twice() {
    let mut retried = 0;
    for bytes in 0..CUTS {
        for cut in [Cut { from_guest: bytes, ..Cut::NEVER }, Cut { to_guest: bytes, ..Cut::NEVER }] {
            let (outcome, started) = exec_cut_at(cut, None).await;
            let output = match outcome {
                Ok(output) => output,
                // The greeting itself was cut.
                Err(Error::GuestFailed { .. }) => continue,
                Err(err) => panic!("{cut:?}: {err}"),
            };
            assert_eq!((output.exit, started), (Exit::Code(3), 1), "{cut:?}");
            assert_eq!((output.stdout.bytes(), output.stderr.bytes()), (PRINTED.to_vec(), COMPLAINED.to_vec()));
            retried += usize::from(output.retried);
        }
    }
    assert!((100..2 * CUTS - 200).contains(&retried), "{retried}");
}

#[tokio::test(start_paused = true)]
async fn after_a_break_at_any_byte_the_input_is_complete_or_the_command_is_lost() {
    let input = b"0123456789".repeat(5);
    let (mut whole, mut lost) = (0, 0);
    for bytes in 0..CUTS {
        for cut in [Cut { from_guest: bytes, ..Cut::NEVER }, Cut { to_guest: bytes, ..Cut::NEVER }] {
            let (outcome, started) = exec_cut_at(cut, Some(&input)).await;
            assert!(started <= 1, "{cut:?}");
            match outcome {
                Ok(output) => {
                    assert_eq!(output.stdout.bytes(), input, "{cut:?}");
                    whole += 1;
                }
                Err(Error::GuestLost { .. }) => lost += 1,
                Err(Error::GuestFailed { .. }) => {}
                Err(err) => panic!("{cut:?}: {err}"),
            }
        }
    }
    assert!(whole > 100 && lost > 20, "{whole} {lost}");
}

#[tokio::test(start_paused = true)]
async fn a_command_is_not_sent_again_to_a_restarted_container() {
    for begins in [false, true] {
        let execs = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&execs);
        let link = link(move |nth, mut guest| {
            let count = Arc::clone(&count);
            async move {
                guest.greet(&format!("run {nth}")).await;
                while let Some(Frame { channel, head, .. }) = guest.receive_request().await {
                    match head {
                        Request::Exec(exec) => {
                            count.fetch_add(1, Ordering::Relaxed);
                            if begins {
                                guest.event(channel, &started_event(&exec.job)).await;
                                guest.send(channel, out(Stream::Stdout, 0), b"so far").await;
                            }
                            return;
                        }
                        _ => {
                            guest
                                .send(channel, GuestMessage::Failed(RpcError::new(ErrorCode::NoJob, "none")), b"")
                                .await;
                        }
                    }
                }
            }
        });
        match link.exec(command()).await {
            Err(Error::GuestLost { output: Some(output), .. }) => {
                assert_eq!(output.stdout.text(), if begins { "so far" } else { "" });
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(execs.load(Ordering::Relaxed), 1);
    }
}
