use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use coracle_engine_program::ANSWER_BYTES;
use coracle_runtime::{ContainerRuntime, ImageStore as _, LabelFilter, RemovalOutcome, Volumes as _};
use coracle_types::{Error, Handle};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};

use crate::CliRuntime;
use crate::scripted::{docker_with_api, podman, podman_with_api};

/// What a played service does with a request for a path.
type Reply = fn(&str) -> Vec<u8>;

#[derive(Debug)]
struct Service {
    dir: TempDir,
    connections: Arc<AtomicUsize>,
}

impl Service {
    fn socket(&self) -> std::path::PathBuf {
        self.dir.path().join("s")
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// Answers each request on each connection. After an empty reply the connection stays open and silent.
    fn start(reply: Reply) -> Self {
        Self::start_slow(reply, Duration::ZERO)
    }

    /// As [`start`](Self::start), with a pause before each answer but that of a ping.
    fn start_slow(reply: Reply, pause: Duration) -> Self {
        let it = Self { dir: tempfile::tempdir().unwrap(), connections: Arc::default() };
        let listener = UnixListener::bind(it.socket()).unwrap();
        let connections = it.connections.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                connections.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(serve(stream, reply, pause));
            }
        });
        it
    }
}

async fn serve(mut stream: UnixStream, reply: Reply, pause: Duration) -> std::io::Result<()> {
    loop {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await?);
        }
        let head = String::from_utf8(head).unwrap();
        let path = head.strip_prefix("GET ").and_then(|it| it.split(' ').next()).expect("reads are GETs");
        if !path.contains("_ping") {
            tokio::time::sleep(pause).await;
        }
        stream.write_all(&reply(path)).await?;
    }
}

