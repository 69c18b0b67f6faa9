//! Removes containers whose session has ended unexpectedly, and records whose container is missing.

use std::time::Duration;

use coracle_runtime::ExecTarget;
use coracle_types::JobId;
use tokio::time::timeout;

use crate::clock::ClockReading;
use crate::deferred::Deferred;
use crate::destroy::destroy_unused;
use crate::lease::{LeaseTerms, Verdict, jobs_are_over, verdict};
use crate::record::Record;
use crate::{ContainerEntry, Engines, Links, ManagedContainer, RemoveOptions, Result, Store, drop_networks, list};

/// The shortest time between two passes.
const EVERY: Duration = Duration::from_secs(600);

/// A guest that does not say by then what runs is taken for busy.
const PATIENCE: Duration = Duration::from_secs(10);

/// Looks at every container, and destroys those whose time is over, as any other `destroy` does: work in them is saved,
/// and all that only they used goes too. Answers their names, or `None`: within ten minutes of the
/// last look nothing is done. `goes_on` is called before each of them, with its name, since one may take a minute.
///
/// # Errors
/// When an engine that holds some of ours does not answer. A container that could not be destroyed is tried again
/// later, and each time later than before.
pub async fn reap(
    engines: &dyn Engines,
    store: &Store,
    removing: &RemoveOptions<'_>,
    terms: &LeaseTerms,
    goes_on: &(dyn Fn(&str) -> bool + Sync),
) -> Result<Option<Vec<String>>> {
    let (mut reaped, now) = (Vec::new(), &ClockReading::now());
    let Some(_alone) = store.try_common_lock("reap")? else { return Ok(None) };
    if !store.look_is_due(now, EVERY.min(terms.orphan_grace))? {
        return Ok(None);
    }
    for it in list(engines, store).await?.containers {
        let (name, is_there, listed) = (it.record.name.to_string(), it.container.is_some(), it.record.clone());
        match verdict(&it.record, is_there, terms, now) {
            Verdict::Stays => {}
            Verdict::Note(_) => store.note(&it.record, |record| {
                // It may have been used since it was listed.
                if let Verdict::Note(lease) = verdict(record, is_there, terms, now) {
                    record.lease = lease;
                }
            })?,
            Verdict::Over if it.record.lease.is_put_off(now) => {}
            Verdict::Over if !goes_on(&name) => break,
            Verdict::Over => match end(engines, store, removing, it, jobs_are_over(&listed, terms, now)).await {
                Ok(true) => reaped.push(name),
                Ok(false) => tracing::info!(container = name, "its time is over, and it is in use"),
                Err(err) => {
                    tracing::warn!(container = name, %err, "its time is over, and it could not be destroyed");
                    store.note(&listed, |record| {
                        record.lease.put_off = Some(Deferred::after(record.lease.put_off.as_ref(), now));
                    })?;
                }
            },
        }
    }
    Ok(Some(reaped))
}

/// Whether it could be ended: not one in which something runs, jobs excepted with `with_jobs`, or that was used since
/// it was listed.
async fn end(
    engines: &dyn Engines,
    store: &Store,
    removing: &RemoveOptions<'_>,
    it: ContainerEntry,
    with_jobs: bool,
) -> Result<bool> {
    let runtime = engines.for_record(it.record.engine, &it.record.endpoint).await?;
    let mut found = it.on(runtime);
    if !activity(store, removing.links, &mut found).await.allows_removal(with_jobs) {
        return Ok(false);
    }
    let record = &found.record;
    tracing::info!(container = %record.name, session = record.session, "its time is over");
    if destroy_unused(&*found.runtime, store, record, removing).await?.is_none() {
        return Ok(false);
    }
    if record.owner.is_some() && !store.records()?.iter().any(|other| other.session == record.session) {
        // Its process is dead, so the networks of that session are no longer needed.
        drop_networks(engines, store, |it| it.session.as_deref() == Some(record.session.as_str())).await?;
    }
    Ok(true)
}

/// Activity in a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Activity {
    None,
    /// Commands or jobs run.
    Jobs,
    /// A user is in it by the engine's own exec, others joined its stack, or its guest does not say.
    Other,
}

impl Activity {
    /// Whether the container may be removed, with its jobs if `with_jobs`.
    pub(crate) fn allows_removal(self, with_jobs: bool) -> bool {
        self == Self::None || (with_jobs && self == Self::Jobs)
    }
}

/// Whether there is any activity in it.
pub(crate) async fn in_use(store: &Store, links: &Links, found: &mut ManagedContainer) -> bool {
    activity(store, links, found).await != Activity::None
}

