//! Strongly connected components of a graph, by Tarjan's algorithm.

use std::collections::BTreeMap;

use crate::dependencies::Graph;

/// The sets of nodes that reach each other, largest first, without those of one node.
pub fn cycles(graph: &Graph) -> Vec<Vec<&str>> {
    let mut search = Search { graph, states: BTreeMap::new(), stack: vec![], found: vec![] };
    for node in graph.keys() {
        if !search.states.contains_key(node.as_str()) {
            search.visit(node);
        }
    }
    search.found.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
    search.found
}

struct State {
    index: usize,
    is_on_stack: bool,
}

struct Search<'a> {
    graph: &'a Graph,
    states: BTreeMap<&'a str, State>,
    stack: Vec<&'a str>,
    found: Vec<Vec<&'a str>>,
}

impl<'a> Search<'a> {
    /// Returns the earliest node that `node` reaches.
    fn visit(&mut self, node: &'a str) -> usize {
        let index = self.states.len();
        self.states.insert(node, State { index, is_on_stack: true });
        self.stack.push(node);
        let mut low = index;
        for next in self.graph.get(node).into_iter().flatten().map(|it| it.0) {
            match self.states.get(next.as_str()) {
                None => low = low.min(self.visit(next)),
                Some(it) if it.is_on_stack => low = low.min(it.index),
                Some(_) => {}
            }
        }
        if low == index {
            self.close(node);
        }
        low
    }

    /// Takes the component that begins at `node` from the stack.
    fn close(&mut self, node: &str) {
        let start = self.stack.iter().rposition(|it| *it == node).unwrap_or(0);
        let mut component = self.stack.split_off(start);
        for it in &component {
            if let Some(state) = self.states.get_mut(it) {
                state.is_on_stack = false;
            }
        }
        if component.len() > 1 {
            component.sort_unstable();
            self.found.push(component);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(edges: &[(&str, &str)]) -> Graph {
        let mut graph = Graph::new();
        for (from, to) in edges {
            graph.entry((*to).to_owned()).or_default();
            graph.entry((*from).to_owned()).or_default().insert((*to).to_owned(), vec![]);
        }
        graph
    }

    #[test]
    fn nodes_that_reach_each_other_are_one_cycle() {
        let found =
            graph(&[("a", "b"), ("b", "c"), ("c", "b"), ("c", "d"), ("d", "e"), ("e", "f"), ("f", "d"), ("f", "a")]);
        assert_eq!(cycles(&found), [["a", "b", "c", "d", "e", "f"]]);
        let found = graph(&[("a", "b"), ("b", "c"), ("c", "b"), ("c", "d"), ("d", "e"), ("e", "f"), ("f", "d")]);
        assert_eq!(cycles(&found), [vec!["d", "e", "f"], vec!["b", "c"]]);
    }

    #[test]
    fn a_graph_without_cycles_has_none() {
        assert_eq!(cycles(&graph(&[("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")])), Vec::<Vec<&str>>::new());
    }
}
