//! Bytes of any kind and number, in and out.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::task::{Context, Poll};

use coracle_protocol::ErrorCode;
use coracle_types::{AtLimit, Error, Exec, Exit, Input};
use tokio::io::{AsyncRead, ReadBuf};

use super::{MIB, argv, memory_grows, sh};
use crate::engines::{with_a_guest, with_a_real_guest};

#[tokio::test]
async fn every_byte_is_passed_in_and_out_unchanged() {
    with_a_guest(async |running| {
        let every: Vec<u8> = (0..=255).cycle().take(256 * 300).collect();
        for bytes in [every, b"\xff\xfe\0no utf-8\0\xc3".to_vec()] {
            let it = running.ran(Exec { stdin: Some(Input::Bytes(bytes.clone())), ..sh("cat; cat <&0 >&2") }).await;
            assert_eq!((it.exit, it.stderr.total_bytes()), (Exit::Code(0), 0));
            assert!(it.stdout.bytes() == bytes, "{} bytes became {}", bytes.len(), it.stdout.total_bytes());
        }
    })
    .await;
}

#[tokio::test]
async fn a_megabyte_of_words_arrives_and_a_word_that_no_kernel_takes_is_refused() {
    with_a_guest(async |running| {
        let words: Vec<String> = (0..20_000).map(|it| format!("{it:0>52}")).collect();
        let all = [&["printf", "%s\\n"][..], &words.iter().map(String::as_str).collect::<Vec<_>>()].concat();
        let it = running.ran(Exec { keep_bytes: 4 << 20, ..argv(&all) }).await;
        assert_eq!(it.exit, Exit::Code(0));
        assert!(it.stdout.text() == words.join("\n") + "\n", "{} bytes came back", it.stdout.total_bytes());
        if running.case.is_real() {
            let refused = running.exec(argv(&["true", &"x".repeat(200 << 10)])).await;
            let Err(Error::Refused(fault)) = refused else { panic!("{refused:?}") };
            assert_eq!(fault.code, ErrorCode::TooLong);
            assert!(fault.message.contains("204800 bytes"), "{fault}");
        }
        // A script of that length does not fit in an argument, so it is passed as a descriptor.
        let script = format!("# {}\necho done; exit 3", "x".repeat(200 << 10));
        if running.case.is_real() {
            let it = running.ran(sh(&script)).await;
            assert_eq!((it.exit, it.stdout.text().as_str()), (Exit::Code(3), "done\n"));
        }
    })
    .await;
}

#[tokio::test]
async fn ten_thousand_variables_arrive() {
    with_a_guest(async |running| {
        let env: BTreeMap<_, _> = (0..10_000).map(|it| (format!("VARIABLE_{it:0>5}"), format!("value {it}"))).collect();
        let printed = running.printed(Exec { env: env.clone(), ..argv(&["env"]) }).await;
        let seen = printed.lines().filter_map(|it| it.split_once('=')).filter(|it| it.0.starts_with("VARIABLE_"));
        let seen: BTreeMap<_, _> = seen.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        assert!(seen == env, "{} of 10000 came", seen.len());
    })
    .await;
}

/// The numbers from 0 in 8 bytes each, little-endian, generated while they are read.
struct Numbers {
    at: u64,
    end: u64,
}

impl AsyncRead for Numbers {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        while self.at < self.end && into.remaining() >= 8 {
            into.put_slice(&self.at.to_le_bytes());
            self.at += 1;
        }
        Poll::Ready(Ok(()))
    }
}

/// SHA-256 of the first 8,388,608 of them: 64 MiB.
const HASH: &str = "a05c1540b3660942e0e29b540320a6f93f62b480ce1ff5ec8dba219ec0727b7f";

#[tokio::test]
async fn input_streams_through_in_constant_memory() {
    with_a_real_guest(async |running| {
        let numbers = Numbers { at: 0, end: 8 << 20 };
        let sum = Exec { stdin: Some(Input::Stream(Box::new(numbers))), ..argv(&["busybox", "sha256sum"]) };
        let (printed, grown) = memory_grows(running, running.printed(sum)).await;
        assert_eq!(printed, format!("{HASH}  -\n"));
        assert!(grown < 16 * MIB, "{} MiB", grown / MIB);
    })
    .await;
}

/// Some bytes, then an error.
struct BrokenInput(bool);

impl AsyncRead for BrokenInput {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        if std::mem::replace(&mut self.0, true) {
            return Poll::Ready(Err(std::io::ErrorKind::ConnectionReset.into()));
        }
        into.put_slice(b"the first half");
        Poll::Ready(Ok(()))
    }
}

#[tokio::test]
async fn input_that_cannot_be_read_further_is_not_taken_for_the_whole() {
    with_a_guest(async |running| {
        let script = "cat > /tmp/part; mv /tmp/part /tmp/whole";
        for at_limit in [AtLimit::End, AtLimit::Keep] {
            let input = Some(Input::Stream(Box::new(BrokenInput(false))));
            let failed = running.exec(Exec { stdin: input, at_limit, ..sh(script) }).await.unwrap_err();
            assert!(matches!(failed, Error::Host { .. }), "{failed:?}");
        }
        running.printed(sh("for i in 1 2 3; do test ! -e /tmp/whole; sleep 0.1; done; test ! -e /tmp/whole")).await;
    })
    .await;
}
