//! Renders a container's `hosts` file, and updates it while it is in use.

use std::fs::File;
use std::io::{self, Read as _};
use std::net::IpAddr;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use crate::config::HostLine;

/// Lines between these two belong to the engine. Lines that a container adds outside of them stay.
const BEGIN: &str = "# members of the network";
const END: &str = "# end of the members";

/// Maximum size of a file to update. The container has changed a larger one, which is replaced.
const MAX_BYTES: u64 = 1 << 20;

/// The content of a hosts file, without the members of a network.
#[derive(Clone, Copy, Debug)]
pub(super) struct HostsText<'a> {
    pub(super) hostname: &'a str,
    /// The container's address.
    pub(super) address: Option<IpAddr>,
    /// The host's address, for lines without one.
    pub(super) host: Option<IpAddr>,
    pub(super) lines: &'a [HostLine],
}

/// Another member of a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MemberLine {
    pub(super) address: IpAddr,
    pub(super) names: Vec<String>,
}

impl HostsText<'_> {
    /// Renders the file. In a container without an address, its name resolves to loopback.
    pub(super) fn render(&self) -> String {
        let own = self.address.unwrap_or(IpAddr::from([127, 0, 0, 1]));
        let mut text = String::from("127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n");
        text.push_str(&format!("{own}\t{}\n", self.hostname));
        for HostLine { name, address } in self.lines {
            if let Some(address) = address.or(self.host) {
                text.push_str(&format!("{address}\t{name}\n"));
            }
        }
        text
    }
}

/// Returns the text with its members replaced.
pub(super) fn with_members(text: &str, members: &[MemberLine]) -> String {
    let mut lines = without_members(text);
    if members.is_empty() {
        return lines;
    }
    if !lines.is_empty() && !lines.ends_with('\n') {
        lines.push('\n');
    }
    lines.push_str(&format!("{BEGIN}\n"));
    for MemberLine { address, names } in members {
        lines.push_str(&format!("{address}\t{}\n", names.join(" ")));
    }
    lines.push_str(&format!("{END}\n"));
    lines
}

fn without_members(text: &str) -> String {
    let Some((before, rest)) = text.split_once(&format!("{BEGIN}\n")) else { return text.to_owned() };
    let after = rest.split_once(&format!("{END}\n")).map_or("", |it| it.1);
    format!("{before}{after}")
}

/// Updates the members in a file that is bound into a running container.
pub(super) fn update_members(file: &Path, members: &[MemberLine]) -> io::Result<()> {
    let mut bytes = Vec::new();
    File::open(file)?.take(MAX_BYTES).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let updated = with_members(&text, members);
    if updated == text { Ok(()) } else { write_in_place(&File::options().write(true).open(file)?, &updated) }
}

/// Replaces the content of a bound file in place, since a container would not see a renamed file. A shorter text is padded
/// with empty lines until the file is truncated, so that readers never see half a line.
pub(super) fn write_in_place(file: &File, text: &str) -> io::Result<()> {
    let old = usize::try_from(file.metadata()?.len().min(MAX_BYTES)).unwrap_or_default();
    let mut padded = text.as_bytes().to_vec();
    padded.resize(text.len().max(old), b'\n');
    file.write_all_at(&padded, 0)?;
    // The container may have appended to the file meanwhile.
    file.set_len(text.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(name: &str, address: Option<&str>) -> HostLine {
        HostLine { name: name.into(), address: address.map(|it| it.parse().unwrap()) }
    }

    fn member(address: &str, names: &[&str]) -> MemberLine {
        MemberLine { address: address.parse().unwrap(), names: names.iter().map(|it| (*it).to_owned()).collect() }
    }

    #[test]
    fn a_line_without_an_address_is_the_hosts_and_is_left_out_where_the_host_cannot_be_reached() {
        let lines = [line("db", Some("10.0.0.9")), line("up", None)];
        let address = Some("10.211.0.2".parse().unwrap());
        let text = |host: Option<&str>| {
            HostsText { hostname: "web", address, host: host.map(|it| it.parse().unwrap()), lines: &lines }.render()
        };
        assert!(text(Some("10.211.0.1")).ends_with("\n10.211.0.2\tweb\n10.0.0.9\tdb\n10.211.0.1\tup\n"));
        assert!(text(None).ends_with("10.0.0.9\tdb\n"));
    }

    #[test]
    fn members_replace_members_and_what_the_container_wrote_stays() {
        let one = with_members("127.0.0.1\tlocalhost\n", &[member("10.224.0.2", &["web", "web-1"])]);
        assert!(one.contains("10.224.0.2\tweb web-1\n"));
        let both = with_members(&format!("{one}1.2.3.4\tmine"), &[member("10.224.0.3", &["db"])]);
        assert!(
            both.contains("1.2.3.4\tmine\n") && both.contains("10.224.0.3\tdb\n") && !both.contains("web"),
            "{both}"
        );
        assert_eq!(with_members(&both, &[]), "127.0.0.1\tlocalhost\n1.2.3.4\tmine\n");
    }

    #[test]
    fn a_shorter_text_takes_the_place_of_a_longer_one_in_the_same_file() {
        use std::os::unix::fs::MetadataExt as _;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("hosts");
        let file = File::create(&path).unwrap();
        write_in_place(&file, "a longer text\n").unwrap();
        let inode = path.metadata().unwrap().ino();
        write_in_place(&file, "short\n").unwrap();
        assert_eq!(
            (std::fs::read_to_string(&path).unwrap().as_str(), path.metadata().unwrap().ino()),
            ("short\n", inode)
        );
    }
}
