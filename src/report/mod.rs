//! The verdict: what redmpi saw in one job, gathered from its processes, and whether the results can be trusted.
//!
//! Every process counts for itself in a [`ProcessReport`]. At the end of the job these travel as JSON to native
//! rank 0, where [`merge`] makes one [`Report`] of them: a JSON document (`json`) and a short text (`table`).
//!
//! How to count (the merge only adds, so each fact must be counted by exactly one process):
//! * `mismatched`: once for each wrong message. With degree ≥ 3 the receiver that held the wrong payload counts;
//!   at degree 2, where nobody can tell which of the two is wrong, the receiver of replica 0 does.
//! * `corrected`, `uncorrectable`: by the process that counted the mismatch.
//! * `suspected`: the same process says which native rank *sent* what was wrong (at degree 2: both senders);
//!   the merge turns this into the suspected processes' own entries.
//! * `sent`, `verified`, `injected`: by the process that does it, so that job totals are sums over all replicas.

pub mod json;
pub mod table;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::replication::RankMap;

pub use json::{read_json, write_json, write_json_first, ReportError};
pub use table::{placement_note, verdict_text};

/// Events kept, in a process and in the job; of more than these the earliest are kept and the rest is counted.
pub const EVENT_LIMIT: usize = 1000;

/// Counters of point-to-point messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageCounts {
    /// Messages of the application that were sent, in all replicas.
    pub sent: u64,
    /// Received messages that were compared with those of other replicas.
    pub verified: u64,
    /// Wrong messages.
    pub mismatched: u64,
    /// Wrong messages replaced by right ones before the application saw them.
    pub corrected: u64,
    /// Wrong messages that could not be replaced.
    pub uncorrectable: u64,
}

/// Counters of collective operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CollectiveCounts {
    /// Calls by the application, in all processes.
    pub called: u64,
    /// Results that were compared with those of other replicas.
    pub verified: u64,
    /// Wrong results.
    pub mismatched: u64,
    /// Wrong results replaced by right ones.
    pub corrected: u64,
    /// Wrong results that could not be replaced.
    pub uncorrectable: u64,
}

/// Counters of standard output and error, which are compared line by line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputCounts {
    /// Bytes shown, of both streams of all virtual ranks.
    pub bytes: u64,
    /// Wrong lines.
    pub mismatched: u64,
    /// Of these, those in whose place the right ones were shown.
    pub corrected: u64,
}

impl OutputCounts {
    fn add(&mut self, other: &OutputCounts) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.mismatched = self.mismatched.saturating_add(other.mismatched);
        self.corrected = self.corrected.saturating_add(other.corrected);
    }

    /// Wrong lines, or one of several that differ, that may have been shown.
    pub fn uncorrectable(&self) -> u64 {
        self.mismatched.saturating_sub(self.corrected)
    }
}

/// Counters of files that the application writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileCounts {
    /// Files that were opened for writing, each once for all replicas of the rank.
    pub opened: u64,
    /// Bytes written that were compared between replicas.
    pub verified_bytes: u64,
    /// Wrong ranges of bytes.
    pub mismatched: u64,
    /// Of these, those in which all replicas' copies, and the file itself, were put right.
    pub corrected: u64,
}

impl FileCounts {
    fn add(&mut self, other: &FileCounts) {
        self.opened = self.opened.saturating_add(other.opened);
        self.verified_bytes = self.verified_bytes.saturating_add(other.verified_bytes);
        self.mismatched = self.mismatched.saturating_add(other.mismatched);
        self.corrected = self.corrected.saturating_add(other.corrected);
    }

    /// Wrong ranges that may be in a file.
    pub fn uncorrectable(&self) -> u64 {
        self.mismatched.saturating_sub(self.corrected)
    }
}

impl MessageCounts {
    fn add(&mut self, other: &MessageCounts) {
        self.sent = self.sent.saturating_add(other.sent);
        self.verified = self.verified.saturating_add(other.verified);
        self.mismatched = self.mismatched.saturating_add(other.mismatched);
        self.corrected = self.corrected.saturating_add(other.corrected);
        self.uncorrectable = self.uncorrectable.saturating_add(other.uncorrectable);
    }
}

