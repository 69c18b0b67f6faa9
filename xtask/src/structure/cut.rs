//! Which edges to remove, so that a cycle is none any more, for the least work.

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

/// How many items each edge of the cycle stands for.
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
