//! The engine's table: its chains, its rules, and the set of groups whose members may reach each other.

use std::io;

use libc::{
    NFT_MSG_DELSETELEM, NFT_MSG_DELTABLE, NFT_MSG_GETSETELEM, NFT_MSG_NEWCHAIN, NFT_MSG_NEWSET, NFT_MSG_NEWSETELEM,
    NFT_MSG_NEWTABLE, NLM_F_CREATE,
};
use sha2::{Digest as _, Sha256};

use super::super::link::{PREFIX, Reach};
use super::super::netlink::{Message, NESTED, Netlink, attribute, attributes};
use super::expression::Expression::{
    self, Accept, BetweenMembers, Drop, From, FromDevice, FromElsewhere, Ipv4, Known, Masquerade, Port, Redirected,
    Reject, To,
};
use super::expression::MEMBERS;
use super::messages::{self, ChainRef, HEADER_BYTES, INET};

pub(super) const TABLE: &str = "coracle";

const PREROUTING: &str = "prerouting";
const FORWARD: &str = "forward";
const INPUT: &str = "input";
const POSTROUTING: &str = "postrouting";

/// Maximum number of groups in one message: each takes 20 bytes, and an attribute has at most 64 KiB.
const GROUPS_OF_MESSAGE: usize = 1000;

const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const DNS: u16 = 53;

/// The devices of the host on which the rules depend.
#[derive(Clone, Debug)]
pub(super) struct HostDevices {
    /// Devices of default routes.
    pub(super) uplinks: Vec<String>,
    /// Devices that forward only for containers.
    pub(super) guarded: Vec<String>,
}

/// The table as it should be.
#[derive(Debug)]
pub(super) struct FilterTable<'a> {
    rules: Vec<FilterRule<'a>>,
    /// The comment of each rule. It identifies all rules together: rules of another version or for other devices have
    /// another one.
    mark: String,
}

#[derive(Debug)]
struct FilterRule<'a> {
    chain: &'static str,
    expressions: Vec<Expression<'a>>,
}

impl<'a> FilterTable<'a> {
    pub(super) fn new(devices: &'a HostDevices, prefixes: &'a Prefixes) -> Self {
        let rules = rules(devices, prefixes);
        let digest = Sha256::digest(format!("{rules:?}"));
        Self { rules, mark: format!("coracle {}", hex::encode(&digest[..4])) }
    }

    /// Whether all rules are installed. Another program may have removed some of them, or the table.
    pub(super) fn is_installed(&self, socket: &Netlink) -> io::Result<bool> {
        Ok(messages::count_rules(socket, chain(""), &self.mark)? == self.rules.len())
    }

    /// Returns the messages that create the table, and remove an existing one.
    pub(super) fn install(&self) -> Vec<Message> {
        let mut messages = vec![
            on_table(NFT_MSG_NEWTABLE, NLM_F_CREATE),
            on_table(NFT_MSG_DELTABLE, 0),
            on_table(NFT_MSG_NEWTABLE, NLM_F_CREATE),
            new_set(),
            new_chain(PREROUTING, &Hook { chain_type: "filter", number: 0, priority: -150 }),
            new_chain(FORWARD, &Hook { chain_type: "filter", number: 2, priority: -1 }),
            new_chain(INPUT, &Hook { chain_type: "filter", number: 1, priority: -1 }),
            new_chain(POSTROUTING, &Hook { chain_type: "nat", number: 4, priority: 100 }),
        ];
        let rules = self.rules.iter().map(|it| messages::new_rule(chain(it.chain), &self.mark, &it.expressions));
        messages.extend(rules);
        messages
    }
}

/// The prefixes of the names of links, by what their containers may reach.
#[derive(Clone, Debug)]
pub(super) struct Prefixes {
    outward_and_host: String,
    host: String,
    nothing: String,
}

impl Prefixes {
    pub(super) fn new() -> Self {
        let prefix = |outward, host| Reach { outward, host }.prefix();
        Self { outward_and_host: prefix(true, true), host: prefix(false, true), nothing: prefix(false, false) }
    }
}

