//! Settings that are one of a few words.

use serde::{Deserialize, Serialize};

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$word_doc:meta])* $word:ident,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
        #[serde(rename_all = "lowercase")]
        pub enum $name { $($(#[$word_doc])* $word,)* }
    };
}

words! {
    /// `policy`: where the defaults come from.
    Preset {
        /// Binds, root inside, a bridge.
        #[default]
        Standard,
        /// Copies, one user without privileges, no network.
        Strict,
    }
}
words! {
    /// `engine`
    Engine {
        /// The first of Podman and Docker that is installed and answers; Apple's `container` where neither is installed.
        #[default]
        Auto,
        /// Docker Engine.
        Docker,
        /// Podman.
        Podman,
        /// Apple's `container`.
        Container,
        /// State in memory, for tests and dry runs.
        Fake,
    }
}
words! {
    /// `engine_api`
    EngineApi {
        /// Reads go over the socket of the engine's API, where it answers.
        #[default]
        Auto,
        /// The engine's program reads as well.
        Never,
    }
}
words! {
    /// `guest`
    Guest {
        /// Every container whose architecture this program has one for.
        #[default]
        Auto,
        /// None: commands run through the engine's own exec.
        Never,
    }
}
words! {
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
}
words! {
    /// `security.snapshot_secrets`
    SnapshotSecrets {
        /// No snapshot while a secret lies in a file.
        #[default]
        Refuse,
        /// A warning that names the files.
        Warn,
    }
}
words! {
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
}
words! {
    /// `images.fallback`
    Fallback {
        /// Make a Debian base from this machine or a mirror.
        #[default]
        Bootstrap,
        /// Say that there is none.
        Fail,
    }
}
words! {
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
