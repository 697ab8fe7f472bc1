//! The address by which hosts reach rank 0: which one is taken, and whether it is the right one.

use std::io;
use std::net::{IpAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use anyhow::{Result, bail};

use super::list::HostRanks;
use super::messages::Hello;
use super::ssh::is_loopback;

/// How long a host may take to reach rank 0's host.
const ROUTE_TIME: Duration = Duration::from_secs(5);

/// The address of rank 0, on the first host: `given`, or the one at which ssh has reached that host; if
/// it is the launcher's, the one from which ssh has reached another one; else its name.
pub(super) fn root_address(
    given: Option<&str>,
    hosts: &[HostRanks],
    hellos: &[Hello],
) -> Result<String> {
    if let Some(given) = given {
        return Ok(given.to_owned());
    }
    if hosts.len() == 1 {
        return Ok("127.0.0.1".to_owned());
    }
    // "CLIENT PORT SERVER PORT".
    let field = |hello: &Hello, nth: usize| {
        let address = hello.connection.as_ref()?.split_whitespace().nth(nth)?;
        address.parse().ok().filter(|address: &IpAddr| !address.is_loopback())
    };
    let of_first = field(&hellos[0], 2);
    let found = match hellos[0].connection {
        Some(_) => of_first,
        None => hellos[1..].iter().find_map(|hello| field(hello, 0)),
    };
    match found {
        Some(address) => Ok(address.to_string()),
        None if is_loopback(hosts[0].address()) => bail!(
            "{} means another host on every host: name this one as the others know it, or give its \
             address with --address",
            hosts[0].name
        ),
        None => Ok(hosts[0].address().to_owned()),
    }
}

/// Connects to rank 0's host, which listens there.
///
/// # Errors
/// The error of the last of its addresses.
pub(super) fn try_route(address: &str, port: u16) -> io::Result<()> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for address in (address, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, ROUTE_TIME) {
            Ok(_) => return Ok(()),
            Err(error) => last = error,
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(given: Option<&str>, hosts: &[(&str, Option<&str>)]) -> Result<String> {
        let hello = |connection: Option<&str>| Hello {
            protocol: 1,
            version: String::new(),
            file: String::new(),
            ports: None,
            connection: connection.map(str::to_owned),
        };
        let hellos: Vec<Hello> = hosts.iter().map(|host| hello(host.1)).collect();
        let ranks = |name: &str| HostRanks { name: name.to_owned(), first: 0, count: 1 };
        let hosts: Vec<HostRanks> = hosts.iter().map(|host| ranks(host.0)).collect();
        root_address(given, &hosts, &hellos)
    }

    #[test]
    fn rank_0_is_where_ssh_has_found_its_host() {
        let (a, b) = (Some("10.0.0.9 5000 10.0.0.1 22"), Some("10.0.0.9 5001 10.0.0.2 22"));
        assert_eq!(address(None, &[("a", a), ("b", b)]).unwrap(), "10.0.0.1");
        assert_eq!(address(None, &[("here", None), ("b", b)]).unwrap(), "10.0.0.9");
        assert_eq!(address(Some("x"), &[("a", a), ("b", b)]).unwrap(), "x");
        assert_eq!(address(None, &[("me@a", None), ("b", None)]).unwrap(), "a");
        let tunnel = Some("127.0.0.1 5000 127.0.0.1 22");
        assert_eq!(address(None, &[("a", tunnel), ("b", b)]).unwrap(), "a");
        assert_eq!(address(None, &[("localhost", None)]).unwrap(), "127.0.0.1");
        let error = address(None, &[("localhost", None), ("b", None)]).unwrap_err().to_string();
        assert!(error.contains("--address"), "{error}");
    }
}
