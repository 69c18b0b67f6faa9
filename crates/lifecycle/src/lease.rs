//! How long a container is retained for a session that may not return.
//!
//! A container is removed only if its time is over both by the wall clock and by the time that the machine has run, so
//! setting the clock forward removes nothing. The record has the times for that.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::clock::ClockReading;
use crate::record::{Lease, Record, RecordState};
use crate::{Lock, Result, Store};

/// How long things are retained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTerms {
    /// An unused container of a named session.
    pub idle: Duration,
    /// A container whose process ended.
    pub orphan_grace: Duration,
    /// A container whose process ended while jobs ran in it.
    pub jobs: Duration,
    /// What is remembered of a container that is gone.
    pub gone_for: Duration,
}

/// What is to be done with a container.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Verdict {
    Stays,
    /// This is to be noted.
    Note(Lease),
    /// It has expired, unless it is in use.
    Over,
}

/// The earliest time at which a container may be let go of; never for a persistent one.
#[must_use]
pub fn expires_at(record: &Record, terms: &LeaseTerms, now: Timestamp) -> Option<Timestamp> {
    if record.persistent {
        return None;
    }
    let (from, time) = match &record.owner {
        None => (record.last_used, terms.idle),
        Some(owner) if owner.alive() => (record.last_used.max(minute(now)), terms.orphan_grace),
        Some(_) => {
            let orphaned = record.lease.orphaned.as_ref().map_or(minute(now), |it| it.wall);
            (record.last_used.max(orphaned), terms.orphan_grace)
        }
    };
    from.checked_add(SignedDuration::try_from(time).unwrap_or(SignedDuration::MAX)).ok().map(millisecond)
}

/// Decides whether a container stays, expires, or has its lease updated. Pure, except for the check whether its process
/// lives.
pub(crate) fn verdict(record: &Record, there: bool, terms: &LeaseTerms, now: &ClockReading) -> Verdict {
    let lease = &record.lease;
    let past = |since: &ClockReading, time: Duration| now.is_past(since, time, terms.orphan_grace);
    if record.state != RecordState::Ready {
        return Verdict::Stays;
    }
    let noted = |change: Lease| Verdict::Note(change);
    match (there, &lease.missing) {
        (false, None) => return noted(Lease { missing: Some(now.clone()), ..lease.clone() }),
        (false, Some(since)) if past(since, terms.gone_for) => return Verdict::Over,
        (false, Some(_)) => return Verdict::Stays,
        (true, Some(_)) => return noted(Lease { missing: None, ..lease.clone() }),
        (true, None) => {}
    }
    if record.persistent {
        return Verdict::Stays;
    }
    let Some(used) = &lease.used else { return noted(Lease { used: Some(now.clone()), ..lease.clone() }) };
    match (&record.owner, &lease.orphaned) {
        (None, _) if past(used, terms.idle) => Verdict::Over,
        (None, _) => Verdict::Stays,
        (Some(owner), None) if owner.alive() => Verdict::Stays,
        (Some(_), None) => noted(Lease { orphaned: Some(now.clone()), ..lease.clone() }),
        (Some(_), Some(since)) if past(since, terms.orphan_grace) && past(used, terms.orphan_grace) => Verdict::Over,
        (Some(_), Some(_)) => Verdict::Stays,
    }
}

/// Whether running jobs no longer keep the container: the process of its session is dead, and no call has used it for long.
pub(crate) fn jobs_are_over(record: &Record, terms: &LeaseTerms, now: &ClockReading) -> bool {
    let is_orphan = record.owner.as_ref().is_some_and(|owner| !owner.alive());
    is_orphan && is_unused_for(record, terms.jobs, terms, now)
}

/// Whether no call has used the container for that time.
pub(crate) fn is_unused_for(record: &Record, time: Duration, terms: &LeaseTerms, now: &ClockReading) -> bool {
    record.lease.used.as_ref().is_some_and(|used| now.is_past(used, time, terms.orphan_grace))
}

impl Store {
    /// Remembers that a call used a container; at most once a minute, and not while another call holds its lock.
    ///
    /// # Errors
    /// When the record cannot be read or written.
    pub fn touch(&self, record: &Record) -> Result<()> {
        let now = ClockReading::now();
        let last_used = minute(now.wall);
        if record.state != RecordState::Ready || last_used <= record.last_used {
            return Ok(());
        }
        self.note(record, |it| {
            it.last_used = last_used;
            it.lease.used = Some(now.clone());
            it.lease.put_off = None;
        })
    }

