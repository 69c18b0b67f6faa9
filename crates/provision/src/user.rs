//! Resolves the exec user from the request and the image's accounts.

use coracle_archive::transfer;
use coracle_runtime::ContainerRuntime;
use coracle_types::{ContainerId, ContainerPath, Ids};
use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// The requested exec user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum UserRequest {
    /// Both numbers.
    Ids(Ids),
    /// A uid. The image decides the group, which is otherwise the same number.
    Uid(u32),
    /// A name that the image has to contain.
    Name(String),
}

/// A text that is not a user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is not a user: a name, a uid, or `uid:gid`", .0.escape_debug())]
pub struct InvalidUser(String);

impl UserRequest {
    /// Parses `root`, `1000`, `1000:1000` or a name.
    ///
    /// # Errors
    /// [`InvalidUser`].
    pub fn parse(text: &str) -> Result<Self, InvalidUser> {
        let invalid = || InvalidUser(text.chars().take(100).collect());
        if text == "root" || text == "0" {
            return Ok(Self::Ids(Ids::ROOT));
        }
        if text.contains(':') {
            return Ids::parse(text).map(Self::Ids).map_err(|_| invalid());
        }
        if text.bytes().all(|it| it.is_ascii_digit()) {
            // The kernel reserves the highest number for "no user".
            return text.parse().ok().filter(|uid| *uid != u32::MAX).map(Self::Uid).ok_or_else(invalid);
        }
        let begins = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        let rest = text.chars().all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c));
        if begins && rest && text.len() <= 32 { Ok(Self::Name(text.to_owned())) } else { Err(invalid()) }
    }
}

impl TryFrom<String> for UserRequest {
    type Error = InvalidUser;
    fn try_from(text: String) -> Result<Self, InvalidUser> {
        Self::parse(&text)
    }
}

impl From<UserRequest> for String {
    fn from(it: UserRequest) -> Self {
        match it {
            UserRequest::Ids(ids) => ids.to_string(),
            UserRequest::Uid(uid) => uid.to_string(),
            UserRequest::Name(name) => name,
        }
    }
}

/// The users of an image, as far as its passwd file can be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accounts(Vec<Account>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Account {
    name: String,
    ids: Ids,
    home: Option<String>,
}

impl Accounts {
    /// Parses a passwd file. Invalid lines are ignored, since the image is not trusted.
    #[must_use]
    pub fn parse(passwd: &[u8]) -> Self {
        let text = String::from_utf8_lossy(passwd);
        let read = |line: &str| {
            let mut fields = line.split(':');
            let name = fields.next()?.to_owned();
            let uid = fields.nth(1)?.parse().ok()?;
            let ids = Ids { uid, gid: fields.next()?.parse().ok()? };
            let home = fields.nth(1).filter(|it| it.starts_with('/')).map(str::to_owned);
            Some(Account { name, ids, home })
        };
        Self(text.lines().filter_map(read).collect())
    }

    /// Resolves the request in this image.
    ///
    /// # Errors
    /// [`Error::UserNotFound`] for a name that the image does not contain.
    pub fn resolve(&self, request: &UserRequest) -> Result<Ids> {
        match request {
            UserRequest::Ids(ids) => Ok(*ids),
            UserRequest::Uid(uid) => {
                let known = self.0.iter().find(|it| it.ids.uid == *uid);
                Ok(known.map_or(Ids { uid: *uid, gid: *uid }, |it| it.ids))
            }
            UserRequest::Name(name) => {
                let known = self.0.iter().find(|it| it.name == *name);
                known.map(|it| it.ids).ok_or_else(|| Error::UserNotFound(name.clone()))
            }
        }
    }

    /// The home of a user, if the image has one.
    #[must_use]
    pub fn home(&self, uid: u32) -> Option<&str> {
        self.0.iter().find(|it| it.ids.uid == uid)?.home.as_deref()
    }
}

/// Maximum size of a passwd file.
const MAX_PASSWD: u64 = 1 << 20;

/// Reads the users of a container, running or not.
///
/// # Errors
/// If the engine does not answer. An image without the file has no users.
pub async fn accounts(runtime: &dyn ContainerRuntime, id: &ContainerId) -> Result<Accounts> {
    let cannot = |source| coracle_types::Error::Host { what: "cannot write a temporary file".into(), source };
    let dir = tempfile::tempdir().map_err(cannot)?;
    let spool = tempfile::tempfile().map_err(cannot)?;
    let passwd = ContainerPath::parse("/etc/passwd").expect("a plain path");
    let into = spool.try_clone().map_err(cannot)?;
    match runtime.download(id, &passwd, into, MAX_PASSWD + 4096).await {
        Ok(()) => {}
        Err(coracle_types::Error::Engine { .. }) => return Ok(Accounts::default()),
        Err(err) => return Err(err.into()),
    }
    let into = cap_std::fs::Dir::open_ambient_dir(dir.path(), cap_std::ambient_authority()).map_err(cannot)?;
    let mut spool = spool;
    std::io::Seek::rewind(&mut spool).map_err(cannot)?;
    let limits = transfer::Limits { max_bytes: MAX_PASSWD, max_entries: 1 };
    transfer::unpack(spool, &into, "passwd", limits).map_err(coracle_types::Error::from)?;
    Ok(Accounts::parse(&into.read("passwd").unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_names_uids_or_both_numbers() {
        let read = |text: &str| UserRequest::parse(text).map(String::from);
        for (text, same) in [("root", "0:0"), ("0", "0:0"), ("1000", "1000"), ("7:8", "7:8"), ("node", "node")] {
            assert_eq!(read(text).as_deref(), Ok(same));
        }
        for bad in [
            "",
            "x:y",
            "1:",
            ":1",
            "-u",
            "a b",
            "1000:1000:1",
            "99999999999",
            "4294967295",
            "7:4294967295",
            "a\n",
            "+1",
        ] {
            assert!(read(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn the_image_decides_names_and_groups() {
        let it = Accounts::parse(b"root:x:0:0::/root:/bin/sh\nbroken\nnode:x:1000:50::/home/node:\n\xff\n");
        let resolve = |text: &str| it.resolve(&UserRequest::parse(text).unwrap()).map(|it| it.to_string());
        assert_eq!(resolve("node").unwrap(), "1000:50");
        assert_eq!(resolve("1000").unwrap(), "1000:50");
        assert_eq!(resolve("1234").unwrap(), "1234:1234");
        assert!(matches!(resolve("nobody"), Err(Error::UserNotFound(_))));
        assert_eq!((it.home(1000), it.home(7)), (Some("/home/node"), None));
    }
}
