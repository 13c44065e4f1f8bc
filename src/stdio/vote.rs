//! The vote over one stream: what several replicas write, in; what is shown, and who differed, out.
//!
//! The unit that is voted on is the line, or 4 KiB where a line is longer; a place that the process marks ends a unit
//! too. So units are the same in all replicas, however the bytes arrive. A unit is shown
//! * as soon as more than half of the replicas have it at this place,
//! * or, where all have spoken and there is no such majority, as the leader has it,
//! * or as the leader has it when it has waited for the others for the *delay*, fills half of its memory, or has crashed.
//!
//! What was shown is remembered until every replica was compared with it. A replica that differs stays in step: its
//! next unit is expected where the others' next one is, and where it has written more or fewer lines, the next lines
//! that agree bring it back. A replica that has crashed does not vote any more once its text is used up; one that
//! has ended by itself votes for the end.
//!
//! The beginning of a unit that more than half have is shown at once (a prompt); the leader's alone after the delay.
//!
//! Memory is bounded: text that waits for the leader is dropped above [`KEEP`] (its digest stays), and a replica that is
//! more than [`FAR`] units away from the others is not compared any more, which is counted.

use std::collections::VecDeque;

/// Longest unit.
const UNIT: usize = 4096;
/// Bytes of a replica that are kept while they wait.
pub const KEEP: usize = 16 << 20;
/// Units that a replica may be behind or ahead of what is shown.
pub const FAR: usize = 1 << 20;
/// How far a replica that differs is searched for the place where it agrees again.
const WINDOW: usize = 64;
/// Bytes of a line that a finding quotes.
const QUOTE: usize = 160;
/// Units shown whose beginning is kept, to be quoted.
const QUOTED: usize = 256;

/// How long the beginning of a line that a majority has may wait for the rest, in milliseconds: a line that is written at
/// once is shown at once, so that those of several ranks do not mix.
const TOGETHER: u64 = 1;

/// Digest of a unit; a mark's cannot be that of text.
type Digest = u128;

#[derive(Clone, Debug)]
struct Unit {
    digest: Digest,
    length: usize,
    /// Whether the bytes are there.
    kept: bool,
    mark: bool,
    seen: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Open,
    /// The process has crashed, or was ended.
    Crashed,
    /// The process has ended by itself.
    Clean,
}

struct Replica {
    /// Bytes of the units that are kept, then those of the unfinished one.
    text: Vec<u8>,
    begin: usize,
    units: VecDeque<Unit>,
    /// Length of the unfinished unit.
    tail: usize,
    /// When the unfinished unit began.
    tail_seen: u64,
    ending: Ending,
    /// It is too far away to be compared.
    lost: bool,
    /// Number of the unit, of those shown, that comes next for this replica.
    next: u64,
    /// Since when it has something else there.
    differs: Option<u64>,
    /// Beginnings of lines that are this replica's by nature.
    signatures: Vec<Vec<u8>>,
}

/// A unit that was shown and that not everyone was compared with yet.
struct Shown {
    digest: Digest,
    length: usize,
    line: u64,
    mark: bool,
    agree: u64,
    against: u64,
    /// What the first that differs has, and whether all that differ have it.
    rival: Option<Digest>,
    alike: bool,
    /// Something else of this line had been shown before.
    spoiled: bool,
    quote: Option<Box<[u8]>>,
    other: Option<Box<[u8]>>,
}

/// What was wrong at one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dissent {
    /// Replicas that may have written what is wrong: a bit each.
    pub suspects: u64,
    /// Line of what was shown, from 1.
    pub line: u64,
    /// Length of the line shown; of the other where there is none.
    pub length: usize,
    /// Wrong units counted here.
    pub count: u64,
    /// Whether what was shown is the majority's.
    pub corrected: bool,
    /// The beginning of what was shown, as far as it is known. `None`: nothing was.
    pub shown: Option<Box<[u8]>>,
    /// The beginning of what the dissenter has. `None`: nothing, or not known.
    pub other: Option<Box<[u8]>>,
}

enum Candidate {
    /// The unit of this number in the replica's queue.
    Unit(usize),
    End,
    Waiting,
    /// Does not vote.
    Absent,
}

