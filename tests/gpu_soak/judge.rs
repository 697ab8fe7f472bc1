//! The results of a round that its plan allows.

use crate::plan::{Class, Plan};
use crate::spawn::Ended;

/// How the calls of a round ended that did as it should.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Verdict {
    AllRight,
    /// Some ranks have errors, as they may.
    SomeFailed,
}

/// A step that did not end well.
#[derive(Debug)]
struct Trouble<'a> {
    text: &'a str,
    is_wrong: bool,
}

/// # Errors
/// The violation, as a sentence.
pub(crate) fn judge(plan: &Plan, ended: &[Ended]) -> Result<Verdict, String> {
    // Ranks that name other roots, and wait for nothing, print that when they leave: see `faults.md`.
    let prints = ended.iter().flat_map(|it| &it.lines).any(|it| it.contains("ranks do not match"));
    let troubles = ended.iter().flat_map(|process| process.said("trouble"));
    let troubles: Vec<Trouble<'_>> = troubles.map(trouble).collect();
    if let Some(found) = troubles.iter().find(|trouble| trouble.is_wrong) {
        return Err(format!("WRONG: {}", found.text));
    }
    for (ranks, process) in plan.processes().iter().zip(ended) {
        ended_well(plan, ranks, process)?;
    }
    match troubles.first() {
        Some(found) if !plan.class.is_disturbed() => {
            Err(format!("an error, and no rank did anything wrong: {}", found.text))
        }
        Some(_) => Ok(Verdict::SomeFailed),
        None if plan.class == Class::Mismatch && plan.mismatch.is_some() && !prints => {
            Err("calls that do not match were no error on any rank".to_owned())
        }
        None => Ok(Verdict::AllRight),
    }
}

/// `rank R step S error ...` or `... wrong ...`
fn trouble(said: &str) -> Trouble<'_> {
    let kind = said.split(' ').nth(4);
    Trouble { text: said, is_wrong: kind != Some("error") }
}

/// # Errors
/// How the process of these ranks ended instead.
fn ended_well(plan: &Plan, ranks: &[usize], process: &Ended) -> Result<(), String> {
    let all = process.said("ended").len() == ranks.len();
    match process.code {
        Some(0) if all => Ok(()),
        None if plan.kills(ranks) => Ok(()),
        Some(0) => Err(format!("not all of the ranks {ranks:?} ended")),
        Some(code) => Err(format!("the process of the ranks {ranks:?} ended with code {code}")),
        None => Err(format!("a signal ended the process of the ranks {ranks:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::draw;
    use crate::plan::Layout;

    /// A plan of this class whose ranks are threads.
    fn plan(class: Class) -> Plan {
        let mut plans = (0..).map(|seed| draw(seed, &[class]));
        let is_one = |plan: &Plan| {
            plan.layout == Layout::Threads && !plan.kills(&[0, 1, 2, 3][..plan.world])
        };
        plans.find(is_one).expect("there are many")
    }

    fn ended(plan: &Plan, code: Option<i32>, lines: &[&str]) -> [Ended; 1] {
        let all = (0..plan.world).map(|rank| format!("@ended {rank}"));
        [Ended { code, lines: all.chain(lines.iter().map(|&line| line.to_owned())).collect() }]
    }

    #[test]
    fn wrong_numbers_errors_signals_and_panics_are_defects() {
        let wrong = "@trouble rank 1 step 3 wrong call 2: output[0] is 110 and must be 11";
        let error = "@trouble rank 0 step 1 error rank 0 waited";
        let (calm, late) = (plan(Class::Calm), plan(Class::Late));
        let judged = |plan: &Plan, code, lines: &[&str]| judge(plan, &ended(plan, code, lines));
        assert!(judged(&late, Some(0), &[wrong]).unwrap_err().contains("110"));
        assert!(judged(&calm, Some(0), &[error]).is_err());
        assert_eq!(judged(&late, Some(0), &[error]), Ok(Verdict::SomeFailed));
        assert_eq!(judged(&late, Some(0), &[]), Ok(Verdict::AllRight));
        assert!(judged(&late, None, &[]).unwrap_err().contains("signal"));
        assert!(judged(&late, Some(101), &[]).unwrap_err().contains("101"));
        let unseen = Plan { mismatch: Some("rank 1".to_owned()), ..plan(Class::Mismatch) };
        assert!(judged(&unseen, Some(0), &[]).is_err());
        assert!(judged(&unseen, Some(0), &["maypole: ranks do not match"]).is_ok());
    }
}
