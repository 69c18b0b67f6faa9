//! Connections that programs inside make to the host, each on a separate channel.

use coracle_protocol::relay::API_PORT;

use super::*;

/// Accepts the channel for the first connection of a program inside.
async fn connected(guest: &mut Guest) -> Option<u32> {
    guest.greet("a run").await;
    let Some(Frame { channel, head: Request::AcceptTunnel(API_PORT), .. }) = guest.receive_request().await else {
        return None;
    };
    guest.event(channel, &()).await;
    Some(channel)
}

#[tokio::test(start_paused = true)]
async fn a_connection_inside_becomes_a_stream_and_each_direction_closes_separately() {
    let (event_sender, mut events) = mpsc::unbounded_channel();
    let link = link(move |_, mut guest| {
        let event_sender = event_sender.clone();
        async move {
            let Some(channel) = connected(&mut guest).await else { return };
            guest.send(channel, GuestMessage::Data { last: false }, b"CORACLE/1 token\nwhat").await;
            guest.send(channel, GuestMessage::Data { last: true }, b"").await;
            let mut received = Vec::new();
            while let Some(Frame { head, payload, .. }) = guest.receive().await {
                received.extend(payload);
                if head == (Request::Data { last: true }) {
                    break;
                }
            }
            event_sender.send(received).unwrap();
            guest.reply(channel, &()).await;
            guest.idle().await;
        }
    });
    assert!(link.accept_tunnel(API_PORT).await.unwrap().is_none(), "it must not connect");
    link.open().await.unwrap();
    let mut stream = link.accept_tunnel(API_PORT).await.unwrap().unwrap();
    let mut received = String::new();
    stream.read_to_string(&mut received).await.unwrap();
    assert_eq!(received, "CORACLE/1 token\nwhat");
    stream.write_all(b"reply").await.unwrap();
    stream.shutdown().await.unwrap();
    assert_eq!(events.recv().await.unwrap(), b"reply");
}

#[tokio::test(start_paused = true)]
async fn data_after_the_end_of_a_tunnel_ends_the_link() {
    let started = (GuestMessage::Event, vec![]);
    let data = |last| (GuestMessage::Data { last }, vec![]);
    for (before, then) in [
        (vec![], data(false)),
        (vec![started.clone(), data(true)], data(false)),
        (vec![started.clone()], started.clone()),
    ] {
        let link = link(move |_, mut guest| {
            let (before, then) = (before.clone(), then.clone());
            async move {
                guest.greet("a run").await;
                let Some(Frame { channel, .. }) = guest.receive_request().await else { return };
                for (send, payload) in before.into_iter().chain([then]) {
                    guest.send(channel, send, &payload).await;
                }
                guest.idle().await;
            }
        });
        link.open().await.unwrap();
        if let Ok(stream) = link.accept_tunnel(API_PORT).await {
            assert_eq!(stream.unwrap().read(&mut [0; 8]).await.unwrap(), 0);
        }
        assert_eq!(link.transport(), None, "the link must be closed");
    }
}

/// Reports when the host closed the channel of its one tunnel, whose program never closes it. `taken` is how much it reads.
fn never_closed(taken: u64) -> (Link, mpsc::UnboundedReceiver<()>) {
    let (event_sender, events) = mpsc::unbounded_channel();
    let link = link(move |_, mut guest| {
        let event_sender = event_sender.clone();
        async move {
            let Some(channel) = connected(&mut guest).await else { return };
            guest.send(channel, GuestMessage::Data { last: false }, b"x\r\n\r\n").await;
            let mut left = taken;
            while let Some(Frame { head, payload, .. }) = guest.receive().await {
                let room = left.min(payload.len() as u64);
                if room > 0 {
                    left -= room;
                    guest.send(channel, GuestMessage::WindowUpdate(room), b"").await;
                }
                if head == Request::CloseChannel {
                    break;
                }
            }
            event_sender.send(()).unwrap();
            guest.reply(channel, &()).await;
            guest.idle().await;
        }
    });
    (link, events)
}

#[tokio::test(start_paused = true)]
async fn a_program_that_never_closes_its_connection_does_not_occupy_a_channel() {
    // The program read everything, it read nothing, and this side dropped the stream without a shutdown.
    for (taken, shut, within) in [(u64::MAX, true, 2), (0, true, 62), (0, false, 2)] {
        let (link, mut events) = never_closed(taken);
        link.open().await.unwrap();
        let mut stream = link.accept_tunnel(API_PORT).await.unwrap().unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request").await.unwrap();
        if shut {
            stream.shutdown().await.unwrap();
        }
        let (over, started) = (stream.over(), Instant::now());
        assert!(!over.is_cancelled());
        drop(stream);
        over.cancelled().await;
        events.recv().await.unwrap();
        assert!(started.elapsed() < Duration::from_secs(within), "{taken} {shut}: {:?}", started.elapsed());
    }
}
