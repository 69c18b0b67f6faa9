//! A large cluster on paper: what Kubernetes has to carry for a number of sandboxes. Pure.
//!
//! Constants name where they come from. The page prints them beside the results.

use std::fmt::Write as _;

use crate::bench::{number, whole};

/// Sandboxes that are there at once, and how long one lives.
pub(super) struct Demand {
    pub(super) sandboxes: f64,
    pub(super) life_seconds: f64,
}

/// One kind of node, and what a sandbox asks of it.
pub(super) struct NodeShape {
    cores: f64,
    memory_gib: f64,
    /// Cores of a request.
    request_cores: f64,
    request_gib: f64,
}

/// A cluster's speed, measured or assumed.
pub(super) struct ClusterSpeed {
    /// Pods a second that the scheduler binds.
    pub(super) scheduler: f64,
    /// Seconds from the request to a Pod that answers, where a node has room.
    pub(super) cold_start: f64,
}

/// Pods of a node that Kubernetes is tested with (limits of its scalability group).
const PODS_PER_NODE: f64 = 110.0;

/// Pods of a namespace (the same).
const PODS_PER_NAMESPACE: f64 = 3_000.0;

/// Nodes and Pods of a cluster (the same).
const NODES: f64 = 5_000.0;
const PODS: f64 = 150_000.0;

/// Writes into etcd in a Pod's life: create, bind, three of its status, delete, and two of its Events.
const WRITES: f64 = 8.0;

/// Requests to the API server in a sandbox's life: create, two until it is ready, attach, exec of the link, delete.
const REQUESTS: f64 = 6.0;

/// Commands of a busy sandbox: one every ten seconds.
const COMMANDS_PER_SECOND: f64 = 0.1;

/// Standard deviations of Poisson arrivals that a pool covers: one refill in 700 runs dry.
const POOL_DEVIATIONS: f64 = 3.0;

/// Seconds until a cloud has another node: what a pool has to bridge where the cluster grows on demand.
const NEW_NODE_SECONDS: f64 = 45.0;

pub(super) const SHAPE: NodeShape = NodeShape { cores: 32.0, memory_gib: 128.0, request_cores: 0.25, request_gib: 0.5 };

impl NodeShape {
    /// Sandboxes of a node: what runs out first.
    fn sandboxes(&self) -> f64 {
        let (by_cores, by_memory) = (self.cores / self.request_cores, self.memory_gib / self.request_gib);
        PODS_PER_NODE.min(by_cores).min(by_memory).floor()
    }
}

impl Demand {
    /// Sandboxes that begin in a second, as many as end.
    fn arrivals(&self) -> f64 {
        self.sandboxes / self.life_seconds
    }

    fn nodes(&self) -> f64 {
        (self.sandboxes / SHAPE.sandboxes()).ceil()
    }

    fn namespaces(&self) -> f64 {
        (self.sandboxes / PODS_PER_NAMESPACE).ceil()
    }

    /// Clusters, by what a cluster is tested with.
    fn clusters(&self) -> f64 {
        (self.sandboxes / PODS).max(self.nodes() / NODES).ceil()
    }

    /// Pods that wait ready, so that an arrival does not wait for `seconds` of a refill.
    fn pool(&self, seconds: f64) -> f64 {
        let due = self.arrivals() * seconds;
        (due + POOL_DEVIATIONS * due.sqrt()).ceil()
    }
}

