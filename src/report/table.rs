//! The verdict as a short plain text for stderr, at most 100 columns wide.
//!
//! The first line begins `redmpi: <verdict>.`; a verdict other than clean is followed by what it means for the
//! results and by a table of the processes that sent what was wrong (`corrected here` counts what such a process
//! itself received wrong and replaced).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use super::{EventKind, ProcessEntry, Report, Verdict};

const WIDTH: usize = 100;
const INDENT: &str = "        ";
/// Rows of the table.
const ROWS: usize = 10;
/// A blank at which no line is broken; a plain blank in the end.
const GROUP: char = '\u{a0}';
/// Characters of a node's name.
const HOST_WIDTH: usize = 18;

const HEADER: [&str; 8] = ["native", "virtual", "replica", "host", "pid", "wrong sent", "injected", "corrected here"];

/// The verdict's text, with a line end after every line. `note` is one more remark, see [`placement_note`].
pub fn verdict_text(report: &Report, note: Option<&str>) -> String {
    let mut text = String::new();
    let messages = &report.messages;
    let mut first = format!(
        "redmpi: {}. {} x {}, {}, {}: {}",
        report.verdict.name(),
        counted(u64::from(report.virtual_size), "rank"),
        counted(u64::from(report.degree), "replica"),
        report.protocol,
        report.digest,
        outcome("message", messages.verified, messages.mismatched, messages.corrected, messages.uncorrectable),
    );
    let collectives = &report.collectives;
    if collectives.verified > 0 || collectives.mismatched > 0 {
        first.push_str("; ");
        first.push_str(&outcome(
            "collective message",
            collectives.verified,
            collectives.mismatched,
            collectives.corrected,
            collectives.uncorrectable,
        ));
    }
    let output = &report.output;
    if output.mismatched > 0 {
        let _ = write!(
            first,
            "; {} of output wrong, {}{GROUP}corrected",
            counted(output.mismatched, "line"),
            grouped(output.corrected)
        );
    }
    let files = &report.files;
    if files.verified_bytes > 0 || files.mismatched > 0 {
        let _ = write!(
            first,
            "; {} of files verified, {}{GROUP}wrong, {}{GROUP}corrected",
            counted(files.verified_bytes, "byte"),
            counted(files.mismatched, "range"),
            grouped(files.corrected)
        );
    }
    if report.injected > 0 {
        let _ = write!(first, "; {} injected", counted(report.injected, "fault"));
    }
    paragraph(&mut text, &first);

    match report.verdict {
        Verdict::Clean | Verdict::Corrected => {}
        Verdict::Detected => indented(
            &mut text,
            "Wrong data was detected and could not be corrected: the results are not to be trusted.",
        ),
        Verdict::Failed => indented(
            &mut text,
            "A vote had no majority, or part of the job was not verified to its end: \
             the results are not to be trusted.",
        ),
    }
    if let Some(silent) = list_of_silent(report) {
        indented(&mut text, &silent);
    }
    if report.verdict != Verdict::Clean {
        suspects(&mut text, report);
    }
    if let Some(note) = note {
        indented(&mut text, note);
    }
    let notes = report.events.iter().filter(|event| event.kind == EventKind::Note);
    let mut unlike: Vec<&str> =
        notes.map(|event| event.communicator.as_str()).filter(|note| note.contains("output")).collect();
    unlike.dedup();
    if let Some(first) = unlike.first() {
        indented(&mut text, &format!("Note: {first}."));
    }
    text.replace(GROUP, " ")
}

/// What to say of the placement: `Some` when replicas of a rank share a node although the job spans several,
/// so that one broken node could spoil two votes.
pub fn placement_note(report: &Report) -> Option<String> {
    let reported = || report.processes.iter().filter(|entry| entry.has_reported());
    let hosts: BTreeSet<&str> = reported().map(|entry| entry.host.as_str()).collect();
    if hosts.len() < 2 {
        return None;
    }
    let mut replicas: BTreeMap<(u32, &str), u32> = BTreeMap::new();
    for entry in reported() {
        *replicas.entry((entry.virtual_rank, entry.host.as_str())).or_default() += 1;
    }
    let sharing: BTreeMap<u32, &str> =
        replicas.into_iter().filter(|(_, count)| *count > 1).map(|(place, _)| place).collect();
    let (virtual_rank, host) = sharing.first_key_value()?;
    Some(format!(
        "Placement: replicas of {} share a node (rank {virtual_rank} on {}), of {} nodes in this job; \
         a rank map or --map-by can part them.",
        counted(sharing.len() as u64, "rank"),
        shortened(host),
        hosts.len(),
    ))
    .map(|note| note.replace(GROUP, " "))
}

