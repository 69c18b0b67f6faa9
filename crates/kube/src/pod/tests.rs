//! The Pods of requests, as snapshots.
