//! Settings that are one of a few words.

use super::macros::words;

words! {
    /// `policy`: the source of the defaults.
    Preset {
        /// Bind mounts, root inside, a bridge.
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
        /// Coracle's built-in engine, on Linux.
        Embedded,
        /// Pods of a Kubernetes cluster, if this program is built for it.
        Kubernetes,
        /// State in memory, for tests and dry runs.
        Fake,
    }

    /// `engine_runtime`
    EngineRuntime {
        /// The embedded engine itself, with the kernel's namespaces.
        #[default]
        Builtin,
        /// crun.
        Crun,
        /// runc.
        Runc,
        /// gVisor.
        Runsc,
    }

    /// `checkpoints.steps`
    StepCheckpoints {
        /// Only by `checkpoint`.
        Off,
        /// After each call that may change files, where the engine can and the file system shares content between files.
        #[default]
        Auto,
        /// After each call that may change files, where the engine can.
        Always,
    }

    /// `engine_api`
    EngineApi {
        /// Read requests use the socket of the engine's API, if it answers.
        #[default]
        Auto,
        /// Read requests use the engine's program as well.
        Never,
    }

    /// `guest`
    Guest {
        /// Every container for whose architecture a guest is built in.
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
        /// Not even status.
        None,
    }

    /// `security.snapshot_secrets`
    SnapshotSecrets {
        /// No snapshot while a file contains a secret.
        #[default]
        Refuse,
        /// A warning that names the files.
        Warn,
    }

    /// `security.network`
    NetworkGrant {
        /// A bridge with outbound access may be used.
        #[default]
        Open,
        /// No bridge; allowed host names may be reached through the proxy on the host.
        Proxy,
        /// Loopback only.
        None,
    }

    /// `images.fallback`
    Fallback {
        /// Build a Debian base from packages of the host or from a mirror.
        #[default]
        Bootstrap,
        /// Fail.
        Fail,
    }

    /// `log.level`
    Level {
        /// Nothing.
        Off,
        /// What failed.
        Error,
        /// Also warnings.
        Warn,
        /// Also what was done.
        #[default]
        Info,
        /// Also how it was done.
        Debug,
        /// And everything else.
        Trace,
    }
}
