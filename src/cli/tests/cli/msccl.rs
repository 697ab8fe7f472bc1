//! Algorithms of MSCCL are read, proved and run as schedules; algorithms that no schedule can
//! express are refused by GPU, thread block and step.

use super::{objects, printed, run, text};
use std::fmt::Write;
use std::fs;

/// A thread block: the GPU that it sends to, that it receives from, its channel, and its steps, such as
/// `rrc i0 o1 x2 after 1.0`: kind, source, target, count, thread block and step that it depends on.
type Block<'a> = (i64, i64, usize, &'a [&'a str]);

/// The head of an algorithm: collective, chunks, and whether it is in place.
type Head<'a> = (&'a str, usize, bool);

fn algo((collective, chunks, in_place): Head<'_>, gpus: &[&[Block<'_>]]) -> String {
    let (world, in_place) = (gpus.len(), u8::from(in_place));
    let mut xml = format!(
        "<algo name=\"test\" proto=\"Simple\" nchannels=\"2\" nchunksperloop=\"{chunks}\" \
         ngpus=\"{world}\" coll=\"{collective}\" inplace=\"{in_place}\">\n"
    );
    for (id, blocks) in gpus.iter().enumerate() {
        let _ = writeln!(xml, "<gpu id=\"{id}\" i_chunks=\"9\" o_chunks=\"9\" s_chunks=\"4\">");
        for (nth, (send, recv, channel, steps)) in blocks.iter().enumerate() {
            let _ = writeln!(
                xml,
                "<tb id=\"{nth}\" send=\"{send}\" recv=\"{recv}\" chan=\"{channel}\">"
            );
            steps.iter().enumerate().for_each(|(s, step)| xml += &xml_step(s, step));
            xml += "</tb>\n";
        }
        xml += "</gpu>\n";
    }
    xml + "</algo>\n"
}

fn xml_step(s: usize, step: &str) -> String {
    let words: Vec<&str> = step.split(' ').collect();
    let places = words.iter().skip(1).filter(|word| ["i", "o", "s"].contains(&&word[..1]));
    let place = |nth: usize| places.clone().nth(nth).map_or(("i", "-1"), |word| word.split_at(1));
    let ((srcbuf, srcoff), (dstbuf, dstoff)) = (place(0), place(1));
    let count = words.iter().find_map(|word| word.strip_prefix('x')).unwrap_or("1");
    let after = words.iter().position(|word| *word == "after").map(|at| words[at + 1]);
    let (depid, deps) = after.map_or(("-1", "-1"), |after| after.split_once('.').unwrap());
    format!(
        "<step s=\"{s}\" type=\"{}\" srcbuf=\"{srcbuf}\" srcoff=\"{srcoff}\" dstbuf=\"{dstbuf}\" \
         dstoff=\"{dstoff}\" cnt=\"{count}\" depid=\"{depid}\" deps=\"{deps}\" hasdep=\"0\"/>\n",
        words[0]
    )
}

/// Proves an algorithm, and runs it.
#[track_caller]
fn proved(head: Head<'_>, gpus: &[&[Block<'_>]]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("algo.xml");
    fs::write(&file, algo(head, gpus)).unwrap();
    let said = printed(&format!("verify --schedule {}", file.display()));
    assert!(said.contains("algo.xml") && said.contains(": proved\n"), "{said}");
    let line =
        format!("perf --schedule {} --threads --budget 1 --sizes 60K --json -", file.display());
    for object in objects(&printed(&line)) {
        assert_eq!(object["wrong"], 0, "{object}");
    }
    printed(&format!("draw --schedule {}", file.display()))
}

/// The error of an algorithm that cannot be read.
#[track_caller]
fn refused(xml: &str, why: &str) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("algo.xml");
    fs::write(&file, xml).unwrap();
    let output = run(&format!("verify --schedule {}", file.display()));
    let said = text(&output.stderr);
    assert!(said.contains("algo.xml: ") && said.contains(why), "{why}: {said}");
    assert_eq!(output.status.code(), Some(2), "{said}");
}

const SEND: Block<'_> = (1, -1, 0, &["s i0 i0"]);
const TAKE: Block<'_> = (-1, 0, 0, &["r i0 o0"]);

/// The file of the book.
#[test]
fn the_ring_of_the_book_is_proved_and_runs() {
    let file = super::blocks::repository().join("examples/book/msccl/ring.xml");
    let said = printed(&format!("verify --schedule {}", file.display()));
    assert!(
        said.starts_with("all-reduce by ring.xml, 3 ranks: proved\nin place: proved\n"),
        "{said}"
    );
    let line =
        format!("perf --schedule {} --threads --budget 1 --sizes 8,60K --json -", file.display());
    for object in objects(&printed(&line)) {
        assert_eq!((&object["wrong"], &object["ranks"]), (&0.into(), &3.into()));
    }
}

