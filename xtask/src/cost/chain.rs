//! The compilations that have to wait for each other.

use std::collections::BTreeMap;

use super::record::Compilation;

/// The chain of dependencies with the largest sum of CPU seconds, in the order of compilation.
///
/// Cargo starts a crate as soon as the interfaces of its dependencies are known, so a build can be a little faster.
pub(super) fn longest(compilations: &[Compilation]) -> Vec<&Compilation> {
    let by_id: BTreeMap<&str, &Compilation> = compilations.iter().map(|it| (it.id.as_str(), it)).collect();
    let mut chains = Chains { by_id: &by_id, known: BTreeMap::new() };
    let ends = by_id.keys().map(|it| (chains.seconds(it), *it));
    let mut next = ends.max_by(|a, b| a.0.total_cmp(&b.0)).map(|it| it.1);
    let mut chain = vec![];
    while let Some(compilation) = next.and_then(|it| by_id.get(it)) {
        chain.push(*compilation);
        next = chains.known.get(compilation.id.as_str()).and_then(|it| it.before);
    }
    chain.reverse();
    chain
}

/// The longest chain that ends with a compilation.
struct Chain<'a> {
    seconds: f64,
    before: Option<&'a str>,
}

struct Chains<'a, 'b> {
    by_id: &'b BTreeMap<&'a str, &'a Compilation>,
    known: BTreeMap<&'a str, Chain<'a>>,
}

impl<'a> Chains<'a, '_> {
    fn seconds(&mut self, id: &str) -> f64 {
        let Some(compilation) = self.by_id.get(id).copied() else { return 0.0 }; // a crate of the compiler's own
        if let Some(chain) = self.known.get(id) {
            return chain.seconds;
        }
        let mut longest = Chain { seconds: compilation.cpu, before: None };
        for before in &compilation.needs {
            let seconds = compilation.cpu + self.seconds(before);
            if seconds > longest.seconds {
                longest = Chain { seconds, before: Some(before) };
            }
        }
        let seconds = longest.seconds;
        self.known.insert(&compilation.id, longest);
        seconds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chain_with_the_largest_sum_is_found() {
        let compilation = |id: &str, cpu, needs: &[&str]| {
            let needs = needs.iter().map(|it| (*it).to_owned()).collect();
            Compilation { package: id.to_owned(), cpu, id: id.to_owned(), needs }
        };
        let all = [
            compilation("end", 1.0, &["short", "long", "elsewhere"]),
            compilation("short", 5.0, &[]),
            compilation("long", 3.0, &["base"]),
            compilation("base", 4.0, &[]),
        ];
        let names: Vec<&str> = longest(&all).into_iter().map(|it| it.package.as_str()).collect();
        assert_eq!(names, ["base", "long", "end"]);
        assert!(longest(&[]).is_empty());
    }
}
