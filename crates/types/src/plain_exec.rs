//! Refuses commands that an engine's own exec cannot run. Not in `exec`, which would use errors, and errors use `exec`.

use crate::{Capability, EngineKind, Error, Exec, Result};

impl Exec {
    /// Checks that an engine can run it in a container without a guest.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if it [needs a guest](Self::needs_guest).
    pub fn check_without_guest(&self, engine: EngineKind) -> Result<()> {
        if self.needs_guest() {
            return Err(Error::Unsupported { engine, capability: Capability::Guest });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use tokio::sync::{mpsc, oneshot, watch};

    use super::*;
    use crate::{AtLimit, Command, ContainerPath, ExecLimits, Ids, Input, JobId, Secret, TerminalSize};

    fn plain() -> Exec {
        Exec::new(Command::shell("true"), Ids::ROOT, ContainerPath::root())
    }

    #[test]
    fn options_without_an_equivalent_in_an_engines_exec_need_a_guest() {
        let (_sender, sizes) = watch::channel(TerminalSize { cols: 80, rows: 24 });
        let (live, _chunks) = mpsc::channel(1);
        let supported = Exec {
            env: BTreeMap::from([("A".into(), "1".into())]),
            stdin: Some(Input::Bytes(b"x".to_vec())),
            limits: ExecLimits { total: Some(Duration::from_secs(1)), ..ExecLimits::default() },
            passes_on: Some(1),
            live: Some(live),
            ..plain()
        };
        assert!(!plain().needs_guest() && !supported.needs_guest());
        supported.check_without_guest(EngineKind::Docker).unwrap();
        for exec in [
            Exec { job: Some(JobId::random()), ..plain() },
            Exec { bare: true, ..plain() },
            Exec { secret: Some(Secret::new(b"token".to_vec())), ..plain() },
            Exec { files: vec!["key".into()], ..plain() },
            Exec { terminal: Some(sizes), ..plain() },
            Exec { at_limit: AtLimit::Keep, ..plain() },
            Exec { started: Some(oneshot::channel().0), ..plain() },
        ] {
            let refused = exec.check_without_guest(EngineKind::Docker);
            let Err(Error::Unsupported { engine, capability }) = refused else { panic!("{exec:?}") };
            assert_eq!((engine, capability), (EngineKind::Docker, Capability::Guest));
        }
    }
}
