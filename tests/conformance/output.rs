//! Output: bounded, counted, and live.

use coracle_types::{Chunk, Exec, Exit, Stream};
use tokio::sync::mpsc;

use super::sh;
use crate::engines::in_every_way_into_a_shared_one;

#[tokio::test]
async fn a_flood_is_counted_to_the_byte_and_retained_at_both_ends() {
    in_every_way_into_a_shared_one(async |running| {
        let script = "printf begin; head -c 52428800 /dev/zero; printf end; head -c 1000 /dev/zero >&2";
        let it = running.ran(Exec { keep_bytes: 1 << 20, ..sh(script) }).await;
        let printed = 5 + 52_428_800 + 3;
        assert_eq!((it.exit, it.stdout.total_bytes(), it.stderr.total_bytes()), (Exit::Code(0), printed, 1000));
        assert_eq!((it.stdout.bytes().len(), it.stdout.left_out()), (1 << 20, printed - (1 << 20)));
        assert!(it.stdout.head().starts_with(b"begin\0") && it.stdout.tail().ends_with(b"\0end"));
        assert_eq!(it.stderr.left_out(), 0);
        // Cut output can be read later only with a guest.
        assert_eq!(it.job.is_some(), running.has_guest());
    })
    .await;
}

#[tokio::test]
async fn live_pieces_are_the_output_in_order_with_their_offsets() {
    in_every_way_into_a_shared_one(async |running| {
        let script = "printf aa; printf XX >&2; sleep 0.2; printf bb; sleep 0.2; head -c 300000 /dev/zero; printf cc";
        let (sender, mut chunks) = mpsc::channel::<Chunk>(2);
        let collect = async {
            let (mut out, mut err) = (Vec::new(), Vec::new());
            while let Some(Chunk { stream, bytes, offset }) = chunks.recv().await {
                let so_far = if stream == Stream::Stdout { &mut out } else { &mut err };
                assert_eq!(offset, so_far.len() as u64);
                so_far.extend(bytes);
            }
            (out, err)
        };
        let exec = Exec { live: Some(sender), keep_bytes: 1 << 20, ..sh(script) };
        let (it, (out, err)) = tokio::join!(running.ran(exec), collect);
        assert!(out == it.stdout.bytes() && err == it.stderr.bytes());
        assert_eq!((out.len(), err.as_slice()), (300_006, &b"XX"[..]));
    })
    .await;
}

#[tokio::test]
async fn a_receiver_that_goes_away_costs_the_command_nothing() {
    in_every_way_into_a_shared_one(async |running| {
        let (sender, chunks) = mpsc::channel::<Chunk>(1);
        drop(chunks);
        let it = running.ran(Exec { live: Some(sender), ..sh("head -c 300000 /dev/zero") }).await;
        assert_eq!((it.exit, it.stdout.total_bytes()), (Exit::Code(0), 300_000));
    })
    .await;
}
