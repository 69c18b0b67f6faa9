//! No module and no crate that outgrows the others.
//!
//! A listed one has a ceiling with some room, so that not every change moves it; the ceiling follows when the size falls.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::{Outcome, head, numbers};
use crate::load::{Crate, ROOT, total_code};

/// Lines of code of a top-level module.
const MODULE: usize = 3000;

/// Lines of code of all crates together. `cargo xtask size` shows it; no test fails above it yet.
pub const CODE_LIMIT: usize = 112_000;

/// Per cent of the code of all crates that one crate may have.
pub const CRATE_LIMIT: usize = 12;

/// A size with the ceiling that holds for what is not listed.
struct Size {
    now: usize,
    limit: usize,
    /// The step of a ceiling.
    step: usize,
}

impl Size {
    /// The next step with one more for room.
    fn ceiling(&self) -> usize {
        (self.now / self.step + 2) * self.step
    }
}

pub(super) fn check(crates: &[Crate], list: &str) -> Outcome {
    let known = numbers(list);
    let sizes = sizes(crates);
    let (mut faults, mut remaining) = (vec![], head(list));
    for (key, size) in &sizes {
        let listed = known.get(key.as_str()).copied();
        let ceiling = listed.unwrap_or(size.limit);
        if size.now > ceiling {
            faults.push(format!("{key} {}: may be {ceiling} at most", size.now));
        }
        if let Some(listed) = listed.filter(|_| size.now > size.limit) {
            let _ = writeln!(remaining, "{key} {}", listed.min(size.ceiling()));
        }
        if listed.is_some_and(|it| size.now <= size.limit || it > size.ceiling() + 2 * size.step) {
            faults.push(format!("{key} {} is far below its {ceiling}; `cargo xtask ratchet` notes that", size.now));
        }
    }
    let gone = known.keys().filter(|it| !sizes.contains_key(**it));
    faults.extend(gone.map(|it| format!("{it} is gone; `cargo xtask ratchet` notes that")));
    Outcome { faults, list: remaining }
}

fn sizes(crates: &[Crate]) -> BTreeMap<String, Size> {
    let whole = total_code(crates);
    let mut sizes = BTreeMap::new();
    for it in crates {
        let share = (it.lines().code * 100).div_ceil(whole.max(1));
        sizes.insert(format!("per cent {}", it.name), Size { now: share, limit: CRATE_LIMIT, step: 1 });
        for (module, lines) in it.lines_by_module().into_iter().filter(|it| it.0 != ROOT) {
            sizes.insert(format!("lines {}/{module}", it.name), Size { now: lines.code, limit: MODULE, step: 100 });
        }
    }
    sizes
}

#[cfg(test)]
mod tests {
    use super::super::planted;
    use super::*;

    #[test]
    fn a_module_and_a_crate_that_grow_too_large_are_found() {
        let code = "fn it() {}\n".repeat(3001);
        let small = "fn it() {}\n".repeat(2999);
        let files = [("lib.rs", "mod big;\nmod small;"), ("big.rs", code.as_str()), ("small.rs", small.as_str())];
        let crates = [planted("big", &files), planted("little", &[("lib.rs", small.as_str())])];
        let faults = check(&crates, "per cent little 36\nlines big/big 9000\n").faults;
        assert_eq!(
            faults,
            [
                "lines big/big 3001 is far below its 9000; `cargo xtask ratchet` notes that",
                "per cent big 67: may be 12 at most"
            ]
        );
        assert_eq!(
            check(&crates, "per cent big 67\nper cent little 34\n").faults,
            ["lines big/big 3001: may be 3000 at most"]
        );
    }
}
