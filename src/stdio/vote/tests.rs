//! The vote over streams: single cases, and properties over random texts, chunks, times, faults and crashes.

use super::*;
use proptest::prelude::*;

const DELAY: u64 = 100;

/// All replicas' texts, byte-wise in turns, at time 0; ended cleanly.
fn run(texts: &[&str]) -> (String, Vec<Dissent>) {
    let mut vote = Vote::new(texts.len() as u8, DELAY);
    for (replica, text) in texts.iter().enumerate() {
        vote.text(replica as u8, text.as_bytes(), 0);
        vote.step(0);
    }
    for replica in 0..texts.len() {
        vote.end(replica as u8, true, 0);
        vote.step(0);
    }
    assert!(vote.is_over());
    (String::from_utf8(vote.take_output()).unwrap(), vote.take_dissents())
}

fn suspects(dissents: &[Dissent]) -> Vec<(u64, u64, u64, bool)> {
    dissents.iter().map(|dissent| (dissent.suspects, dissent.line, dissent.count, dissent.corrected)).collect()
}

#[test]
fn equal_texts_come_out_once() {
    assert_eq!(run(&["a\nb\n", "a\nb\n", "a\nb\n"]), ("a\nb\n".into(), vec![]));
    assert_eq!(run(&["no end", "no end"]), ("no end".into(), vec![]));
    assert_eq!(run(&["", ""]), (String::new(), vec![]));
}

#[test]
fn the_majority_decides_even_against_the_leader() {
    let (out, dissents) = run(&["a\nX\nc\n", "a\nb\nc\n", "a\nb\nc\n"]);
    assert_eq!(out, "a\nb\nc\n");
    assert_eq!(suspects(&dissents), [(1, 2, 1, true)]);
    assert_eq!(dissents[0].shown.as_deref(), Some(&b"b\n"[..]));
    assert_eq!(dissents[0].other.as_deref(), Some(&b"X\n"[..]));
}

#[test]
fn of_two_the_leaders_comes_out_and_both_are_named() {
    let (out, dissents) = run(&["a\nb\nc\n", "a\nX\nc\n"]);
    assert_eq!(out, "a\nb\nc\n");
    assert_eq!(suspects(&dissents), [(3, 2, 1, false)]);
}

#[test]
fn three_that_all_differ() {
    let (out, dissents) = run(&["1\nz\n", "2\nz\n", "3\nz\n"]);
    assert_eq!(out, "1\nz\n");
    assert_eq!(suspects(&dissents), [(7, 1, 1, false)]);
}

#[test]
fn a_line_too_many_or_too_few_does_not_put_out_of_step() {
    for (other, suspects_at) in [("a\nX\nb\nc\nd\n", 2), ("a\nc\nd\n", 2)] {
        for texts in [[other, "a\nb\nc\nd\n", "a\nb\nc\nd\n"], ["a\nb\nc\nd\n", "a\nb\nc\nd\n", other]] {
            let (out, dissents) = run(&texts);
            assert_eq!(out, "a\nb\nc\nd\n");
            assert_eq!(dissents.len(), 1, "{dissents:?}");
            assert_eq!(dissents[0].line, suspects_at);
            assert_eq!(dissents[0].suspects.count_ones(), 1);
            assert!(dissents[0].corrected);
        }
    }
    let (out, dissents) = run(&["a\nb\n", "a\nb\nmore\n"]);
    assert_eq!(out, "a\nb\n");
    assert_eq!(suspects(&dissents), [(3, 3, 1, false)]);
}

#[test]
fn the_leader_waits_no_longer_than_the_delay() {
    let mut vote = Vote::new(3, DELAY);
    vote.text(0, b"one\ntwo\n", 5);
    vote.step(5);
    assert_eq!(vote.take_output(), b"");
    let mut now = 5;
    while let Some(next) = vote.deadline(now) {
        now = next;
        vote.step(now);
        if now < 5 + DELAY {
            assert_eq!(vote.take_output(), b"");
        }
    }
    assert_eq!(now, 5 + DELAY);
    assert_eq!(vote.take_output(), b"one\ntwo\n");
    // What comes later is compared nevertheless, and the majority then knows that what was shown is wrong.
    vote.text(1, b"one\nTWO\n", 500);
    vote.text(2, b"one\nTWO\n", 500);
    for replica in 0..3 {
        vote.end(replica, true, 500);
    }
    vote.step(500);
    assert_eq!(vote.take_output(), b"");
    assert_eq!(suspects(&vote.take_dissents()), [(1, 2, 1, false)]);
    assert!(vote.is_over());
}

