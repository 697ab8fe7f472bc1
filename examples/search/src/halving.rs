//! Rungs: which trials are promoted, and which group of ranks trains each trial.
//!
//! Pure: equal arguments give equal results on every rank, without communication.

/// The trials promoted to the next rung, best first: one of every `keep`, rounded up. `scores`
/// are pairs of trial and loss; of equal losses the lower trial is better. A trial whose loss is
/// not finite is not promoted.
///
/// ```
/// use maypole_search::halving::survivors;
/// let scores = [(0, 2.0), (1, 1.5), (2, f64::NAN), (3, 1.5)];
/// assert_eq!(survivors(&scores, 2), [1, 3]);
/// assert_eq!(survivors(&scores, 4), [1]);
/// ```
pub fn survivors(scores: &[(usize, f64)], keep: usize) -> Vec<usize> {
    let mut ranked: Vec<(usize, f64)> =
        scores.iter().copied().filter(|(_, loss)| loss.is_finite()).collect();
    ranked.sort_by(|a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0)));
    let most = scores.len().div_ceil(keep);
    ranked.into_iter().take(most).map(|(trial, _)| trial).collect()
}

/// The group of each trial, in the order of `costs`, which are pairs of trial and work. The trial
/// with the most work goes to the group with the least work so far, then the next.
///
/// ```
/// use maypole_search::halving::groups_of;
/// let costs = [(0, 1.0), (1, 4.0), (2, 2.0), (3, 1.0)];
/// assert_eq!(groups_of(&costs, 2), [1, 0, 1, 1]);
/// ```
///
/// # Panics
/// If there is no group.
pub fn groups_of(costs: &[(usize, f64)], groups: usize) -> Vec<usize> {
    assert!(groups > 0, "trials need a group of ranks");
    let mut order: Vec<usize> = (0..costs.len()).collect();
    order.sort_by(|a, b| costs[*b].1.total_cmp(&costs[*a].1).then(costs[*a].0.cmp(&costs[*b].0)));
    let mut work = vec![0.0; groups];
    let mut chosen = vec![0; costs.len()];
    for place in order {
        let least = (0..groups).min_by(|a, b| f64::total_cmp(&work[*a], &work[*b])).unwrap_or(0);
        chosen[place] = least;
        work[least] += costs[place].1;
    }
    chosen
}
