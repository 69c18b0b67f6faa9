//! Settings that are one of a few words.

use super::macros::words;

words! {
    /// `policy`: where the defaults come from.
    Preset {
        /// Binds, root inside, a bridge.
        #[default]
        Standard,
        /// Copies, one user without privileges, no network.
        Strict,
    }

    /// `engine`
    Engine {
        /// The first of Podman and Docker that is installed and answers; else Apple's `container` on a Mac, and the
        /// embedded engine on Linux.
        #[default]
        Auto,
        /// Docker Engine.
        Docker,
        /// Podman.
        Podman,
        /// Apple's `container`.
        Container,
        /// The engine within Coracle, on Linux.
        Embedded,
        /// Pods of a Kubernetes cluster, where this program is built for it.
        Kubernetes,
        /// State in memory, for tests and dry runs.
        Fake,
    }

    /// `engine_runtime`
    EngineRuntime {
        /// The embedded engine itself, by the kernel's namespaces.
        #[default]
        Builtin,
        /// crun.
        Crun,
        /// runc.
        Runc,
        /// gVisor.
        Runsc,
    }

    /// `engine_api`
    EngineApi {
        /// Reads go over the socket of the engine's API, where it answers.
        #[default]
        Auto,
        /// The engine's program reads as well.
        Never,
    }

    /// `guest`
    Guest {
        /// Every container whose architecture this program has one for.
        #[default]
        Auto,
        /// None: commands run through the engine's own exec.
        Never,
    }

    /// `security.cross_session`
    CrossSession {
        /// Commands, copies and status, and no lifecycle.
        #[default]
        Use,
        /// Everything.
        All,
        /// Not even a look.
        None,
    }

    /// `security.snapshot_secrets`
    SnapshotSecrets {
        /// No snapshot while a secret lies in a file.
        #[default]
        Refuse,
        /// A warning that names the files.
        Warn,
    }

    /// `security.network`
    NetworkGrant {
        /// A bridge with a way out may be used.
        #[default]
        Open,
        /// No bridge; names that are listed may be reached by the proxy on this host.
        Proxy,
        /// Loopback only.
        None,
    }

    /// `images.fallback`
    Fallback {
        /// Make a Debian base from this machine or a mirror.
        #[default]
        Bootstrap,
        /// Say that there is none.
        Fail,
    }

    /// `log.level`
    Level {
        /// Nothing.
        Off,
        /// What failed.
        Error,
        /// And what is doubtful.
        Warn,
        /// And what was done.
        #[default]
        Info,
        /// And how.
        Debug,
        /// And everything else.
        Trace,
    }
}
