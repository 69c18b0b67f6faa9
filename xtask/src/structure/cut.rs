//! Finds the edges to remove from a cycle with the least work.

use std::collections::BTreeMap;

use crate::dependencies::{Graph, items};

/// Edges without which the nodes of a cycle can be ordered; few items behind them. A good answer, not proven the best.
pub fn cut<'a>(graph: &'a Graph, cycle: &[&'a str]) -> Vec<(&'a str, &'a str)> {
    let costs = Costs::of(graph, cycle);
    let mut order = costs.greedy(cycle);
    while costs.improve(&mut order) {}
    let place: BTreeMap<&str, usize> = order.iter().enumerate().map(|(at, it)| (*it, at)).collect();
    costs.0.keys().copied().filter(|(from, to)| place[from] > place[to]).collect()
}

/// Number of items of each edge of the cycle.
struct Costs<'a>(BTreeMap<(&'a str, &'a str), usize>);

impl<'a> Costs<'a> {
    fn of(graph: &'a Graph, cycle: &[&'a str]) -> Self {
        let edges = graph.iter().flat_map(|(from, edges)| edges.iter().map(move |(to, uses)| (from, to, uses)));
        let inside = edges.filter(|(from, to, _)| cycle.contains(&from.as_str()) && cycle.contains(&to.as_str()));
        Self(inside.map(|(from, to, uses)| ((from.as_str(), to.as_str()), items(uses).len())).collect())
    }

    fn cost(&self, from: &str, to: &str) -> isize {
        self.0.get(&(from, to)).map_or(0, |it| it.cast_signed())
    }

    /// Users first, used ones last: again and again the node whose uses outweigh those of it the most.
    fn greedy(&self, cycle: &[&'a str]) -> Vec<&'a str> {
        let (mut left, mut order) = (cycle.to_vec(), vec![]);
        while !left.is_empty() {
            let surplus = |node: &str| -> isize {
                let others = left.iter().filter(|it| **it != node);
                others.map(|it| self.cost(node, it) - self.cost(it, node)).sum()
            };
            let best = (0..left.len()).max_by_key(|it| surplus(left[*it])).unwrap_or(0);
            order.push(left.remove(best));
        }
        order
    }

    /// Moves one node to where the edges that go back cost less; false when none can.
    fn improve(&self, order: &mut Vec<&'a str>) -> bool {
        for at in 0..order.len() {
            let node = order[at];
            let (mut gain, mut best) = (0, (0, at));
            for target in (0..at).rev() {
                gain += self.cost(order[target], node) - self.cost(node, order[target]);
                best = best.min((gain, target));
            }
            gain = 0;
            for (target, other) in order.iter().enumerate().skip(at + 1) {
                gain += self.cost(node, other) - self.cost(other, node);
                best = best.min((gain, target));
            }
            if best.0 < 0 {
                order.remove(at);
                order.insert(best.1, node);
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cycles::cycles;
    use crate::dependencies::Dependency;

    /// An edge for which `items` items have to move.
    fn edge(items: usize) -> Vec<Dependency> {
        let uses = |it: usize| Dependency { from: 0, to: 1, item: it.to_string(), line: 1, text: String::new() };
        (0..items).map(uses).collect()
    }

    fn graph(edges: &[(&str, &str, usize)]) -> Graph {
        let mut graph = Graph::new();
        for (from, to, items) in edges {
            graph.entry((*to).to_owned()).or_default();
            graph.entry((*from).to_owned()).or_default().insert((*to).to_owned(), edge(*items));
        }
        graph
    }

    #[test]
    fn the_edge_with_the_fewest_items_is_cut() {
        let found = graph(&[("a", "b", 5), ("b", "c", 4), ("c", "a", 1), ("c", "b", 2), ("d", "a", 9)]);
        assert_eq!(cut(&found, &["a", "b", "c"]), [("c", "a"), ("c", "b")]);
    }

    #[test]
    fn no_cycle_is_left_without_the_edges_to_cut() {
        let names = ["a", "b", "c", "d", "e", "f"];
        let pairs =
            (0..36).map(|it| (names[it / 6], names[it % 6], (it * 7) % 5)).filter(|it| it.0 != it.1 && it.2 > 0);
        let mut found = graph(&pairs.collect::<Vec<_>>());
        let cuts: Vec<(String, String)> =
            cut(&found, &names).into_iter().map(|(from, to)| (from.to_owned(), to.to_owned())).collect();
        for (from, to) in cuts {
            found.get_mut(&from).expect("an edge of the graph").remove(&to);
        }
        assert_eq!(cycles(&found), Vec::<Vec<&str>>::new());
    }
}
