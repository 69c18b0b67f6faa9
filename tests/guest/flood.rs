//! Large outputs: bounded everywhere, counted, and retained for reading.

use coracle_protocol::body::{Bytes, encode};
use coracle_protocol::call::Call as _;
use coracle_protocol::{
    ExecRequest, ExecTimeouts, HostMessage, Lifetime, OutputMode, Position, ReadRequest, Retention, SearchRequest,
    StreamSelector, UserSpec, VERSION,
};
use coracle_types::{Exec, ExecOutput, Exit};

use super::{MIB, argv, memory_grows, perl, sh, with_perl};
use crate::engines::{Running, with_a_guest, with_a_real_guest, with_real_engines};

/// The limit of the agent's tool.
const INLINE: usize = 32 << 10;

/// Bytes printed after all the zeros.
const AFTER: u64 = 1 + 11 + 100_000 + 3;

fn flood(mib: u64) -> Exec {
    let dd = format!("dd if=/dev/zero bs=1048576 count={mib} 2>/dev/null");
    let script = format!("printf begin; {dd}; echo; echo the marker; head -c 100000 /dev/zero; printf end");
    Exec { keep_bytes: INLINE, ..sh(&script) }
}

fn check(it: &ExecOutput, mib: u64) {
    let printed = 5 + mib * MIB + AFTER;
    assert_eq!((it.exit, it.stdout.total_bytes(), it.stderr.total_bytes()), (Exit::Code(0), printed, 0));
    assert_eq!((it.stdout.bytes().len(), it.stdout.left_out()), (INLINE, printed - INLINE as u64));
    assert!(it.stdout.head().starts_with(b"begin\0") && it.stdout.tail().ends_with(b"\0end"));
}

/// The retained output is the end, to the byte, and a search finds a line in it.
async fn check_retained(running: &Running<'_>, it: &ExecOutput) {
    let (link, total) = (running.link(), it.stdout.total_bytes());
    let job = it.job.clone().expect("cut output is retained").to_string();
    let (part, limit) = (StreamSelector::Stdout, MIB);
    let mut read = ReadRequest { job: job.clone(), part, from: Position::Offset(0), limit };
    let (page, bytes) = link.read(read.clone()).await.unwrap();
    assert_eq!((page.offset, page.total, bytes.len() as u64), (page.first, total, MIB));
    let retained = Retention::default().bytes;
    assert!(total - page.first <= retained && total - page.first > retained / 2, "{page:?}");
    // From there to the end, page by page.
    let (mut at, mut seen) = (page.next, bytes.len() as u64);
    let mut end = bytes;
    while at < total {
        read.from = Position::Offset(at.cast_signed());
        let (page, bytes) = link.read(read.clone()).await.unwrap();
        assert_eq!((page.offset, page.next), (at, at + bytes.len() as u64));
        assert!(!bytes.is_empty());
        (at, seen, end) = (page.next, seen + bytes.len() as u64, [end, bytes].concat());
        end.drain(..end.len().saturating_sub(200_000));
    }
    assert_eq!(seen, total - page.first);
    let tail = [&b"\0\nthe marker\n"[..], &[0; 100_000], b"end"].concat();
    assert!(end.ends_with(&tail), "the last of {} bytes is not what was printed", end.len());

    let search = SearchRequest {
        job,
        part,
        from: Position::Offset(0),
        pattern: "^the m.rker$".into(),
        ignore_case: false,
        context: 0,
        most: 10,
    };
    let found = link.search(search).await.unwrap();
    let places: Vec<_> = found.matches.iter().map(|it| (it.offset, it.text.as_str())).collect();
    assert_eq!(places, [(total - AFTER + 1, "the marker")]);
}

#[tokio::test]
async fn gigabytes_of_output_cost_neither_guest_nor_host_memory() {
    with_a_real_guest(async |running| {
        let mib = 2 << 10;
        let (it, grown) = memory_grows(running, running.ran(flood(mib))).await;
        check(&it, mib);
        eprintln!("{mib} MiB in {:?}, {} KiB more memory", it.duration, grown >> 10);
        assert!(grown < 64 * MIB, "{} MiB", grown / MIB);
        let ((), grown) = memory_grows(running, check_retained(running, &it)).await;
        assert!(grown < 64 * MIB, "{} MiB to read the retained output", grown / MIB);
    })
    .await;
}

#[tokio::test]
async fn retained_output_can_be_paged_and_searched() {
    with_a_guest(async |running| {
        let it = running.ran(flood(100)).await;
        check(&it, 100);
        check_retained(running, &it).await;
    })
    .await;
}

/// Speaks the protocol from inside, and sends input that its command never reads: a mebibyte at a time, whether there is
/// room for it or not.
const FLOODER: &str = r#"
    $SIG{PIPE} = "IGNORE";
    my ($at, $unix, $stream) = ("/.coracle/run/sock", 1, 1);
    socket(S, $unix, $stream, 0) or die; connect(S, pack("S a*", $unix, "$at\0")) or die "no guest: $!";
    sub says {
        my ($channel, $head, $payload) = @_;
        my $frame = pack("N3", length($head) + length($payload), length $head, $channel) . $head . $payload;
        for (my $sent = 0; $sent < length $frame;) {
            my $count = syswrite(S, $frame, length($frame) - $sent, $sent) or return 0;
            $sent += $count;
        }
        return 1;
    }
    says(0, '{"hello":{"version":VERSION,"nonce":"00"}}', "") or die;
    says(1, pack("H*", "OPEN"), pack("H*", "REQUEST")) or die;
    my ($piece, $count) = ("x" x 1048576, 0);
    while ($count < 300 and says(1, pack("H*", "DATA"), $piece)) { $count++ }
    print $count < 10 ? "cut off" : "took $count MiB";"#;

fn flooder() -> String {
    let hex = |bytes: Vec<u8>| bytes.iter().map(|it| format!("{it:02x}")).collect::<String>();
    let request = encode(&ExecRequest {
        job: "0badf00d".into(),
        shell: false,
        argv: ["sleep", "60"].map(Bytes::from).into(),
        env: Vec::new(),
        secret: None,
        clear_env: false,
        files: Vec::new(),
        from_container: false,
        user: UserSpec::Ids { uid: 0, gid: Some(0) },
        cwd: "/".into(),
        stdin: false,
        terminal: None,
        limits: ExecTimeouts { total_ms: None, silence_ms: None, grace_ms: 0 },
        life: Lifetime::Foreground,
        show: OutputMode::Nothing,
        inline_limit: 0,
        max_running: None,
    });
    let open = HostMessage::Open { call: ExecRequest::NAME.into(), bytes: u32::try_from(request.len()).unwrap() };
    FLOODER
        .replace("VERSION", &VERSION.to_string())
        .replace("OPEN", &hex(encode(&open)))
        .replace("REQUEST", &hex(request))
        .replace("DATA", &hex(encode(&HostMessage::Data { last: false })))
}

#[tokio::test]
async fn root_inside_cannot_fill_the_memory_of_the_guest() {
    with_real_engines(async |case| {
        let running = with_perl(case).await;
        let (it, grown) = memory_grows(&running, running.ran(perl(&flooder()))).await;
        assert_eq!((it.stdout.text().as_str(), it.stderr.text().as_str()), ("cut off", ""));
        eprintln!("{} KiB more memory", grown >> 10);
        assert!(grown < 16 * MIB, "{} MiB", grown / MIB);
        assert_eq!(running.printed(argv(&["echo", "still here"])).await, "still here\n");
    })
    .await;
}
