//! A copy of a body that passes.

use coracle_types::{Redactor, StreamRedactor};
use sha2::{Digest as _, Sha256};

use super::exchange::{Missing, RecordedBody};
use super::recorder::RecordSpace;

/// What has passed of a body: its hash, and its bytes as far as there is space for them.
pub(crate) struct Capture {
    hash: Sha256,
    bytes: u64,
    stored: Vec<u8>,
    missing: Option<Missing>,
    placeholders: Option<StreamRedactor>,
    trailers: Vec<[String; 2]>,
    has_ended: bool,
}

/// A body that has passed.
#[derive(Debug)]
pub(crate) struct CapturedBody {
    pub(crate) body: RecordedBody,
    pub(crate) stored: Vec<u8>,
    pub(crate) trailers: Vec<[String; 2]>,
}

impl Capture {
    /// Of a request, whose placeholders are replaced; of an answer without a redactor.
    pub(crate) fn new(placeholders: Option<&Redactor>) -> Self {
        let placeholders = placeholders.filter(|it| !it.is_empty()).map(Redactor::sieve);
        Self {
            hash: Sha256::new(),
            bytes: 0,
            stored: Vec::new(),
            missing: None,
            placeholders,
            trailers: Vec::new(),
            has_ended: false,
        }
    }

    /// Adds a piece.
    pub(crate) fn push(&mut self, piece: &[u8], space: &RecordSpace) {
        match &mut self.placeholders {
            Some(placeholders) => {
                let clean = placeholders.push(piece);
                self.add(&clean, space);
            }
            None => self.add(piece, space),
        }
    }

    fn add(&mut self, piece: &[u8], space: &RecordSpace) {
        self.hash.update(piece);
        self.bytes += piece.len() as u64;
        if self.missing.is_none() {
            match space.take(self.bytes, piece.len() as u64) {
                Ok(()) => self.stored.extend_from_slice(piece),
                Err(missing) => self.leave_out(missing, space),
            }
        }
    }

    /// Stores nothing of it.
    pub(crate) fn leave_out(&mut self, missing: Missing, space: &RecordSpace) {
        space.give_back(self.stored.len() as u64);
        (self.stored, self.missing) = (Vec::new(), Some(missing));
    }

    /// Notes the length of one that was not seen.
    pub(crate) fn not_seen(&mut self, bytes: u64) {
        (self.bytes, self.missing) = (bytes, Some(Missing::NotSeen));
    }

    /// Adds the headers after it.
    pub(crate) fn trailers(&mut self, trailers: Vec<[String; 2]>) {
        self.trailers = trailers;
    }

    /// Notes its end.
    pub(crate) fn end(&mut self) {
        self.has_ended = true;
    }

    /// Returns what has passed.
    pub(crate) fn finish(mut self, space: &RecordSpace) -> CapturedBody {
        if let Some(placeholders) = self.placeholders.take() {
            let rest = placeholders.end();
            self.add(&rest, space);
        }
        let sha256 = match self.missing {
            Some(Missing::NotSeen) => String::new(),
            _ => hex::encode(self.hash.finalize()),
        };
        let missing = self.missing.or((!self.has_ended).then_some(Missing::EndedEarly));
        let body = RecordedBody { bytes: self.bytes, sha256, missing };
        CapturedBody { body, stored: self.stored, trailers: self.trailers }
    }
}
