//! The packet filter of all containers of this host: one table of ours, made once, and an admission at the end of the chain
//! of others that drop what they do not know.
//!
//! The rules name devices by what they reach (`link::Reach`), so a container needs none of its own. Members of a
//! network have a number in common, and the table's set holds the numbers whose members may reach each other.
//!
//! Another program may remove the table or its rules, as `nft flush ruleset` does. So each start of a container, and each
//! opening of the engine while containers have links, verifies that all rules are there.

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

/// How often the packet filter may change under an attempt to replace the table.
const ATTEMPTS: usize = 20;

/// The comment of our rules in a table of others; another one with other rules.
const MARK: &str = "coracle links";

/// Makes the rules if one of them is not there, and admits the members of each of these groups to each other.
///
/// # Errors
/// What the kernel refuses, as one without a packet filter does.
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
/// A table that is replaced keeps its groups, which may be those of other data directories. Groups and devices are read
/// before, so a change in between is noticed by the generation: a plan that is older than the table does not replace it.
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
            // The batch makes what its rules name: what is not there is an expression of the kernel's.
            Err(err) if err.kind() == io::ErrorKind::NotFound => {
                return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
            }
            done => return done.map(|()| forwarding),
        }
    }
    Err(changes_too_often())
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
    match socket.request(messages::batch(vec![table::withdraw(group)])) {
        Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Docker and others drop what they do not know in this chain, and a packet has to pass all chains. So this one lets pass
/// what our own table let pass. At the end of the chain, these rules change its policy for our packets: what the
/// administrator drops in it or in `DOCKER-USER` stays dropped.
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
