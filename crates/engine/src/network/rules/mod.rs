//! The packet filter of all containers of this host: one table of ours, made once, and an admission in the chain of others
//! that drop what they do not know.
//!
//! The rules name devices by their prefix and letter (`link::Reach`), so a container needs none of its own. Members of a
//! network have a number in common, and the table's set holds the numbers whose members may reach each other.

mod expression;

use std::io;
use std::path::Path;

use libc::{
    NFNL_SUBSYS_NFTABLES, NFT_MSG_DELSETELEM, NFT_MSG_DELTABLE, NFT_MSG_GETCHAIN, NFT_MSG_GETRULE, NFT_MSG_GETSETELEM,
    NFT_MSG_NEWCHAIN, NFT_MSG_NEWRULE, NFT_MSG_NEWSET, NFT_MSG_NEWSETELEM, NFT_MSG_NEWTABLE, NLM_F_APPEND,
    NLM_F_CREATE, NLM_F_DUMP,
};

use super::link::{PREFIX, Reach};
use super::netlink::{Message, NESTED, Netlink};
use expression::Expression::{self, Accept, BetweenMembers, Counter, From, Known, Masquerade, Port, Reject, To};

const TABLE: &str = "coracle";

/// The set of pairs of groups whose devices may reach each other.
const MEMBERS: &str = "members";

/// An empty chain whose name changes with the rules: a table without it is another version's, and is replaced.
const VERSION: &str = "version-4";

const FORWARD: &str = "forward";
const INPUT: &str = "input";
const POSTROUTING: &str = "postrouting";

const UNSPECIFIED: u8 = 0;
const INET: u8 = 1;
const IPV4: u8 = 2;

const BATCH_BEGIN: u16 = 16;
const BATCH_END: u16 = 17;

const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const DNS: u16 = 53;

/// Makes the rules if they are not there, and admits the members of `group` to each other.
///
/// # Errors
/// What the kernel refuses, as one without a packet filter does.
pub(super) fn ensure(members: &[u32]) -> io::Result<()> {
    let socket = Netlink::netfilter()?;
    if !exists(&socket, get_chain(INET, TABLE, VERSION))? {
        forward_packets()?;
        let routes = std::fs::read_to_string("/proc/net/route").unwrap_or_default();
        socket.request(batch(table(&super::subnet::default_devices(&routes))))?;
    }
    for group in members {
        if !exists(&socket, element(NFT_MSG_GETSETELEM, 0, *group))? {
            socket.request(batch(vec![element(NFT_MSG_NEWSETELEM, NLM_F_CREATE, *group)]))?;
        }
    }
    admit_to_filter(&socket)
}

/// Takes the admission of members back, with their network.
///
/// # Errors
/// What the kernel refuses.
pub(super) fn withdraw(group: u32) -> io::Result<()> {
    let socket = match Netlink::netfilter() {
        // A kernel without packet filters has none of ours.
        Err(err) if err.raw_os_error() == Some(libc::EPROTONOSUPPORT) => return Ok(()),
        socket => socket?,
    };
    match socket.request(batch(vec![element(NFT_MSG_DELSETELEM, 0, group)])) {
        Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Docker and others drop what they do not know in this chain, and a packet has to pass all chains. Only chains of our own
/// table decide about our packets, so this one lets them pass.
fn admit_to_filter(socket: &Netlink) -> io::Result<()> {
    if !exists(socket, get_chain(IPV4, "filter", "FORWARD"))? {
        return Ok(());
    }
    let fixed = fixed(IPV4);
    let get = Message::unacknowledged(kind(NFT_MSG_GETRULE), NLM_F_DUMP, &fixed).text(1, "filter").text(2, "FORWARD");
    let ours = |from: bool| {
        let device = if from { From { prefix: PREFIX, is: true } } else { To { prefix: PREFIX, is: true } };
        rule_in(ChainRef { family: IPV4, table: "filter", chain: "FORWARD" }, 0, &[device, Counter, Accept])
    };
    if socket.dump(get)?.iter().any(|it| contains(it, MARK)) {
        return Ok(());
    }
    socket.request(batch(vec![ours(true), ours(false)]))
}

/// The comment of our rules in a table of others.
const MARK: &[u8] = b"coracle\0";

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|it| it == part)
}

/// The kernel forwards between devices only when told so; Docker sets the same.
fn forward_packets() -> io::Result<()> {
    let path = Path::new("/proc/sys/net/ipv4/ip_forward");
    if std::fs::read(path)?.starts_with(b"1") {
        return Ok(());
    }
    tracing::info!("ip_forward is set: containers reach other machines through this one");
    std::fs::write(path, "1")
}

