//! The settings of a process that joins by its environment.

use super::host_name;
use crate::control::transport::Transport;
use crate::engine::settings::CallSettings;
use crate::error::{Error, Result};
use crate::tuner::Network;
use crate::world::bootstrap::interface::InterfaceSelector;
use crate::world::bootstrap::{JoinConfig, published_address};
use crate::world::launch::{Launch, VARIABLES};
use maypole_transports::ib::VerbsSettings;
use std::env::VarError;
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;
use tracing::Level;

/// The values of all variables but those of the launcher. [`VARIABLES`] describes each. The default
/// is that of a process without variables.
#[derive(Default)]
pub(super) struct Environment {
    pub(super) transport: Transport,
    pub(super) interface: Option<InterfaceSelector>,
    pub(super) status_signal: Option<String>,
    pub(super) status_socket: Option<String>,
    pub(super) trace: Option<String>,
    pub(super) log: Option<Level>,
    pub(super) settings: CallSettings,
    pub(super) encrypts: bool,
    pub(super) data_ports: Option<RangeInclusive<u16>>,
    pub(super) verbs: VerbsSettings,
    pub(super) network: Option<Network>,
}

/// The error of a text that is no number of bytes.
const BYTES: &str = "is no number of bytes like 67108864";

impl Environment {
    /// Reads the variables of this process.
    ///
    /// # Errors
    /// [`Error::Join`], which names the variable, its value, and the valid values.
    pub(super) fn read() -> Result<Self> {
        Ok(Self {
            transport: named("MAYPOLE_TRANSPORT")?.unwrap_or_default(),
            interface: named("MAYPOLE_INTERFACE")?,
            status_signal: named("MAYPOLE_STATUS_SIGNAL")?,
            status_socket: named("MAYPOLE_STATUS_SOCKET")?,
            trace: named("MAYPOLE_TRACE")?,
            log: parsed("MAYPOLE_LOG", "is none of error, warn, info, debug, trace")?,
            settings: CallSettings {
                plan: None,
                preferred: named("MAYPOLE_ALGORITHM")?,
                deterministic: is_on("MAYPOLE_DETERMINISTIC")?,
                checked: is_on("MAYPOLE_CHECK")?,
                way: named("MAYPOLE_WAY")?,
                program_limit: parsed("MAYPOLE_PROGRAM_MEMORY", BYTES)?,
            },
            encrypts: is_on("MAYPOLE_ENCRYPT")?,
            data_ports: ports("MAYPOLE_DATA_PORTS")?,
            verbs: verbs()?,
            network: named("MAYPOLE_NETWORK")?,
        })
    }

    /// The configuration by which this process joins, which takes the key and the connection of
    /// `launch`.
    ///
    /// # Errors
    /// [`Error::Join`] if the launcher must provide the address of rank 0, and does not.
    pub(super) fn configuration(&self, mut launch: Launch) -> Result<JoinConfig> {
        let mut address = launch.address.take();
        let is_root = launch.rank == 0 && launch.pmi.is_some();
        let mine = is_root.then(|| self.own_address(&launch)).transpose()?;
        if let Some(pmi) = &mut launch.pmi {
            let found = pmi.exchange("maypole-address", mine.as_deref());
            address = Some(found?);
        }
        Ok(self.complete(JoinConfig {
            address,
            ports: launch.ports,
            job: launch.job,
            key: launch.key.as_ref().map(|key| *key.bytes()),
            join_timeout: launch.timeout,
            timeout: launch.timeout,
            ..JoinConfig::new(launch.rank, launch.world, "")
        }))
    }

    /// The address that this process, rank 0, publishes.
    fn own_address(&self, launch: &Launch) -> Result<String> {
        if launch.local_world == Some(launch.world) {
            return Ok("127.0.0.1".to_owned());
        }
        Ok(published_address(host_name(), self.interface.as_ref())?)
    }

