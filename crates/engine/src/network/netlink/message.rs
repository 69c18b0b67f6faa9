//! Encodes and decodes netlink messages.

use libc::{NLM_F_ACK, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR, NLMSG_NOOP};

/// The flag of an attribute that holds attributes.
pub(in crate::network) const NESTED: u16 = 1 << 15;

const HEADER_BYTES: usize = 16;

/// One request: a header, a fixed part, and attributes.
#[derive(Clone, Debug)]
pub(in crate::network) struct Message {
    bytes: Vec<u8>,
    acknowledged: bool,
}

impl Message {
    /// A request that is acknowledged. `fixed` is the structure after the header.
    pub(in crate::network) fn new(kind: u16, flags: i32, fixed: &[u8]) -> Self {
        Self::with_flags(kind, flags | NLM_F_ACK, fixed)
    }

    /// A request without an acknowledgement: the ends of a batch, and dumps.
    pub(in crate::network) fn unacknowledged(kind: u16, flags: i32, fixed: &[u8]) -> Self {
        Self { acknowledged: false, ..Self::with_flags(kind, flags, fixed) }
    }

    fn with_flags(kind: u16, flags: i32, fixed: &[u8]) -> Self {
        let flags = u16::try_from(flags | NLM_F_REQUEST).unwrap_or_default();
        let mut bytes = vec![0; 4];
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(flags.to_ne_bytes());
        bytes.extend([0; 8]);
        bytes.extend(fixed);
        Self { bytes, acknowledged: true }
    }

    /// Adds an attribute.
    pub(in crate::network) fn bytes(mut self, kind: u16, value: &[u8]) -> Self {
        self.put(kind, value);
        self
    }

    /// Adds text that ends with a NUL.
    pub(in crate::network) fn text(self, kind: u16, value: &str) -> Self {
        self.bytes(kind, &[value.as_bytes(), &[0]].concat())
    }

    /// Adds a number in native byte order.
    pub(in crate::network) fn number(self, kind: u16, value: u32) -> Self {
        self.bytes(kind, &value.to_ne_bytes())
    }

    /// Adds a number in network byte order, as the packet filter uses it.
    pub(in crate::network) fn number_be(self, kind: u16, value: u32) -> Self {
        self.bytes(kind, &value.to_be_bytes())
    }

    /// Adds an attribute that holds what `content` adds.
    pub(in crate::network) fn nest(mut self, kind: u16, content: impl FnOnce(Self) -> Self) -> Self {
        let begin = self.bytes.len();
        self.put(kind, &[]);
        let mut it = content(self);
        let count = u16::try_from(it.bytes.len() - begin).unwrap_or(u16::MAX);
        it.bytes[begin..begin + 2].copy_from_slice(&count.to_ne_bytes());
        it
    }

    /// Adds a structure without an attribute header: some attributes begin with one.
    pub(in crate::network) fn raw(mut self, value: &[u8]) -> Self {
        self.bytes.extend(value);
        self.pad();
        self
    }