/// All rules. A bridge is another engine's network of containers, unless it is one of the devices that lead to other
/// machines.
fn table(uplinks: &[&str]) -> Vec<Message> {
    let (ours, theirs) = (From { prefix: PREFIX, is: true }, To { prefix: PREFIX, is: true });
    let prefix = |outward, host| Reach { outward, host }.prefix();
    let (host_too, nothing, host_only) = (prefix(true, true), prefix(false, false), prefix(false, true));
    let from = |prefix| From { prefix, is: true };
    let mut to_bridges = vec![ours, Expression::ToBridge];
    to_bridges.extend(uplinks.iter().map(|it| Expression::NotTo(it)));
    to_bridges.push(Reject);
    let chain = |chain| ChainRef { family: INET, table: TABLE, chain };
    let rule = |at, expressions: &[Expression<'_>]| rule_in(chain(at), NLM_F_APPEND, expressions);
    vec![
        on_table(NFT_MSG_NEWTABLE, NLM_F_CREATE),
        on_table(NFT_MSG_DELTABLE, 0),
        on_table(NFT_MSG_NEWTABLE, NLM_F_CREATE),
        new_set(),
        new_chain(VERSION, None),
        new_chain(FORWARD, Some(("filter", 2, -1))),
        new_chain(INPUT, Some(("filter", 1, -1))),
        new_chain(POSTROUTING, Some(("nat", 4, 100))),
        rule(FORWARD, &[ours, theirs, BetweenMembers, Accept]),
        rule(FORWARD, &[ours, theirs, Reject]),
        rule(FORWARD, &[from(&nothing), Reject]),
        rule(FORWARD, &[from(&host_only), Reject]),
        rule(FORWARD, &to_bridges),
        rule(FORWARD, &[ours, Accept]),
        rule(FORWARD, &[theirs, Known, Accept]),
        rule(FORWARD, &[theirs, Expression::Drop]),
        rule(INPUT, &[ours, Known, Accept]),
        // A name server of the host would be a way out.
        rule(INPUT, &[from(&nothing), Reject]),
        rule(INPUT, &[ours, Expression::Protocol(ICMP), Accept]),
        rule(INPUT, &[ours, Expression::Protocol(UDP), Port(DNS), Accept]),
        rule(INPUT, &[ours, Expression::Protocol(TCP), Port(DNS), Accept]),
        rule(INPUT, &[from(&host_too), Accept]),
        rule(INPUT, &[from(&host_only), Accept]),
        rule(INPUT, &[ours, Reject]),
        rule(POSTROUTING, &[ours, To { prefix: PREFIX, is: false }, Masquerade]),
    ]
}

fn exists(socket: &Netlink, get: Message) -> io::Result<bool> {
    match socket.request(vec![get]) {
        Ok(()) => Ok(true),
        Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(err) => Err(err),
    }
}

/// `struct nfgenmsg`: family, version, and a number that these messages do not need.
fn fixed(family: u8) -> [u8; 4] {
    [family, 0, 0, 0]
}

fn kind(message: i32) -> u16 {
    u16::try_from(NFNL_SUBSYS_NFTABLES << 8 | message).unwrap_or_default()
}

/// All of these, or none.
fn batch(messages: Vec<Message>) -> Vec<Message> {
    let subsystem = u16::try_from(NFNL_SUBSYS_NFTABLES).unwrap_or_default().to_be_bytes();
    let end = |kind| Message::unacknowledged(kind, 0, &[UNSPECIFIED, 0, subsystem[0], subsystem[1]]);
    [vec![end(BATCH_BEGIN)], messages, vec![end(BATCH_END)]].concat()
}

fn on_table(message: i32, flags: i32) -> Message {
    Message::new(kind(message), flags, &fixed(INET)).text(1, TABLE)
}

fn get_chain(family: u8, table: &str, chain: &str) -> Message {
    Message::new(kind(NFT_MSG_GETCHAIN), 0, &fixed(family)).text(1, table).text(3, chain)
}

/// A chain; one at a hook has a type, the hook's number and a priority.
fn new_chain(name: &str, hook: Option<(&str, u32, i32)>) -> Message {
    let message = Message::new(kind(NFT_MSG_NEWCHAIN), NLM_F_CREATE, &fixed(INET)).text(1, TABLE).text(3, name);
    let Some((chain_type, number, priority)) = hook else { return message };
    message
        .nest(4 | NESTED, |it| it.number_be(1, number).bytes(2, &priority.to_be_bytes()))
        .number_be(5, 1)
        .text(7, chain_type)
}

/// The set of pairs of groups. Its key's type is for `nft` to print: two numbers of its type "device group".
fn new_set() -> Message {
    const DEVICE_GROUP: u32 = 35;
    let key_type = DEVICE_GROUP << 6 | DEVICE_GROUP;
    Message::new(kind(NFT_MSG_NEWSET), NLM_F_CREATE, &fixed(INET))
        .text(1, TABLE)
        .text(2, MEMBERS)
        .number_be(3, 0)
        .number_be(4, key_type)
        .number_be(5, 8)
        .number_be(10, 1)
}

fn element(message: i32, flags: i32, group: u32) -> Message {
    let key = [group.to_ne_bytes(), group.to_ne_bytes()].concat();
    Message::new(kind(message), flags, &fixed(INET))
        .text(1, TABLE)
        .text(2, MEMBERS)
        .nest(3 | NESTED, |it| it.nest(1 | NESTED, |it| it.nest(1 | NESTED, |it| it.bytes(1, &key))))
}

/// A chain of some table.
#[derive(Clone, Copy, Debug)]
struct ChainRef {
    family: u8,
    table: &'static str,
    chain: &'static str,
}

/// A rule, at the chain's begin or (with `NLM_F_APPEND`) end.
fn rule_in(at: ChainRef, flags: i32, expressions: &[Expression<'_>]) -> Message {
    // User data: a comment (type 0), as `nft` writes it.
    let comment = [&[0, u8::try_from(MARK.len()).unwrap_or_default()][..], MARK].concat();
    Message::new(kind(NFT_MSG_NEWRULE), NLM_F_CREATE | flags, &fixed(at.family))
        .text(1, at.table)
        .text(2, at.chain)
        .nest(4 | NESTED, |it| expression::add(it, expressions))
        .bytes(7, &comment)
}
