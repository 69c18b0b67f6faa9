//! The ways from a container to its proxy: mounted sockets, its link, and a private network.

use std::time::Duration;

use coracle_proxy::listen::Listeners;
use coracle_proxy::listen::PrivateSubnet;
use coracle_runtime::NetworkCreate;

use super::*;
use crate::engines::Lack;

#[tokio::test]
async fn x59_each_container_reaches_its_own_proxy_and_no_other() {
    with_real_engines(async |case| {
        let rooms = [Room::new(case, "one", "none").await, Room::new(case, "two", "none").await];
        let (model, page) = (server(COMPLETION).await, server("page").await);
        let room = &rooms[0];
        assert_eq!(room.health(AGENT).await, "none", "nothing listens before the token exists");
        room.relays().await;
        for user in [Ids::ROOT, WORKER, AGENT] {
            assert_eq!(room.health(user).await, HEALTHY, "{user:?}");
        }
        room.opens(model, page);
        room.asks_its_model("").await;
        let fetch = format!("GET http://127.0.0.1:{page}/ HTTP/1.1\r\nHost: x\r\n");
        assert!(room.hears(AGENT, EGRESS_PORT, &fetch).await.contains("page"));
        // The other container's own relay has the other token, and its sockets are its own.
        rooms[1].running.link().relay(By::Sockets, &room.net, "").await.unwrap();
        assert!(rooms[1].health(AGENT).await.contains("token_invalid"));
        rooms[1].relays().await;
        assert_eq!(rooms[1].health(AGENT).await, HEALTHY, "a second token takes the first one's place");
    })
    .await;
}

/// All processes inside reach the proxy, and through it a model with a large request, and large pages.
async fn gets_what_its_proxy_gives(room: &Room<'_>) {
    for user in [Ids::ROOT, WORKER, AGENT] {
        assert_eq!(room.health(user).await, HEALTHY, "{user:?}");
    }
    let (model, page) = (server(COMPLETION).await, large_page().await);
    room.opens(model, page);
    room.asks_its_model(&"y".repeat(40 << 10)).await;
    room.fetches_at_once(page).await;
}

#[tokio::test]
async fn x59_a_container_gets_the_same_over_its_link_without_a_listener() {
    with_real_engines(async |case| {
        let mut rooms = [Room::new(case, "one", "none").await, Room::new(case, "two", "none").await];
        let mut outlets: Vec<_> = rooms.iter().map(|it| Listeners::open(&it.proxy, it.running.link())).collect();
        for room in &mut rooms {
            room.listening = None;
            room.running.link().relay(By::Link, &room.net, "").await.unwrap();
        }
        let room = &rooms[0];
        assert!(std::fs::read_dir(&room.sockets).unwrap().next().is_none(), "there is no socket");
        self_test(room.running.link(), behind(&[], false)).await.unwrap();
        gets_what_its_proxy_gives(room).await;

        // The other container reaches only its own proxy, which does not know this one's token.
        rooms[1].running.link().relay(By::Link, &room.net, "").await.unwrap();
        assert!(rooms[1].health(AGENT).await.contains("token_invalid"));
        rooms[1].running.link().relay(By::Link, &rooms[1].net, "").await.unwrap();
        assert_eq!(rooms[1].health(AGENT).await, HEALTHY);

        // The way ends and returns with the process that holds it.
        outlets.remove(0);
        assert_eq!(room.health(AGENT).await, "none");
        outlets.push(Listeners::open(&room.proxy, room.running.link()));
        assert_eq!(room.health(AGENT).await, HEALTHY);
        room.proxy.grant(None);
        assert!(room.health(AGENT).await.contains("token_invalid"), "revoked");
    })
    .await;
}

/// An internal network, and this host's address on it.
async fn internal(case: &Case, name: &str) -> (String, PrivateSubnet) {
    let name = case.network_name(name);
    let labels = vec![case.label()];
    let make = NetworkCreate { name: name.clone(), labels, reach: true, internal: true };
    let made = case.runtime.create_network(&make).await.unwrap();
    (made.name, PrivateSubnet { gateway: made.gateways[0], subnet: made.subnets[0] })
}

#[tokio::test]
async fn x59_by_a_network_of_its_own_a_container_gets_the_same_and_its_engine_lets_it_reach_more() {
    with_real_engines(async |case| {
        if case.lacks(Lack::NamedNetworks) {
            return;
        }
        let nets = [internal(case, "one").await, internal(case, "two").await];
        let mut rooms = [Room::new(case, "one", &nets[0].0).await, Room::new(case, "two", &nets[1].0).await];
        let mut reported = Vec::new();
        for (room, (_, between)) in rooms.iter_mut().zip(&nets) {
            let (listening, [api, egress]) = ProxyListener::listen_at(&room.proxy, *between, None).unwrap();
            let gateway = between.gateway;
            assert!(api.ip() == gateway && egress.ip() == gateway && api.port() != egress.port());
            room.listening = Some(listening);
            let way = By::Tcp { api, egress };
            room.running.link().relay(way, &room.net, "").await.unwrap();
            reported.push(way);
        }
        let room = &rooms[0];
        gets_what_its_proxy_gives(room).await;

        // With the other one's address it is at a door that its own token does not open, if it gets there at all: docker
        // On Docker 20.10 one internal network reaches the gateway of another.
        room.running.link().relay(reported[1], &room.net, "").await.unwrap();
        let received = room.health(AGENT).await;
        assert!(received == "none" || received.contains("token_invalid"), "{received}");
        rooms[1].running.link().relay(reported[1], &room.net, "").await.unwrap();
        assert!(rooms[1].health(AGENT).await.contains("token_invalid"));
        rooms[1].running.link().relay(reported[1], &rooms[1].net, "").await.unwrap();
        assert_eq!(rooms[1].health(AGENT).await, HEALTHY);
        room.running.link().relay(reported[0], &room.net, "").await.unwrap();

        // Nothing outside is reachable, and of this host only the proxy: ports without a listener answer, too.
        self_test(room.running.link(), behind(&[], true)).await.unwrap();
        let failure = self_test(room.running.link(), behind(&[nets[0].1.gateway], true)).await.unwrap_err();
        assert_eq!(failure.code, Code::EgressNotEnforced, "{failure:?}");
        ran("x59", case.engine());
    })
    .await;
}

#[tokio::test]
async fn x59_by_the_link_more_connections_than_it_has_places_wait_their_turn() {
    with_real_engines(async |case| {
        let mut room = Room::new(case, "busy", "none").await;
        let _outlets = Listeners::open(&room.proxy, room.running.link());
        room.listening = None;
        room.running.link().relay(By::Link, &room.net, "").await.unwrap();
        // Each is held for longer than a connection waits for a missing listener.
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let page = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                tokio::spawn(async move {
                    let _ = stream.read(&mut [0; 1024]).await?;
                    tokio::time::sleep(Duration::from_secs(3)).await;
                    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\npage").await
                });
            }
        });
        room.opens(page, page);
        let program = format!(
            "my @all; for (1..80) {{ my $s; socket($s, 2, 1, 0) and connect($s, pack('S n C4 x8', 2, {EGRESS_PORT}, 127, 0, 0, 1)) or next; \
             syswrite($s, \"GET http://127.0.0.1:{page}/ HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n\"); push @all, $s }} \
             my $n = 0; for my $s (@all) {{ my ($all, $it) = ('', ''); $all .= $it while sysread($s, $it, 65536); $n++ if $all =~ /page/ }} print $n"
        );
        assert_eq!(room.running.printed(Exec { user: AGENT, ..perl(&program) }).await, "80");
    })
    .await;
}
