//! The measurements in the form that their page reads.

use std::time::Duration;

use serde_json::{Value, json};

/// All measurements.
#[derive(Default)]
pub(crate) struct Measured {
    engines: Vec<(String, String)>,
    series: Vec<Series>,
    sizes: Vec<(String, Vec<u64>)>,
    load: Vec<f64>,
}

/// Times of one engine, by operation and way.
struct Series {
    engine: String,
    case: String,
    way: String,
    times: Vec<Duration>,
}

impl Measured {
    pub(crate) fn engine(&mut self, name: &str, version: &str) {
        self.engines.push((name.to_owned(), version.to_owned()));
    }

    pub(crate) fn look_at_load(&mut self) {
        let load = std::fs::read_to_string("/proc/loadavg").unwrap();
        self.load.push(load.split(' ').next().unwrap().parse().unwrap());
    }

    pub(crate) fn add(&mut self, engine: &str, case: &str, way: &str, took: Duration) {
        let mut all = self.series.iter_mut();
        match all.find(|it| it.engine == engine && it.case == case && it.way == way) {
            Some(series) => series.times.push(took),
            None => self.series.push(Series {
                engine: engine.to_owned(),
                case: case.to_owned(),
                way: way.to_owned(),
                times: vec![took],
            }),
        }
    }

    /// Memory of the embedded engine's containers.
    pub(crate) fn size(&mut self, name: &str, kib: Vec<u64>) {
        self.sizes.push((name.to_owned(), kib));
    }

    pub(crate) fn report(&self) -> Value {
        let series = self.series.iter().map(|it| {
            let ns = it.times.iter().map(|it| u64::try_from(it.as_nanos()).unwrap());
            json!({ "case": it.case, "way": it.way, "engine": it.engine, "ns": ns.collect::<Vec<_>>() })
        });
        let engines = self.engines.iter().map(|(name, version)| json!({ "name": name, "version": version }));
        let sizes = self.sizes.iter().map(|(name, kib)| json!({ "name": name, "engine": "embedded", "kib": kib }));
        json!({
            "cases": [],
            "engines": engines.collect::<Vec<_>>(),
            "series": series.collect::<Vec<_>>(),
            "sizes": sizes.collect::<Vec<_>>(),
            "load": self.load,
        })
    }
}
