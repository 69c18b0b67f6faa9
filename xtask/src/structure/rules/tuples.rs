//! No parameter like `(a, b): (&A, &B)`: what belongs together is a struct with a name, what does not is two parameters.
//!
//! Counted by crate, for functions are renamed and moved all the time.

use super::Outcome;
use super::counts::Offenders;
use crate::load::Crate;

pub(super) fn check(crates: &[Crate], list: &str) -> Outcome {
    let mut found = Offenders::default();
    for loaded in crates {
        for (at, module) in loaded.modules.iter().enumerate() {
            for it in module.facts.functions.iter().filter(|it| it.takes_tuple_of_references) {
                found.add(&loaded.name, format!("`{}` {}:{}", it.name, loaded.file_of(at), it.line));
            }
        }
    }
    found.compare(list, |_| "pass a struct with a name instead of a tuple of references".to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::planted;
    use super::*;

    #[test]
    fn a_tuple_of_references_as_a_parameter_is_found() {
        let code = "
            fn one((a, b): (&A, &mut B)) {}
            fn two((a, b): (u8, u8), c: (&A, &B), d: &[(&A, &B)]) {}
            impl A { fn three(&self, (a, b): (&A, u8)) {} }
            impl Trait for A { fn four((a, b): (&A, &B)) {} }
            fn five() { pairs.map(|(a, b): (&A, &B)| a) }
            #[test]
            fn six((a, b): (&A, &B)) {}";
        let fault = "one: 2, known 1; pass a struct with a name instead of a tuple of references (`one` src/lib.rs:2, `three` src/lib.rs:4)";
        assert_eq!(check(&[planted("one", &[("lib.rs", code)])], "one 1\n").faults, [fault]);
    }
}
