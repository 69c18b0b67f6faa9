//! Resolves the dependencies of a set of packages among the installed ones. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::dpkg_status::Package;

/// Packages with all their dependencies.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Closure<'p> {
    pub(super) packages: BTreeMap<&'p str, &'p Package<'p>>,
    /// Dependencies that no installed package satisfies, as `package: a | b`: the host's own packages are broken.
    pub(super) unmet: Vec<String>,
}

/// Returns the closure of `seeds` over `packages`. Seeds that are not installed are ignored.
///
/// Of alternatives, the first installed one is used, where a package's own name precedes provided names.
pub(super) fn closure<'p>(packages: &'p [Package<'p>], seeds: &[&str]) -> Closure<'p> {
    let by_name: BTreeMap<&str, &Package<'_>> = packages.iter().map(|it| (it.name, it)).collect();
    let providers: BTreeMap<&str, &Package<'_>> =
        packages.iter().rev().flat_map(|it| it.provides.iter().map(move |name| (*name, it))).collect();
    let find = |group: &[&str]| {
        let named = group.iter().find_map(|it| by_name.get(it));
        named.or_else(|| group.iter().find_map(|it| providers.get(it))).copied()
    };
    let mut all = Closure::default();
    let mut unmet = BTreeSet::new();
    let mut next: Vec<&Package<'_>> = seeds.iter().filter_map(|it| by_name.get(it).copied()).collect();
    while let Some(package) = next.pop() {
        if all.packages.insert(package.name, package).is_some() {
            continue;
        }
        for group in &package.needs {
            match find(group) {
                Some(needed) => next.push(needed),
                None => drop(unmet.insert(format!("{}: {}", package.name, group.join(" | ")))),
            }
        }
    }
    all.unmet = unmet.into_iter().collect();
    all
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::base::dpkg_status::installed;

    fn stanza(name: &str, fields: &str) -> String {
        format!("Package: {name}\nStatus: install ok installed\nArchitecture: amd64\nVersion: 1\n{fields}")
    }

    #[test]
    fn alternatives_virtual_packages_and_circles_are_followed() {
        let table = [
            ("a", "Depends: missing | b, virtual", "a b c p"),
            ("b", "Pre-Depends: c (>= 2)", "b c"),
            ("c", "Depends: b:any", "b c"),
            ("p", "Provides: virtual (= 1), second", "p"),
            ("q", "Provides: virtual", "q"),
            ("named", "Depends: second | q", "named q"),
        ];
        let status = table.map(|(name, fields, _)| stanza(name, fields)).join("\n\n");
        let packages = installed(&status);
        for (seed, _, expected) in table {
            let found = closure(&packages, &[seed, "not-there"]);
            let names: Vec<_> = found.packages.keys().copied().collect();
            assert_eq!((names.join(" ").as_str(), found.unmet), (expected, Vec::new()), "{seed}");
        }
    }

    #[test]
    fn unsatisfied_dependencies_are_reported() {
        let status = stanza("a", "Depends: x | y, z");
        assert_eq!(closure(&installed(&status), &["a"]).unmet, ["a: x | y", "a: z"]);
    }

    proptest! {
        #[test]
        fn a_closure_is_closed_and_minimal(
            edges in proptest::collection::vec((0usize..12, 0usize..12), 0..40),
            seeds in proptest::collection::vec(0usize..12, 1..4),
        ) {
            let names: Vec<String> = (0..12).map(|it| format!("p{it}")).collect();
            let needs = |at: usize| edges.iter().filter(move |it| it.0 == at).map(|it| it.1);
            let text: Vec<_> = (0..12)
                .map(|at| stanza(&names[at], &format!("Depends: {}", needs(at).map(|it| format!("p{it}")).collect::<Vec<_>>().join(", "))))
                .collect();
            let status = text.join("\n\n");
            let packages = installed(&status);
            let wanted: Vec<_> = seeds.iter().map(|it| names[*it].as_str()).collect();
            let found = closure(&packages, &wanted);
            for package in found.packages.values() {
                prop_assert!(package.needs.iter().all(|group| found.packages.contains_key(group[0])));
                let needed = found.packages.values().any(|it| it.needs.iter().any(|group| group[0] == package.name));
                prop_assert!(needed || wanted.contains(&package.name));
            }
            prop_assert!(wanted.iter().all(|it| found.packages.contains_key(it)));
        }
    }
}