/// Returns the activity in it.
pub(crate) async fn activity(store: &Store, links: &Links, found: &mut ManagedContainer) -> Activity {
    if is_joined(store, &found.record) {
        return Activity::Other;
    }
    let Some(container) = found.container.as_ref().filter(|it| it.running()) else { return Activity::None };
    let id = container.id.clone();
    // An open link of this process does not count as use, nor that of the process that runs the container's proxy.
    let of_proxy = usize::from(store.proxy_process(&found.record).is_some_and(|it| it.by_exec));
    if container.execs > links.execs(&id) + of_proxy {
        return Activity::Other;
    }
    let probe = async {
        match links.inside(store, found).await? {
            ExecTarget::Guest(link) => Ok::<_, crate::Error>(link.jobs().await?.iter().any(busies)),
            ExecTarget::Plain(..) => Ok(false),
        }
    };
    let activity = match timeout(PATIENCE, probe).await {
        Ok(Ok(false)) => Activity::None,
        Ok(Ok(true)) => Activity::Jobs,
        Ok(Err(_)) | Err(_) => Activity::Other,
    };
    // An open link may be an exec of the engine, and would count as use in the next pass.
    links.forget(&id);
    activity
}

/// Whether others joined its stack, and would lose their services with it.
pub(crate) fn is_joined(store: &Store, record: &Record) -> bool {
    let own_stack = record.compose_project.as_ref().filter(|_| !record.compose_joined);
    own_stack.is_some_and(|it| store.joined(it).map_or(true, |joined| !joined.is_empty()))
}

/// A job that prevents removal of its container. The main program does not count: it would prevent that for ever.
fn busies(job: &coracle_protocol::JobInfo) -> bool {
    job.ended_ms.is_none() && job.job != JobId::main().as_str()
}

impl Store {
    /// Whether the last look is long enough ago; then this one is remembered as the last. A clock that was set back, or
    /// another run of the machine, makes it due.
    fn look_is_due(&self, now: &ClockReading, every: Duration) -> Result<bool> {
        let file = self.root().join("looked.json");
        let last: Option<ClockReading> = crate::store::read_own(&file)?.and_then(|it| serde_json::from_slice(&it).ok());
        let ago = last.filter(|it| it.boot == now.boot).and_then(|it| now.wall.duration_since(it.wall).try_into().ok());
        if ago.is_some_and(|ago: Duration| ago < every) {
            return Ok(false);
        }
        crate::store::write_whole(&file, &serde_json::to_vec(now).expect("times serialise"))?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use coracle_client::LinkSettings;
    use coracle_runtime::FakeRuntime;
    use coracle_runtime::fake::Verb;
    use coracle_types::LabelNamespace;
    use jiff::Timestamp;

    use super::*;
    use crate::SavePolicy;
    use crate::networks::tests::SingleEngine;
    use crate::record::tests::record;
    use crate::record::{Lease, RecordState, Role};

    #[tokio::test]
    async fn one_that_could_not_be_destroyed_is_put_off() {
        let (fake, dir) = (FakeRuntime::new(), tempfile::tempdir().unwrap());
        let store = Store::open(dir.path(), LabelNamespace::parse("coracle").unwrap()).unwrap();
        let long_ago = ClockReading { wall: Timestamp::UNIX_EPOCH, up_s: 0, ..ClockReading::now() };
        let ready = Record {
            id: Some(fake.runs("web").await),
            state: RecordState::Ready,
            role: Role::Adopted,
            lease: Lease { used: Some(long_ago), ..Lease::default() },
            ..record("web")
        };
        store.save(&ready).unwrap();
        let links = Links::new(LinkSettings::default());
        let removing =
            RemoveOptions { links: &links, saving: SavePolicy::Discard, grace: Duration::ZERO, adopted_too: true };
        let second = Duration::from_secs(1);
        let terms = LeaseTerms { idle: second, orphan_grace: Duration::ZERO, jobs: second, gone_for: second };
        let engines = SingleEngine(fake.clone());
        let reaped = async || reap(&engines, &store, &removing, &terms, &|_| true).await.unwrap();
        let tries = || fake.calls().iter().filter(|it| **it == Verb::Remove).count();
        fake.fail_next(Verb::Remove);
        assert_eq!(reaped().await, Some(Vec::new()));
        let failed = store.load(&ready.name).unwrap().record().unwrap();
        assert!(failed.lease.put_off.is_some(), "{failed:?}");
        // As after an end that failed before anything was removed.
        store.save(&Record { state: RecordState::Ready, ..(*failed).clone() }).unwrap();
        assert_eq!((reaped().await, tries()), (Some(Vec::new()), 1), "it is not tried at once");
        let lease = Lease { put_off: None, ..failed.lease.clone() };
        store.save(&Record { state: RecordState::Ready, lease, ..(*failed).clone() }).unwrap();
        assert_eq!((reaped().await, tries()), (Some(vec!["web".to_owned()]), 2));
    }
}
