//! Ports on the host.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use coracle_runtime::{CreateSpec, Port, Protocol, PublishedPort};
use coracle_types::{ContainerId, Error, Result};
use tokio::sync::Mutex;

use super::{placed, printed};
use crate::engines::{Case, Lack, WITHOUT_WAITING, on_every_engine};

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

async fn create(case: &Case, name: &str, host: Option<u16>) -> ContainerId {
    let ports = vec![Port { container: 8080, host, protocol: Protocol::Tcp }];
    case.runtime.create(&placed(case, CreateSpec { ports, ..case.spec(name) })).await.unwrap()
}

async fn published(case: &Case, id: &ContainerId) -> Vec<PublishedPort> {
    case.runtime.inspect(&id.into()).await.unwrap().ports
}

fn is_taken(result: &Result<()>, port: u16) -> bool {
    matches!(result, Err(Error::PortTaken(taken)) if *taken == port)
}

fn page(address: IpAddr, port: u16) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&SocketAddr::new(address, port), Duration::from_secs(2))?;
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    stream.write_all(b"GET /page HTTP/1.0\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// Until a port that was let go is free: a child that another engine of this test has just made has all descriptors of
/// this process until it executes its program.
async fn once_free<T, E: std::fmt::Debug>(mut take: impl AsyncFnMut() -> std::result::Result<T, E>) -> T {
    let begun = Instant::now();
    loop {
        match take().await {
            Ok(it) => return it,
            Err(err) => assert!(begun.elapsed() < WITHOUT_WAITING, "{err:?}"),
        }
        tokio::task::yield_now().await;
    }
}

/// An address of this machine that other machines can reach. Sends nothing.
fn outer_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    socket.local_addr().ok().map(|it| it.ip())
}

#[tokio::test]
async fn a_free_port_is_found_on_loopback() {
    on_every_engine(async |case| {
        if case.lacks(Lack::Publish) {
            return;
        }
        let id = create(case, "free", None).await;
        case.runtime.start(&id).await.unwrap();
        let ports = published(case, &id).await;
        assert!(matches!(ports[..], [PublishedPort { container: 8080, host: 1024.., .. }]), "{ports:?}");
        assert_eq!((ports[0].address, ports[0].protocol), (LOOPBACK, Protocol::Tcp));
        assert!(TcpListener::bind((LOOPBACK, ports[0].host)).is_err(), "no process listens on the port");
        case.runtime.remove(&id).await.unwrap();
        once_free(async || TcpListener::bind((LOOPBACK, ports[0].host))).await;
    })
    .await;
}

#[tokio::test]
async fn a_server_inside_answers_on_loopback_and_nowhere_else() {
    on_every_engine(async |case| {
        if case.lacks(Lack::Publish) {
            return;
        }
        if !case.is_real() {
            return case.left_out(); // the fake's programs are on the host's network already
        }
        let id = create(case, "server", None).await;
        case.runtime.start(&id).await.unwrap();
        printed(case, &id, "echo from inside > /tmp/page; httpd -p 8080 -h /tmp").await;
        let port = published(case, &id).await[0].host;
        let begun = Instant::now();
        while !page(LOOPBACK, port).is_ok_and(|it| it.ends_with("from inside\n")) {
            assert!(begun.elapsed() < Duration::from_secs(10), "no answer on port {port}");
            tokio::task::yield_now().await;
        }
        if let Some(outer) = outer_address().filter(|it| !it.is_loopback()) {
            assert!(page(outer, port).is_err(), "{outer}:{port} answers");
        }
        case.runtime.stop(&id, Duration::from_secs(10)).await.unwrap();
        assert!(page(LOOPBACK, port).is_err(), "it answers after its end");
    })
    .await;
}

static ALONE: Mutex<()> = Mutex::const_new(());

#[tokio::test]
async fn a_port_that_the_host_uses_is_taken() {
    on_every_engine(async |case| {
        if case.lacks(Lack::Publish) {
            return;
        }
        // The port is free for a moment, and another engine of this test must not take it.
        let _alone = ALONE.lock().await;
        let listener = TcpListener::bind((LOOPBACK, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let id = create(case, "taken", Some(port)).await;
        let it = case.runtime.start(&id).await;
        assert!(is_taken(&it, port), "{port}: {it:?}");
        assert!(!case.runtime.inspect(&(&id).into()).await.unwrap().running());
        drop(listener);
        once_free(async || case.runtime.start(&id).await).await;
        assert_eq!(published(case, &id).await[0].host, port);
    })
    .await;
}

#[tokio::test]
async fn a_port_that_another_container_holds_is_taken() {
    on_every_engine(async |case| {
        if case.lacks(Lack::Publish) {
            return;
        }
        let _alone = ALONE.lock().await;
        let first = create(case, "first", None).await;
        case.runtime.start(&first).await.unwrap();
        let port = published(case, &first).await[0].host;
        let second = create(case, "second", Some(port)).await;
        let it = case.runtime.start(&second).await;
        assert!(is_taken(&it, port), "{port}: {it:?}");
        case.runtime.stop(&first, Duration::from_secs(10)).await.unwrap();
        once_free(async || case.runtime.start(&second).await).await;
        assert_eq!(published(case, &second).await[0].host, port);
    })
    .await;
}
