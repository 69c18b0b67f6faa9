//! Current metrics of the containers.

use std::sync::atomic::AtomicU64;

use coracle::UsageReading;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use super::Labels;

/// The metrics of these containers; that they could not be read.
pub(super) fn registry(readings: Option<&[UsageReading]>) -> Registry {
    let mut registry = Registry::with_prefix("coracle");
    let readable = Gauge::<i64>::default();
    readable.set(readings.is_some().into());
    let help = "1 if the engines answered and the other metrics of containers are there, else 0";
    registry.register("containers_readable", help, readable);
    if let Some(readings) = readings {
        register_counts(&mut registry, readings);
        register_usage(&mut registry, readings);
    }
    registry
}

fn register_counts(registry: &mut Registry, readings: &[UsageReading]) {
    let (containers, jobs) = (Family::<Labels<2>, Gauge>::default(), Gauge::<i64>::default());
    for it in readings {
        containers.get_or_create(&[("engine", it.engine.to_owned()), ("state", it.state.clone())]).inc();
        jobs.inc_by(i64::try_from(it.jobs_running).unwrap_or(i64::MAX));
    }
    registry.register("containers", "Containers by state", containers);
    registry.register("jobs_running", "Background jobs that run", jobs);
}

fn register_usage(registry: &mut Registry, readings: &[UsageReading]) {
    let cpu = Family::<Labels<3>, Counter<f64, AtomicU64>>::default();
    let (memory, processes) = (Family::<Labels<3>, Gauge>::default(), Family::<Labels<3>, Gauge>::default());
    let gauge = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    for it in readings {
        let [name, session] = [("container", it.name.clone()), ("session", it.session.clone())];
        let labels = [name, session, ("engine", it.engine.to_owned())];
        if let Some(seconds) = it.cpu_seconds {
            cpu.get_or_create(&labels).inc_by(seconds);
        }
        if let Some(bytes) = it.memory_bytes {
            memory.get_or_create(&labels).set(gauge(bytes));
        }
        if let Some(number) = it.processes {
            processes.get_or_create(&labels).set(gauge(number));
        }
    }
    registry.register_with_unit("container_cpu", "Processor time of a container", Unit::Seconds, cpu);
    registry.register_with_unit("container_memory", "Memory of a container, without caches", Unit::Bytes, memory);
    registry.register("container_processes", "Processes and threads of a container", processes);
}
