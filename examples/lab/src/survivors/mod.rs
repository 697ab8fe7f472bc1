//! A rank dies, and the others continue: without a checkpoint, and without losing a number.
//!
//! What it does: the surviving ranks make a smaller communicator
//! ([`shrink`](maypole::Communicator::shrink)), agree on the last step that all of them have done,
//! restore the state after that step, and divide the rows of a batch anew. From there on losses
//! are those of a run on the smaller world, to the bit if sums are added in the order of ranks.
//!
//! # What is sharded
//!
//! Under ZeRO 1 and 2 a rank has the optimizer's averages of its part of the parameters. The next
//! rank keeps a copy of them ([`keeper`]), which it updates in the same step, from the same
//! gradients, by the same rule: the copy is bitwise equal. So a part is lost only if a rank
//! and the next one die in the same step. Weights are on every rank. Forms of data parallelism that
//! divide them (FSDP), or that let them differ, have no second copy and are refused.
//!
//! # Which collective runs where
//!
//! Each step, before the update: a shift around the ring, of the summed gradients of a rank's part.
//! After a death ([`recovery`]): `shrink`, an all-gather of steps, and a broadcast of each part of
//! the optimizer by a rank that has it.
//!
//! # Cost
//!
//! With n ranks and AdamW, 1/n more numbers a parameter leave each rank in a step, in addition to
//! 2 (n-1)/n. Memory: the weights once more and three more parts of the optimizer, since the state
//! before the current step is kept, too. After a death each rank holds the whole optimizer until its
//! next step.
//!
//! # Why one earlier state is enough
//!
//! After a death the others stop at different points, but at most one step apart. A rank overwrites
//! its earlier state when it has the sums of all gradients of a step. By then every rank has ended the
//! previous step, because otherwise its gradient of this one would be missing. So the last step of the
//! slowest rank is, on each of the others, either the last one or the one before.

pub mod keeper;
pub mod kept;
pub mod recovery;

use crate::averaging::DataForm;
use crate::unequal::rows::RowDivision;
use maypole_trainer::data_parallel::sharding::Sharding;
use maypole_trainer::ranks::mesh::{Mesh, MeshAxis};

/// Whether the other ranks of `mesh` can continue when one dies, if they train in this `form` and
/// divide `rows` so.
///
/// # Errors
/// The end of a sentence that begins with the option's name: the loss, and a remedy.
pub fn can_lose_ranks(mesh: Mesh, form: DataForm, rows: &RowDivision) -> Result<(), String> {
    let others = [MeshAxis::Pp, MeshAxis::Ep, MeshAxis::Cp, MeshAxis::Tp];
    if let Some(axis) = others.into_iter().find(|axis| mesh.size(*axis) > 1) {
        return Err(format!(
            "needs ranks of which each has the whole model, or a part dies with a rank, and {0} \
             divides it: give a --mesh of dp alone, or --save-every and restarts",
            axis.name()
        ));
    }
    if !matches!(
        form,
        DataForm::Summed(Sharding::Replicated { .. } | Sharding::Zero1 | Sharding::Zero2)
    ) {
        let why = "needs weights that are on every rank, equal, and here a part dies with a rank: \
                   give --sharding replicated, zero1 or zero2";
        return Err(why.to_owned());
    }
    if *rows != RowDivision::Equal {
        let why = "divides rows evenly over the ranks that are left: leave out --rows-by-speed";
        return Err(why.to_owned());
    }
    Ok(())
}
