//! Connections that programs inside make to the host, each on a channel of its own.

use coracle_protocol::relay::API_PORT;

use super::*;

/// The channel of the first connection that a program inside makes.
async fn connected(guest: &mut Guest) -> Option<u32> {
    guest.greet("a run").await;
    let Some(Frame { channel, head: Request::Outlet(API_PORT), .. }) = guest.asked().await else { return None };
    guest.event(channel, &()).await;
    Some(channel)
}

#[tokio::test(start_paused = true)]
async fn a_connection_inside_is_a_stream_here_and_each_side_ends_by_itself() {
    let (tell, mut told) = mpsc::unbounded_channel();
    let link = link(move |_, mut guest| {
        let tell = tell.clone();
        async move {
            let Some(channel) = connected(&mut guest).await else { return };
            guest.say(channel, GuestMessage::Data { last: false }, b"CORACLE/1 token\nwhat").await;
            guest.say(channel, GuestMessage::Data { last: true }, b"").await;
            let mut answer = Vec::new();
            while let Some(Frame { head, payload, .. }) = guest.hear().await {
                answer.extend(payload);
                if head == (Request::Data { last: true }) {
                    break;
                }
            }
            tell.send(answer).unwrap();
            guest.reply(channel, &()).await;
            guest.idle().await;
        }
    });
    assert!(link.outlet(API_PORT).await.unwrap().is_none(), "no link is made for it");
    link.open().await.unwrap();
    let mut stream = link.outlet(API_PORT).await.unwrap().unwrap();
    let mut heard = String::new();
    stream.read_to_string(&mut heard).await.unwrap();
    assert_eq!(heard, "CORACLE/1 token\nwhat");
    stream.write_all(b"said what").await.unwrap();
    stream.shutdown().await.unwrap();
    assert_eq!(told.recv().await.unwrap(), b"said what");
}

#[tokio::test(start_paused = true)]
async fn what_follows_on_the_end_of_a_connection_ends_the_link() {
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
                let Some(Frame { channel, .. }) = guest.asked().await else { return };
                for (say, payload) in before.into_iter().chain([then]) {
                    guest.say(channel, say, &payload).await;
                }
                guest.idle().await;
            }
        });
        link.open().await.unwrap();
        if let Ok(stream) = link.outlet(API_PORT).await {
            assert_eq!(stream.unwrap().read(&mut [0; 8]).await.unwrap(), 0);
        }
        assert_eq!(link.transport(), None, "it is over");
    }
}

/// Tells when the host left the channel of its one connection, whose program never closes it. `taken` is what it reads.
fn never_closed(taken: u64) -> (Link, mpsc::UnboundedReceiver<()>) {
    let (tell, told) = mpsc::unbounded_channel();
    let link = link(move |_, mut guest| {
        let tell = tell.clone();
        async move {
            let Some(channel) = connected(&mut guest).await else { return };
            guest.say(channel, GuestMessage::Data { last: false }, b"x\r\n\r\n").await;
            let mut left = taken;
            while let Some(Frame { head, payload, .. }) = guest.hear().await {
                let room = left.min(payload.len() as u64);
                if room > 0 {
                    left -= room;
                    guest.say(channel, GuestMessage::WindowUpdate(room), b"").await;
                }
                if head == Request::CloseChannel {
                    break;
                }
            }
            tell.send(()).unwrap();
            guest.reply(channel, &()).await;
            guest.idle().await;
        }
    });
    (link, told)
}

#[tokio::test(start_paused = true)]
async fn a_program_that_never_closes_its_connection_holds_no_channel() {
    // It took all, it took nothing, and what it did not take was cut off on this side.
    for (taken, shut, within) in [(u64::MAX, true, 2), (0, true, 62), (0, false, 2)] {
        let (link, mut told) = never_closed(taken);
        link.open().await.unwrap();
        let mut stream = link.outlet(API_PORT).await.unwrap().unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request").await.unwrap();
        if shut {
            stream.shutdown().await.unwrap();
        }
        let (over, begun) = (stream.over(), Instant::now());
        assert!(!over.is_cancelled());
        drop(stream);
        over.cancelled().await;
        told.recv().await.unwrap();
        assert!(begun.elapsed() < Duration::from_secs(within), "{taken} {shut}: {:?}", begun.elapsed());
    }
}