    /// Changes a record, unless another call holds its lock.
    pub(crate) fn note(&self, record: &Record, change: impl FnOnce(&mut Record)) -> Result<()> {
        match self.try_lock(&record.name)? {
            Some(lock) => self.change(&lock, record, change),
            None => Ok(()),
        }
    }

    /// Writes something into the record of a container whose lock is held.
    pub(crate) fn change(&self, _: &Lock, record: &Record, change: impl FnOnce(&mut Record)) -> Result<()> {
        let now = self.load(&record.name)?.record();
        let Some(now) = now.filter(|it| it.record_id == record.record_id) else { return Ok(()) };
        let mut now = Arc::unwrap_or_clone(now);
        change(&mut now);
        Ok(self.save(&now)?)
    }
}

fn minute(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second().div_euclid(60) * 60).unwrap_or(time)
}

fn millisecond(time: Timestamp) -> Timestamp {
    time.round(jiff::Unit::Millisecond).unwrap_or(time)
}

#[cfg(test)]
mod tests {
    use coracle_types::ProcessId;

    use super::*;
    use crate::deferred::Deferred;
    use crate::record::tests::record;

    const TERMS: LeaseTerms = LeaseTerms {
        idle: Duration::from_secs(24 * 3600),
        orphan_grace: Duration::from_secs(900),
        jobs: Duration::from_secs(24 * 3600),
        gone_for: Duration::from_secs(7 * 86400),
    };

    /// `wall` seconds after the container was made, in a run of the machine that had lasted `up_s`.
    fn at(wall: i64, boot: &str, up_s: u64) -> ClockReading {
        ClockReading { wall: Timestamp::from_second(1_000_000 + wall).unwrap(), boot: boot.into(), up_s }
    }

    fn dead() -> ProcessId {
        ProcessId { pid: u32::MAX, ..ProcessId::current() }
    }

    fn ready(owner: Option<ProcessId>) -> Record {
        let lease = Lease { used: Some(at(0, "a", 1000)), ..Lease::default() };
        Record { state: RecordState::Ready, last_used: at(0, "a", 0).wall, owner, lease, ..record("web") }
    }

    #[test]
    fn an_idle_one_is_over_when_both_clocks_say_so() {
        let (hour, day) = (3600, 24 * 3600);
        for (now, over, why) in [
            (at(day, "a", 1000 + day as u64), true, "a day has passed"),
            (at(day, "a", 1000 + hour as u64), false, "the clock was set forward"),
            (at(hour, "a", 1000 + day as u64), false, "the clock was set back"),
            (at(-day, "a", 1000 + 2 * day as u64), false, "the clock was set far back"),
            (at(day, "b", 60), false, "a machine that just started may have a wrong clock"),
            (at(day, "b", 900), true, "it has been up for a while"),
        ] {
            assert_eq!(verdict(&ready(None), true, &TERMS, &now) == Verdict::Over, over, "{why}");
        }
    }

    #[test]
    fn an_orphan_is_seen_once_before_its_grace_begins() {
        let mut record = ready(Some(dead()));
        let first = at(100_000, "a", 101_000);
        let Verdict::Note(lease) = verdict(&record, true, &TERMS, &first) else { panic!("it is noted") };
        assert_eq!(lease.orphaned, Some(first));
        record.lease = lease;
        assert_eq!(verdict(&record, true, &TERMS, &at(100_899, "a", 101_899)), Verdict::Stays);
        assert_eq!(verdict(&record, true, &TERMS, &at(200_000, "a", 101_899)), Verdict::Stays, "set forward");
        assert_eq!(verdict(&record, true, &TERMS, &at(100_900, "a", 101_900)), Verdict::Over);
        record.lease.used = Some(at(100_500, "a", 101_500));
        assert_eq!(
            verdict(&record, true, &TERMS, &at(100_900, "a", 101_900)),
            Verdict::Stays,
            "another session uses it"
        );
    }