#[test]
fn a_difference_is_told_after_the_delay() {
    let mut vote = Vote::new(2, DELAY);
    vote.text(0, b"a\n", 0);
    vote.text(1, b"b\n", 0);
    vote.step(0);
    assert_eq!(vote.take_output(), b"a\n");
    assert_eq!(vote.take_dissents(), []);
    assert_eq!(vote.deadline(0), Some(DELAY));
    vote.step(DELAY);
    assert_eq!(vote.take_dissents().len(), 1);
    assert_eq!(vote.deadline(DELAY), None);
}

#[test]
fn a_prompt_needs_no_line_end() {
    let mut vote = Vote::new(3, DELAY);
    vote.text(0, b"number? ", 0);
    vote.text(2, b"number? ", 0);
    vote.step(0);
    assert_eq!(vote.take_output(), b"");
    vote.step(vote.deadline(0).unwrap());
    assert_eq!(vote.take_output(), b"number? ");
    assert!(vote.deadline(50).is_none_or(|time| time <= DELAY + 1));
    // The leader's alone, after the delay.
    vote.text(0, b"wait", 200);
    vote.step(200);
    assert_eq!(vote.take_output(), b"");
    vote.step(200 + DELAY);
    assert_eq!(vote.take_output(), b"wait");
    for replica in 0..3 {
        vote.text(
            replica,
            if replica == 0 {
                b"!\n"
            } else if replica == 1 {
                b"number? wait!\n"
            } else {
                b"wait!\n"
            },
            400,
        );
        vote.step(400);
    }
    assert_eq!(vote.take_output(), b"!\n");
    assert_eq!(vote.take_dissents(), []);
}

#[test]
fn a_line_is_shown_whole_or_not_at_all() {
    let mut vote = Vote::new(3, DELAY);
    vote.text(0, b"value 1\n", 0);
    vote.text(1, b"value 2\n", 0);
    for now in 0..50 {
        vote.step(now);
        assert_eq!(vote.take_output(), b"");
    }
    vote.text(2, b"value 2\n", 50);
    vote.step(50);
    assert_eq!(vote.take_output(), b"value 2\n");
}

#[test]
fn the_others_go_on_where_a_replica_crashes() {
    for leader in [0, 1] {
        let mut vote = Vote::new(2, DELAY);
        vote.text(0, b"a\nb\n", 0);
        vote.text(1, b"a\nb\n", 0);
        vote.text(leader, b"c\nha", 0);
        vote.end(leader, false, 0);
        vote.step(0);
        vote.text(1 - leader, b"c\nhalf\nd\n", 1);
        vote.step(1);
        vote.end(1 - leader, true, 1);
        vote.step(1);
        assert!(vote.is_over());
        assert_eq!(vote.take_output(), b"a\nb\nc\nhalf\nd\n");
        assert_eq!(vote.take_dissents(), []);
    }
}

#[test]
fn all_crash_and_nothing_is_kept_back() {
    let mut vote = Vote::new(3, DELAY);
    vote.text(0, b"a\nb\nhal", 0);
    vote.text(1, b"a\n", 0);
    for replica in 0..3 {
        vote.end(replica, false, 0);
        vote.step(0);
    }
    assert!(vote.is_over());
    assert_eq!(vote.take_output(), b"a\nb\nhal");
    assert_eq!(vote.take_dissents(), []);
}

#[test]
fn marks_are_places_and_not_text() {
    let mut vote = Vote::new(3, DELAY);
    for replica in 0..3 {
        assert!(!vote.compared(1));
        vote.text(replica, b"no line end", 0);
        vote.mark(replica, 0, 0);
        vote.step(0);
    }
    assert!(vote.compared(1));
    assert_eq!(vote.take_output(), b"no line end");
    for replica in 0..3 {
        vote.text(replica, b"\nlater\n", 0);
        vote.end(replica, true, 0);
        vote.step(0);
    }
    assert_eq!(vote.take_output(), b"\nlater\n");
    assert!(vote.take_dissents().is_empty() && vote.is_over());
}

