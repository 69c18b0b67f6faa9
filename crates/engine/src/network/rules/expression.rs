//! Expressions of the kernel's packet filter, as `nft --debug=netlink` shows them.

use super::super::netlink::{Message, NESTED};

/// Flags and kinds of `linux/netfilter/nf_tables.h`.
mod attribute {
    pub(super) const LIST_ELEM: u16 = 1;
    pub(super) const EXPR_NAME: u16 = 1;
    pub(super) const EXPR_DATA: u16 = 2;
    pub(super) const DATA_VALUE: u16 = 1;
    pub(super) const DATA_VERDICT: u16 = 2;
    pub(super) const VERDICT_CODE: u16 = 1;
}

/// The set of pairs of groups whose devices may reach each other.
pub(super) const MEMBERS: &str = "members";

/// Registers: that of the verdict, and the first two of 4 bytes.
const VERDICT: u32 = 0;
const FIRST: u32 = 8;
const SECOND: u32 = 9;

/// Text of 16 bytes or fewer needs the first register of 16 bytes, which begins where `FIRST` does.
const FIRST_WIDE: u32 = 1;

/// A condition or an action of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expression<'a> {
    /// The incoming device's name begins with `prefix`, or does not.
    From { prefix: &'a str, is: bool },
    /// The outgoing device's name begins with `prefix`, or does not.
    To { prefix: &'a str, is: bool },
    /// The incoming device has this name.
    FromDevice(&'a str),
    /// The outgoing device is a bridge.
    ToBridge,
    /// The outgoing device has another name.
    NotTo(&'a str),
    /// The pair of both devices' groups is in the set.
    BetweenMembers,
    /// The packet belongs to an established connection or is related to one.
    Known,
    /// `Known` in the form of `iptables`, which refuses to work with a table that has the other form.
    KnownMatch,
    /// The destination of the connection was translated.
    Redirected,
    /// The packet is an IPv4 packet.
    Ipv4,
    /// A reply to the packet's source would leave by another device than the one by which the packet arrived.
    FromElsewhere,
    /// The protocol (ICMP, UDP or TCP), by number.
    Protocol(u8),
    /// The destination port.
    Port(u16),
    /// Counts packets, which `iptables` requires in its tables.
    Counter,
    /// Accepts the packet in this chain.
    Accept,
    /// Rejects the packet as "administratively prohibited".
    Reject,
    /// Drops the packet.
    Drop,
    /// Replaces the source address by the host's.
    Masquerade,
}

const META_IIFNAME: u32 = 6;
const META_OIFNAME: u32 = 7;
const META_NFPROTO: u32 = 15;
const META_L4PROTO: u32 = 16;
const META_IIFGROUP: u32 = 21;
const META_OIFGROUP: u32 = 22;
const META_OIFKIND: u32 = 27;
const CT_STATE: u32 = 0;
const CT_KNOWN: u32 = 0b110;
const CT_STATUS: u32 = 2;
const IPS_DST_NAT: u32 = 1 << 5;
const NFPROTO_IPV4: u8 = 2;
const EQUAL: u32 = 0;
const NOT_EQUAL: u32 = 1;
const TRANSPORT_HEADER: u32 = 2;
const REJECT_ICMPX: u32 = 2;
const ADMIN_PROHIBITED: u8 = 3;

/// Adds expressions as elements of a rule's list.
pub(super) fn add(message: Message, expressions: &[Expression<'_>]) -> Message {
    expressions.iter().fold(message, |message, it| one(message, *it))
}

fn one(message: Message, expression: Expression<'_>) -> Message {
    let compare = |is| if is { EQUAL } else { NOT_EQUAL };
    match expression {
        Expression::From { prefix, is } => named(message, META_IIFNAME, prefix.as_bytes(), compare(is)),
        Expression::To { prefix, is } => named(message, META_OIFNAME, prefix.as_bytes(), compare(is)),
        Expression::ToBridge => named(message, META_OIFKIND, &padded("bridge"), EQUAL),
        Expression::NotTo(name) => named(message, META_OIFNAME, &padded(name), NOT_EQUAL),
        Expression::BetweenMembers => lookup(meta(meta(message, META_IIFGROUP, FIRST), META_OIFGROUP, SECOND)),
        Expression::FromDevice(name) => named(message, META_IIFNAME, &padded(name), EQUAL),
        Expression::Known => connection(message, CT_STATE, CT_KNOWN),
        Expression::KnownMatch => {
            element(message, "match", |it| it.text(1, "conntrack").number_be(2, 3).bytes(3, &known_match()))
        }
        Expression::Redirected => connection(message, CT_STATUS, IPS_DST_NAT),
        Expression::Ipv4 => cmp(meta(message, META_NFPROTO, FIRST), FIRST, EQUAL, &[NFPROTO_IPV4]),
        Expression::Protocol(number) => cmp(meta(message, META_L4PROTO, FIRST), FIRST, EQUAL, &[number]),
        Expression::Port(number) => port(message, number),
        Expression::FromElsewhere => from_elsewhere(message),
        Expression::Counter => element(message, "counter", |it| it),
        Expression::Accept => verdict(message, 1),
        Expression::Drop => verdict(message, 0),
        Expression::Reject => {
            element(message, "reject", |it| it.number_be(1, REJECT_ICMPX).bytes(2, &[ADMIN_PROHIBITED]))
        }
        Expression::Masquerade => element(message, "masq", |it| it),
    }
}

fn element(message: Message, name: &str, data: impl FnOnce(Message) -> Message) -> Message {
    message.nest(attribute::LIST_ELEM | NESTED, |it| {
        it.text(attribute::EXPR_NAME, name).nest(attribute::EXPR_DATA | NESTED, data)
    })
}

fn meta(message: Message, key: u32, register: u32) -> Message {
    element(message, "meta", |it| it.number_be(1, register).number_be(2, key))
}

fn cmp(message: Message, register: u32, operation: u32, value: &[u8]) -> Message {
    element(message, "cmp", |it| {
        let it = it.number_be(1, register).number_be(2, operation);
        it.nest(3 | NESTED, |it| it.bytes(attribute::DATA_VALUE, value))
    })
}

fn named(message: Message, key: u32, value: &[u8], operation: u32) -> Message {
    cmp(meta(message, key, FIRST_WIDE), FIRST_WIDE, operation, value)
}

fn padded(text: &str) -> [u8; 16] {
    let mut bytes = [0; 16];
    let count = text.len().min(15);
    bytes[..count].copy_from_slice(&text.as_bytes()[..count]);
    bytes
}

fn lookup(message: Message) -> Message {
    element(message, "lookup", |it| it.text(1, MEMBERS).number_be(2, FIRST).number_be(4, 1))
}

/// Compares whether a number of the connection has one of these bits.
fn connection(message: Message, key: u32, bits: u32) -> Message {
    let message = element(message, "ct", |it| it.number_be(1, FIRST).number_be(2, key));
    let message = element(message, "bitwise", |it| {
        let it = it.number_be(1, FIRST).number_be(2, FIRST).number_be(3, 4);
        let it = it.nest(4 | NESTED, |it| it.bytes(attribute::DATA_VALUE, &bits.to_ne_bytes()));
        it.nest(5 | NESTED, |it| it.bytes(attribute::DATA_VALUE, &[0; 4]))
    });
    cmp(message, FIRST, NOT_EQUAL, &[0; 4])
}

/// `struct xt_conntrack_mtinfo3`, with the kernel's padding, to compare only the state.
fn known_match() -> [u8; 168] {
    const MATCH_FLAGS: usize = 146;
    const STATE_MASK: usize = 150;
    const COMPARE_STATE: u16 = 1;
    let mut info = [0; 168];
    info[MATCH_FLAGS..MATCH_FLAGS + 2].copy_from_slice(&COMPARE_STATE.to_ne_bytes());
    let [low, high, ..] = CT_KNOWN.to_le_bytes();
    info[STATE_MASK..STATE_MASK + 2].copy_from_slice(&u16::from_le_bytes([low, high]).to_ne_bytes());
    info
}

/// `fib saddr . iif oif missing`.
fn from_elsewhere(message: Message) -> Message {
    const RESULT_DEVICE: u32 = 1;
    const SOURCE_ADDRESS: u32 = 1 << 0;
    const INCOMING_DEVICE: u32 = 1 << 3;
    let flags = SOURCE_ADDRESS | INCOMING_DEVICE;
    let lookup = |it: Message| it.number_be(1, FIRST).number_be(2, RESULT_DEVICE).number_be(3, flags);
    cmp(element(message, "fib", lookup), FIRST, EQUAL, &[0; 4])
}

fn port(message: Message, number: u16) -> Message {
    let message = element(message, "payload", |it| {
        it.number_be(1, FIRST).number_be(2, TRANSPORT_HEADER).number_be(3, 2).number_be(4, 2)
    });
    cmp(message, FIRST, EQUAL, &number.to_be_bytes())
}

fn verdict(message: Message, code: u32) -> Message {
    element(message, "immediate", |it| {
        it.number_be(1, VERDICT).nest(2 | NESTED, |it| {
            it.nest(attribute::DATA_VERDICT | NESTED, |it| it.number_be(attribute::VERDICT_CODE, code))
        })
    })
}
