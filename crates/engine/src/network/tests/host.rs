//! What the host forwards, masquerades and drops.

use super::*;

#[tokio::test]
async fn rules_that_another_program_removed_are_there_again_with_the_next_opening_or_start() {
    let Some(case) = Case::new().await else { return };
    let (open, apart) = (case.network("open", true, false).await, case.network("apart", true, false).await);
    let (web, client) = (case.holder("web", open.clone()).await, case.holder("client", open).await);
    let stranger = case.holder("stranger", apart).await;
    let (address, (_listener, port)) = (web.attach().await.address.unwrap(), web.listens());
    client.attach().await;
    stranger.attach().await;
    let check = |what: &str| {
        assert!(client.reaches(address, port), "{what}");
        assert!(!stranger.reaches(address, port), "{what}");
    };
    let removals: [fn(); 2] = [rules::removal::of_rules, rules::removal::of_table];
    for remove in removals {
        remove();
        assert!(stranger.reaches(address, port), "the rules are gone");
        NetworkRecords::new(&case.directories).restore_rules().unwrap();
        check("after an opening");
        remove();
        case.holder("another", NetworkMode::Outgoing).await.attach().await;
        check("after a start");
    }
    // Those of the set may be another data directory's.
    rules::removal::of_rules();
    rules::ensure(&[]).unwrap();
    check("with the groups that were there");
}

#[tokio::test]
async fn a_host_may_have_thousands_of_networks() {
    let Some(_case) = Case::new().await else { return };
    let groups: Vec<u32> = (1..2500).collect();
    rules::ensure(&groups).unwrap();
    // The table is replaced with all of them.
    rules::removal::of_rules();
    rules::ensure(&[]).unwrap();
    let mut admitted = rules::admitted();
    admitted.sort_unstable();
    assert_eq!(admitted, groups);
}

#[tokio::test]
async fn traffic_goes_out_under_the_hosts_address_unless_the_network_is_internal() {
    let Some(case) = Case::new().await else { return };
    let outside = case.machine(7).await;
    let (listener, port) = outside.listens();
    let internal = case.network("internal", true, true).await;
    for (mode, expected) in [(NetworkMode::Outgoing, true), (internal, false)] {
        let holder = case.holder("it", mode).await;
        holder.attach().await;
        assert_eq!(holder.reaches("198.18.7.2".parse().unwrap(), port), expected);
        if expected {
            assert_eq!(listener.accept().unwrap().1.ip(), IpAddr::from([198, 18, 7, 1]));
        }
    }
}

#[tokio::test]
async fn a_host_that_is_no_router_forwards_for_containers_alone() {
    let Some(case) = Case::new().await else { return };
    let ip_forward = "/proc/sys/net/ipv4/ip_forward";
    std::fs::write(ip_forward, "0").unwrap();
    let (one, other) = (case.machine(7).await, case.machine(8).await);
    let ((_at_one, port_of_one), (_at_other, port_of_other)) = (one.listens(), other.listens());
    let (to_one, to_other) = ("198.18.7.2".parse().unwrap(), "198.18.8.2".parse().unwrap());
    let container = case.holder("it", NetworkMode::Outgoing).await;
    container.attach().await;
    assert!(container.reaches(to_one, port_of_one) && container.reaches(to_other, port_of_other));
    assert!(!one.reaches(to_other, port_of_other) && !other.reaches(to_one, port_of_one));
    assert_eq!(std::fs::read_to_string(ip_forward).unwrap(), "0\n");
    // A device that is added later is used from the next start on. All remain when the container is removed.
    let late = case.machine(9).await;
    let second = case.holder("second", NetworkMode::Outgoing).await;
    second.attach().await;
    drop((container, second));
    case.holder("third", NetworkMode::Outgoing).await.attach().await;
    assert!(!late.reaches(to_one, port_of_one) && !one.reaches(to_other, port_of_other));
    // No link is left, but devices still forward.
    remove_links().await;
    rules::removal::of_table();
    assert!(one.reaches(to_other, port_of_other), "the rules are gone");
    NetworkRecords::new(&case.directories).restore_rules().unwrap();
    assert!(!one.reaches(to_other, port_of_other));
    // Docker publishes a port before this engine looks again.
    if find_program("iptables-nft").is_ok() {
        let redirect = "-t nat -A PREROUTING -d 198.18.7.1 -p tcp --dport 7 -j DNAT --to-destination";
        ran("iptables-nft", &format!("{redirect} 198.18.8.2:{port_of_other}")).await;
        assert!(one.reaches("198.18.7.1".parse().unwrap(), 7));
    }
    std::fs::write(ip_forward, "1").unwrap();
    NetworkRecords::new(&case.directories).ensure_rules().unwrap();
    assert!(one.reaches(to_other, port_of_other), "the host is a router by the will of another program");
    let last = case.holder("last", NetworkMode::Outgoing).await;
    last.attach().await;
    std::fs::write(ip_forward, "0").unwrap();
    assert!(!last.reaches(to_one, port_of_one), "the other program stopped all devices");
    NetworkRecords::new(&case.directories).restore_rules().unwrap();
    assert!(last.reaches(to_one, port_of_one) && !one.reaches(to_other, port_of_other));
}