/// Out of place: two thread blocks a GPU, scratch, a dependence with a `nop`, and a reduction.
#[test]
fn thread_blocks_wait_for_one_another() {
    let of = |rank: i64| -> [Block<'static>; 3] {
        let (a, b) = ((rank + 1) % 3, (rank + 2) % 3);
        [
            (a, a, 0, &["cpy i0 o0", "s i0 s0", "r i0 s0"]),
            (b, b, 0, &["s i0 s0", "r i0 s1"]),
            (-1, -1, 0, &["nop after 0.2", "re s0 o0 after 1.1", "re s1 o0"]),
        ]
    };
    let gpus = [of(0), of(1), of(2)];
    let gpus: Vec<&[Block<'_>]> = gpus.iter().map(|gpu| gpu.as_slice()).collect();
    let drawn = proved(("allreduce", 1, false), &gpus);
    assert!(drawn.contains("+=tmp") || drawn.contains("=in0"), "{drawn}");
}

/// Two ranks exchange both chunks in place, on a channel each, of which the second is taken first.
#[test]
fn channels_share_a_link_and_places_of_the_input_are_not_written() {
    let of = |other: i64| -> [Block<'static>; 2] {
        [
            (other, other, 0, &["s i0 i0", "rrc i0 i0 after 1.1"]),
            (other, other, 1, &["s i1 i1", "rrc i1 i1"]),
        ]
    };
    let (zero, one) = (of(1), of(0));
    let drawn = proved(("allreduce", 2, true), &[&zero, &one]);
    assert!(drawn.contains("out1 =in1 +="), "{drawn}");
}

#[test]
fn every_collective_has_its_chunks() {
    let (next, before) = ((1, 1), (0, 0));
    let gather = |own: &'static [&'static str], peer: (i64, i64)| -> [Block<'static>; 1] {
        [(peer.0, peer.1, 0, own)]
    };
    // Out of place `i0` is a rank's own block; in place the block stays where it is.
    let zero = gather(&["cpy i0 o0", "s i0 o0", "r i0 o1"], next);
    let one = gather(&["cpy i0 o1", "s i0 o1", "r i0 o0"], before);
    proved(("allgather", 2, false), &[&zero, &one]);
    let zero = gather(&["s o0 o0", "r o1 o1"], next);
    let one = gather(&["s o1 o1", "r o0 o0"], before);
    proved(("allgather", 2, true), &[&zero, &one]);
    let zero = gather(&["s i1 i1", "cpy i0 o0", "rrc o0 o0"], next);
    let one = gather(&["s i0 i0", "rrc i1 o0"], before);
    proved(("reducescatter", 2, false), &[&zero, &one]);
    let zero = gather(&["s i1 i1", "rrc i0 i0"], next);
    let one = gather(&["s i0 i0", "rrc i1 i1"], before);
    proved(("reduce_scatter", 2, true), &[&zero, &one]);
    let zero = gather(&["cpy i0 o0", "s i1 o0", "r i0 o1"], next);
    let one = gather(&["cpy i1 o1", "s i0 o1", "r i0 o0"], before);
    proved(("alltoall", 2, false), &[&zero, &one]);
    // Two chunks a message; the root is the GPU that receives nothing, or sends nothing.
    let chain = [(2, 1, 0, &["rcs i0 o0 x2"] as &[&str])];
    let (root, leaf) = (
        [(0, -1, 0, &["s i0 i0 x2", "cpy i0 o0 x2"] as &[&str])],
        [(-1, 0, 0, &["r i0 o0 x2"] as &[&str])],
    );
    proved(("broadcast", 2, false), &[&chain, &root, &leaf]);
    let sum = [(2, 1, 0, &["rrs i0 i0 x2"] as &[&str])];
    let (first, last) =
        ([(0, -1, 0, &["s i0 i0 x2"] as &[&str])], [(-1, 0, 0, &["rrc i0 o0 x2"] as &[&str])]);
    proved(("reduce", 2, false), &[&sum, &first, &last]);
}

/// Where MSCCL's law is another, the error has the difference and the place.
#[test]
fn a_link_that_would_have_to_hold_a_message_is_refused() {
    // Both overwrite a sent chunk before either has taken it.
    let of = |other: i64| -> [Block<'static>; 1] {
        [(other, other, 0, &["cpy i0 o0", "s o0 o0", "r o0 o0"])]
    };
    let (zero, one) = (of(1), of(0));
    let xml = algo(("allreduce", 1, false), &[&zero, &one]);
    refused(
        &xml,
        "gpu 0, tb 0, step 2 waits for ever: it overwrites out0, which gpu 0, tb 0, step 1 has \
                   sent and gpu 1 has not taken. Links of MSCCL hold messages",
    );
}

