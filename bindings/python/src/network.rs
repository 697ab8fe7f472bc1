//! This host's addresses, for ranks that meet through a store of PyTorch.

use crate::error::{invalid, raise};
use maypole::world::bootstrap::check_descriptors;
use maypole::world::bootstrap::interface::{InterfaceChoice, InterfaceSelector};
use maypole_transports::interfaces::{InterfaceAddress, addresses};
use pyo3::prelude::*;
use std::net::{IpAddr, Ipv4Addr};

/// The addresses at which other hosts may reach this one: that of MAYPOLE_INTERFACE if it is set, else
/// all that mean this host elsewhere, in the order of the kernel.
#[pyfunction]
pub(crate) fn _network_addresses() -> PyResult<Vec<String>> {
    let all = addresses().map_err(|error| {
        invalid(format!("the addresses of this host's interfaces cannot be read: {error}"))
    })?;
    let variable = std::env::var("MAYPOLE_INTERFACE").unwrap_or_default();
    if variable.is_empty() || variable == "auto" {
        let network = all.iter().filter(|it| is_of_network(it)).map(|it| it.address.to_string());
        return Ok(network.collect());
    }
    let wrong = |why: String| invalid(format!("MAYPOLE_INTERFACE: {why}"));
    let selector: InterfaceSelector = variable.parse().map_err(wrong)?;
    let any = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    let choice = InterfaceChoice::new(all, Some(&selector), any).map_err(wrong)?;
    Ok(vec![choice.chosen.address.to_string()])
}

/// Raises the error with which this process would fail to join a world of `world` ranks, whatever the others do.
#[pyfunction]
pub(crate) fn _check_join(world: usize) -> PyResult<()> {
    check_descriptors(world).map_err(|error| raise(&error.into()))
}

fn is_of_network(interface: &InterfaceAddress) -> bool {
    let is_link_local = match interface.address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    !interface.address.is_loopback() && !is_link_local
}