impl CollectiveCounts {
    fn add(&mut self, other: &CollectiveCounts) {
        self.called = self.called.saturating_add(other.called);
        self.verified = self.verified.saturating_add(other.verified);
        self.mismatched = self.mismatched.saturating_add(other.mismatched);
        self.corrected = self.corrected.saturating_add(other.corrected);
        self.uncorrectable = self.uncorrectable.saturating_add(other.uncorrectable);
    }
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EventKind {
    /// The injector flipped a bit.
    Injected,
    /// Replicas of a message or result differ.
    Mismatch,
    /// A wrong message or result was replaced.
    Corrected,
    /// A mismatch that cannot be corrected.
    Detected,
    /// Replicas of a rank have written different lines; the communicator's field names stream and line.
    Output,
    /// Replicas of a rank have written different bytes to a file; the communicator's field names file and offset.
    File,
    /// A vote without a majority, or a part of redmpi that had to give up.
    Failed,
    /// Anything else worth knowing.
    Note,
}

/// One event, as it stands in the JSON document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// What happened.
    pub kind: EventKind,
    /// Native rank of the process that saw it.
    pub native: u32,
    /// Native rank of the other side; `null` when there is none, as in collectives.
    pub peer: Option<u32>,
    /// Name of the communicator, or its number where the application gave none.
    pub communicator: String,
    /// Tag of the message; `null` in collectives.
    pub tag: Option<i32>,
    /// Size of the message or result.
    pub bytes: u64,
    /// Seconds since the process came out of MPI_Init.
    pub time_s: f64,
}

/// The verdict on a job, from best to worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Nothing differed.
    Clean,
    /// Whatever was wrong was put right.
    Corrected,
    /// Something was wrong and could not be put right: the results are not to be trusted.
    Detected,
    /// A vote had no majority, or part of the job was not watched over to its end.
    Failed,
}

impl Verdict {
    /// Its name, as in the JSON document.
    pub const fn name(self) -> &'static str {
        match self {
            Verdict::Clean => "clean",
            Verdict::Corrected => "corrected",
            Verdict::Detected => "detected",
            Verdict::Failed => "failed",
        }
    }

    /// Whether the results can be trusted: a batch script's exit status stands on this.
    pub const fn is_good(self) -> bool {
        matches!(self, Verdict::Clean | Verdict::Corrected)
    }
}

/// What one process counted. Travels to native rank 0.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessReport {
    /// Its native rank.
    pub native: u32,
    /// Its virtual rank.
    #[serde(rename = "virtual")]
    pub virtual_rank: u32,
    /// Its replica index.
    pub replica: u32,
    /// Name of its node.
    pub host: String,
    /// Its process id.
    pub pid: u32,
    /// Its messages.
    pub messages: MessageCounts,
    /// Its collective operations.
    pub collectives: CollectiveCounts,
    /// Its rank's output, as far as it was compared here.
    #[serde(default)]
    pub output: OutputCounts,
    /// Files that it leads in writing.
    #[serde(default)]
    pub files: FileCounts,
    /// Faults that the injector put into its memory.
    pub injected: u64,
    /// Wrong messages and results by the native rank that sent them.
    pub suspected: BTreeMap<u32, u64>,
    /// Votes without a majority.
    pub votes_failed: u64,
    /// Set when redmpi itself failed in this process (a panic, an internal error): from then on it abstained.
    pub abstained: bool,
    /// The earliest events, in order of time.
    pub events: Vec<Event>,
    /// Events that found no room.
    pub events_omitted: u64,
}

impl ProcessReport {
    /// A report of the process that runs this, with nothing counted yet.
    pub fn new(native: u32, map: &RankMap, host: String) -> ProcessReport {
        ProcessReport {
            native,
            virtual_rank: map.virtual_of(native),
            replica: map.replica_of(native),
            host,
            pid: std::process::id(),
            ..ProcessReport::default()
        }
    }

    /// Keeps an event, or counts it where there is no room. Callers record in order of time.
    pub fn record(&mut self, event: Event) {
        if self.events.len() < EVENT_LIMIT {
            // Microseconds are enough, and so short a number comes out of JSON as it went in. JSON has no word
            // for "not a number".
            let time_s = if event.time_s.is_finite() { (event.time_s * 1e6).round() / 1e6 } else { 0.0 };
            let event = Event { time_s, ..event };
            self.events.push(event);
        } else {
            self.events_omitted += 1;
        }
    }

    /// Counts a wrong message or result against the native rank that sent it.
    pub fn suspect(&mut self, native: u32) {
        *self.suspected.entry(native).or_default() += 1;
    }

