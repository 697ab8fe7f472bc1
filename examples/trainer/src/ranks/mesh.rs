//! The mesh: the coordinates of each rank on five axes, and the group of ranks along each axis.
//!
//! What it does: gives every rank five coordinates, one for each axis, and divides the world into
//! groups along each axis. What is sharded: nothing here; the table lists the division of each axis.
//!
//! ```text
//! axis  divides                     ranks along it exchange                          when
//! dp    rows of the batch           sums of gradients                                once a step
//! pp    layers                      activations and their gradients, pair by pair    once a micro-batch
//! ep    experts (and rows, as dp)   tokens, to the ranks of their experts and back   four times a layer
//! cp    positions of a sequence     keys and values, or heads for positions          every layer
//! tp    columns, rows, heads        sums of partial activations                      four times a layer
//! ```
//!
//! Which collective runs where: [`MeshGroups::new`] splits the communicator once for each group;
//! none after that. Cost: five splits at the start.
//!
//! The order of the axes is the order of the ranks, `tp` fastest: ranks along `tp` exchange most,
//! so they get neighbouring numbers, and launchers put neighbouring ranks on one machine.

use crate::ranks::group::{RankGroup, SumOrder};
use crate::ranks::shard::Shard;
use maypole::{Communicator, Result};
use std::fmt;

/// A direction of the mesh. Along the last axis the number of a rank changes fastest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MeshAxis {
    /// Data parallel: other rows of the batch, the same parameters.
    Dp,
    /// Pipeline parallel: other layers.
    Pp,
    /// Expert parallel: other experts, and other rows of the batch.
    Ep,
    /// Context parallel: other positions of the same sequences.
    Cp,
    /// Tensor parallel: other columns, rows and heads of the same layers.
    Tp,
}

impl MeshAxis {
    /// All axes, slowest first.
    pub const ALL: [Self; 5] = [Self::Dp, Self::Pp, Self::Ep, Self::Cp, Self::Tp];

    /// The name of the axis, as in `dp=2,tp=2`.
    pub fn name(self) -> &'static str {
        ["dp", "pp", "ep", "cp", "tp"][self as usize]
    }

    /// The axes along which ranks have the same parameters and other tokens, so that all gradients
    /// are summed over them. Along `ep` only the dense parameters are the same, and only their
    /// gradients are summed over `ep`.
    pub const COPIES: [Self; 2] = [Self::Dp, Self::Cp];
}

/// The most ranks that [`Mesh::parse`] takes.
const MOST: usize = 1 << 20;

/// The number of ranks along each axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mesh {
    sizes: [usize; 5],
}

impl Mesh {
    /// The mesh of one rank.
    pub const ONE: Self = Self { sizes: [1; 5] };

    /// The same mesh with `size` ranks along `axis`.
    ///
    /// # Panics
    /// If `size` is zero.
    #[must_use]
    pub fn with(mut self, axis: MeshAxis, size: usize) -> Self {
        assert!(size > 0, "an axis has at least one rank");
        self.sizes[axis as usize] = size;
        self
    }

