//! Checks whether Python, PyTorch and C find Maypole. All are optional, so a missing one is no
//! problem.

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::Finding;

/// How long one of these programs may take. Python reads its packages from disk.
const LIMIT: Duration = Duration::from_secs(10);
/// The pause between two looks whether it has ended.
const PAUSE: Duration = Duration::from_millis(5);

/// Prints the versions of Maypole and PyTorch, or nothing for a package that is not installed.
const VERSIONS: &str = "
from importlib.metadata import PackageNotFoundError, version
for package in ('maypole', 'torch'):
    try:
        print(version(package))
    except PackageNotFoundError:
        print()
";

pub(super) fn check() -> Vec<Finding> {
    let python = output(Command::new("python3").args(["-c", VERSIONS]));
    let c = output(Command::new("pkg-config").args(["--modversion", "maypole"]));
    vec![of_python(python.as_deref()), of_c(c.as_deref())]
}

/// What `said`, the output of [`VERSIONS`], means.
fn of_python(said: Option<&str>) -> Finding {
    let Some(said) = said else {
        return Finding::ok("Python", "there is no python3 on the PATH");
    };
    let mut versions = said.lines().map(str::trim);
    let maypole = versions.next().filter(|version| !version.is_empty());
    let torch = versions.next().filter(|version| !version.is_empty());
    let text = match (maypole, torch) {
        (None, _) => {
            "python3 has no package maypole: 'pip install ./bindings/python' builds it".into()
        }
        (Some(maypole), None) => format!("package maypole {maypole}, and no PyTorch"),
        (Some(maypole), Some(torch)) => {
            format!("package maypole {maypole}, which is a backend of PyTorch {torch}")
        }
    };
    Finding::ok("Python", text)
}

fn of_c(said: Option<&str>) -> Finding {
    let text = match said.map(str::trim).filter(|version| !version.is_empty()) {
        Some(version) => format!("pkg-config finds libmaypole {version}"),
        None => {
            "pkg-config finds no libmaypole: 'bindings/c/install PREFIX' installs it".to_owned()
        }
    };
    Finding::ok("C", text)
}

/// What `command` prints; `None` if it cannot be run, fails, or takes too long.
fn output(command: &mut Command) -> Option<String> {
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = quiet.spawn().ok()?;
    let deadline = Instant::now() + LIMIT;
    let status = loop {
        match child.try_wait() {
            Ok(None) if Instant::now() < deadline => std::thread::sleep(PAUSE),
            Ok(Some(status)) => break status,
            _ => {
                // It has ended by itself, or ends now.
                let _ = child.kill();
                let _ = child.wait();
                return None;
            }
        }
    };
    let mut said = String::new();
    // A few bytes, which a pipe holds.
    child.stdout.take()?.read_to_string(&mut said).ok()?;
    status.success().then_some(said)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_installed_is_told_with_its_version() {
        let text = |said| of_python(said).text;
        assert!(text(None).contains("no python3"));
        assert!(text(Some("\n\n")).contains("no package maypole"));
        assert_eq!(text(Some("0.1.0\n\n")), "package maypole 0.1.0, and no PyTorch");
        assert!(text(Some("0.1.0\n2.15.0\n")).ends_with("a backend of PyTorch 2.15.0"));
        assert_eq!(of_c(Some("0.1.0\n")).text, "pkg-config finds libmaypole 0.1.0");
        assert!(of_c(None).text.contains("bindings/c/install"));
    }

    #[test]
    fn a_program_that_is_missing_or_fails_says_nothing() {
        assert_eq!(output(&mut Command::new("no such program")), None);
        assert_eq!(output(&mut Command::new("false")), None);
        assert_eq!(output(Command::new("echo").arg("yes")).as_deref(), Some("yes\n"));
    }
}
