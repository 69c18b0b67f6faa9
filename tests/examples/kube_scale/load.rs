//! Creates containers at a rate or as fast as possible.

use std::time::{Duration, Instant};

use coracle_kube::KubeRuntime;
use coracle_runtime::{ContainerRuntime as _, CreateSpec, Image, NetworkAttachment, NetworkRequest, Policy, admit};
use coracle_types::{ContainerName, Error, ImageRef, random_hex};
use futures_util::{StreamExt as _, stream};
use serde_json::{Value, json};

use crate::schedule::Schedule;

/// Time for one Pod to get a node.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) const SESSION: &str = "coracle.session";

/// Sessions that containers are shared out to.
pub(crate) const SESSIONS: usize = 50;

pub(crate) struct Load {
    pub(crate) label: &'static str,
    pub(crate) pods: usize,
    pub(crate) at_once: usize,
    /// As fast as it can, without one.
    pub(crate) per_second: Option<f64>,
}

/// A Pod that was created, and how long that took.
struct CreatedPod {
    name: String,
    begun: Instant,
    took: Duration,
}

impl Load {
    pub(crate) async fn run(&self, runtime: &KubeRuntime, schedule: &Schedule, image: &Image) -> Value {
        let begun = Instant::now();
        let made = stream::iter(0..self.pods).map(|number| async move {
            if let Some(rate) = self.per_second {
                let due = begun + Duration::from_secs_f64(number as f64 / rate);
                tokio::time::sleep_until(due.into()).await;
            }
            create(runtime, image, number).await
        });
        let made: Vec<_> = made.buffer_unordered(self.at_once).collect().await;
        let (mut create_ms, mut scheduled_ms, mut refused) = (Vec::new(), Vec::new(), 0);
        for it in made {
            match it {
                Ok(made) => {
                    let at = schedule.of(&made.name, PATIENCE).await;
                    create_ms.push(ms(made.took));
                    scheduled_ms.push(ms(at.saturating_duration_since(made.begun)));
                }
                Err(err) => {
                    eprintln!("{err}");
                    refused += 1;
                }
            }
        }
        json!({
            "label": self.label, "pods": self.pods, "seconds": begun.elapsed().as_secs_f64(), "refused": refused,
            "create_ms": create_ms, "scheduled_ms": scheduled_ms,
        })
    }
}

async fn create(runtime: &KubeRuntime, image: &Image, number: usize) -> Result<CreatedPod, Error> {
    let name = format!("scale-{}", random_hex::<6>());
    let labels = [("coracle.managed", "true".to_owned()), (SESSION, format!("s{}", number % SESSIONS))];
    let spec = CreateSpec {
        labels: labels.map(|(key, value)| (key.to_owned(), value)).into(),
        network: NetworkRequest::None,
        ..CreateSpec::new(ContainerName::parse(name.clone()).unwrap(), ImageRef::parse(&image.tags[0]).unwrap())
    };
    let placed = admit(spec, &Policy::everything()).unwrap().with_image(image.id.clone(), NetworkAttachment::None);
    let begun = Instant::now();
    runtime.create(&placed).await?;
    Ok(CreatedPod { name, begun, took: begun.elapsed() })
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}
