//! The presets of capabilities as bits.

use coracle_runtime::Capabilities;

/// The kernel's names without their prefix; the index is the number (`include/uapi/linux/capability.h`).
#[rustfmt::skip]
const NAMES: &[&str] = &[
    "CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP",
    "LINUX_IMMUTABLE", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW", "IPC_LOCK", "IPC_OWNER",
    "SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT", "SYS_PTRACE", "SYS_PACCT", "SYS_ADMIN", "SYS_BOOT", "SYS_NICE",
    "SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD", "LEASE", "AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP",
    "MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG", "WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ", "PERFMON", "BPF",
    "CHECKPOINT_RESTORE",
];

/// The bounding, permitted and effective sets of PID 1. Its inheritable and ambient sets are empty (CVE-2022-24769).
pub(crate) fn bits(preset: Capabilities) -> u64 {
    let names: Vec<String> = preset.kernel_names().iter().map(|it| (*it).to_owned()).collect();
    bits_of(&names)
}

/// The set of these names. Unknown names are ignored.
pub(crate) fn bits_of(names: &[String]) -> u64 {
    NAMES
        .iter()
        .enumerate()
        .filter(|it| names.iter().any(|name| name == it.1))
        .fold(0, |bits, (number, _)| bits | 1 << number)
}

/// The names of a set as in the OCI runtime specification.
pub(crate) fn names_of(bits: u64) -> Vec<String> {
    let numbered = NAMES.iter().enumerate();
    numbered.filter(|it| bits & (1 << it.0) != 0).map(|it| format!("CAP_{}", it.1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_of_a_preset_is_one_bit() {
        for preset in [Capabilities::Packages, Capabilities::Guest, Capabilities::None] {
            assert_eq!(bits(preset).count_ones() as usize, preset.kernel_names().len(), "{preset:?}");
        }
        // CHOWN 0, DAC_OVERRIDE 1, FOWNER 3, FSETID 4, KILL 5, SETGID 6, SETUID 7
        assert_eq!(bits(Capabilities::Packages), 0b1111_1011);
        assert_eq!(bits(Capabilities::Guest), 0b1110_0011);
        assert_eq!(bits(Capabilities::None), 0);
    }

    /// Docker allows more calls to a container with one of these capabilities. The engine's filter has one list for
    /// all.
    #[test]
    fn no_preset_has_a_capability_that_opens_system_calls() {
        let opening = [
            "SYS_ADMIN",
            "DAC_READ_SEARCH",
            "SYS_BOOT",
            "SYS_CHROOT",
            "SYS_MODULE",
            "SYS_PACCT",
            "SYS_PTRACE",
            "SYS_RAWIO",
            "SYS_TIME",
            "SYS_TTY_CONFIG",
            "SYS_NICE",
            "SYSLOG",
            "BPF",
            "PERFMON",
            "MKNOD",
            "NET_RAW",
        ];
        for preset in [Capabilities::Packages, Capabilities::Guest, Capabilities::None] {
            assert!(!preset.kernel_names().iter().any(|it| opening.contains(it)), "{preset:?}");
        }
    }
}
