//! Errors of a guest's jobs, with hints.

use coracle_jobs::Error;

use super::{Code, Failure};

impl From<Error> for Failure {
    fn from(err: Error) -> Self {
        let message = err.to_string();
        match err {
            Error::NoSuchJob(job) => Self::new(Code::JobNotFound, message)
                .detail("job_id", job)
                .hint("`jobs` shows the jobs there are; one that ended long ago, or before a restart, is forgotten"),
            Error::TooMany { limit, current } => Self::new(Code::LimitReached, message)
                .detail("limit", limit)
                .detail("current", current)
                .detail("setting", "jobs.max_running")
                .hint_setting("wait for one with `job_wait`, or end one with `exec_cancel`", "jobs.max_running"),
            Error::Runtime(err) => err.into(),
            other => Self::new(Code::InvalidInput, other.to_string()).hint("correct what the message names"),
        }
    }
}

impl Failure {
    /// A container without a guest has no jobs.
    pub fn without_guest(container: &str) -> Self {
        Self::new(Code::Unsupported, format!("`{container}` has no guest, so no job can run in it"))
            .detail("capability", "guest")
            .known("container", container)
            .hint("run the command with `exec`; `preflight` shows whether a new container would have a guest")
    }
}

#[cfg(test)]
mod tests {
    use coracle_jobs::Error;
    use coracle_types::JobId;

    use super::Failure;

    #[test]
    fn each_refusal_of_a_guest_has_a_code_and_a_hint() {
        let job = JobId::parse("0123abcd").unwrap();
        for (err, code, hint) in [
            (Error::NoSuchJob(job), "job_not_found", "`jobs` shows"),
            (Error::TooMany { limit: 2, current: 2 }, "limit_reached", "`exec_cancel`"),
            (Error::Invalid("`a(` is not a pattern: unclosed group".into()), "invalid_input", "correct"),
        ] {
            let failure = Failure::from(err);
            assert_eq!(failure.code.word(), code);
            assert!(failure.into_inner().hint.unwrap().contains(hint));
        }
        let failure = Failure::from(Error::TooMany { limit: 2, current: 2 });
        assert_eq!(failure.details["setting"], "jobs.max_running");
        assert!(failure.retryable);
    }
}
