//! Parses the progress of a package manager from its output.

/// Counters of one installation. They are 0 until the manager prints them.
#[derive(Debug, Default)]
pub(super) struct InstalledPackages {
    total: usize,
    downloaded: usize,
    unpacked: usize,
    installed: usize,
}

impl InstalledPackages {
    /// Parses a line of apt, apk, dnf or microdnf.
    pub(super) fn take(&mut self, line: &str) {
        let line = line.trim();
        if let Some((upgraded, rest)) = line.split_once(" upgraded, ")
            && let Some((new, _)) = rest.split_once(" newly installed")
            && let (Ok(upgraded), Ok(new)) = (upgraded.parse::<usize>(), new.parse::<usize>())
        {
            self.total = upgraded + new;
        } else if line.starts_with("Get:") {
            self.downloaded += 1;
        } else if line.starts_with("Unpacking ") {
            self.unpacked += 1;
        } else if line.starts_with("Setting up ") {
            self.installed += 1;
        } else if let Some((done, total)) = counted(line) {
            (self.installed, self.total) = (done, total);
        }
    }

    /// Renders `unpacked 12 of 57`; none before the first package.
    pub(super) fn text(&self) -> Option<String> {
        let of = |done: usize, what: &str| {
            let total = if self.total < done { String::new() } else { format!(" of {}", self.total) };
            (done > 0).then(|| format!("{what} {done}{total}"))
        };
        let latest = [(self.installed, "installed"), (self.unpacked, "unpacked"), (self.downloaded, "downloaded")];
        latest.into_iter().find_map(|(done, what)| of(done, what))
    }
}

/// apk prints `(3/57) Installing …`, dnf `Installing : name 3/57`.
fn counted(line: &str) -> Option<(usize, usize)> {
    let installs = line.contains("Installing");
    let word = match line.strip_prefix('(') {
        Some(rest) => rest.split_once(')')?.0,
        None => line.rsplit(' ').next()?,
    };
    let (done, total) = word.split_once('/').filter(|_| installs)?;
    Some((done.parse().ok()?, total.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_after(lines: &[&str]) -> Option<String> {
        let mut packages = InstalledPackages::default();
        lines.iter().for_each(|line| packages.take(line));
        packages.text()
    }

    #[test]
    fn every_manager_is_counted() {
        let total = "2 upgraded, 55 newly installed, 0 to remove and 3 not upgraded.";
        let (download, unpack) =
            ("Get:1 http://deb.debian.org/debian bookworm/main git 1:2.39", "Unpacking git (2.39) ...");
        for (lines, expected) in [
            (&["Reading package lists...", total][..], None),
            (&[total, download, download], Some("downloaded 2 of 57")),
            (&[total, download, unpack], Some("unpacked 1 of 57")),
            (&[total, unpack, "Setting up git (2.39) ..."], Some("installed 1 of 57")),
            (&[unpack], Some("unpacked 1")),
            (&["(3/57) Installing git (2.45-r0)", "Executing busybox.trigger"], Some("installed 3 of 57")),
            (&["  Installing       : git-2.43-1.x86_64       12/57 "], Some("installed 12 of 57")),
            (&["Verifying        : git-2.43-1.x86_64       12/57 "], None),
        ] {
            assert_eq!(text_after(lines).as_deref(), expected, "{lines:?}");
        }
    }
}