    /// Reads `dp=2,tp=2`; an axis that is not named has one rank, and the empty text is
    /// [`Mesh::ONE`].
    ///
    /// # Errors
    /// A sentence that names the part that is not an axis, is given twice or has no positive size,
    /// or the limit of ranks.
    pub fn parse(text: &str) -> std::result::Result<Self, String> {
        let mut mesh = Self::ONE;
        let mut named = Vec::new();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (name, size) = part
                .split_once('=')
                .ok_or_else(|| format!("'{part}' is not of the form axis=ranks"))?;
            let axis = MeshAxis::ALL.into_iter().find(|axis| axis.name() == name.trim());
            let axis = axis
                .ok_or_else(|| format!("'{name}' is no axis; there are dp, pp, ep, cp and tp"))?;
            let size = size.trim().parse().ok().filter(|size| *size > 0);
            mesh.sizes[axis as usize] =
                size.ok_or_else(|| format!("'{part}': ranks are a positive number"))?;
            if named.contains(&axis) {
                return Err(format!("'{name}' is named twice"));
            }
            named.push(axis);
        }
        let world = mesh.sizes.iter().try_fold(1usize, |world, size| world.checked_mul(*size));
        if world.is_none_or(|world| world > MOST) {
            return Err(format!("'{text}' has too many ranks: {MOST} is the most"));
        }
        Ok(mesh)
    }

    /// Returns the number of ranks along `axis`.
    pub fn size(&self, axis: MeshAxis) -> usize {
        self.sizes[axis as usize]
    }

    /// Returns the product of the numbers of ranks along `axes`.
    pub fn sizes(&self, axes: &[MeshAxis]) -> usize {
        axes.iter().map(|axis| self.size(*axis)).product()
    }

    /// Returns the number of all ranks.
    pub fn world(&self) -> usize {
        self.sizes.iter().product()
    }

    /// Returns the coordinates of `rank`.
    ///
    /// # Panics
    /// If there is no such rank.
    pub fn place(&self, rank: usize) -> MeshCoordinates {
        assert!(rank < self.world(), "rank {rank} of {}", self.world());
        let mut at = [0; 5];
        let mut rest = rank;
        for (at, size) in at.iter_mut().zip(self.sizes).rev() {
            *at = rest % size;
            rest /= size;
        }
        MeshCoordinates { at }
    }

    /// Returns the rank at coordinates `place`.
    pub fn rank(&self, place: MeshCoordinates) -> usize {
        place.at.iter().zip(self.sizes).fold(0, |rank, (at, size)| rank * size + at)
    }

    /// Returns the ranks whose coordinates equal those of `rank` except along `axes`, in ascending
    /// order. `rank` is among them.
    pub fn members(&self, rank: usize, axes: &[MeshAxis]) -> Vec<usize> {
        let color = self.color(rank, axes);
        (0..self.world()).filter(|other| self.color(*other, axes) == color).collect()
    }

    /// Returns a mesh of `ranks` ranks along `dp`.
    pub fn replicas(ranks: usize) -> Self {
        let mut mesh = Self::ONE;
        mesh.sizes[MeshAxis::Dp as usize] = ranks;
        mesh
    }

    /// Returns the part of a batch's rows that the rank at `place` trains on, if all parts are
    /// equal. Rows are divided over `dp` and `ep` together.
    pub fn rows(&self, place: MeshCoordinates) -> Shard {
        let index = place.at(MeshAxis::Dp) * self.size(MeshAxis::Ep) + place.at(MeshAxis::Ep);
        Shard { index, of: self.sizes(&[MeshAxis::Dp, MeshAxis::Ep]) }
    }

    /// Returns the least rank of the group of `rank` along `axes`. It is the same for all ranks of
    /// a group, and serves as the color of the split.
    fn color(&self, rank: usize, axes: &[MeshAxis]) -> usize {
        self.rank(axes.iter().fold(self.place(rank), |place, axis| place.with(*axis, 0)))
    }

    /// Returns the map of the groups as text: one line for each axis of more than one rank, with
    /// the ranks of each group.
    ///
    /// ```
    /// use maypole_trainer::ranks::mesh::Mesh;
    /// assert_eq!(
    ///     Mesh::parse("dp=2,tp=2").unwrap().map(),
    ///     "mesh dp=2,tp=2: 4 ranks\n  dp  [0 2] [1 3]\n  tp  [0 1] [2 3]\n"
    /// );
    /// ```
    pub fn map(&self) -> String {
        let mut text = format!(
            "mesh {self}: {} rank{}\n",
            self.world(),
            if self.world() == 1 { "" } else { "s" }
        );
        for axis in MeshAxis::ALL.into_iter().filter(|axis| self.size(*axis) > 1) {
            let leaders = (0..self.world()).filter(|rank| self.color(*rank, &[axis]) == *rank);
            let group = |rank| {
                let members: Vec<String> =
                    self.members(rank, &[axis]).iter().map(usize::to_string).collect();
                format!(" [{}]", members.join(" "))
            };
            text += &format!("  {} {}\n", axis.name(), leaders.map(group).collect::<String>());
        }
        text
    }
}

/// Writes the form that [`Mesh::parse`] reads, without the axes of one rank; `1` for [`Mesh::ONE`].
impl fmt::Display for Mesh {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = MeshAxis::ALL.into_iter().filter(|axis| self.size(*axis) > 1);
        let parts: Vec<String> =
            named.map(|axis| format!("{}={}", axis.name(), self.size(axis))).collect();
        out.write_str(if parts.is_empty() { "1" } else { "" })?;
        out.write_str(&parts.join(","))
    }
}

/// A rank's coordinates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeshCoordinates {
    at: [usize; 5],
}

impl MeshCoordinates {
    /// Returns the coordinate along `axis`.
    pub fn at(&self, axis: MeshAxis) -> usize {
        self.at[axis as usize]
    }

    /// Returns the same place with coordinate `at` along `axis`.
    #[must_use]
    pub fn with(mut self, axis: MeshAxis, at: usize) -> Self {
        self.at[axis as usize] = at;
        self
    }
}