fn outcome(what: &str, verified: u64, wrong: u64, corrected: u64, uncorrectable: u64) -> String {
    format!(
        "{} verified, {}{GROUP}wrong, {}{GROUP}corrected, {}{GROUP}uncorrectable",
        counted(verified, what),
        grouped(wrong),
        grouped(corrected),
        grouped(uncorrectable),
    )
}

fn list_of_silent(report: &Report) -> Option<String> {
    let silent: Vec<&ProcessEntry> = report.processes.iter().filter(|entry| !entry.has_reported()).collect();
    if silent.is_empty() {
        return None;
    }
    let ranks: Vec<String> = silent.iter().take(ROWS).map(|entry| entry.native.to_string()).collect();
    let more = match silent.len() - ranks.len() {
        0 => String::new(),
        more => format!(" and {} more", grouped(more as u64)),
    };
    Some(format!("No report from native rank {}{more}.", ranks.join(", ")))
}

fn suspects(text: &mut String, report: &Report) {
    let mut entries: Vec<&ProcessEntry> = report.processes.iter().filter(|entry| entry.suspected > 0).collect();
    if entries.is_empty() {
        return;
    }
    entries.sort_by_key(|entry| (std::cmp::Reverse(entry.suspected), entry.native));
    if report.degree == 2 {
        indented(text, "Of two replicas that differ, the wrong one cannot be told: both are listed.");
    }
    let mut rows = vec![HEADER.map(str::to_owned)];
    for entry in entries.iter().take(ROWS) {
        rows.push([
            entry.native.to_string(),
            entry.virtual_rank.to_string(),
            entry.replica.to_string(),
            if entry.has_reported() { shortened(&entry.host) } else { "(no report)".to_owned() },
            if entry.has_reported() { entry.pid.to_string() } else { "-".to_owned() },
            grouped(entry.suspected),
            grouped(entry.injected),
            grouped(entry.corrected),
        ]);
    }
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 8] = std::array::from_fn(width);
    for row in &rows {
        let mut line = INDENT.to_owned();
        for (column, (cell, width)) in row.iter().zip(widths).enumerate() {
            let gap = if column == 0 { "" } else { "  " };
            // Names to the left, numbers to the right.
            let _ = if HEADER[column] == "host" {
                write!(line, "{gap}{cell:<width$}")
            } else {
                write!(line, "{gap}{cell:>width$}")
            };
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    if entries.len() > ROWS {
        let _ = writeln!(text, "{INDENT}and {} more", grouped((entries.len() - ROWS) as u64));
    }
}

/// Breaks a text between words; every line but the first is indented.
fn paragraph(text: &mut String, content: &str) {
    fill(text, "", content);
}

/// Breaks a text between words, all lines indented.
fn indented(text: &mut String, content: &str) {
    fill(text, INDENT, content);
}

fn fill(text: &mut String, indent: &str, content: &str) {
    let mut line = indent.to_owned();
    let mut empty = true;
    for word in content.split(' ') {
        if !empty && line.chars().count() + 1 + word.chars().count() > WIDTH {
            text.push_str(&line);
            text.push('\n');
            INDENT.clone_into(&mut line);
            empty = true;
        }
        if !empty {
            line.push(' ');
        }
        line.push_str(word);
        empty = false;
    }
    text.push_str(&line);
    text.push('\n');
}

fn counted(count: u64, what: &str) -> String {
    format!("{}{GROUP}{what}{}", grouped(count), if count == 1 { "" } else { "s" })
}

/// Digits in groups of three, as in 18 230, held together until lines are broken.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(GROUP);
        }
        text.push(digit);
    }
    text
}

