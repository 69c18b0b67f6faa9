//! Requests that the proxy of a container refused, and the user's decisions about them.
//!
//! Each proxy has a file, beside its other state, that disappears with the container. The process of the proxy and those
//! of the user write it under a lock.
//!
//! **Invariant:** only the user's own commands decide. What the file does not clearly allow is refused.

mod approvals_file;
mod proxy_approvals;
mod rule_list;

pub use self::approvals_file::{ApprovalsFile, Choice, ContainerApprovals, Decided, RefusedRequest, all};
pub use self::proxy_approvals::{ProxiedContainer, ProxyApprovals};
pub use self::rule_list::RuleList;
