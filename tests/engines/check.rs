//! Checks without their types. Each test has a closure of its own, and what runs it would be compiled once for each: that
//! was a third of the time to compile the tests.

use std::pin::Pin;

/// A check of a case, a tool or an agent.
pub(crate) trait Check<T: ?Sized> {
    fn on<'a>(&'a self, it: &'a T) -> Pin<Box<dyn Future<Output = ()> + 'a>>;
}

impl<T: ?Sized, F: AsyncFn(&T)> Check<T> for F {
    fn on<'a>(&'a self, it: &'a T) -> Pin<Box<dyn Future<Output = ()> + 'a>> {
        Box::pin(self(it))
    }
}

/// A check with a case.
pub(crate) type CaseCheck<'a> = &'a (dyn Check<super::Case> + 'a);

/// A check with a container that runs.
pub(crate) type RunningCheck<'a> = &'a (dyn for<'c> Check<super::Running<'c>> + 'a);