#[test]
fn memory_is_bounded_whoever_is_ahead() {
    let line = [b'x'; 4095];
    // A follower far ahead of the leader: its bytes are dropped, what they were is not forgotten.
    let mut vote = Vote::new(2, DELAY);
    let count = KEEP / 4096 + 1000;
    for number in 0..count {
        vote.text(1, &line[number % 7..], 0);
        vote.text(1, b"\n", 0);
    }
    assert!(vote.replicas[1].text.len() <= KEEP + UNIT);
    vote.step(0);
    let mut bytes = 0;
    for number in 0..count {
        vote.text(0, &line[number % 7..], 0);
        vote.text(0, b"\n", 0);
        vote.step(0);
        bytes += vote.take_output().len();
    }
    assert_eq!(bytes as u64, vote.bytes());
    assert!(vote.shown.is_empty() && vote.take_dissents().is_empty());
    // The leader far ahead: all that it writes is shown, and compared when the other comes.
    let mut vote = Vote::new(2, DELAY);
    let (part, mut shown) = ([&line[..99], b"\n"].concat(), 0);
    for _ in 0..2 * KEEP / part.len() {
        vote.text(0, &part, 0);
        vote.step(0);
        shown += vote.take_output().len();
        assert!(vote.replicas[0].text.len() <= KEEP);
    }
    vote.step(DELAY);
    assert_eq!(shown + vote.take_output().len(), 2 * KEEP / part.len() * part.len());
    for _ in 0..2 * KEEP / part.len() {
        vote.text(1, &part, DELAY);
    }
    vote.step(DELAY);
    assert!(vote.shown.is_empty() && vote.take_dissents().is_empty() && vote.lost() == 0);
    // And more than that.
    let mut vote = Vote::new(2, DELAY);
    for number in 0..2 * FAR as u64 {
        vote.text(0, b"\n", number);
        if number % 1000 == 0 {
            vote.step(number + DELAY);
            vote.take_output();
        }
    }
    assert!(vote.shown.len() <= FAR && vote.lost() == 1);
}

#[test]
fn what_differs_by_nature_is_no_difference() {
    let mut vote = Vote::new(2, DELAY);
    for replica in 0..2 {
        let signature = format!("[vm:0000{replica}]");
        vote.signature(replica, signature.as_bytes());
        vote.text(replica, format!("{signature} warning\n[vm:0000{}] x\n", 1 - replica).as_bytes(), 0);
        vote.end(replica, true, 0);
    }
    vote.step(0);
    assert_eq!(vote.take_output(), b"[vm:00000] warning\n[vm:00001] x\n");
    assert_eq!(vote.take_dissents().len(), 1, "somebody else's is not its own");
}

/// Events of one replica: pieces of its text, in order.
fn feed(
    vote: &mut Vote,
    texts: &[Vec<u8>],
    schedule: &[(u8, usize, u64)],
    crashes: &[bool],
) -> (Vec<u8>, Vec<Dissent>) {
    let (mut at, mut now, mut out, mut dissents) = (vec![0; texts.len()], 0, Vec::new(), Vec::new());
    let mut over = vec![false; texts.len()];
    for (replica, length, wait) in schedule.iter().cycle().take(100_000) {
        let replica = usize::from(*replica) % texts.len();
        now += wait;
        let text = &texts[replica];
        let end = (at[replica] + length).min(text.len());
        vote.text(replica as u8, &text[at[replica]..end], now);
        at[replica] = end;
        if end == text.len() && !over[replica] {
            over[replica] = true;
            vote.end(replica as u8, !crashes[replica], now);
        }
        vote.step(now);
        out.extend(vote.take_output());
        dissents.extend(vote.take_dissents());
        if over.iter().all(|over| *over) {
            break;
        }
    }
    (out, dissents)
}

fn text() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop::sample::select(&b"abc\n\n\xff"[..]), 0..120)
}

fn schedule(waits: std::ops::Range<u64>) -> impl Strategy<Value = Vec<(u8, usize, u64)>> {
    // Everyone's turn comes.
    let each = (0_u8..5, 1_usize..20, waits);
    prop::collection::vec(each, 1..60).prop_map(|mut turns| {
        turns.extend((0..5).map(|replica| (replica, 7, 0)));
        turns
    })
}

