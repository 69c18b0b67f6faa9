//! What has to hold for every byte that either side of a link may receive.

use std::fmt::Debug;

use coracle_protocol::codec::take;
use coracle_protocol::{MAX_HEADER, MAX_PAYLOAD};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Reads frames to the end or to the first that is none. What was read can be said again and means the same, and nothing
/// was allocated beyond the limits.
///
/// # Panics
/// When that does not hold.
pub fn all<T>(mut bytes: &[u8])
where
    T: Serialize + DeserializeOwned + Default + Debug + PartialEq,
{
    while let Ok(Some(frame)) = take::<T>(&mut bytes) {
        assert!(frame.payload.capacity() <= MAX_PAYLOAD, "{} bytes of payload", frame.payload.capacity());
        // A header of the longest kind may leave out what we would say.
        if serde_json::to_vec(&frame.head).expect("a header has string keys only").len() > MAX_HEADER {
            continue;
        }
        let mut said = Vec::new();
        frame.write_to(&mut said);
        let mut rest = said.as_slice();
        let again = take::<T>(&mut rest).expect("what we say is a frame").expect("and not the end");
        assert_eq!(again, frame);
        assert!(rest.is_empty(), "{} bytes too many", rest.len());
    }
}