/// Returns all rules. A bridge counts as another engine's network, unless it leads to other machines.
fn rules<'a>(devices: &'a HostDevices, prefixes: &'a Prefixes) -> Vec<FilterRule<'a>> {
    let (ours, theirs) = (From { prefix: PREFIX, is: true }, To { prefix: PREFIX, is: true });
    let others = To { prefix: PREFIX, is: false };
    let from = |prefix: &'a String| From { prefix, is: true };
    let mut to_bridges = vec![ours, Expression::ToBridge];
    to_bridges.extend(devices.uplinks.iter().map(|it| Expression::NotTo(it)));
    to_bridges.push(Reject);
    let rule = |chain, expressions: &[Expression<'a>]| FilterRule { chain, expressions: expressions.to_vec() };
    let mut rules = vec![
        // A link's `rp_filter` has the same effect, but another program may set it to the loose check. `systemd-sysctl` does
        // so for each new device if the host is configured that way.
        rule(PREROUTING, &[Ipv4, ours, FromElsewhere, Drop]),
        rule(FORWARD, &[ours, theirs, BetweenMembers, Accept]),
        rule(FORWARD, &[ours, theirs, Reject]),
        rule(FORWARD, &[from(&prefixes.nothing), Reject]),
        rule(FORWARD, &[from(&prefixes.host), Reject]),
        rule(FORWARD, &to_bridges),
        rule(FORWARD, &[ours, Accept]),
        rule(FORWARD, &[theirs, Known, Accept]),
        rule(FORWARD, &[theirs, Drop]),
        rule(INPUT, &[ours, Known, Accept]),
        // A name server on the host would be a way out for data.
        rule(INPUT, &[from(&prefixes.nothing), Reject]),
        rule(INPUT, &[ours, Expression::Protocol(ICMP), Accept]),
        rule(INPUT, &[ours, Expression::Protocol(UDP), Port(DNS), Accept]),
        rule(INPUT, &[ours, Expression::Protocol(TCP), Port(DNS), Accept]),
        rule(INPUT, &[from(&prefixes.outward_and_host), Accept]),
        rule(INPUT, &[from(&prefixes.host), Accept]),
        rule(INPUT, &[ours, Reject]),
        rule(POSTROUTING, &[ours, others, Masquerade]),
    ];
    for device in &devices.guarded {
        let guarded = [FromDevice(device), Ipv4, others];
        rules.push(rule(FORWARD, &[&guarded[..], &[Known, Accept]].concat()));
        // Accepts what another engine redirects to its containers: it may have started after this one, and forwards itself.
        rules.push(rule(FORWARD, &[&guarded[..], &[Redirected, Accept]].concat()));
        // No condition on the connection, since such a rule would not match packets without a connection.
        rules.push(rule(FORWARD, &[&guarded[..], &[Drop]].concat()));
    }
    rules
}

/// The groups whose members may reach each other.
pub(super) fn groups(socket: &Netlink) -> io::Result<Vec<u32>> {
    let get = messages::list(NFT_MSG_GETSETELEM, INET).text(1, TABLE).text(2, MEMBERS);
    let lists = match socket.dump(get) {
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        lists => lists?,
    };
    let elements = lists.iter().filter_map(|it| attribute(it.get(HEADER_BYTES..)?, 3));
    Ok(elements.flat_map(attributes).filter_map(|it| group(it.value)).collect())
}

/// The group of an element, whose key is the group twice.
fn group(element: &[u8]) -> Option<u32> {
    let key = attribute(attribute(element, 1)?, 1)?;
    key.get(..4)?.try_into().ok().map(u32::from_ne_bytes)
}

/// Lets the members of each of these groups reach each other; no error if they already may. One message has many groups,
/// since the replies to one message per group would not fit into the socket's buffer.
pub(super) fn admit(groups: &[u32]) -> impl Iterator<Item = Message> {
    groups.chunks(GROUPS_OF_MESSAGE).map(|it| elements(NFT_MSG_NEWSETELEM, NLM_F_CREATE, it))
}

/// Removes one group.
pub(super) fn withdraw(group: u32) -> Message {
    elements(NFT_MSG_DELSETELEM, 0, &[group])
}

fn elements(message: i32, flags: i32, groups: &[u32]) -> Message {
    let element = |it: Message, group: &u32| {
        let key = [group.to_ne_bytes(), group.to_ne_bytes()].concat();
        it.nest(1 | NESTED, |it| it.nest(1 | NESTED, |it| it.bytes(1, &key)))
    };
    messages::message(message, flags, INET)
        .text(1, TABLE)
        .text(2, MEMBERS)
        .nest(3 | NESTED, |it| groups.iter().fold(it, element))
}

fn chain(chain: &str) -> ChainRef<'_> {
    ChainRef { family: INET, table: TABLE, chain }
}

fn on_table(message: i32, flags: i32) -> Message {
    messages::message(message, flags, INET).text(1, TABLE)
}

/// Where the kernel calls a chain.
struct Hook {
    chain_type: &'static str,
    number: u32,
    priority: i32,
}

fn new_chain(name: &str, hook: &Hook) -> Message {
    messages::message(NFT_MSG_NEWCHAIN, NLM_F_CREATE, INET)
        .text(1, TABLE)
        .text(3, name)
        .nest(4 | NESTED, |it| it.number_be(1, hook.number).bytes(2, &hook.priority.to_be_bytes()))
        .number_be(5, 1)
        .text(7, hook.chain_type)
}

/// Creates the set of pairs of groups. Its key type only matters for the output of `nft`: two values of the type "device
/// group".
fn new_set() -> Message {
    const DEVICE_GROUP: u32 = 35;
    let key_type = DEVICE_GROUP << 6 | DEVICE_GROUP;
    messages::message(NFT_MSG_NEWSET, NLM_F_CREATE, INET)
        .text(1, TABLE)
        .text(2, MEMBERS)
        .number_be(3, 0)
        .number_be(4, key_type)
        .number_be(5, 8)
        .number_be(10, 1)
}
