//! Checks whether the libraries of GPUs and InfiniBand are where a program would find them. Loads
//! none of them, because a broken driver could crash this command.

use std::env;
use std::path::{Path, PathBuf};

use super::Finding;

/// The folders that a loader searches after `LD_LIBRARY_PATH`.
const FOLDERS: [&str; 10] = [
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/lib64",
    "/usr/lib",
    "/usr/local/lib",
    "/usr/local/nvidia/lib64",
    "/usr/local/cuda/compat",
];

/// A library, and the device file that shows that the machine needs it.
struct Library {
    what: &'static str,
    file: &'static str,
    device: &'static str,
    fix: &'static str,
}

const LIBRARIES: [Library; 3] = [
    Library {
        what: "CUDA",
        file: "libcuda.so.1",
        device: "/dev/nvidiactl",
        fix: "install NVIDIA's driver, or start the container with its runtime (`--gpus all`)",
    },
    Library {
        what: "NVML",
        file: "libnvidia-ml.so.1",
        device: "/dev/nvidiactl",
        fix: "install NVIDIA's driver, or add `utility` to NVIDIA_DRIVER_CAPABILITIES",
    },
    Library {
        what: "verbs",
        file: "libibverbs.so.1",
        device: "/dev/infiniband",
        fix: "install rdma-core, for example with `apt install libibverbs1`",
    },
];

pub(super) fn check() -> Vec<Finding> {
    let exists = |path: &Path| path.exists();
    let path = env::var("LD_LIBRARY_PATH").unwrap_or_default();
    let place = env::var_os("MAYPOLE_CUDA_MAILBOXES").unwrap_or_default();
    let has_gpus = !place.is_empty() || exists(Path::new(LIBRARIES[0].device));
    let mailboxes = has_gpus.then(|| mailboxes(&place.to_string_lossy()));
    LIBRARIES.iter().map(|library| assess(library, &path, exists)).chain(mailboxes).collect()
}

/// Where the ranks of a host's GPUs publish their bytes, if the variable has this value.
fn mailboxes(value: &str) -> Finding {
    let text = match value {
        "" | "auto" => {
            "on the GPUs, or in memory of the host if some do not reach one another, as \
             `maypole topo` may show; NCCL_DEBUG=INFO has the choice, and the way to other hosts"
        }
        "host" => "in memory of the host, because MAYPOLE_CUDA_MAILBOXES=host",
        "peer" => "on the GPUs alone, because MAYPOLE_CUDA_MAILBOXES=peer",
        _ => {
            let text = format!("MAYPOLE_CUDA_MAILBOXES={value} means nothing, so groups fail");
            return Finding::problem("GPU mailboxes", text, "set auto, peer or host");
        }
    };
    Finding::ok("GPU mailboxes", text)
}

fn find(file: &str, path: &str, exists: impl Fn(&Path) -> bool) -> Option<PathBuf> {
    let named = path.split(':').filter(|folder| !folder.is_empty());
    named.chain(FOLDERS).map(|folder| Path::new(folder).join(file)).find(|path| exists(path))
}

/// A missing library matters only where there is a device for it.
fn assess(library: &Library, path: &str, exists: impl Fn(&Path) -> bool) -> Finding {
    let Library { what, file, device, fix } = library;
    let found = find(file, path, &exists);
    match (found, exists(Path::new(device))) {
        (Some(found), true) => Finding::ok(what, found.display().to_string()),
        (Some(found), false) => Finding::ok(
            what,
            format!("{}, but no {device}: this machine has no such device", found.display()),
        ),
        (None, false) => {
            Finding::ok(what, format!("not needed: neither {device} nor {file} is there"))
        }
        (None, true) => Finding::warning(what, format!("{device} is there, but not {file}"), *fix),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Severity;
    use super::*;

    #[test]
    fn a_wrong_place_of_mailboxes_is_a_problem() {
        let severity = |value| mailboxes(value).severity;
        assert_eq!(["", "auto", "host", "peer"].map(severity), [Severity::Ok; 4]);
        assert_eq!(severity("gpu"), Severity::Problem);
    }

    #[test]
    fn a_missing_library_is_a_warning_only_with_its_device() {
        let on = |files: &'static [&'static str]| {
            move |path: &Path| files.iter().any(|file| Path::new(file) == path)
        };
        let cuda = &LIBRARIES[0];
        assert_eq!(assess(cuda, "", on(&[])).severity, Severity::Ok);
        assert_eq!(assess(cuda, "", on(&["/dev/nvidiactl"])).severity, Severity::Warning);
        let both = on(&["/dev/nvidiactl", "/opt/driver/libcuda.so.1"]);
        assert_eq!(assess(cuda, "", both).severity, Severity::Warning);
        assert_eq!(
            assess(cuda, ":/opt/driver", both),
            Finding::ok("CUDA", "/opt/driver/libcuda.so.1")
        );
    }
}