fn shortened(host: &str) -> String {
    if host.chars().count() <= HOST_WIDTH {
        return host.to_owned();
    }
    host.chars().take(HOST_WIDTH - 3).chain("...".chars()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{healthy, job};
    use super::super::{merge, ProcessReport};
    use super::*;
    use crate::replication::RankMap;

    fn report(native_size: u32, degree: u32, change: impl FnOnce(&mut Vec<ProcessReport>)) -> Report {
        let map = RankMap::by_formula(native_size, degree).unwrap();
        let mut reports = healthy(&map);
        change(&mut reports);
        merge(reports, job(&map))
    }

    fn text(report: &Report) -> String {
        let text = verdict_text(report, placement_note(report).as_deref());
        for line in text.lines() {
            assert!(line.chars().count() <= WIDTH, "too wide: {line}");
            assert!(line.is_ascii() && line.trim_end() == line, "{line}");
        }
        assert!(text.starts_with(&format!("redmpi: {}. ", report.verdict.name())));
        text
    }

    #[test]
    fn clean_is_one_paragraph() {
        let report = report(12, 3, |reports| reports.iter_mut().for_each(|report| report.messages.verified = 1500));
        assert_eq!(
            text(&report),
            "redmpi: clean. 4 ranks x 3 replicas, msgplushash, crc32c: 18 000 messages verified, 0 wrong,\n        \
             0 corrected, 0 uncorrectable; 60 collective messages verified, 0 wrong, 0 corrected,\n        \
             0 uncorrectable\n"
        );
    }

    #[test]
    fn corrected_names_the_suspect() {
        let report = report(12, 3, |reports| {
            for report in reports.iter_mut() {
                report.collectives = Default::default();
            }
            reports[0].messages.verified = 17_240;
            reports[5].injected = 12;
            reports[6].messages.mismatched = 12;
            reports[6].messages.corrected = 12;
            reports[6].suspected.insert(5, 12);
        });
        assert_eq!(
            text(&report),
            "\
redmpi: corrected. 4 ranks x 3 replicas, msgplushash, crc32c: 18 230 messages verified, 12 wrong,
        12 corrected, 0 uncorrectable; 12 faults injected
        native  virtual  replica  host    pid  wrong sent  injected  corrected here
             5        1        1  node2  4005          12        12               0
"
        );
    }

    #[test]
    fn two_replicas_are_both_listed() {
        let report = report(8, 2, |reports| {
            for (report, host) in reports.iter_mut().zip(["a", "a", "b", "b", "a", "b", "a", "b"]) {
                report.host = host.to_owned();
            }
            reports[1].messages.mismatched = 1;
            reports[1].messages.uncorrectable = 1;
            reports[1].suspect(0);
            reports[1].suspect(4);
            reports[4].injected = 1;
        });
        assert_eq!(
            text(&report),
            "\
redmpi: detected. 4 ranks x 2 replicas, msgplushash, crc32c: 720 messages verified, 1 wrong,
        0 corrected, 1 uncorrectable; 40 collective messages verified, 0 wrong, 0 corrected,
        0 uncorrectable; 1 fault injected
        Wrong data was detected and could not be corrected: the results are not to be trusted.
        Of two replicas that differ, the wrong one cannot be told: both are listed.
        native  virtual  replica  host   pid  wrong sent  injected  corrected here
             0        0        0  a     4000           1         0               0
             4        0        1  a     4004           1         1               0
        Placement: replicas of 2 ranks share a node (rank 0 on a), of 2 nodes in this job; a rank
        map or --map-by can part them.
"
        );
    }

    #[test]
    fn long_lists_are_cut() {
        let report = report(60, 3, |reports| {
            for native in 0..13 {
                reports[30].suspected.insert(native, 1000 + u64::from(native));
            }
            reports[30].messages.mismatched = 13_078;
            reports[12].host = "a-node-with-a-name-that-nobody-would-ever-type-by-hand".to_owned();
            reports.truncate(45);
        });
        let text = text(&report);
        assert!(
            text.contains("No report from native rank 45, 46, 47, 48, 49, 50, 51, 52, 53, 54 and 5 more."),
            "{text}"
        );
        assert!(text.contains("a-node-with-a-n..."), "{text}");
        assert!(text.ends_with("        and 3 more\n"), "{text}");
        assert!(text.find("1 012").unwrap() < text.find("1 011").unwrap(), "{text}");
    }

    #[test]
    fn placement_is_a_note_only_where_nodes_are_many() {
        let on = |hosts: [&str; 4]| {
            placement_note(&report(4, 2, |reports| {
                for (report, host) in reports.iter_mut().zip(hosts) {
                    report.host = host.to_owned();
                }
            }))
        };
        assert_eq!(on(["a", "a", "a", "a"]), None);
        assert_eq!(on(["a", "a", "b", "b"]), None);
        assert!(on(["a", "b", "a", "c"])
            .unwrap()
            .starts_with("Placement: replicas of 1 rank share a node (rank 0 on a)"));
    }

    #[test]
    fn digits_in_groups() {
        let plain = |number| grouped(number).replace(GROUP, " ");
        assert_eq!([0, 999, 1000, 18_230, 1_234_567].map(plain), ["0", "999", "1 000", "18 230", "1 234 567"]);
    }
}