#[test]
fn errors_name_gpu_thread_block_and_step() {
    let head = ("broadcast", 1, false);
    let pair = |zero: &[Block<'_>], one: &[Block<'_>]| algo(head, &[zero, one]);
    let good = pair(&[SEND], &[TAKE]);
    for (from, to, why) in [
        ("type=\"r\"", "type=\"rr\"", "gpu 1: tb 0: step 0: type=\"rr\" is none of s, r, rcs"),
        ("recv=\"0\"", "recv=\"1\"", "gpu 1: tb 0: recv=\"1\" is neither -1 nor another of 2 GPUs"),
        (
            "recv=\"0\"",
            "recv=\"-1\"",
            "gpu 1: tb 0: step 0: it receives, and its tb has recv=\"-1\"",
        ),
        ("dstbuf=\"o\"", "dstbuf=\"x\"", "step 0: dstbuf=\"x\" dstoff=\"0\" is no chunk"),
        ("cnt=\"1\"", "cnt=\"two\"", "gpu 0: tb 0: step 0: cnt=\"two\" is not a number"),
        ("s=\"0\"", "s=\"4\"", "gpu 0: tb 0: step 0: it is numbered s=\"4\""),
        ("depid=\"-1\"", "depid=\"7\"", "gpu 0: tb 0: step 0: depid: there is no tb 7"),
        ("<gpu id=\"1\"", "<gpu id=\"0\"", "gpu 0 is there twice"),
        (
            "coll=\"broadcast\"",
            "coll=\"custom\"",
            "coll=\"custom\" is none of allreduce, allgather",
        ),
        ("coll=\"broadcast\"", "", "<algo> has no coll"),
        ("</algo>", "</algorithm>", "algo"),
        ("nchunksperloop=\"1\"", "nchunksperloop=\"0\"", "2 GPUs and 0 chunks"),
    ] {
        assert!(good.contains(from), "{from}");
        let last = from.starts_with("type") || from.starts_with("dst") || from.starts_with("recv");
        let wrong = match good.rsplit_once(from).filter(|_| last) {
            Some((head, tail)) => format!("{head}{to}{tail}"),
            None => good.replacen(from, to, 1),
        };
        refused(&wrong, why);
    }
    let two_sends = pair(&[(1, -1, 0, &["s i0 i0", "s i0 i0"])], &[TAKE]);
    refused(&two_sends, "gpu 0, tb 0, step 1: gpu 1 never takes its message");
    let other_channel = pair(&[SEND], &[(-1, 0, 1, &["r i0 o0"])]);
    refused(
        &other_channel,
        "gpu 1, tb 0, step 0 waits for ever: no message of gpu 0 comes on its channel",
    );
    let circle = pair(
        &[SEND],
        &[(-1, 0, 0, &["nop after 1.0", "r i0 o0"]), (-1, -1, 0, &["nop after 0.0"])],
    );
    refused(&circle, "gpu 1, tb 0, step 0 waits for ever: it depends on gpu 1, tb 1, step 0");
    let counts = pair(&[(1, -1, 0, &["s i0 i0 x2"])], &[TAKE]).replace("loop=\"1\"", "loop=\"2\"");
    refused(&counts, "gpu 1, tb 0, step 0 receives 1 chunks, and gpu 0, tb 0, step 0 sends 2");
    let input = pair(&[SEND], &[(-1, 0, 0, &["cpy i0 o0", "r i0 o0"])]);
    refused(&input, "gpu 1, tb 0, step 0 names chunk 0 of buffer i, which its GPU does not have");
    let written = algo(("allreduce", 1, false), &[&[SEND], &[(-1, 0, 0, &["r i0 i0"])]]);
    refused(&written, "gpu 1, tb 0, step 0 writes the input, and the call is not in place");
    let scratch = pair(&[SEND], &[(-1, 0, 0, &["r i0 s4"])]);
    refused(&scratch, "gpu 1, tb 0, step 0 names chunk 4 of 4 of its scratch");
    let blocks = algo(("allgather", 4, false), &[&[SEND], &[TAKE]]);
    refused(&blocks, "one chunk for each rank's block, so nchunksperloop must be 2");
    let rootless = algo(head, &[&[SEND], &[TAKE], &[]]);
    refused(&rootless, "the root is the one GPU that receives nothing; here [0, 2] do");
}