fn http(status: u16, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

fn missing() -> Vec<u8> {
    http(404, r#"{"message":"no such object"}"#)
}

fn id(digit: &str) -> String {
    digit.repeat(64)
}

fn container(name: &str, digit: &str) -> String {
    let (id, image) = (id(digit), "b".repeat(64));
    format!(
        r#"{{"Id":"{id}","Name":"/{name}","Image":"sha256:{image}","Created":"","State":{{"Status":"running"}},"Config":{{}},"HostConfig":{{}}}}"#
    )
}

/// A program that has one container, `c`.
fn script() -> String {
    format!(
        "case \"$*\" in *' ps '*|ps*) echo {} ;; *inspect*) echo '[{}]' ;; *) exit 9 ;; esac",
        id("a"),
        container("c", "a")
    )
}

async fn name_of(engine: &CliRuntime, handle: &str) -> Result<String, Error> {
    engine.inspect(&Handle::parse(handle).unwrap()).await.map(|it| it.id.to_string())
}

/// What is wrong with a socket.
const FAULTS: &[(&str, Reply)] = &[
    ("silence", |_| Vec::new()),
    ("nonsense", |_| b"nonsense\r\n\r\n".to_vec()),
    ("a broken engine", |_| http(500, r#"{"message":"broken"}"#)),
    ("another program", |_| http(404, "not here")),
    ("no JSON", |_| http(200, "<html>")),
    ("other JSON", |_| http(200, r#"{"Id":"c"}"#)),
    ("a flood", |_| {
        let mut reply = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", ANSWER_BYTES + 1).into_bytes();
        reply.resize(reply.len() + ANSWER_BYTES + 1, b' ');
        reply
    }),
];

#[tokio::test]
async fn what_a_broken_socket_does_not_answer_the_program_does_soon() {
    for (fault, reply) in FAULTS {
        let service = Service::start(*reply);
        let (engine, _temp) = docker_with_api(&script(), &service.socket());
        let begun = Instant::now();
        assert_eq!(name_of(&engine, "c").await.unwrap(), id("a"), "{fault}");
        // The socket has 250 ms to answer; the rest is for a busy machine.
        assert!(begun.elapsed().as_secs() < 10, "{fault}: {:?}", begun.elapsed());
        let tried = service.connections();
        assert!(tried > 0, "{fault}");
        // From then on the socket is left alone.
        assert_eq!(name_of(&engine, "c").await.unwrap(), id("a"), "{fault}");
        assert_eq!(engine.list(&LabelFilter::default()).await.unwrap().len(), 1, "{fault}");
        assert_eq!(service.connections(), tried, "{fault}");
    }
}

#[tokio::test]
async fn without_a_listener_the_program_answers() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("s");
    let (engine, _temp) = docker_with_api(&script(), &socket);
    assert_eq!(name_of(&engine, "c").await.unwrap(), id("a"));
    // A socket that appears is used: nothing was wrong with it.
    drop(UnixListener::bind(&socket).unwrap());
    assert_eq!(name_of(&engine, "c").await.unwrap(), id("a"), "it refuses connections");
}

#[tokio::test]
async fn a_slow_answer_of_the_socket_counts_where_there_is_no_program() {
    let reply: Reply = |path| match path.contains("_ping") {
        true => http(200, "OK"),
        false => http(200, &container("c", "a")),
    };
    // Until after the program was tried.
    let service = Service::start_slow(reply, super::PROGRAM_AFTER + Duration::from_millis(300));
    let (engine, _temp) = docker_with_api("exit 1", &service.socket());
    assert_eq!(name_of(&engine, "c").await.unwrap(), id("a"));
}

#[tokio::test]
async fn a_fault_is_reported_once_and_a_missing_socket_is_none() {
    let warnings = Warnings::default();
    let _guard = tracing::subscriber::set_default(warnings.clone());
    let service = Service::start(|_| http(500, ""));
    for _ in 0..2 {
        let (engine, _temp) = docker_with_api(&script(), &service.socket());
        name_of(&engine, "c").await.unwrap();
        name_of(&engine, "c").await.unwrap();
    }
    assert_eq!((warnings.0.load(Ordering::SeqCst), service.connections()), (1, 2));
    let (engine, _temp) = docker_with_api(&script(), Path::new("/nonexistent/socket"));
    name_of(&engine, "c").await.unwrap();
    assert_eq!(warnings.0.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn if_the_socket_answers_no_program_is_called() {
    let service = Service::start(|path| match path {
        "/containers/c/json" => http(200, &container("c", "a")),
        it if it.starts_with("/containers/json?all=true&filters=%7B%22label%22") => {
            http(200, &format!(r#"[{{"Id":"{}"}},{{"Id":"{}"}}]"#, id("a"), id("c")))
        }
        it if it.starts_with("/containers/json") => http(200, "[]"),
        it if it == format!("/containers/{}/json", id("a")) => http(200, &container("c", "a")),
        it if it.starts_with("/images/here:1/") => http(
            200,
            &format!(r#"{{"Id":"sha256:{}","Architecture":"amd64","Created":"","Config":null}}"#, "b".repeat(64)),
        ),
        _ => missing(),
    });
    let (engine, _temp) = docker_with_api("exit 9", &service.socket());
    assert_eq!(name_of(&engine, "c").await.unwrap(), id("a"));
    assert!(matches!(name_of(&engine, "other").await, Err(Error::NoSuchContainer(_))));
    // One that is gone by the time it is inspected is left out.
    let filter = LabelFilter(vec![("a".into(), None)]);
    assert_eq!(engine.list(&filter).await.unwrap().iter().map(|it| it.id.to_string()).collect::<Vec<_>>(), [id("a")]);
    let named = ["here:1", "gone:1"].map(|it| coracle_types::ImageRef::parse(it).unwrap());
    assert_eq!(engine.find_images(&named).await.unwrap().len(), 1);
    assert!(service.connections() <= 2, "connections are reused: {}", service.connections());
}

#[tokio::test]
async fn a_container_that_is_just_removed_is_missing_and_no_fault() {
    static REQUESTS: AtomicUsize = AtomicUsize::new(0);
    let service = Service::start(|path| match path {
        it if it.starts_with("/containers/json?") => http(200, "[]"),
        _ if REQUESTS.fetch_add(1, Ordering::SeqCst) == 0 => http(500, r#"{"message":"does not exist in database"}"#),
        _ => missing(),
    });
    let (engine, _temp) = docker_with_api("exit 9", &service.socket());
    assert!(matches!(name_of(&engine, "c").await, Err(Error::NoSuchContainer(_))));
}

#[tokio::test]
async fn a_connection_that_the_service_closed_is_reopened() {
    let service = Service::start(|_| {
        let body = container("c", "a");
        // The header does not announce the close; a second, unsolicited answer does.
        [http(200, &body), b"HTTP/1.1 408 Timeout\r\n\r\n".to_vec()].concat()
    });
    let (engine, _temp) = docker_with_api("exit 9", &service.socket());
    for _ in 0..3 {
        assert_eq!(name_of(&engine, "c").await.unwrap(), id("a"));
    }
}

#[tokio::test]
async fn a_service_of_podman_is_used_once_it_knows_a_container_of_the_program() {
    let same: Reply = |path| match path {
        it if it.contains("/containers/json") => http(200, &format!(r#"[{{"Id":"{}"}}]"#, id("a"))),
        _ => http(200, &container("by-socket", "a")),
    };
    let service = Service::start(same);
    let (engine, _temp) = podman_with_api(&script(), &service.socket());
    let found = engine.inspect(&Handle::parse("aaaaaaaaaaaa").unwrap()).await.unwrap();
    assert_eq!(found.name, "by-socket");

    let other: Reply = |path| match path {
        it if it.contains("/containers/json") => http(200, &format!(r#"[{{"Id":"{}"}}]"#, id("d"))),
        _ => missing(),
    };
    let service = Service::start(other);
    let (engine, _temp) = podman_with_api(&script(), &service.socket());
    assert_eq!(name_of(&engine, "c").await.unwrap(), id("a"), "it is not gone, it is stored elsewhere");

    let empty: Reply = |path| if path.contains("/containers/json") { http(200, "[]") } else { missing() };
    let service = Service::start(empty);
    let (engine, _temp) = podman_with_api(&script(), &service.socket());
    assert_eq!(name_of(&engine, "c").await.unwrap(), id("a"), "it proves nothing");
    engine.lookup.note_created(&coracle_types::ContainerId::parse(id("a")).unwrap());
    assert_eq!(name_of(&engine, "c").await.unwrap(), id("a"), "it does not know what was made");
}

#[tokio::test]
async fn a_container_that_podman_removed_only_in_part_hides_no_other_one() {
    let (one, broken, other) = (id("a"), id("b"), id("c"));
    let script = format!(
        "case \"$*\" in *inspect*{broken}*) echo 'Error: getting container from store: container not known' >&2; exit 125 ;;\n\
         *inspect*{one}*) echo '[{}]' ;; *inspect*{other}*) echo '[{}]' ;; *'rm --force'*{broken}*) echo {broken} ;;\n\
         *ps*) echo {one}; echo {broken}; echo {other} ;; *) exit 9 ;; esac",
        container("one", "a"),
        container("other", "c")
    );
    let (engine, _temp) = podman(&script);
    let listed = engine.list(&LabelFilter::default()).await.unwrap();
    assert_eq!(listed.iter().map(|it| it.name.as_str()).collect::<Vec<_>>(), ["one", "other"]);
    // One that is not there has nothing to save, and is removed by its id.
    let broken = coracle_types::ContainerId::parse(broken).unwrap();
    let found = engine.inspect(&Handle::from(&broken)).await;
    assert!(matches!(found, Err(Error::NoSuchContainer(_))), "{found:?}");
    assert!(matches!(engine.remove(&broken).await, Ok(RemovalOutcome::Now)));
}

/// Counts warnings.
#[derive(Clone, Debug, Default)]
struct Warnings(Arc<AtomicUsize>);

impl tracing::Subscriber for Warnings {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() == tracing::Level::WARN
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, _: &tracing::Event<'_>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

#[tokio::test]
async fn a_list_is_repeated_if_an_object_is_removed_meanwhile() {
    let listed = async |error: &str, succeeds_at: usize| {
        let script = format!(
            "echo x >> \"$TMPDIR/calls\"; case \"$*\" in *inspect*) echo '[]' ;; *) \
             if [ $(grep -c x \"$TMPDIR/calls\") -lt {succeeds_at} ]; then echo 'Error: {error}' >&2; exit 125; fi ;; esac"
        );
        let (engine, _temp) = podman(&script);
        engine.list_volumes(&LabelFilter::default()).await
    };
    let gone = "no volume with name data found in database: no such volume";
    assert_eq!(listed(gone, 3).await.unwrap(), []);
    assert!(matches!(listed(gone, 100).await, Err(Error::Engine { .. })));
    assert!(matches!(listed("permission denied", 2).await, Err(Error::Engine { .. })));
}