    fn put(&mut self, kind: u16, value: &[u8]) {
        let count = u16::try_from(value.len() + 4).unwrap_or(u16::MAX);
        self.bytes.extend(count.to_ne_bytes());
        self.bytes.extend(kind.to_ne_bytes());
        self.bytes.extend(value);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

/// Encodes messages as one packet. Also returns the number of acknowledgements to expect.
pub(super) fn packet(messages: Vec<Message>) -> (Vec<u8>, usize) {
    let expected = messages.iter().filter(|it| it.acknowledged).count();
    let mut packet = Vec::new();
    for (at, Message { mut bytes, .. }) in messages.into_iter().enumerate() {
        let (count, sequence) = (u32::try_from(bytes.len()), u32::try_from(at + 1));
        bytes[..4].copy_from_slice(&count.unwrap_or(u32::MAX).to_ne_bytes());
        bytes[8..12].copy_from_slice(&sequence.unwrap_or(u32::MAX).to_ne_bytes());
        packet.extend(bytes);
    }
    (packet, expected)
}

/// One message from the kernel.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NetlinkReply<'a> {
    /// An acknowledgement (0) or an error number.
    Status(i32),
    /// The end of a dump.
    Done,
    /// An object, without the header.
    Object(&'a [u8]),
}

/// Decodes the messages of a received packet, up to the first truncated one.
pub(super) fn answers(mut packet: &[u8]) -> Vec<NetlinkReply<'_>> {
    let mut answers = Vec::new();
    while let Some((count, kind)) = header(packet) {
        let body = &packet[HEADER_BYTES..count];
        match i32::from(kind) {
            NLMSG_NOOP => {}
            NLMSG_DONE => answers.push(NetlinkReply::Done),
            NLMSG_ERROR => answers.push(NetlinkReply::Status(status(body))),
            _ => answers.push(NetlinkReply::Object(body)),
        }
        packet = packet.get(count.next_multiple_of(4)..).unwrap_or_default();
    }
    answers
}

fn header(packet: &[u8]) -> Option<(usize, u16)> {
    let count = u32::from_ne_bytes(packet.get(..4)?.try_into().ok()?);
    let kind = u16::from_ne_bytes(packet.get(4..6)?.try_into().ok()?);
    let count = usize::try_from(count).ok().filter(|it| (HEADER_BYTES..=packet.len()).contains(it))?;
    Some((count, kind))
}

/// An attribute of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::network) struct Attribute<'a> {
    kind: u16,
    pub(in crate::network) value: &'a [u8],
}

/// Decodes the attributes after an object's fixed part or within another attribute, up to the first truncated one.
pub(in crate::network) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = Attribute<'_>> {
    std::iter::from_fn(move || {
        let count = usize::from(u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?));
        let kind = u16::from_ne_bytes(bytes.get(2..4)?.try_into().ok()?) & !NESTED;
        let value = bytes.get(4..count)?;
        bytes = bytes.get(count.next_multiple_of(4)..).unwrap_or_default();
        Some(Attribute { kind, value })
    })
}

/// The value of the first attribute of this kind.
pub(in crate::network) fn attribute(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(bytes).find(|it| it.kind == kind).map(|it| it.value)
}

fn status(body: &[u8]) -> i32 {
    let number = body.get(..4).and_then(|it| it.try_into().ok()).map_or(-libc::EPROTO, i32::from_ne_bytes);
    -number
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_aligned_and_nested_ones_count_their_content() {
        let message = Message::new(16, 0, &[7; 4]).text(3, "eth0").nest(18, |it| it.bytes(1, b"veth!").number(2, 5));
        let (packet, expected) = packet(vec![message]);
        assert_eq!((expected, packet.len(), packet.len() % 4), (1, 16 + 4 + 12 + 4 + 12 + 8, 0));
        assert_eq!(u32::from_ne_bytes(packet[..4].try_into().unwrap()) as usize, packet.len());
        assert_eq!(&packet[20..29], [&9_u16.to_ne_bytes()[..], &3_u16.to_ne_bytes(), b"eth0\0"].concat());
        assert_eq!(packet[32..34], 24_u16.to_ne_bytes());
    }

    #[test]
    fn an_attribute_is_found_behind_others_and_a_cut_one_is_not() {
        let bytes = Message::new(16, 0, &[]).text(3, "eth0").number(2, 5).bytes;
        let attributes = &bytes[HEADER_BYTES..];
        assert_eq!(attribute(attributes, 2), Some(&5_u32.to_ne_bytes()[..]));
        assert_eq!(attribute(attributes, 7), None);
        assert_eq!(attribute(&attributes[..attributes.len() - 1], 2), None);
        assert_eq!(attribute(&[0; 8], 2), None);
    }

    #[test]
    fn answers_end_at_a_cut_message() {
        let status = |errno: i32| {
            let body = (-errno).to_ne_bytes();
            [&20_u32.to_ne_bytes()[..], &2_u16.to_ne_bytes(), &[0; 10], &body].concat()
        };
        let mut packet = [status(0), status(libc::EEXIST)].concat();
        assert_eq!(answers(&packet), [NetlinkReply::Status(0), NetlinkReply::Status(libc::EEXIST)]);
        packet.truncate(39);
        assert_eq!(answers(&packet), [NetlinkReply::Status(0)]);
    }
}
