//! Messages to the kernel's packet filter.

use std::io;

use libc::{
    NFNL_BATCH_GENID, NFNL_SUBSYS_NFTABLES, NFT_MSG_GETCHAIN, NFT_MSG_GETGEN, NFT_MSG_GETRULE, NFT_MSG_NEWRULE,
    NLM_F_APPEND, NLM_F_CREATE, NLM_F_DUMP,
};

use super::super::netlink::{Message, NESTED, Netlink, attribute};
use super::expression::{self, Expression};

const UNSPECIFIED: u8 = 0;
pub(super) const INET: u8 = 1;
pub(super) const IPV4: u8 = 2;

const BATCH_BEGIN: u16 = 16;
const BATCH_END: u16 = 17;

/// The size of `struct nfgenmsg`, with which each message and reply begins.
pub(super) const HEADER_BYTES: usize = 4;

/// A chain of some table.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChainRef<'a> {
    pub(super) family: u8,
    pub(super) table: &'a str,
    pub(super) chain: &'a str,
}

/// A number that changes with each change of the packet filter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Generation(u32);

impl Generation {
    /// Reads the current generation.
    pub(super) fn read(socket: &Netlink) -> io::Result<Self> {
        let answers = match socket.dump(message(NFT_MSG_GETGEN, 0, INET)) {
            // The kernel has sockets of this protocol, but no packet filter.
            Err(err) if err.raw_os_error() == Some(libc::EINVAL) => {
                return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
            }
            answers => answers?,
        };
        let number = answers.iter().find_map(|it| attribute(it.get(HEADER_BYTES..)?, 1)?.try_into().ok());
        number.map(|it| Self(u32::from_be_bytes(it))).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

/// A request about objects of the packet filter.
pub(super) fn message(kind: i32, flags: i32, family: u8) -> Message {
    Message::new(kind_number(kind), flags, &header(family))
}

/// A request for a list of such objects.
pub(super) fn list(kind: i32, family: u8) -> Message {
    Message::unacknowledged(kind_number(kind), NLM_F_DUMP, &header(family))
}

/// A batch: the kernel executes all of these messages or none.
pub(super) fn batch(messages: Vec<Message>) -> Vec<Message> {
    [vec![end(BATCH_BEGIN)], messages, vec![end(BATCH_END)]].concat()
}

/// The same, but refused with `ERESTART` if the packet filter has changed since `generation`.
pub(super) fn batch_since(generation: Generation, messages: Vec<Message>) -> Vec<Message> {
    let attribute = u16::try_from(NFNL_BATCH_GENID).unwrap_or_default();
    [vec![end(BATCH_BEGIN).number_be(attribute, generation.0)], messages, vec![end(BATCH_END)]].concat()
}

/// Whether the requested object exists.
pub(super) fn exists(socket: &Netlink, get: Message) -> io::Result<bool> {
    match socket.request(vec![get]) {
        Ok(()) => Ok(true),
        Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(err) => Err(err),
    }
}

pub(super) fn get_chain(at: ChainRef<'_>) -> Message {
    message(NFT_MSG_GETCHAIN, 0, at.family).text(1, at.table).text(3, at.chain)
}

/// Appends a rule to a chain, with a comment that `nft` shows.
pub(super) fn new_rule(at: ChainRef<'_>, comment: &str, expressions: &[Expression<'_>]) -> Message {
    message(NFT_MSG_NEWRULE, NLM_F_CREATE | NLM_F_APPEND, at.family)
        .text(1, at.table)
        .text(2, at.chain)
        .nest(4 | NESTED, |it| expression::add(it, expressions))
        .bytes(7, &user_data(comment))
}

/// Counts the rules with a comment in a table, or in one of its chains.
pub(super) fn count_rules(socket: &Netlink, of: ChainRef<'_>, comment: &str) -> io::Result<usize> {
    let mut get = list(NFT_MSG_GETRULE, of.family).text(1, of.table);
    if !of.chain.is_empty() {
        get = get.text(2, of.chain);
    }
    let user_data = user_data(comment);
    let is_marked = |rule: &&Vec<u8>| attribute(rule.get(HEADER_BYTES..).unwrap_or_default(), 7) == Some(&user_data);
    Ok(socket.dump(get)?.iter().filter(is_marked).count())
}

/// Encodes a comment as `nft` does, as user data of type 0.
fn user_data(comment: &str) -> Vec<u8> {
    let length = u8::try_from(comment.len() + 1).unwrap_or_default();
    [&[0, length], comment.as_bytes(), &[0]].concat()
}

fn end(kind: u16) -> Message {
    let subsystem = u16::try_from(NFNL_SUBSYS_NFTABLES).unwrap_or_default().to_be_bytes();
    Message::unacknowledged(kind, 0, &[UNSPECIFIED, 0, subsystem[0], subsystem[1]])
}

/// `struct nfgenmsg`: family, version, and a number that these messages do not need.
fn header(family: u8) -> [u8; HEADER_BYTES] {
    [family, 0, 0, 0]
}

fn kind_number(kind: i32) -> u16 {
    u16::try_from(NFNL_SUBSYS_NFTABLES << 8 | kind).unwrap_or_default()
}
