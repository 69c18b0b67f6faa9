//! Sparse files: the maps of GNU tar's formats.

use super::header::number;
use super::pax::{Record, decimal};

/// A part of a file that has content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Where it begins, in bytes.
    pub offset: u64,
    /// Bytes of it.
    pub length: u64,
}

/// Maximum number of extents in a map.
pub(super) const MAX_EXTENTS: usize = 1 << 20;

/// Whether the extents ascend, do not overlap, are within the file, and have as many bytes as are stored.
pub(super) fn is_valid(extents: &[Extent], size: u64, stored: u64) -> bool {
    let mut end = 0u64;
    let mut total = 0u64;
    for it in extents {
        let Some(next) = it.offset.checked_add(it.length) else { return false };
        if it.offset < end || next > size {
            return false;
        }
        end = next;
        total += it.length;
    }
    total == stored
}

/// Parses the pairs of an old GNU header or of one of its extensions. `None` for an invalid number.
pub(super) fn push_pairs(extents: &mut Vec<Extent>, pairs: &[u8]) -> Option<()> {
    for pair in pairs.chunks_exact(24) {
        // An empty pair ends the list; a last extent without length marks a hole at the end.
        if pair[0] == 0 || pair[12] == 0 {
            continue;
        }
        let field = |field: &[u8]| u64::try_from(number(field)?).ok();
        extents.push(Extent { offset: field(&pair[..12])?, length: field(&pair[12..])? });
    }
    Some(())
}

/// Properties of a sparse file in the records of a PAX header.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PaxSparse {
    pub(super) name: Option<Vec<u8>>,
    pub(super) size: Option<u64>,
    /// The map, in the formats that have it here.
    pub(super) map: Option<Vec<Extent>>,
    /// Format 1.0: the map precedes the content.
    pub(super) map_in_content: bool,
}

impl PaxSparse {
    /// `None` for a file without holes; `Some(None)` for an invalid map.
    pub(super) fn from_records(records: &[Record<'_>]) -> Option<Option<Self>> {
        let has = records.iter().any(|it| it.key.starts_with(b"GNU.sparse."));
        has.then(|| Self::parse(records))
    }

    fn parse(records: &[Record<'_>]) -> Option<Self> {
        let mut it = Self::default();
        let mut pairs: Vec<u64> = Vec::new();
        for Record { key, value } in records {
            match *key {
                b"GNU.sparse.name" => it.name = Some(value.to_vec()),
                b"GNU.sparse.size" | b"GNU.sparse.realsize" => it.size = Some(decimal(value)?),
                b"GNU.sparse.offset" | b"GNU.sparse.numbytes" => pairs.push(decimal(value)?),
                b"GNU.sparse.map" => pairs = value.split(|it| *it == b',').map(decimal).collect::<Option<_>>()?,
                b"GNU.sparse.major" => it.map_in_content = *value == b"1",
                _ => {}
            }
        }
        if !it.map_in_content {
            it.map = Some(extents(&pairs)?);
        }
        Some(it)
    }
}

/// Extents of numbers in pairs.
pub(super) fn extents(numbers: &[u64]) -> Option<Vec<Extent>> {
    let is_whole = numbers.len().is_multiple_of(2) && numbers.len() / 2 <= MAX_EXTENTS;
    is_whole.then(|| numbers.chunks_exact(2).map(|it| Extent { offset: it[0], length: it[1] }).collect())
}