/// Rows of one column for each demand.
pub(super) fn table(page: &mut String, demands: &[Demand], speed: &ClusterSpeed) {
    let heads: Vec<_> =
        demands.iter().map(|it| format!("{}, {}", whole(it.sandboxes), life(it.life_seconds))).collect();
    let _ = writeln!(page, "| sandboxes at once, life of one | {} |", heads.join(" | "));
    let _ = writeln!(page, "|---|{}", "--:|".repeat(demands.len()));
    let mut row = |label: &str, cell: &dyn Fn(&Demand) -> String| {
        let cells: Vec<_> = demands.iter().map(cell).collect();
        let _ = writeln!(page, "| {label} | {} |", cells.join(" | "));
    };
    row("nodes of 32 cores, 128 GiB", &|it| whole(it.nodes()));
    row("cores in all", &|it| whole(it.nodes() * SHAPE.cores));
    row("clusters, by tested limits", &|it| whole(it.clusters()));
    row("namespaces, by tested limits", &|it| whole(it.namespaces()));
    row("sandboxes that begin, a second", &|it| number(it.arrivals()));
    row("share of the scheduler", &|it| format!("{} %", number(100.0 * it.arrivals() / speed.scheduler)));
    row("requests to the API server, a second", &|it| number(it.arrivals() * REQUESTS));
    row("the same with one exec for each command", &|it| {
        number(it.arrivals() * REQUESTS + it.sandboxes * COMMANDS_PER_SECOND)
    });
    row("writes into etcd, a second", &|it| number(it.arrivals() * WRITES));
    row("links, one for each sandbox in use", &|it| whole(it.sandboxes));
    row("Pods of a pool, where nodes have room", &|it| whole(it.pool(speed.cold_start)));
    row("Pods of a pool, where nodes come on demand", &|it| whole(it.pool(speed.cold_start + NEW_NODE_SECONDS)));
}

/// What the table rests on.
pub(super) fn assumptions(page: &mut String, speed: &ClusterSpeed) {
    let _ = write!(
        page,
        "- A sandbox requests {} cores and {} GiB: {} on a node, where at most {} are tested.\n\
         - The scheduler binds {} Pods a second, as measured above; a Pod answers {} s after its request.\n\
         - {WRITES} writes into etcd and {REQUESTS} requests to the API server in a Pod's life; a command every {} s, over the link, \
         which costs the API server bytes and no request.\n\
         - A pool covers {POOL_DEVIATIONS} standard deviations of arrivals that know nothing of each other; a new node takes {} s.\n\
         - {} Pods a namespace, {} nodes and {} Pods a cluster: thresholds of Kubernetes' SIG Scalability.\n\
         - Cost: cores in all, by the price of a core; the control plane adds three machines of the nodes' size.\n",
        number(SHAPE.request_cores),
        number(SHAPE.request_gib),
        whole(SHAPE.sandboxes()),
        whole(PODS_PER_NODE),
        number(speed.scheduler),
        number(speed.cold_start),
        whole(1.0 / COMMANDS_PER_SECOND),
        whole(NEW_NODE_SECONDS),
        whole(PODS_PER_NAMESPACE),
        whole(NODES),
        whole(PODS),
    );
}

fn life(seconds: f64) -> String {
    if seconds < 120.0 { format!("{seconds} s") } else { format!("{} min", whole(seconds / 60.0)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_thousand_sandboxes_of_ten_minutes() {
        let demand = Demand { sandboxes: 10_000.0, life_seconds: 600.0 };
        assert_eq!(
            (SHAPE.sandboxes(), demand.nodes(), demand.namespaces(), demand.clusters()),
            (110.0, 91.0, 4.0, 1.0)
        );
        assert_eq!(number(demand.arrivals()), "16.7");
        // 45 arrivals a second and a start of 1.2 s: 54 are due, and 3 × √54 more wait.
        let busy = Demand { sandboxes: 27_000.0, life_seconds: 600.0 };
        assert_eq!(busy.pool(1.2), 77.0);
    }

    #[test]
    fn the_scarcest_of_a_node_decides() {
        let shape = NodeShape { cores: 4.0, memory_gib: 128.0, request_cores: 0.25, request_gib: 0.5 };
        assert_eq!(shape.sandboxes(), 16.0);
        let shape = NodeShape { memory_gib: 2.0, ..shape };
        assert_eq!(shape.sandboxes(), 4.0);
    }

    #[test]
    fn the_table_has_a_column_for_each_demand() {
        let demands = [600.0, 60.0].map(|life_seconds| Demand { sandboxes: 100_000.0, life_seconds });
        let mut page = String::new();
        table(&mut page, &demands, &ClusterSpeed { scheduler: 100.0, cold_start: 1.0 });
        for row in [
            "| sandboxes at once, life of one | 100,000, 10 min | 100,000, 60 s |\n|---|--:|--:|\n",
            "| nodes of 32 cores, 128 GiB | 910 | 910 |",
            "| share of the scheduler | 167 % | 1667 % |",
            "| links, one for each sandbox in use | 100,000 | 100,000 |",
        ] {
            assert!(page.contains(row), "{row}: {page}");
        }
    }
}