    #[test]
    fn jobs_keep_a_container_of_a_dead_process_for_a_day_and_any_other_for_ever() {
        let late = at(30 * 86_400, "a", 1000 + 30 * 86_400);
        assert!(!jobs_are_over(&ready(Some(dead())), &TERMS, &at(86_399, "a", 87_399)));
        assert!(jobs_are_over(&ready(Some(dead())), &TERMS, &at(86_400, "a", 87_400)));
        assert!(!jobs_are_over(&ready(Some(ProcessId::current())), &TERMS, &late));
        assert!(!jobs_are_over(&ready(None), &TERMS, &late));
    }

    #[test]
    fn one_that_could_not_be_ended_is_tried_again_later_each_time() {
        let (mut record, day) = (ready(None), 86_400);
        let tried = at(day, "a", 1000 + day as u64);
        for pause in [60, 120, 240] {
            record.lease.put_off = Some(Deferred::after(record.lease.put_off.as_ref(), &tried));
            let after = |it: u64| at(day + it as i64, "a", 1000 + day as u64 + it);
            assert!(record.lease.is_put_off(&after(pause - 1)), "{pause}");
            assert!(!record.lease.is_put_off(&after(pause)), "{pause}");
            assert_eq!(verdict(&record, true, &TERMS, &after(0)), Verdict::Over, "its time is over all the same");
        }
    }

    #[test]
    fn persistent_ones_and_those_of_a_living_process_stay() {
        let late = at(1_000_000_000, "a", 2_000_000_000);
        assert_eq!(verdict(&ready(Some(ProcessId::current())), true, &TERMS, &late), Verdict::Stays);
        let persistent = Record { persistent: true, ..ready(None) };
        assert_eq!(verdict(&persistent, true, &TERMS, &late), Verdict::Stays);
        assert_eq!(expires_at(&persistent, &TERMS, late.wall), None);
        let making = Record { state: RecordState::Created, ..ready(None) };
        assert_eq!(verdict(&making, true, &TERMS, &late), Verdict::Stays);
    }

    #[test]
    fn what_is_gone_from_the_engine_is_remembered_a_while() {
        let mut record = Record { persistent: true, ..ready(None) };
        let Verdict::Note(lease) = verdict(&record, false, &TERMS, &at(0, "a", 0)) else { panic!("it is noted") };
        record.lease = lease;
        let week = 7 * 86400;
        assert_eq!(verdict(&record, false, &TERMS, &at(week - 1, "a", week as u64)), Verdict::Stays);
        assert_eq!(verdict(&record, false, &TERMS, &at(week, "a", week as u64)), Verdict::Over);
        let back = verdict(&record, true, &TERMS, &at(week, "a", week as u64));
        assert!(matches!(back, Verdict::Note(Lease { missing: None, .. })), "{back:?}");
    }

    #[test]
    fn the_reported_time_is_never_later_than_the_end() {
        let now = at(7200, "a", 8200).wall;
        let reported = |record: &Record| expires_at(record, &TERMS, now).unwrap().as_second() - 1_000_000;
        assert_eq!(reported(&ready(None)), 24 * 3600);
        assert_eq!(reported(&ready(Some(dead()))), minute(now).as_second() - 1_000_000 + 900);
        let mut seen = ready(Some(dead()));
        seen.lease.orphaned = Some(at(600, "a", 1600));
        assert_eq!(reported(&seen), 600 + 900);
    }

    #[test]
    fn use_is_noted_once_a_minute() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), coracle_types::LabelNamespace::parse("coracle").unwrap()).unwrap();
        let lease = Lease { put_off: Some(Deferred::after(None, &ClockReading::now())), ..Lease::default() };
        let it = Record { last_used: Timestamp::UNIX_EPOCH, lease, ..ready(None) };
        store.save(&it).unwrap();
        store.touch(&it).unwrap();
        let touched = store.load(&it.name).unwrap().record().unwrap();
        assert!(touched.last_used > it.last_used && touched.lease.used.is_some());
        assert_eq!(touched.lease.put_off, None, "its next end is tried without a pause");
        let file = dir.path().join("containers/web/metadata.json");
        let before = std::fs::metadata(&file).unwrap().modified().unwrap();
        store.touch(&touched).unwrap();
        assert_eq!(std::fs::metadata(&file).unwrap().modified().unwrap(), before);
    }
}