    /// `config` with these settings, which leave rank, world, address, ports, job, key and timeouts
    /// as they are.
    pub(super) fn complete(&self, config: JoinConfig) -> JoinConfig {
        let equal = VARIABLES.iter().filter(|variable| variable.equal_on_all_ranks);
        let value = |name: &str| std::env::var(name).unwrap_or_default();
        JoinConfig {
            interface: self.interface.clone(),
            data_ports: self.data_ports.clone(),
            host: std::env::var("MAYPOLE_HOST").ok().filter(|host| !host.is_empty()),
            equal: equal.map(|variable| (variable.name.to_owned(), value(variable.name))).collect(),
            insecure_without_key: false,
            encrypt: self.encrypts,
            verbs: self.verbs.clone(),
            ..config
        }
    }
}

/// The value of `variable` as `parse` reads it; `None` if it is not set, empty or `auto`.
fn read<T, E: fmt::Display>(
    variable: &str,
    parse: impl FnOnce(&str) -> std::result::Result<T, E>,
) -> Result<Option<T>> {
    let refused = |why: &dyn fmt::Display| Error::wrong_setting(format!("{variable}: {why}"));
    let value = match std::env::var(variable) {
        Ok(value) if !value.is_empty() && value != "auto" => value,
        Ok(_) | Err(VarError::NotPresent) => return Ok(None),
        Err(error @ VarError::NotUnicode(_)) => return Err(refused(&error)),
    };
    parse(&value).map(Some).map_err(|error| refused(&error))
}

/// The value of `variable`, parsed by its type; `None` if it is not set, empty or `auto`.
///
/// # Errors
/// [`Error::Join`], which names the variable.
pub(crate) fn named<T: FromStr<Err: fmt::Display>>(variable: &str) -> Result<Option<T>> {
    read(variable, str::parse)
}

/// The port of an RDMA device, and the parameters of its packets.
fn verbs() -> Result<VerbsSettings> {
    let usual = VerbsSettings::default();
    Ok(VerbsSettings {
        device: named("MAYPOLE_IB_DEVICE")?,
        port: number("MAYPOLE_IB_PORT", 1..=254)?,
        gid_index: number("MAYPOLE_IB_GID_INDEX", 0..=255)?,
        service_level: number("MAYPOLE_IB_SERVICE_LEVEL", 0..=15)?.unwrap_or(usual.service_level),
        traffic_class: number("MAYPOLE_IB_TRAFFIC_CLASS", 0..=255)?.unwrap_or(usual.traffic_class),
        partition_key_index: number("MAYPOLE_IB_PKEY_INDEX", 0..=65_535)?
            .unwrap_or(usual.partition_key_index),
        // 0 would mean no timeout of a packet.
        timeout: number("MAYPOLE_IB_TIMEOUT", 1..=31)?.unwrap_or(usual.timeout),
        retries: number("MAYPOLE_IB_RETRIES", 0..=7)?.unwrap_or(usual.retries),
    })
}

/// A number in `range`.
fn number<T: TryFrom<u32>>(variable: &str, range: RangeInclusive<u32>) -> Result<Option<T>> {
    let (least, most) = (range.start(), range.end());
    read(variable, |text| {
        let parsed = text.parse().ok().filter(|number| range.contains(number));
        let parsed = parsed.and_then(|number| T::try_from(number).ok());
        parsed.ok_or_else(|| format!("'{text}' is no number from {least} to {most}"))
    })
}

/// A setting that is off (`0`) or on (`1`).
fn is_on(variable: &str) -> Result<bool> {
    let switch = read(variable, |text| match text {
        "0" => Ok(false),
        "1" => Ok(true),
        _ => Err(format!("'{text}' is neither 0 nor 1")),
    });
    Ok(switch?.unwrap_or(false))
}

/// The value of a variable, parsed by its type; `flaw` completes the error of an invalid text.
fn parsed<T: FromStr>(variable: &str, flaw: &str) -> Result<Option<T>> {
    read(variable, |text| text.parse().map_err(|_| format!("'{text}' {flaw}")))
}

/// Ports from the first to the last.
fn ports(variable: &str) -> Result<Option<RangeInclusive<u16>>> {
    read(variable, |text| {
        let ends = text.split_once('-');
        let range = ends.and_then(|(first, last)| Some(first.parse().ok()?..=last.parse().ok()?));
        let range = range.filter(|range| *range.start() > 0 && !range.is_empty());
        range.ok_or_else(|| format!("'{text}' is no range of ports like 21000-21063"))
    })
}
