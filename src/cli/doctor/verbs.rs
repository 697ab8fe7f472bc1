//! Checks the RDMA devices, where the kernel has any.

use maypole_transports::ib::{self, VerbsDevice, VerbsError, VerbsPort};

use super::Finding;

pub(super) fn check() -> Vec<Finding> {
    // Drivers are loaded with the library.
    if !ib::has_device_files() {
        return Vec::new();
    }
    match ib::devices() {
        Ok(devices) => devices.iter().flat_map(ports).collect(),
        // The check of the library reports this.
        Err(VerbsError::NoLibrary(_)) => Vec::new(),
        Err(error) => {
            vec![Finding::warning("RDMA", error.to_string(), "ranks of several hosts use TCP")]
        }
    }
}

fn ports(device: &VerbsDevice) -> Vec<Finding> {
    let finding = |port: &VerbsPort| {
        let gid = port.usual_gid().map(|gid| gid.to_string());
        let link = if port.is_ethernet { "RoCE" } else { "InfiniBand" };
        let port_is = format!("{} port {}: {link}, {}", device.name, port.number, port.state);
        assess(&port_is, port.is_active(), port.mtu, gid)
    };
    if let Some(protocol) = device.other_protocol {
        let text = format!("{} is {protocol}; ranks use InfiniBand and RoCE alone", device.name);
        return vec![Finding::ok("RDMA", text)];
    }
    device.ports.iter().map(finding).collect()
}

/// Judges a port. `port_is` describes it up to its state.
fn assess(port_is: &str, is_active: bool, mtu: usize, gid: Option<String>) -> Finding {
    match gid {
        _ if !is_active => {
            let fix = "plug in its cable; for RoCE, set its network interface up";
            Finding::warning("RDMA", port_is, fix)
        }
        None => {
            let fix = "give its network interface an address";
            Finding::warning("RDMA", format!("{port_is}, no GID that can be used"), fix)
        }
        Some(gid) => Finding::ok("RDMA", format!("{port_is}, {mtu} bytes a packet, GID {gid}")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Severity;
    use super::*;

    #[test]
    fn a_port_is_right_if_it_is_up_and_has_an_address() {
        let gid = Some("1 10.77.0.1 (RoCE v2)".to_owned());
        let up = assess("rxe0 port 1: RoCE, active", true, 4096, gid.clone());
        let text = "rxe0 port 1: RoCE, active, 4096 bytes a packet, GID 1 10.77.0.1 (RoCE v2)";
        assert_eq!(up, Finding::ok("RDMA", text));
        let down = assess("rxe0 port 1: RoCE, down", false, 4096, gid);
        assert_eq!(down.severity, Severity::Warning);
        let nameless = assess("rxe0 port 1: RoCE, active", true, 4096, None);
        assert_eq!(nameless.severity, Severity::Warning);
    }
}
