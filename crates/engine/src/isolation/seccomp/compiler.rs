//! Compiles a table of system calls to a BPF program for the kernel.
//!
//! Adjacent calls with the same action form a range, and a binary search finds a call's range in eight steps. When a
//! filter is installed, the kernel runs it once for each system call and caches the calls that are always allowed.
//! Installing takes 0.08 ms with the search tree, and 0.37 ms with a linear list of comparisons, which existing crates
//! generate. A cached call takes 13 ns more than without a filter, in both cases.

use libc::{ENOSYS, c_long, sock_filter};

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;

pub(super) const LOAD: u16 = 0x20;
pub(super) const JUMP: u16 = 0x05;
pub(super) const IF_EQUAL: u16 = 0x15;
pub(super) const IF_AT_LEAST: u16 = 0x35;
pub(super) const IF_ANY_BIT: u16 = 0x45;
const RETURN: u16 = 0x06;

pub(super) const ALLOW: u32 = 0x7fff_0000;
pub(super) const REFUSE: u32 = 0x0005_0000;

const NUMBER_AT: u32 = 0;
const ARCHITECTURE_AT: u32 = 4;
/// The lower half of the first argument; both architectures are little-endian. All calls with conditions take 32 bits.
const ARGUMENT_AT: u32 = 16;

/// What the filter does with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Allow,
    /// The call fails with this error.
    Refuse(i32),
    /// Allowed if its first argument meets the condition, else this error.
    If(ArgumentCondition, i32),
}

/// A condition for the first argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ArgumentCondition {
    NoBits(u32),
    OneOf(&'static [u32]),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Rule {
    pub(super) name: &'static str,
    pub(super) call: c_long,
    pub(super) action: Action,
}

/// Calls from `first` up to the next range.
struct Range {
    first: u32,
    action: Action,
}

/// Compiles a table with one action for each call number. Higher numbers and other architectures fail with `ENOSYS`.
pub(super) fn compile(table: &[Action]) -> Vec<sock_filter> {
    let mut program =
        vec![step(LOAD, ARCHITECTURE_AT), jump(IF_EQUAL, ARCHITECTURE, 1, 0), refuse(ENOSYS), step(LOAD, NUMBER_AT)];
    program.append(&mut tree(&ranges(table)));
    program
}

#[expect(clippy::cast_possible_truncation, reason = "a few hundred calls")]
fn ranges(table: &[Action]) -> Vec<Range> {
    let all = table.iter().copied().chain([Action::Refuse(ENOSYS)]);
    let mut ranges: Vec<Range> = Vec::new();
    for (number, action) in all.enumerate() {
        if ranges.last().is_none_or(|it| it.action != action) {
            ranges.push(Range { first: number as u32, action });
        }
    }
    ranges
}

/// The lower half follows the comparison, then the upper half. A conditional jump reaches 255 steps, an unconditional
/// one any.
#[expect(clippy::cast_possible_truncation, reason = "the whole program is a few hundred steps")]
fn tree(ranges: &[Range]) -> Vec<sock_filter> {
    match ranges {
        [] => Vec::new(),
        [range] => range.action.steps(),
        _ => {
            let (lower, upper) = ranges.split_at(ranges.len() / 2);
            let first = upper[0].first;
            let (mut lower, mut upper) = (tree(lower), tree(upper));
            let mut steps = match u8::try_from(lower.len()) {
                Ok(over) => vec![jump(IF_AT_LEAST, first, over, 0)],
                Err(_) => vec![jump(IF_AT_LEAST, first, 0, 1), step(JUMP, lower.len() as u32)],
            };
            steps.append(&mut lower);
            steps.append(&mut upper);
            steps
        }
    }
}

impl Action {
    fn steps(self) -> Vec<sock_filter> {
        match self {
            Self::Allow => vec![step(RETURN, ALLOW)],
            Self::Refuse(errno) => vec![refuse(errno)],
            Self::If(condition, errno) => {
                let mut steps = vec![step(LOAD, ARGUMENT_AT)];
                condition.append_to(&mut steps);
                steps.extend([refuse(errno), step(RETURN, ALLOW)]);
                steps
            }
        }
    }
}

impl ArgumentCondition {
    /// Appends steps that skip the next one if the condition is met.
    #[expect(clippy::cast_possible_truncation, reason = "lists are short")]
    fn append_to(self, steps: &mut Vec<sock_filter>) {
        match self {
            Self::NoBits(bits) => steps.push(jump(IF_ANY_BIT, bits, 0, 1)),
            Self::OneOf(values) => {
                let tests = values.iter().enumerate();
                steps.extend(tests.map(|(at, value)| jump(IF_EQUAL, *value, (values.len() - at) as u8, 0)));
            }
        }
    }
}

fn step(code: u16, k: u32) -> sock_filter {
    jump(code, k, 0, 0)
}

fn jump(code: u16, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code, jt, jf, k }
}

fn refuse(errno: i32) -> sock_filter {
    step(RETURN, REFUSE | errno.cast_unsigned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_table_needs_unconditional_jumps() {
        let action = |number: i32| if number % 2 == 0 { Action::Allow } else { Action::Refuse(number) };
        let table: Vec<_> = (0..2000).map(action).collect();
        let program = compile(&table);
        assert!(program.iter().any(|it| it.code == JUMP));
        for (number, action) in (0..2000).zip(&table) {
            let expected = match action {
                Action::Refuse(errno) => Some(*errno),
                _ => None,
            };
            assert_eq!(super::super::tests::answer(&program, ARCHITECTURE, number, [0; 6]), expected, "{number}");
        }
    }
}
