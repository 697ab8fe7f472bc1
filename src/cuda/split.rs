//! Groups of some of the ranks of a group.

use super::comm::Comm;
use super::id::Id;
use super::options::CommOptions;
use crate::error::{Error, Result};
use std::net::IpAddr;

impl Comm {
    /// Makes a group of those ranks that name the same `color`, in the order of their `key`, and of their
    /// rank where keys are equal. A rank that names none gets none. Collective on the host: returns when
    /// all ranks have called it and the new group has met. It does not touch the stream, and the new group
    /// fails, is aborted and is left without this one.
    ///
    /// ```no_run
    /// # fn rank(comm: &maypole::cuda::Comm) -> maypole::error::Result<()> {
    /// let halves = comm.split(Some(comm.rank() as u32 % 2), 0, &Default::default())?;
    /// assert_eq!(halves.unwrap().world_size(), comm.world_size().div_ceil(2));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As every call, and as [`from_rank`](Self::from_rank).
    pub fn split(
        &self,
        color: Option<u32>,
        key: i32,
        options: &CommOptions,
    ) -> Result<Option<Self>> {
        let mine = (color, key, self.own_id()?.bytes.to_vec());
        let told = self.lock().comm.agree_on("split() of a cuda::Comm", &mine)?;
        if color.is_none() {
            return Ok(None);
        }
        let mut members: Vec<_> =
            told.iter().enumerate().filter(|(_, choice)| choice.0 == color).collect();
        members.sort_by_key(|(rank, choice)| (choice.1, *rank));
        let me = members.iter().position(|(rank, _)| *rank == self.rank());
        let first = members.first().and_then(|(_, choice)| choice.2[..].try_into().ok());
        let (Some(me), Some(id)) = (me, first.map(|bytes| Id { bytes })) else {
            return Err(Error::wrong_setting("this rank told another group"));
        };
        Self::from_rank_with(self.context(), me, members.len(), id, options).map(Some)
    }

    /// The name of a group whose rank 0 is this rank: all members have met it at this address before.
    fn own_id(&self) -> Result<Id> {
        let listening = self.lock().comm.engine.get().health.control.listening();
        match listening.map(|address| address.ip()) {
            // A link-local address needs an interface, which differs by host.
            Some(IpAddr::V6(address)) if address.is_unicast_link_local() => Id::new(),
            Some(address) => Id::at(&address.to_string()),
            None => Id::at("127.0.0.1"),
        }
    }
}