/// The groups of one rank: those along the axes, and the group that gradients are summed over.
#[derive(Clone, Debug)]
pub struct MeshGroups {
    /// The whole mesh.
    pub mesh: Mesh,
    /// The coordinates of this rank.
    pub place: MeshCoordinates,
    /// All ranks of the mesh.
    pub world: RankGroup,
    /// The stages of this rank's pipeline.
    pub pp: RankGroup,
    /// The ranks that have the other experts.
    pub ep: RankGroup,
    /// The ranks that have the other positions of this rank's sequences.
    pub cp: RankGroup,
    /// The ranks that have the other parts of this rank's layers.
    pub tp: RankGroup,
    /// The ranks along [`MeshAxis::COPIES`], which have the same parameters.
    pub copies: RankGroup,
}

impl MeshGroups {
    /// Splits `world` along the mesh. All groups sum in `order`. All ranks call it.
    ///
    /// # Errors
    /// As [`Communicator::split`].
    ///
    /// # Panics
    /// If the mesh and the communicator have different numbers of ranks.
    pub fn new(world: Communicator, mesh: Mesh, order: SumOrder) -> Result<Self> {
        assert_eq!(world.world(), mesh.world(), "mesh {mesh} and the communicator differ in size");
        let rank = world.rank();
        let world =
            if mesh.world() == 1 { RankGroup::single() } else { RankGroup::new(world, order) };
        let along = |axes: &[MeshAxis]| world.split(mesh.color(rank, axes), rank);
        let [pp, ep, cp] =
            [along(&[MeshAxis::Pp])?, along(&[MeshAxis::Ep])?, along(&[MeshAxis::Cp])?];
        let [tp, copies] = [along(&[MeshAxis::Tp])?, along(&MeshAxis::COPIES)?];
        Ok(Self { mesh, place: mesh.place(rank), world, pp, ep, cp, tp, copies })
    }

    /// Returns the part of a batch's rows that this rank trains on, if all parts are equal. Rows
    /// are divided over `dp` and `ep` together.
    pub fn rows(&self) -> Shard {
        self.mesh.rows(self.place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rank_is_the_inverse_of_place() {
        let mesh = Mesh::parse("dp=2,pp=3,ep=2,cp=1,tp=4").unwrap();
        assert_eq!(mesh.world(), 48);
        for rank in 0..48 {
            assert_eq!(mesh.rank(mesh.place(rank)), rank);
        }
        assert_eq!(mesh.place(1).at(MeshAxis::Tp), 1, "tp changes fastest");
        assert_eq!(mesh.place(24).at(MeshAxis::Dp), 1, "dp changes slowest");
    }

    #[test]
    fn groups_of_an_axis_divide_the_world() {
        let mesh = Mesh::parse("dp=2,pp=2,cp=3,tp=2").unwrap();
        for axes in MeshAxis::ALL.iter().map(std::slice::from_ref).chain([&MeshAxis::COPIES[..]]) {
            let mut seen = vec![0; mesh.world()];
            for rank in 0..mesh.world() {
                let members = mesh.members(rank, axes);
                assert_eq!(members.len(), mesh.sizes(axes));
                members.iter().for_each(|member| seen[*member] += 1);
            }
            assert!(seen.iter().all(|seen| *seen == mesh.sizes(axes)), "{axes:?}");
        }
    }

    #[test]
    fn parse_reads_what_display_writes() {
        for text in ["dp=2,tp=2", "pp=4", "dp=2,pp=2,ep=2,cp=2,tp=2"] {
            assert_eq!(Mesh::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(Mesh::parse("").unwrap(), Mesh::ONE);
        for (text, part) in [
            ("dp", "'dp'"),
            ("xp=2", "'xp'"),
            ("dp=0", "'dp=0'"),
            ("dp=2,dp=2", "twice"),
            ("dp=4294967296,ep=4294967296", "too many"),
        ] {
            assert!(Mesh::parse(text).unwrap_err().contains(part), "{text}");
        }
    }

    #[test]
    fn communicators_have_the_members_that_the_mesh_says() {
        let mesh = Mesh::parse("dp=2,pp=2,tp=2").unwrap();
        Communicator::run_local(8, |comm| {
            let rank = comm.rank();
            let groups = MeshGroups::new(comm, mesh, SumOrder::Fast).unwrap();
            let parts =
                [(&groups.tp, vec![MeshAxis::Tp]), (&groups.copies, MeshAxis::COPIES.to_vec())];
            for (group, axes) in parts {
                let members = group.gather(&[rank as u64]).unwrap();
                let expected: Vec<u64> =
                    mesh.members(rank, &axes).into_iter().map(|rank| rank as u64).collect();
                assert_eq!(members, expected);
            }
        });
    }
}
