//! The working memory of a communicator's calls. One call runs at a time, so all share it.

use maypole_kernels::Region;

use crate::engine::calls::call::ReadyCall;
use crate::execute::Buffers;

/// Memory below this is not freed: another call soon needs it.
const SMALL: usize = 1 << 20;

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(in crate::engine) struct WorkspaceNeed {
    pub(in crate::engine) scratch: usize,
    /// Bytes for a copy of the input. Zero if the program reads the caller's.
    pub(in crate::engine) staging: usize,
    /// The program itself, and not the scaling of a call, needs the copy.
    pub(in crate::engine) stages_input: bool,
}

impl WorkspaceNeed {
    /// The need of a workspace that serves both programs.
    pub(super) fn max(self, other: Self) -> Self {
        Self {
            scratch: self.scratch.max(other.scratch),
            staging: self.staging.max(other.staging),
            stages_input: false,
        }
    }
}

/// Scratch and staging memory, as large as the most demanding cached call needs.
#[derive(Debug)]
pub(super) struct Workspace {
    scratch: Region,
    staging: Region,
}

impl Default for Workspace {
    fn default() -> Self {
        Self { scratch: Region::new(0), staging: Region::new(0) }
    }
}

impl Workspace {
    /// Grows the workspace for a call with this `need`. Returns false if there is no memory for it.
    #[must_use]
    pub(super) fn grow(&mut self, need: WorkspaceNeed) -> bool {
        grow(&mut self.scratch, need.scratch) && grow(&mut self.staging, need.staging)
    }

    /// True if a call with this `need` may be the reason for the present size.
    pub(super) fn is_due_to(&self, need: WorkspaceNeed) -> bool {
        is_due(&self.scratch, need.scratch) || is_due(&self.staging, need.staging)
    }

    /// Frees memory that is far more than `need`, which is that of all remaining calls.
    pub(super) fn shrink(&mut self, need: WorkspaceNeed) {
        for (region, bytes) in
            [(&mut self.scratch, need.scratch), (&mut self.staging, need.staging)]
        {
            if region.len() > SMALL && bytes < region.len() / 2 {
                *region = Region::new(bytes);
            }
        }
    }

    /// The memory of a call with this `need`. Copies or scales the input, if the call needs that.
    #[inline(always)]
    pub(super) fn buffers<'a>(
        &'a self,
        need: WorkspaceNeed,
        ReadyCall { call, scaling, input, output }: ReadyCall<'a>,
    ) -> Buffers<'a> {
        let mut buffers = Buffers { input, output, scratch: self.scratch.view() };
        if scaling.is_some() || need.stages_input {
            let into = match call.in_place && !need.stages_input {
                true => output,
                false => self.staging.view().slice(0, input.len()),
            };
            match scaling {
                Some(scaling) => scaling.apply(into, input, call.kind),
                None => into.copy_from(input),
            }
            buffers.input = into.as_view();
        }
        buffers
    }
}

fn grow(region: &mut Region, bytes: usize) -> bool {
    if region.len() >= bytes {
        return true;
    }
    let grown = Region::try_new(bytes).map(|larger| *region = larger);
    grown.is_some()
}

fn is_due(region: &Region, need: usize) -> bool {
    region.len() > SMALL && need > region.len() / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    fn need(scratch: usize, staging: usize) -> WorkspaceNeed {
        WorkspaceNeed { scratch, staging, stages_input: false }
    }

    #[test]
    fn memory_grows_with_the_need_and_is_given_back_when_half_of_it_is_not_needed() {
        let mut workspace = Workspace::default();
        assert!(workspace.grow(need(8 * SMALL, 10)));
        assert!(workspace.grow(need(100, 3 * SMALL)));
        assert!(!workspace.grow(need(1 << 62, 0)) && !workspace.grow(need(0, usize::MAX)));
        assert_eq!((workspace.scratch.len(), workspace.staging.len()), (8 * SMALL, 3 * SMALL));
        assert!(workspace.is_due_to(need(5 * SMALL, 0)) && !workspace.is_due_to(need(SMALL, 0)));
        workspace.shrink(need(5 * SMALL, 100).max(need(100, 2 * SMALL)));
        assert_eq!((workspace.scratch.len(), workspace.staging.len()), (8 * SMALL, 3 * SMALL));
        workspace.shrink(need(100, 200));
        assert_eq!((workspace.scratch.len(), workspace.staging.len()), (100, 200));
        workspace.shrink(need(0, 0));
        assert_eq!((workspace.scratch.len(), workspace.staging.len()), (100, 200));
    }
}
