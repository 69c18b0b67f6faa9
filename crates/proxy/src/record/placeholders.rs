//! Placeholders of secrets, which differ between containers, by the names of the secrets.

use std::sync::{Arc, Mutex, PoisonError};

use coracle_types::Redactor;

use crate::policy::{Grants, SecretRule};

/// Replaces placeholders by names, so that requests of two containers can be compared.
#[derive(Debug, Default)]
pub(crate) struct Placeholders(Mutex<Option<(Arc<Grants>, Redactor)>>);

impl Placeholders {
    /// What replaces the placeholders of these grants.
    pub(crate) fn redactor(&self, grants: &Arc<Grants>) -> Redactor {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, redactor)) = &*last
            && Arc::ptr_eq(known, grants)
        {
            return redactor.clone();
        }
        let redactor = Redactor::new(grants.secrets.iter().map(SecretRule::placeholder).collect());
        *last = Some((grants.clone(), redactor.clone()));
        redactor
    }
}
