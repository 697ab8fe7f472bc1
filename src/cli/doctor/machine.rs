//! Checks the cores, the memory and the descriptors that this host gives to ranks.

use std::fs;

use maypole_transports::cores::UsableCores;
use maypole_transports::shm::Segment;

use super::{Finding, kernel_text};

/// Bytes of locked memory below which buffers cannot be registered; the default of many systems is
/// less.
const LITTLE_LOCKED: u64 = 64 << 20;
/// Descriptors that a rank needs for itself, and for each other rank.
const DESCRIPTORS: u64 = 64;
const PER_RANK: u64 = 4;

pub(super) fn check(ranks: usize) -> Vec<Finding> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let limits = read("/proc/self/limits");
    vec![
        proc(fs::read_to_string("/proc/sys/kernel/random/boot_id").err()),
        cores(UsableCores::count([&UsableCores::of_this_thread()]), ranks),
        descriptors(kernel_text::soft_limit(&limits, "Max open files"), ranks as u64),
        locked(kernel_text::soft_limit(&limits, "Max locked memory")),
        shared_memory(),
        ptrace(&read("/proc/sys/kernel/yama/ptrace_scope")),
    ]
}

/// Ranks identify their host by a file there, so none joins without it.
fn proc(missing: Option<std::io::Error>) -> Finding {
    match missing {
        None => Finding::ok("/proc", "mounted"),
        Some(error) => Finding::problem(
            "/proc",
            format!("no job can start: /proc/sys/kernel/random/boot_id: {error}"),
            "mount -t proc proc /proc",
        ),
    }
}

fn cores(cores: usize, ranks: usize) -> Finding {
    let text = format!("{cores} usable (affinity and cgroup quota), for {ranks} ranks");
    if ranks <= cores {
        return Finding::ok("cores", text);
    }
    let fix = "run fewer ranks, or give the job more cores; ranks that share a core take turns";
    Finding::warning("cores", text, fix)
}

/// Judges a limit by `judge`, if there is one.
fn limit(
    what: &'static str,
    limit: Option<Option<u64>>,
    judge: impl FnOnce(u64) -> Finding,
) -> Finding {
    match limit {
        Some(None) => Finding::ok(what, "no limit"),
        Some(Some(limit)) => judge(limit),
        None => Finding::warning(what, "cannot read the limit in /proc/self/limits", "mount /proc"),
    }
}

fn descriptors(most: Option<Option<u64>>, ranks: u64) -> Finding {
    let needed = PER_RANK.saturating_mul(ranks).saturating_add(DESCRIPTORS);
    limit("descriptors", most, |most| {
        if most >= needed {
            return Finding::ok("descriptors", format!("at most {most} open files"));
        }
        let text = format!("at most {most} open files, but {ranks} ranks need about {needed}");
        Finding::problem("descriptors", text, format!("ulimit -n {needed}"))
    })
}

fn locked(most: Option<Option<u64>>) -> Finding {
    limit("locked memory", most, |most| {
        if most >= LITTLE_LOCKED {
            return Finding::ok("locked memory", format!("{} MiB", most >> 20));
        }
        let text = format!("{} KiB, too little to register buffers", most >> 10);
        let fix = "ulimit -l unlimited, or `memlock` in /etc/security/limits.conf; only \
                   InfiniBand and GPUs need it";
        Finding::warning("locked memory", text, fix)
    })
}

/// Ranks share anonymous segments, so the size of /dev/shm does not matter.
fn shared_memory() -> Finding {
    match Segment::create(1 << 20) {
        Ok(_) => Finding::ok("shared memory", "memfd works"),
        Err(error) => {
            let fix = "allow memfd_create and sealing in the container's profile; without it ranks \
                       of this host use TCP, which is slower";
            Finding::problem("shared memory", error.to_string(), fix)
        }
    }
}

fn ptrace(scope: &str) -> Finding {
    match scope.trim() {
        "" => Finding::ok("ptrace", "unrestricted: the kernel has no Yama"),
        "0" => Finding::ok("ptrace", "unrestricted"),
        scope => {
            let fix = "sysctl kernel.yama.ptrace_scope=0; otherwise large messages are copied \
                       one more time";
            Finding::warning(
                "ptrace",
                format!("Yama forbids reading the memory of other processes (scope {scope})"),
                fix,
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Severity;
    use super::*;

    #[test]
    fn more_ranks_than_cores_are_a_warning() {
        assert_eq!(cores(4, 4).severity, Severity::Ok);
        assert_eq!(cores(2, 3).severity, Severity::Warning);
    }

    #[test]
    fn limits_are_assessed() {
        assert_eq!(descriptors(Some(Some(1024)), 8).severity, Severity::Ok);
        let few = descriptors(Some(Some(64)), 8);
        assert_eq!((few.severity, few.fix.as_deref()), (Severity::Problem, Some("ulimit -n 96")));
        assert_eq!(descriptors(Some(Some(64)), u64::MAX).severity, Severity::Problem);
        assert_eq!(descriptors(Some(None), 1 << 20).severity, Severity::Ok);
        assert_eq!(locked(Some(Some(8 << 20))).severity, Severity::Warning);
        assert_eq!(locked(Some(None)).severity, Severity::Ok);
        assert_eq!(locked(None).severity, Severity::Warning);
    }

    #[test]
    fn yama_is_assessed() {
        assert_eq!(ptrace("1\n").severity, Severity::Warning);
        assert_eq!(ptrace("0\n").severity, Severity::Ok);
    }
}