/// The vote over one stream.
pub struct Vote {
    replicas: Vec<Replica>,
    delay: u64,
    shown: VecDeque<Shown>,
    /// Number of the first of `shown`.
    base: u64,
    /// Bytes of the current unit that are out already.
    early: Vec<u8>,
    line: u64,
    bytes: u64,
    marks: u64,
    finished: bool,
    out: Vec<u8>,
    dissents: Vec<Dissent>,
    lost: u64,
}

fn digest(bytes: &[u8]) -> Digest {
    twox_hash::XxHash3_128::oneshot(bytes)
}

fn quote(bytes: &[u8]) -> Box<[u8]> {
    bytes[..bytes.len().min(QUOTE)].into()
}

fn common(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

impl Replica {
    fn new() -> Replica {
        Replica {
            text: Vec::new(),
            begin: 0,
            units: VecDeque::new(),
            tail: 0,
            tail_seen: 0,
            ending: Ending::Open,
            lost: false,
            next: 0,
            differs: None,
            signatures: Vec::new(),
        }
    }

    fn finish_unit(&mut self, now: u64) {
        let at = self.text.len() - self.tail;
        let bytes = &self.text[at..];
        let signed = self.signatures.iter().find(|signature| bytes.starts_with(signature));
        let digest = match signed {
            Some(signature) => !digest(&bytes[signature.len()..]),
            None => digest(bytes),
        };
        let kept = at - self.begin + self.tail <= KEEP;
        if !kept {
            self.text.truncate(at);
        }
        self.units.push_back(Unit { digest, length: self.tail, kept, mark: false, seen: now });
        self.tail = 0;
    }

    /// Bytes of the unit of this number in the queue.
    fn bytes(&self, index: usize) -> Option<&[u8]> {
        let unit = self.units.get(index)?;
        let before: usize = self.units.iter().take(index).filter(|unit| unit.kept).map(|unit| unit.length).sum();
        let at = self.begin + before;
        unit.kept.then(|| &self.text[at..at + unit.length])
    }

    fn unfinished(&self) -> &[u8] {
        &self.text[self.text.len() - self.tail..]
    }

    fn pop(&mut self) {
        if let Some(unit) = self.units.pop_front() {
            if unit.kept {
                self.begin += unit.length;
            }
        }
        if self.begin > 1 << 16 && self.begin * 2 > self.text.len() {
            self.text.drain(..self.begin);
            self.begin = 0;
        }
    }

    fn lose(&mut self) {
        self.lost = true;
        self.units.clear();
        self.text = Vec::new();
        (self.begin, self.tail) = (0, 0);
    }
}

impl Vote {
    /// A vote among `degree` replicas (at most 64), whose leader's text waits at most `delay` milliseconds.
    pub fn new(degree: u8, delay: u64) -> Vote {
        Vote {
            replicas: (0..degree.min(64)).map(|_| Replica::new()).collect(),
            delay,
            shown: VecDeque::new(),
            base: 0,
            early: Vec::new(),
            line: 1,
            bytes: 0,
            marks: 0,
            finished: false,
            out: Vec::new(),
            dissents: Vec::new(),
            lost: 0,
        }
    }

    /// Lines that begin so in this replica count as equal to those of others that begin with theirs: Open MPI puts host and
    /// process id before what it says.
    pub fn signature(&mut self, replica: u8, begins: &[u8]) {
        self.replicas[usize::from(replica)].signatures.push(begins.to_vec());
    }

    /// A replica has written. Times are milliseconds of any clock that does not go back.
    pub fn text(&mut self, replica: u8, mut bytes: &[u8], now: u64) {
        let replica = &mut self.replicas[usize::from(replica)];
        if replica.lost || replica.ending != Ending::Open {
            return;
        }
        while !bytes.is_empty() {
            let room = UNIT - replica.tail;
            let part = &bytes[..bytes.len().min(room)];
            let end = part.iter().position(|byte| *byte == b'\n').map(|at| at + 1);
            let length = end.unwrap_or(part.len());
            if replica.tail <= self.early.len() {
                replica.tail_seen = now;
            }
            replica.text.extend_from_slice(&part[..length]);
            replica.tail += length;
            bytes = &bytes[length..];
            if end.is_some() || replica.tail == UNIT {
                replica.finish_unit(now);
            }
        }
        if replica.units.len() > FAR {
            replica.lose();
            self.lost += 1;
        }
    }

    /// A replica has marked this place; replicas mark the same places.
    pub fn mark(&mut self, replica: u8, number: u64, now: u64) {
        let replica = &mut self.replicas[usize::from(replica)];
        if replica.lost || replica.ending != Ending::Open {
            return;
        }
        if replica.tail > 0 {
            replica.finish_unit(now);
        }
        // Of a marker's form, which no unit can have: it is not text.
        let mark = digest(&[&number.to_le_bytes()[..], &[0; UNIT]].concat());
        replica.units.push_back(Unit { digest: mark, length: 0, kept: true, mark: true, seen: now });
    }

    /// A replica's stream has ended; `clean` if its process did so by itself.
    pub fn end(&mut self, replica: u8, clean: bool, now: u64) {
        let replica = &mut self.replicas[usize::from(replica)];
        if replica.ending != Ending::Open {
            return;
        }
        if clean && replica.tail > 0 {
            replica.finish_unit(now);
        }
        replica.ending = if clean { Ending::Clean } else { Ending::Crashed };
    }

    /// How many of the units shown this replica was not compared with yet.
    fn behind(&self, replica: &Replica) -> usize {
        (self.base + self.shown.len() as u64 - replica.next) as usize
    }

    fn candidate(&self, replica: &Replica) -> Candidate {
        let behind = self.behind(replica);
        match () {
            () if replica.lost => Candidate::Absent,
            () if replica.units.len() > behind => Candidate::Unit(behind),
            () if replica.ending == Ending::Open => Candidate::Waiting,
            () if replica.ending == Ending::Crashed => Candidate::Absent,
            () => Candidate::End,
        }
    }

    /// Decides what can be decided by now.
    pub fn step(&mut self, now: u64) {
        self.compare(false, now);
        while self.decide(now) {
            self.compare(false, now);
        }
        // A difference is not kept back for long, even if nothing follows by which to find the place again.
        let stuck = |replica: &Replica| replica.differs.is_some_and(|since| now >= since + self.delay);
        let all_ended = self.replicas.iter().all(|replica| replica.ending != Ending::Open || replica.lost);
        if all_ended || self.replicas.iter().any(stuck) {
            self.compare(true, now);
        }
    }

    /// Shows one unit if it is decided.
    fn decide(&mut self, now: u64) -> bool {
        if self.finished {
            return false;
        }
        let candidates: Vec<Candidate> = self.replicas.iter().map(|replica| self.candidate(replica)).collect();
        let voters = candidates.iter().filter(|candidate| !matches!(candidate, Candidate::Absent)).count();
        if voters == 0 {
            self.leftovers(now);
            return false;
        }
        let value = |index: usize| match candidates[index] {
            Candidate::Unit(unit) => Some(Some(self.replicas[index].units[unit].digest)),
            Candidate::End => Some(None),
            _ => None,
        };
        let have = |wanted: &Option<Digest>, index: &usize| value(*index).as_ref() == Some(wanted);
        let all = || 0..candidates.len();
        let majority = all().filter_map(value).find(|wanted| all().filter(|i| have(wanted, i)).count() * 2 > voters);
        let leader = all().find(|index| !matches!(candidates[*index], Candidate::Absent));
        let waiting = candidates.iter().any(|candidate| matches!(candidate, Candidate::Waiting));
        let source = match (majority, leader) {
            (Some(None), _) => {
                self.finished = true;
                self.compare(true, now);
                return false;
            }
            (Some(wanted), _) => {
                // Whoever has the bytes; if none has them any more, the leader's have to come.
                let with_bytes = all().filter(|index| have(&wanted, index)).find(|index| match candidates[*index] {
                    Candidate::Unit(unit) => self.replicas[*index].units[unit].kept,
                    _ => false,
                });
                with_bytes.or_else(|| (!waiting).then(|| all().find(|index| have(&wanted, index))).flatten())
            }
            (None, Some(leader)) => match candidates[leader] {
                Candidate::Unit(unit) => {
                    // Where a process has crashed the job may be ended at any moment: no time to wait.
                    let crashed = self.replicas[leader].ending == Ending::Crashed;
                    // Nor where there is no room: of the leader's text nothing may be dropped.
                    let crowded = self.replicas[leader].text.len() - self.replicas[leader].begin > KEEP / 2;
                    let late = crashed || crowded || now >= self.replicas[leader].units[unit].seen + self.delay;
                    (!waiting || late).then_some(leader)
                }
                Candidate::End if !waiting => {
                    // The leader's process has ended, and the others, who do not agree, go on: nothing more is shown.
                    self.finished = true;
                    self.compare(true, now);
                    return false;
                }
                _ => None,
            },
            (None, None) => None,
        };
        match (source, source.map(|source| &candidates[source])) {
            (Some(source), Some(Candidate::Unit(unit))) => {
                let unit = *unit;
                self.show(source, unit);
                true
            }
            _ => {
                self.beginning(&candidates, voters, now);
                false
            }
        }
    }

    fn show(&mut self, source: usize, index: usize) {
        let replica = &self.replicas[source];
        let unit = replica.units[index].clone();
        let lost = b"[redmpi: a line is lost]\n";
        let bytes = replica.bytes(index).unwrap_or(lost);
        let early = std::mem::take(&mut self.early);
        let spoiled = !bytes.starts_with(&early) || !unit.kept;
        self.out.extend_from_slice(&bytes[early.len().min(bytes.len())..]);
        self.bytes += (bytes.len() - early.len().min(bytes.len())) as u64;
        let quoted = (self.shown.len() < QUOTED && !unit.mark).then(|| quote(bytes));
        let newline = bytes.ends_with(b"\n");
        self.shown.push_back(Shown {
            digest: unit.digest,
            length: unit.length,
            line: self.line,
            mark: unit.mark,
            agree: 0,
            against: 0,
            rival: None,
            alike: true,
            spoiled,
            quote: quoted,
            other: None,
        });
        self.line += u64::from(newline);
        self.marks += u64::from(unit.mark);
        if self.shown.len() > FAR {
            for replica in self.replicas.iter_mut().filter(|replica| !replica.lost && replica.next == self.base) {
                if replica.ending == Ending::Open {
                    self.lost += 1;
                }
                replica.lose();
            }
        }
    }

    /// Compares every replica with what was shown; `all`: what cannot be matched by now counts as different.
    fn compare(&mut self, all: bool, now: u64) {
        for index in 0..self.replicas.len() {
            self.compare_one(index, all, now);
        }
        self.judge();
    }

    fn compare_one(&mut self, index: usize, all: bool, now: u64) {
        let bit = 1_u64 << index;
        loop {
            let replica = &self.replicas[index];
            if replica.lost {
                return;
            }
            let at = (replica.next - self.base) as usize;
            let (behind, ahead) = (self.shown.len() - at, replica.units.len());
            // How many units of those shown this replica does not have, and how many others it has instead.
            let (missing, more) = match (behind, ahead) {
                (1.., 1..) if self.shown[at].digest == replica.units[0].digest => {
                    self.shown[at].agree |= bit;
                    let replica = &mut self.replicas[index];
                    replica.next += 1;
                    replica.differs = None;
                    replica.pop();
                    continue;
                }
                (1.., 1..) => match self.agreement(at, replica) {
                    Some(place) => place,
                    None if all || behind.min(ahead) >= WINDOW => (1, 1),
                    None => {
                        let differs = &mut self.replicas[index].differs;
                        *differs = differs.or(Some(now));
                        return;
                    }
                },
                (1.., 0) if replica.ending == Ending::Crashed => {
                    // What it had begun to write of these lines is out.
                    let replica = &mut self.replicas[index];
                    replica.next += behind as u64;
                    replica.text.truncate(replica.text.len() - replica.tail);
                    replica.tail = 0;
                    return;
                }
                (1.., 0) if replica.ending == Ending::Clean => (behind, 0),
                (0, 1..) if self.finished => (0, ahead),
                _ => return,
            };
            for step in 0..missing {
                let other = (step < more).then(|| {
                    let replica = &self.replicas[index];
                    (replica.units[step].digest, replica.bytes(step).map(quote))
                });
                let shown = &mut self.shown[at + step];
                shown.against |= bit;
                let rival = other.as_ref().map(|(digest, _)| *digest);
                if shown.rival.is_none() && shown.against == bit {
                    shown.rival = rival;
                    shown.other = other.and_then(|(_, quote)| quote);
                } else if shown.rival != rival {
                    shown.alike = false;
                }
            }
            let extra: Vec<(usize, Option<Box<[u8]>>)> = (missing..more)
                .filter(|step| !self.replicas[index].units[*step].mark)
                .map(|step| (self.replicas[index].units[step].length, self.replicas[index].bytes(step).map(quote)))
                .collect();
            let line = self.shown.get(at + missing).map_or(self.line, |shown| shown.line);
            for (length, other) in extra {
                let voters = self.replicas.iter().filter(|replica| !replica.lost).count();
                let corrected = voters > 2;
                let suspects = if corrected { bit } else { self.everyone() };
                self.dissents.push(Dissent { suspects, line, length, count: 1, corrected, shown: None, other });
            }
            let replica = &mut self.replicas[index];
            replica.next += missing as u64;
            replica.differs = None;
            (0..more).for_each(|_| replica.pop());
        }
    }

    /// The nearest place where a replica that differs agrees again: so many units on in what was shown from `at`, and
    /// in its own.
    fn agreement(&self, at: usize, replica: &Replica) -> Option<(usize, usize)> {
        let (rows, columns) = ((self.shown.len() - at).min(WINDOW), replica.units.len().min(WINDOW));
        for sum in 1..(rows + columns).saturating_sub(1) {
            let mut best: Option<usize> = None;
            for missing in sum.saturating_sub(columns - 1)..=sum.min(rows - 1) {
                // A line in place of another is more likely than one too many.
                let better = best.is_none_or(|best| (2 * missing).abs_diff(sum) < (2 * best).abs_diff(sum));
                if better && self.shown[at + missing].digest == replica.units[sum - missing].digest {
                    best = Some(missing);
                }
            }
            if let Some(missing) = best {
                return Some((missing, sum - missing));
            }
        }
        None
    }

    fn everyone(&self) -> u64 {
        (0..self.replicas.len()).filter(|index| !self.replicas[*index].lost).map(|index| 1 << index).sum()
    }

    /// Forgets what everyone was compared with.
    fn judge(&mut self) {
        loop {
            let passed = |replica: &Replica| {
                replica.lost
                    || replica.next > self.base
                    || (replica.ending == Ending::Crashed && replica.units.is_empty())
            };
            if self.shown.is_empty() || !self.replicas.iter().all(passed) {
                return;
            }
            let Some(shown) = self.shown.pop_front() else { return };
            for replica in &mut self.replicas {
                replica.next = replica.next.max(self.base + 1);
            }
            self.base += 1;
            let (agree, against) = (shown.agree.count_ones(), shown.against.count_ones());
            if shown.mark || (against == 0 && !shown.spoiled) {
                continue;
            }
            let voters = agree + against;
            let right = agree * 2 > voters && !shown.spoiled;
            let overruled = shown.alike && shown.rival.is_some() && against * 2 > voters;
            let (suspects, count) = match () {
                () if agree * 2 > voters && against > 0 => (shown.against, u64::from(against)),
                // Only the beginning was wrong, and nobody is known to have written it.
                () if against == 0 => (0, 1),
                () if overruled => (shown.agree, u64::from(agree.max(1))),
                () => (shown.agree | shown.against, 1),
            };
            self.dissents.push(Dissent {
                suspects,
                line: shown.line,
                length: shown.length,
                count,
                corrected: right,
                shown: shown.quote,
                other: shown.other,
            });
        }
    }

    /// The beginning of a unit: a majority's soon, the leader's after the delay.
    fn beginning(&mut self, candidates: &[Candidate], voters: usize, now: u64) {
        // What is complete is voted on as a whole; here is what replicas have only begun to write.
        let start_of = |(replica, candidate): (&'_ Replica, &Candidate)| match candidate {
            Candidate::Waiting if replica.units.len() == self.behind(replica) => replica.tail,
            _ => 0,
        };
        let lengths: Vec<usize> = self.replicas.iter().zip(candidates).map(start_of).collect();
        let starts: Vec<&[u8]> =
            self.replicas.iter().zip(&lengths).map(|(replica, length)| &replica.unfinished()[..*length]).collect();
        let early = self.early.len();
        if !starts.iter().any(|start| start.len() > early) {
            return;
        }
        let old = |index: usize, age: u64| now >= self.replicas[index].tail_seen + age;
        let needed = voters / 2 + 1;
        let mut best: &[u8] = &[];
        for (index, start) in starts.iter().enumerate() {
            if start.len() <= best.len().max(early) || !old(index, TOGETHER) {
                continue;
            }
            let mut shared: Vec<usize> = starts.iter().map(|other| common(start, other)).collect();
            shared.sort_unstable_by(|a, b| b.cmp(a));
            let length = shared.get(needed - 1).copied().unwrap_or(0);
            if length > best.len() {
                best = &start[..length];
            }
        }
        let leader = candidates.iter().position(|candidate| !matches!(candidate, Candidate::Absent));
        if let Some(leader) = leader {
            let start = starts[leader];
            // Unless a majority is known to have something else.
            if start.len() > best.len() && start.starts_with(best) && old(leader, self.delay) {
                let others =
                    starts.iter().filter(|other| common(start, other) < other.len().min(start.len())).count();
                if others * 2 <= voters {
                    best = start;
                }
            }
        }
        if best.len() > early && best.starts_with(&self.early) {
            let best = best.to_vec();
            self.bytes += (best.len() - early) as u64;
            self.out.extend_from_slice(&best[early..]);
            self.early = best;
        }
    }

    /// All have crashed: what they had begun to write, the leader's before the others'.
    fn leftovers(&mut self, now: u64) {
        let early = self.early.clone();
        let tails = || self.replicas.iter().filter(|replica| !replica.lost && replica.tail > 0);
        let first =
            tails().map(Replica::unfinished).find(|tail| tail.len() > early.len() && tail.starts_with(&early));
        if let Some(tail) = first {
            self.bytes += (tail.len() - early.len()) as u64;
            self.out.extend_from_slice(&tail[early.len()..]);
            self.early = tail.to_vec();
        }
        self.finished = true;
        self.compare(true, now);
    }

    /// What is to be shown by now.
    pub fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out)
    }

    /// What was found by now.
    pub fn take_dissents(&mut self) -> Vec<Dissent> {
        std::mem::take(&mut self.dissents)
    }

    /// Bytes shown.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Times that a replica was given up because it was too far from the others.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Whether the marks up to the `count`th were shown, and everyone was compared with all that was shown.
    pub fn compared(&self, count: u64) -> bool {
        self.finished || (self.marks >= count && self.shown.is_empty())
    }

    /// Whether all that this replica has written was decided.
    pub fn is_used_up(&self, replica: u8) -> bool {
        let replica = &self.replicas[usize::from(replica)];
        replica.units.is_empty() && replica.tail <= self.early.len()
    }

    /// Whether all replicas have ended and everything was decided.
    pub fn is_over(&self) -> bool {
        self.replicas
            .iter()
            .all(|replica| replica.lost || (replica.ending != Ending::Open && replica.units.is_empty()))
            && (self.finished || self.replicas.iter().all(|replica| replica.lost))
    }

    /// When [`step`](Vote::step), last called at `now`, has to be called again though nothing arrives.
    pub fn deadline(&self, now: u64) -> Option<u64> {
        let of = |replica: &Replica| {
            let behind = self.behind(replica);
            let differs = replica.differs.map(|since| since + self.delay);
            let waits = replica.units.get(behind).map(|unit| unit.seen + self.delay);
            let begun = replica.tail > 0 && replica.units.len() == behind;
            // A majority's beginning is tried once it is old enough, the leader's at its delay.
            let begun = begun.then(|| [replica.tail_seen + TOGETHER, replica.tail_seen + self.delay]);
            let times = begun.into_iter().flatten().chain(waits).chain(differs);
            times.filter(|time| *time > now).min()
        };
        self.replicas.iter().filter(|replica| !replica.lost).filter_map(of).min()
    }
}

#[cfg(test)]
mod tests;