    /// The bytes that travel to native rank 0.
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("numbers, strings and maps with number keys always have a JSON form")
    }

    /// The report that another process sent.
    ///
    /// # Errors
    /// When the bytes are not what [`ProcessReport::to_bytes`] makes.
    pub fn from_bytes(bytes: &[u8]) -> Result<ProcessReport, serde_json::Error> {
        serde_json::from_slice(bytes)
    }
}

/// What is the same in every process of the job.
#[derive(Clone, Copy, Debug)]
pub struct JobInfo<'a> {
    /// Who is who.
    pub map: &'a RankMap,
    /// Version of the Open MPI that ran the job.
    pub open_mpi: &'a str,
    /// Name of the protocol.
    pub protocol: &'a str,
    /// Name of the digest.
    pub digest: &'a str,
}

/// What the JSON document says of one process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessEntry {
    /// Its native rank.
    pub native: u32,
    /// Its virtual rank.
    #[serde(rename = "virtual")]
    pub virtual_rank: u32,
    /// Its replica index.
    pub replica: u32,
    /// Name of its node; empty when the process gave no report.
    pub host: String,
    /// Its process id; 0 when the process gave no report.
    pub pid: u32,
    /// Messages that it sent.
    pub sent: u64,
    /// Wrong messages and results that others had from it.
    pub suspected: u64,
    /// Faults that the injector put into its memory.
    pub injected: u64,
    /// Wrong messages and results that it received and replaced.
    pub corrected: u64,
}

impl ProcessEntry {
    /// Whether the process told what it counted: one that died did not.
    pub fn has_reported(&self) -> bool {
        self.pid != 0
    }
}

/// The JSON document of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Version of redmpi.
    pub redmpi: String,
    /// Version of Open MPI.
    pub open_mpi: String,
    /// Replicas of each rank.
    pub degree: u32,
    /// Ranks that the application saw.
    pub virtual_size: u32,
    /// Processes.
    pub native_size: u32,
    /// Name of the protocol.
    pub protocol: String,
    /// Name of the digest.
    pub digest: String,
    /// Point-to-point messages, summed over all processes.
    pub messages: MessageCounts,
    /// Collective operations, summed over all processes.
    pub collectives: CollectiveCounts,
    /// Standard output and error of all virtual ranks.
    #[serde(default)]
    pub output: OutputCounts,
    /// Files written by all virtual ranks.
    #[serde(default)]
    pub files: FileCounts,
    /// Faults injected.
    pub injected: u64,
    /// The verdict.
    pub verdict: Verdict,
    /// One entry for each native rank, in order.
    pub processes: Vec<ProcessEntry>,
    /// The earliest events, in order of time.
    pub events: Vec<Event>,
    /// Events that are left out.
    pub events_omitted: u64,
}

impl Report {
    /// Wrong messages, results, lines and ranges of files together.
    pub fn mismatched(&self) -> u64 {
        let received = self.messages.mismatched.saturating_add(self.collectives.mismatched);
        received.saturating_add(self.output.mismatched).saturating_add(self.files.mismatched)
    }

    /// Wrong messages, results, lines and ranges of files that could not be put right.
    pub fn uncorrectable(&self) -> u64 {
        let received = self.messages.uncorrectable.saturating_add(self.collectives.uncorrectable);
        received.saturating_add(self.output.uncorrectable()).saturating_add(self.files.uncorrectable())
    }
}

