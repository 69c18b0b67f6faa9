//! The packet filter for all containers of this host: one table of the engine, and rules at the end of another program's
//! chain if that drops unknown packets.
//!
//! The rules match devices by the prefix of their name, which tells what they may reach (`link::Reach`). So no rule is needed
//! for a single container. Devices of one network have a common group number, and a set in the table has the numbers whose
//! members may reach each other.
//!
//! Another program may remove the table or its rules, as `nft flush ruleset` does. So each start of a container, and each
//! opening of the engine while containers have links, checks that all rules are installed.

mod expression;
mod forwarding;
mod messages;
mod table;

use std::io;

use super::link::PREFIX;
use super::netlink::Netlink;
use super::subnet;
use expression::Expression::{Accept, Counter, From, KnownMatch, To};
use forwarding::ForwardingDevices;
pub(super) use forwarding::host_forwards;
use messages::{ChainRef, Generation, IPV4};
use table::{FilterTable, HostDevices, Prefixes};

/// Maximum number of attempts to replace the table, each of which fails if the packet filter changes meanwhile.
const ATTEMPTS: usize = 20;

/// The comment of the engine's rules in tables of other programs. It has to change if the rules do.
const MARK: &str = "coracle links";

/// Installs the rules if one is missing, and lets the members of each of these groups reach each other.
///
/// # Errors
/// If the kernel refuses, for example because it has no packet filter.
pub(super) fn ensure(groups: &[u32]) -> io::Result<()> {
    let socket = Netlink::netfilter()?;
    install(&socket)?.apply()?;
    let admitted = table::groups(&socket)?;
    let missing: Vec<_> = groups.iter().copied().filter(|it| !admitted.contains(it)).collect();
    if !missing.is_empty() {
        socket.request(messages::batch(table::admit(&missing).collect()))?;
    }
    admit_to_filter(&socket)
}

/// Returns the devices that the table is for.
///
/// The groups of a replaced table are copied, since they may belong to other data directories. If the packet filter changes
/// after groups and devices were read, the generation shows it, and an outdated plan is not installed.
fn install(socket: &Netlink) -> io::Result<ForwardingDevices> {
    let prefixes = Prefixes::new();
    for _ in 0..ATTEMPTS {
        let generation = Generation::read(socket)?;
        let routes = subnet::read_routes()?;
        let uplinks = subnet::default_devices(&routes).into_iter().map(str::to_owned).collect();
        let forwarding = ForwardingDevices::plan(&routes)?;
        let devices = HostDevices { uplinks, guarded: forwarding.guarded.clone() };
        let table = FilterTable::new(&devices, &prefixes);
        if table.is_installed(socket)? {
            return Ok(forwarding);
        }
        let mut messages = table.install();
        messages.extend(table::admit(&table::groups(socket)?));
        match socket.request(messages::batch_since(generation, messages)) {
            Err(err) if err.raw_os_error() == Some(libc::ERESTART) => {}
            // The batch creates everything that its rules name, so what is missing is a kernel module for an expression.
            Err(err) if err.kind() == io::ErrorKind::NotFound => {
                return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
            }
            done => return done.map(|()| forwarding),
        }
    }
    Err(changes_too_often())
}

/// Removes the group of a removed network.
///
/// # Errors
/// If the kernel refuses.
pub(super) fn withdraw(group: u32) -> io::Result<()> {
    let socket = match Netlink::netfilter() {
        // Without a packet filter, there is nothing to remove.
        Err(err) if err.raw_os_error() == Some(libc::EPROTONOSUPPORT) => return Ok(()),
        socket => socket?,
    };
    match socket.request(messages::batch(vec![table::withdraw(group)])) {
        Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Docker and other programs drop unknown packets in this chain, and a packet has to pass all chains. So these rules accept
/// there what the engine's own table accepted. They are at the end of the chain, so they only override its policy: packets
/// that the administrator drops in the chain or in `DOCKER-USER` stay dropped.
fn admit_to_filter(socket: &Netlink) -> io::Result<()> {
    let chain = ChainRef { family: IPV4, table: "filter", chain: "FORWARD" };
    let (ours, theirs) = (From { prefix: PREFIX, is: true }, To { prefix: PREFIX, is: true });
    let rules = [&[ours, Counter, Accept][..], &[theirs, KnownMatch, Counter, Accept]];
    for _ in 0..ATTEMPTS {
        let generation = Generation::read(socket)?;
        if !messages::exists(socket, messages::get_chain(chain))?
            || messages::count_rules(socket, chain, MARK)? >= rules.len()
        {
            return Ok(());
        }
        let messages = rules.map(|it| messages::new_rule(chain, MARK, it));
        match socket.request(messages::batch_since(generation, messages.into())) {
            Err(err) if err.raw_os_error() == Some(libc::ERESTART) => {}
            done => return done,
        }
    }
    Err(changes_too_often())
}

fn changes_too_often() -> io::Error {
    io::Error::other("other programs keep changing the packet filter")
}

/// The groups whose members may reach each other.
#[cfg(test)]
pub(super) fn admitted() -> Vec<u32> {
    table::groups(&Netlink::netfilter().unwrap()).unwrap()
}

/// What other programs do to the rules.
#[cfg(test)]
pub(super) mod removal {
    use libc::{NFT_MSG_DELRULE, NFT_MSG_DELTABLE};

    use super::messages::{INET, batch, message};
    use super::table::TABLE;
    use crate::network::netlink::Netlink;

    /// As `nft flush table` does.
    pub(in crate::network) fn of_rules() {
        remove(NFT_MSG_DELRULE);
    }

    /// As `nft flush ruleset` does.
    pub(in crate::network) fn of_table() {
        remove(NFT_MSG_DELTABLE);
    }

    fn remove(kind: i32) {
        let removal = message(kind, 0, INET).text(1, TABLE);
        Netlink::netfilter().unwrap().request(batch(vec![removal])).unwrap();
    }
}