#[tokio::test]
async fn packets_that_the_host_does_not_track_are_not_forwarded_between_machines() {
    let Some(case) = Case::new().await else { return };
    if find_program("iptables-nft").is_err() {
        return skip(NEEDS_IPTABLES);
    }
    std::fs::write("/proc/sys/net/ipv4/ip_forward", "0").unwrap();
    let (one, other) = (case.machine(7).await, case.machine(8).await);
    let received = other.inside(|| UdpSocket::bind("0.0.0.0:7").unwrap());
    received.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let container = case.holder("it", NetworkMode::Outgoing).await;
    container.attach().await;
    ran("iptables-nft", "-t raw -A PREROUTING -i tst7 -j NOTRACK").await;
    let send = |text: &'static str| {
        move || UdpSocket::bind("0.0.0.0:0").unwrap().send_to(text.as_bytes(), "198.18.8.2:7").unwrap()
    };
    one.inside(send("of a machine"));
    container.inside(send("of the container"));
    let mut buffer = [0; 64];
    let count = received.recv(&mut buffer).unwrap();
    assert_eq!(String::from_utf8_lossy(&buffer[..count]), "of the container");
}

#[tokio::test]
async fn a_chain_that_drops_what_it_does_not_know_lets_containers_out_unless_a_rule_of_it_refuses() {
    let Some(case) = Case::new().await else { return };
    if find_program("iptables-nft").is_err() {
        return skip(NEEDS_IPTABLES);
    }
    let (allowed, refused) = (case.machine(7).await, case.machine(8).await);
    let ((_allowed, port), (_refused, refused_port)) = (allowed.listens(), refused.listens());
    for words in ["-P FORWARD DROP", "-N DOCKER-USER", "-A FORWARD -j DOCKER-USER"] {
        ran("iptables-nft", words).await;
    }
    ran("iptables-nft", "-A DOCKER-USER -d 198.18.8.2 -j DROP").await;
    let container = case.holder("it", NetworkMode::Outgoing).await;
    let at = container.attach().await;
    let (_inside, inside_port) = container.listens();
    assert!(container.reaches("198.18.7.2".parse().unwrap(), port));
    assert!(!container.reaches("198.18.8.2".parse().unwrap(), refused_port));
    assert!(!allowed.reaches(at.address.unwrap(), inside_port));
    // A second start adds nothing, and the table is still one that `iptables` works with.
    case.holder("second", NetworkMode::Outgoing).await.attach().await;
    let listed = invoke("iptables-nft", "-S FORWARD").await.stdout.text();
    let ours: Vec<_> = listed.lines().skip(2).collect();
    let mark = "-m comment --comment \"coracle links\"";
    assert_eq!(
        ours,
        [
            format!("-A FORWARD -i crcl-+ {mark} -j ACCEPT"),
            format!("-A FORWARD -o crcl-+ -m conntrack --ctstate RELATED,ESTABLISHED {mark} -j ACCEPT"),
        ]
    );
    ran("iptables-nft", "-D FORWARD 3").await;
    NetworkRecords::new(&case.directories).restore_rules().unwrap();
    assert!(container.reaches("198.18.7.2".parse().unwrap(), port), "one of both rules was removed");
}

#[tokio::test]
async fn packets_with_an_address_that_is_not_the_containers_go_nowhere() {
    let Some(case) = Case::new().await else { return };
    let machine = case.machine(7).await;
    let received = machine.inside(|| UdpSocket::bind("0.0.0.0:7").unwrap());
    received.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    for of_all_devices in ["0", "1", "2"] {
        std::fs::write("/proc/sys/net/ipv4/conf/all/rp_filter", of_all_devices).unwrap();
        let container = case.holder("it", NetworkMode::Outgoing).await;
        let attached = container.attach().await;
        let (own, pid) = (attached.address.unwrap(), container.attachment.pid);
        // As `systemd-sysctl` does for each new device.
        let of_link = format!("/proc/sys/net/ipv4/conf/{}/rp_filter", attached.link.unwrap());
        std::fs::write(of_link, "2").unwrap();
        ran("nsenter", &format!("--net=/proc/{pid}/ns/net -- ip addr add 198.18.7.9/32 dev lo")).await;
        for source in ["198.18.7.9".parse().unwrap(), own] {
            let send =
                move || UdpSocket::bind((source, 0)).unwrap().send_to(source.to_string().as_bytes(), "198.18.7.2:7");
            container.inside(send).unwrap();
        }
        let mut buffer = [0; 64];
        let count = received.recv(&mut buffer).unwrap();
        assert_eq!(String::from_utf8_lossy(&buffer[..count]), own.to_string(), "rp_filter {of_all_devices}");
    }
}