/// Makes one report of those of all processes, which may come in any order.
///
/// The verdict is *failed* if a vote failed, a process abstained or gave no report; else *detected* if anything
/// was uncorrectable; else *corrected* if anything was wrong; else *clean*. A process without a report gets an
/// entry with process id 0.
pub fn merge(reports: Vec<ProcessReport>, job: JobInfo<'_>) -> Report {
    let map = job.map;
    let mut processes: Vec<ProcessEntry> = (0..map.native_size())
        .map(|native| ProcessEntry {
            native,
            virtual_rank: map.virtual_of(native),
            replica: map.replica_of(native),
            ..ProcessEntry::default()
        })
        .collect();
    let mut messages = MessageCounts::default();
    let mut collectives = CollectiveCounts::default();
    let mut output = OutputCounts::default();
    let mut files = FileCounts::default();
    let mut injected = 0_u64;
    let mut failed = false;
    let mut events = Vec::new();
    let mut events_omitted = 0_u64;

    for report in reports {
        messages.add(&report.messages);
        collectives.add(&report.collectives);
        output.add(&report.output);
        files.add(&report.files);
        injected = injected.saturating_add(report.injected);
        failed |= report.abstained || report.votes_failed > 0;
        for (&native, &count) in &report.suspected {
            match processes.get_mut(native as usize) {
                Some(entry) => entry.suspected = entry.suspected.saturating_add(count),
                // Nobody has this rank: whoever says so is broken.
                None => failed = true,
            }
        }
        match processes.get_mut(report.native as usize) {
            Some(entry) if !entry.has_reported() => {
                entry.host = report.host;
                entry.pid = report.pid;
                entry.sent = report.messages.sent;
                entry.injected = report.injected;
                entry.corrected = report.messages.corrected.saturating_add(report.collectives.corrected);
            }
            _ => failed = true,
        }
        events.extend(report.events);
        events_omitted = events_omitted.saturating_add(report.events_omitted);
    }

    failed |= processes.iter().any(|entry| !entry.has_reported());
    failed |= events.iter().any(|event| event.kind == EventKind::Failed);
    events.sort_by(|a, b| a.time_s.total_cmp(&b.time_s).then(a.native.cmp(&b.native)));
    events_omitted = events_omitted.saturating_add(events.len().saturating_sub(EVENT_LIMIT) as u64);
    events.truncate(EVENT_LIMIT);

    let mut report = Report {
        redmpi: env!("CARGO_PKG_VERSION").to_owned(),
        open_mpi: job.open_mpi.to_owned(),
        degree: map.degree(),
        virtual_size: map.virtual_size(),
        native_size: map.native_size(),
        protocol: job.protocol.to_owned(),
        digest: job.digest.to_owned(),
        messages,
        collectives,
        output,
        files,
        injected,
        verdict: Verdict::Clean,
        processes,
        events,
        events_omitted,
    };
    report.verdict = match () {
        () if failed => Verdict::Failed,
        () if report.uncorrectable() > 0 => Verdict::Detected,
        () if report.mismatched() > 0 => Verdict::Corrected,
        () => Verdict::Clean,
    };
    report
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(crate) fn job(map: &RankMap) -> JobInfo<'_> {
        JobInfo { map, open_mpi: "4.1.4", protocol: "msgplushash", digest: "crc32c" }
    }

    /// Reports of all processes of a job without faults, two ranks a node.
    pub(crate) fn healthy(map: &RankMap) -> Vec<ProcessReport> {
        (0..map.native_size())
            .map(|native| ProcessReport {
                pid: 4000 + native,
                messages: MessageCounts { sent: 100, verified: 90, ..MessageCounts::default() },
                collectives: CollectiveCounts { called: 5, verified: 5, ..CollectiveCounts::default() },
                ..ProcessReport::new(native, map, format!("node{}", native / 2))
            })
            .collect()
    }

    pub(crate) fn event(kind: EventKind, native: u32, time_s: f64) -> Event {
        Event {
            kind,
            native,
            peer: Some(1),
            communicator: "MPI_COMM_WORLD".to_owned(),
            tag: Some(7),
            bytes: 800,
            time_s,
        }
    }

    fn verdict_of(map: &RankMap, change: impl FnOnce(&mut Vec<ProcessReport>)) -> Verdict {
        let mut reports = healthy(map);
        change(&mut reports);
        merge(reports, job(map)).verdict
    }

    #[test]
    fn sums_and_entries() {
        let map = RankMap::by_formula(6, 3).unwrap();
        let mut reports = healthy(&map);
        reports[2].injected = 4;
        reports[3].messages.mismatched = 3;
        reports[3].messages.corrected = 3;
        reports[3].collectives.mismatched = 1;
        reports[3].collectives.corrected = 1;
        for _ in 0..4 {
            reports[3].suspect(2);
        }
        reports.reverse();
        let report = merge(reports, job(&map));
        assert_eq!(report.verdict, Verdict::Corrected);
        assert_eq!((report.degree, report.virtual_size, report.native_size), (3, 2, 6));
        assert_eq!(
            report.messages,
            MessageCounts { sent: 600, verified: 540, mismatched: 3, corrected: 3, uncorrectable: 0 }
        );
        assert_eq!((report.collectives.called, report.collectives.corrected, report.injected), (30, 1, 4));
        let suspect = &report.processes[2];
        assert_eq!((suspect.virtual_rank, suspect.replica, suspect.suspected, suspect.injected), (0, 1, 4, 4));
        assert_eq!((suspect.host.as_str(), suspect.pid, suspect.sent), ("node1", 4002, 100));
        assert_eq!(report.processes[3].corrected, 4);
    }

    #[test]
    fn verdicts() {
        let map = RankMap::by_formula(6, 3).unwrap();
        assert_eq!(verdict_of(&map, |_| ()), Verdict::Clean);
        assert_eq!(verdict_of(&map, |reports| reports[1].collectives.mismatched = 1), Verdict::Corrected);
        assert_eq!(verdict_of(&map, |reports| reports[1].messages.uncorrectable = 1), Verdict::Detected);
        let lines = |corrected| OutputCounts { bytes: 9, mismatched: 2, corrected };
        assert_eq!(verdict_of(&map, |reports| reports[0].output = lines(2)), Verdict::Corrected);
        assert_eq!(verdict_of(&map, |reports| reports[0].output = lines(1)), Verdict::Detected);
        let ranges = |corrected| FileCounts { opened: 3, verified_bytes: 9, mismatched: 2, corrected };
        assert_eq!(verdict_of(&map, |reports| reports[1].files = ranges(2)), Verdict::Corrected);
        assert_eq!(verdict_of(&map, |reports| reports[1].files = ranges(1)), Verdict::Detected);
        assert_eq!(verdict_of(&map, |reports| reports[5].votes_failed = 1), Verdict::Failed);
        assert_eq!(verdict_of(&map, |reports| reports[5].abstained = true), Verdict::Failed);
        assert_eq!(verdict_of(&map, |reports| reports[0].record(event(EventKind::Failed, 0, 1.0))), Verdict::Failed);
        assert!(Verdict::Corrected.is_good() && !Verdict::Detected.is_good() && !Verdict::Failed.is_good());
    }

    #[test]
    fn a_process_without_report_is_never_clean() {
        let map = RankMap::by_formula(4, 2).unwrap();
        assert_eq!(verdict_of(&map, |reports| drop(reports.remove(2))), Verdict::Failed);
        assert_eq!(verdict_of(&map, |reports| reports[2].native = 1), Verdict::Failed);
        assert_eq!(verdict_of(&map, |reports| reports[2].native = 99), Verdict::Failed);
        assert_eq!(verdict_of(&map, |reports| reports[2].suspect(99)), Verdict::Failed);
        let report = merge(healthy(&map).split_off(1), job(&map));
        assert!(!report.processes[0].has_reported() && report.processes[1].has_reported());
    }

    #[test]
    fn the_earliest_events_are_kept() {
        let map = RankMap::by_formula(2, 2).unwrap();
        let mut reports = healthy(&map);
        for index in 0..EVENT_LIMIT + 10 {
            reports[0].record(event(EventKind::Mismatch, 0, index as f64));
        }
        reports[1].record(event(EventKind::Note, 1, 0.5));
        reports[1].record(event(EventKind::Note, 1, f64::NAN));
        assert_eq!((reports[0].events.len(), reports[0].events_omitted), (EVENT_LIMIT, 10));
        let report = merge(reports, job(&map));
        assert_eq!((report.events.len(), report.events_omitted), (EVENT_LIMIT, 12));
        assert_eq!(report.events.iter().take(4).map(|event| event.native).collect::<Vec<_>>(), [0, 1, 1, 0]);
        assert!(report.events.is_sorted_by(|a, b| a.time_s <= b.time_s));
    }

    proptest! {
        #[test]
        fn order_of_arrival_does_not_matter(
            counts in prop::collection::vec((0_u64..9, 0_u64..9, 0_u32..6, 0.0_f64..9.0), 6),
            order in Just((0..6_usize).collect::<Vec<_>>()).prop_shuffle(),
        ) {
            let map = RankMap::by_formula(6, 3).unwrap();
            let mut reports = healthy(&map);
            for (report, &(wrong, corrected, suspect, time)) in reports.iter_mut().zip(&counts) {
                report.messages.mismatched = wrong;
                report.messages.corrected = corrected;
                report.suspect(suspect);
                report.record(event(EventKind::Mismatch, report.native, time));
            }
            let shuffled = order.iter().map(|&index| reports[index].clone()).collect();
            let travelled = reports.iter().map(|report| ProcessReport::from_bytes(&report.to_bytes()).unwrap()).collect();
            let expected = merge(reports, job(&map));
            prop_assert_eq!(&merge(shuffled, job(&map)), &expected);
            prop_assert_eq!(&merge(travelled, job(&map)), &expected);
            prop_assert_eq!(expected.processes.iter().map(|entry| entry.suspected).sum::<u64>(), 6);
        }
    }
}
