//! Names the process that a file of the data directory belongs to, so that other processes know when it has died.
//!
//! A lock of the file would not do: child processes inherit it, and hold it until they execute their program.

use std::sync::OnceLock;

use coracle_types::{ProcessId, boot_id};

/// The name of this process. It contains no `.`, so that file names can append to it.
pub(crate) fn this_process() -> &'static str {
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(|| render(&ProcessId::current()))
}

/// Whether the named process has ended. `None` if the text names no process.
pub(crate) fn has_died(owner: &str) -> Option<bool> {
    parse(owner).map(|it| !it.alive())
}

/// Whether the process that created a file has ended. The file's name begins with the process's name and a dot.
pub(crate) fn maker_has_died(name: &str) -> bool {
    name.split_once('.').and_then(|it| has_died(it.0)).unwrap_or(true)
}

fn render(process: &ProcessId) -> String {
    format!("{}-{}-{}", process.pid, process.start, digits(&process.boot))
}

fn parse(text: &str) -> Option<ProcessId> {
    let mut parts = text.split('-');
    let (pid, start, boot) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?, parts.next()?);
    let boot = if boot == digits(boot_id()) { boot_id() } else { boot };
    parts.next().is_none().then(|| ProcessId { pid, start, boot: boot.to_owned() })
}

/// The id of a boot without its dashes.
fn digits(boot: &str) -> String {
    boot.replace('-', "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_of_another_boot_or_start_has_died() {
        let me = ProcessId::current();
        assert_eq!(has_died(this_process()), Some(false));
        assert_eq!(has_died(&render(&ProcessId { start: me.start + 1, ..me.clone() })), Some(true));
        assert_eq!(has_died(&render(&ProcessId { boot: "c0ffee".into(), ..me })), Some(true));
        for text in ["", "1", "1-2", "1-2-3-4", "x-2-3"] {
            assert_eq!(has_died(text), None, "{text}");
        }
    }
}