proptest! {
    #[test]
    fn without_a_fault_what_one_wrote(
        text in text(), degree in 1_u8..6, schedule in schedule(0..2 * DELAY), crash in any::<bool>(),
    ) {
        let texts = vec![text.clone(); usize::from(degree)];
        let mut vote = Vote::new(degree, DELAY);
        let (out, dissents) = feed(&mut vote, &texts, &schedule, &vec![crash; texts.len()]);
        prop_assert_eq!(&out, &text);
        prop_assert_eq!(dissents, vec![]);
        prop_assert!(vote.is_over());
        prop_assert_eq!(vote.bytes(), text.len() as u64);
    }

    /// One replica is wrong, whatever it writes: with enough time the majority's comes out, and none but that one is named.
    #[test]
    fn one_wrong_replica_of_three_and_more(
        text in text(), wrong in text(), degree in 3_u8..6, who in 0_usize..6, schedule in schedule(0..1), splice in 0_usize..100,
    ) {
        let who = who % usize::from(degree);
        let mut texts = vec![text.clone(); usize::from(degree)];
        let at = splice.min(text.len());
        texts[who] = [&text[..at], &wrong[..]].concat();
        let mut vote = Vote::new(degree, 1_000_000);
        let differs = texts[who] != text;
        let (out, dissents) = feed(&mut vote, &texts, &schedule, &vec![false; texts.len()]);
        prop_assert_eq!(&out, &text);
        prop_assert_eq!(!dissents.is_empty(), differs);
        for dissent in dissents {
            prop_assert_eq!(dissent.suspects, 1 << who);
            prop_assert!(dissent.corrected);
        }
        prop_assert!(vote.is_over());
    }

    /// Two replicas: the leader's comes out, whatever the other writes, and a difference is always told.
    #[test]
    fn two_replicas(text in text(), other in text(), schedule in schedule(0..2 * DELAY)) {
        let mut vote = Vote::new(2, DELAY);
        let differs = text != other;
        let (out, dissents) = feed(&mut vote, &[text.clone(), other], &schedule, &[false; 2]);
        prop_assert_eq!(&out, &text);
        prop_assert_eq!(!dissents.is_empty(), differs);
        prop_assert!(dissents.iter().all(|dissent| !dissent.corrected && dissent.suspects == 3));
        prop_assert!(vote.is_over());
    }

    /// Replicas are killed at different places: everything that any of them wrote comes out, once; nobody is blamed.
    #[test]
    fn killed_at_different_places(
        text in text(), degree in 2_u8..6, places in prop::collection::vec(0_usize..130, 5), schedule in schedule(0..1),
    ) {
        let texts: Vec<Vec<u8>> =
            places.iter().take(usize::from(degree)).map(|place| text[..(*place).min(text.len())].to_vec()).collect();
        let mut vote = Vote::new(degree, DELAY);
        let (out, dissents) = feed(&mut vote, &texts, &schedule, &vec![true; texts.len()]);
        let longest = texts.iter().map(Vec::len).max().unwrap();
        prop_assert!(text.starts_with(&out), "{:?} {:?}", String::from_utf8_lossy(&text), String::from_utf8_lossy(&out));
        // Of a line that nobody has whole, what the first that has some of it wrote is shown.
        let lines = text[..longest].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        prop_assert!(out.len() >= lines && out.len() >= texts[0].len());
        prop_assert_eq!(dissents, vec![]);
        prop_assert!(vote.is_over());
    }

    /// Anything at all: no panic, an end, and no more is shown than somebody wrote.
    #[test]
    fn anything(
        texts in prop::collection::vec(text(), 1..6), crashes in prop::collection::vec(any::<bool>(), 6),
        schedule in schedule(0..2 * DELAY), marks in prop::collection::vec((0_u8..5, 0_u64..3), 0..4),
    ) {
        let mut vote = Vote::new(texts.len() as u8, DELAY);
        for (replica, number) in marks {
            vote.mark(replica % texts.len() as u8, number, 0);
        }
        let (out, _) = feed(&mut vote, &texts, &schedule, &crashes);
        prop_assert!(vote.is_over());
        prop_assert_eq!(out.len() as u64, vote.bytes());
        prop_assert!(out.len() <= texts.iter().map(Vec::len).sum::<usize>());
    }
}
