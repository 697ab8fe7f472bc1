//! Reads Slurm's abbreviations: `node[003-005,9],other` for hosts, `2(x3),1` for tasks on each.

/// The first host of a list, brackets expanded; `None` if the list is malformed or empty.
///
/// Only the first is expanded: twenty characters may abbreviate a million hosts.
pub(super) fn first_host(list: &str) -> Option<String> {
    let mut host = String::new();
    let mut rest = list.trim();
    loop {
        let plain = rest.find(['[', ',']).unwrap_or(rest.len());
        host.push_str(&rest[..plain]);
        rest = &rest[plain..];
        let Some(inside) = rest.strip_prefix('[') else { break };
        let (ranges, after) = inside.split_once(']')?;
        host.push_str(first_number(ranges)?);
        rest = after;
    }
    let is_of_a_name = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    (!host.is_empty() && host.chars().all(is_of_a_name)).then_some(host)
}

/// The first number of `003-005,9`, with its zeros.
fn first_number(ranges: &str) -> Option<&str> {
    let first = ranges.split(',').next()?;
    let number = first.split('-').next()?;
    (!number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())).then_some(number)
}

/// How many tasks `2(x3),1` gives to the node of this index; `None` if the list is malformed or
/// too short.
pub(super) fn tasks_of_node(counts: &str, node: usize) -> Option<usize> {
    let mut before = 0_usize;
    for part in counts.split(',') {
        let (tasks, nodes) = match part.trim().split_once("(x") {
            Some((tasks, nodes)) => (tasks, nodes.strip_suffix(')')?.parse().ok()?),
            None => (part.trim(), 1),
        };
        before = before.checked_add(nodes)?;
        if node < before {
            return tasks.parse().ok().filter(|tasks| *tasks > 0);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_first_host_of_a_list() {
        let check = |list: &str, first: Option<&str>| {
            assert_eq!(first_host(list).as_deref(), first, "{list}")
        };
        check("node[003-005,9],other", Some("node003"));
        check("a[1-2]b[3-4]", Some("a1b3"));
        check("gpu-7.cluster,gpu-8.cluster", Some("gpu-7.cluster"));
        check("n[9,003]-ib", Some("n9-ib"));
        check("rack[0-1]node[00-63],x", Some("rack0node00"));
        check("n[0-99999999999999999999]", Some("n0"));
        for malformed in ["", ",", ",b", "n[1-2", "n[]", "n[-3]", "n[a-b]", "[[1]]", "n]", "a b"] {
            check(malformed, None);
        }
    }

    #[test]
    fn tasks_on_each_node() {
        let tasks = |node| tasks_of_node("2(x3),1,4(x2)", node);
        assert_eq!(
            [0, 2, 3, 4, 5, 6].map(tasks),
            [Some(2), Some(2), Some(1), Some(4), Some(4), None]
        );
        for malformed in ["", "x", "2(x", "2(x)", "(x2)", "2x3", "0", "-1"] {
            assert_eq!(tasks_of_node(malformed, 0), None, "{malformed}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_them_panic(text in "[a-c0-9\\[\\],()x -]{0,20}|.{0,20}", node: usize) {
            first_host(&text);
            tasks_of_node(&text, node);
        }
    }
}
