//! The user of a command inside.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::InvalidName;

/// A user and a group by number, written `uid:gid`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Ids {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

impl Ids {
    /// Root inside the container.
    pub const ROOT: Self = Self { uid: 0, gid: 0 };

    /// Reads `uid:gid`.
    ///
    /// # Errors
    /// [`InvalidName`] for anything else.
    pub fn parse(text: &str) -> Result<Self, InvalidName> {
        // The kernel reserves the highest number for "no change".
        let is_number = |it: &u32| *it != u32::MAX;
        let number =
            |it: &str| it.bytes().all(|b| b.is_ascii_digit()).then(|| it.parse().ok().filter(is_number)).flatten();
        text.split_once(':')
            .and_then(|(uid, gid)| Some(Self { uid: number(uid)?, gid: number(gid)? }))
            .ok_or_else(|| InvalidName::new("a user and group", text, "`uid:gid` as numbers"))
    }

    /// Whether it is uid 0.
    #[must_use]
    pub fn is_root(self) -> bool {
        self.uid == 0
    }
}

impl TryFrom<String> for Ids {
    type Error = InvalidName;
    fn try_from(text: String) -> Result<Self, InvalidName> {
        Self::parse(&text)
    }
}

impl From<Ids> for String {
    fn from(it: Ids) -> Self {
        it.to_string()
    }
}

impl fmt::Display for Ids {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.uid, self.gid)
    }
}
