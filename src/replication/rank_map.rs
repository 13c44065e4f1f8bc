//! The rank map: native rank ↔ (virtual rank, replica index).
//!
//! mpirun starts `native_size` processes; the application sees `virtual_size = native_size / degree` of them.
//! By *formula* (the default), native = replica · virtual_size + virtual: the map costs no memory, and because
//! mpirun fills nodes in order of rank, the replicas of one virtual rank land far apart. By *file*, the user
//! says for every native rank which place it takes.
//!
//! # File format
//!
//! Text, one line for each native rank, three numbers separated by blanks, in any order of lines:
//!
//! ```text
//! # native  virtual  replica
//!   0       0        0
//!   1       0        1      # the second replica of virtual rank 0
//!   2       1        0
//!   3       1        1
//! ```
//!
//! `#` begins a comment that lasts to the end of the line; blank lines are skipped. Every native rank occurs
//! exactly once, and so does every place (virtual, replica). All numbers count from 0. What breaks these rules
//! is an error that names the file, the line, what was given and what is allowed. `docs/rank-map.md` has a
//! longer example.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// MPI counts ranks in a C `int`.
const LARGEST_SIZE: u32 = i32::MAX as u32;

/// How many ranks or places an error lists before it says how many more there are.
const LISTED: usize = 8;

/// Native rank ↔ (virtual rank, replica index), in constant memory unless a file says otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RankMap {
    virtual_size: u32,
    degree: u32,
    /// `None`: by formula.
    table: Option<Table>,
}

/// A place is replica · virtual_size + virtual, so the formula is the map that leaves every number as it is,
/// and a file is a permutation of it, kept both ways.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Table {
    native_of_place: Box<[u32]>,
    place_of_native: Box<[u32]>,
}

impl RankMap {
    /// The default map: native = replica · virtual_size + virtual.
    ///
    /// # Errors
    /// A degree or size of zero, and a size that the degree does not divide; the error says which sizes would do.
    pub fn by_formula(native_size: u32, degree: u32) -> Result<RankMap, RankMapError> {
        if degree == 0 {
            return Err(RankMapError::NoDegree);
        }
        if native_size == 0 || native_size > LARGEST_SIZE || !native_size.is_multiple_of(degree) {
            return Err(RankMapError::Size { native_size, degree });
        }
        Ok(RankMap { virtual_size: native_size / degree, degree, table: None })
    }

    /// The map that keeps the replicas of a rank on different nodes, given every native rank's node: the formula
    /// where it does that already, else the formula over the native ranks in order of their nodes (a node's processes
    /// are then neighbours, and replicas of a rank are `virtual_size` apart). Where a node has more than
    /// `virtual_size` processes no map can do it, and the formula it is.
    ///
    /// # Errors
    /// Those of [`RankMap::by_formula`].
    pub fn by_node(nodes: &[u32], degree: u32) -> Result<RankMap, RankMapError> {
        let formula = RankMap::by_formula(u32::try_from(nodes.len()).unwrap_or(u32::MAX), degree)?;
        let size = formula.virtual_size as usize;
        let shared = |rank: usize| {
            let places = nodes[rank..].iter().step_by(size);
            let mut seen: Vec<u32> = places.copied().collect();
            seen.sort_unstable();
            seen.windows(2).any(|pair| pair[0] == pair[1])
        };
        if !(0..size).any(shared) {
            return Ok(formula);
        }
        // Nodes in order of their first process, so that native rank 0 keeps its place.
        let mut first: HashMap<u32, (u32, usize)> = HashMap::new();
        for (native, node) in (0..).zip(nodes) {
            first.entry(*node).or_insert((native, 0)).1 += 1;
        }
        if first.values().any(|(_, processes)| *processes > size) {
            return Ok(formula);
        }
        let mut native_of_place: Box<[u32]> = (0..formula.native_size()).collect();
        native_of_place.sort_by_key(|native| first[&nodes[*native as usize]].0);
        let mut place_of_native = vec![0; nodes.len()].into_boxed_slice();
        for (place, native) in (0..).zip(&native_of_place) {
            place_of_native[*native as usize] = place;
        }
        Ok(RankMap { table: Some(Table { native_of_place, place_of_native }), ..formula })
    }

    /// The map that the file at `path` describes (format: top of this module).
    ///
    /// # Errors
    /// Those of [`RankMap::parse`], and a file that cannot be read.
    pub fn from_file(path: impl AsRef<Path>, native_size: u32, degree: u32) -> Result<RankMap, RankMapError> {
        let path = path.as_ref();
        let text = std::fs::read_to_string(path)
            .map_err(|error| RankMapError::Unreadable { file: path.to_owned(), reason: error.to_string() })?;
        RankMap::parse(&text, &path.to_string_lossy(), native_size, degree)
    }

    /// The map that `text` describes; `file` is the name that errors give it.
    ///
    /// # Errors
    /// Those of [`RankMap::by_formula`]; otherwise the first line that breaks a rule, or at the end what is missing.
    pub fn parse(text: &str, file: &str, native_size: u32, degree: u32) -> Result<RankMap, RankMapError> {
        let shape = RankMap::by_formula(native_size, degree)?;
        let virtual_size = shape.virtual_size;
        // Line that gave each rank and each place; 0: none yet.
        let mut line_of_native = vec![0_usize; native_size as usize];
        let mut line_of_place = vec![0_usize; native_size as usize];
        let mut native_of_place = vec![0_u32; native_size as usize];
        let mut place_of_native = vec![0_u32; native_size as usize];

        for (line, content) in text.lines().enumerate().map(|(index, content)| (index + 1, content)) {
            let content = content.split('#').next().unwrap_or_default();
            let fields: Vec<&str> = content.split_whitespace().collect();
            if fields.is_empty() {
                continue;
            }
            let at = |problem| RankMapError::Line { file: file.to_owned(), line, problem };
            let &[native, virtual_rank, replica] = fields.as_slice() else {
                return Err(at(Problem::Fields { given: fields.len(), text: content.trim().to_owned() }));
            };
            let native = number(native, Field::Native, native_size).map_err(at)?;
            let virtual_rank = number(virtual_rank, Field::Virtual, virtual_size).map_err(at)?;
            let replica = number(replica, Field::Replica, degree).map_err(at)?;
            let place = replica * virtual_size + virtual_rank;

            let first = std::mem::replace(&mut line_of_native[native as usize], line);
            if first != 0 {
                return Err(at(Problem::NativeTwice { native, first }));
            }
            let first = std::mem::replace(&mut line_of_place[place as usize], line);
            if first != 0 {
                let holder = native_of_place[place as usize];
                return Err(at(Problem::PlaceTwice { virtual_rank, replica, holder, first }));
            }
            native_of_place[place as usize] = native;
            place_of_native[native as usize] = place;
        }

        // As many places as ranks, and none given twice: where no rank is missing, no place is.
        let missing: Vec<u32> =
            (0..native_size).zip(&line_of_native).filter(|(_, &line)| line == 0).map(|(native, _)| native).collect();
        if !missing.is_empty() {
            let places = (0..native_size).zip(&line_of_place).filter(|(_, &line)| line == 0);
            return Err(RankMapError::Missing {
                file: file.to_owned(),
                native_size,
                missing: missing.len(),
                ranks: missing.into_iter().take(LISTED).collect(),
                places: places.take(LISTED).map(|(place, _)| (place % virtual_size, place / virtual_size)).collect(),
            });
        }
        let table = Table {
            native_of_place: native_of_place.into_boxed_slice(),
            place_of_native: place_of_native.into_boxed_slice(),
        };
        Ok(RankMap { table: Some(table), ..shape })
    }

    /// Processes that mpirun started.
    pub fn native_size(&self) -> u32 {
        self.virtual_size * self.degree
    }

    /// Replicas of each virtual rank.
    pub fn degree(&self) -> u32 {
        self.degree
    }

    /// Ranks that the application sees.
    pub fn virtual_size(&self) -> u32 {
        self.virtual_size
    }

    /// The native rank of one replica of a virtual rank.
    ///
    /// # Panics
    /// When either is out of range: a wrong answer would send a message to a stranger.
    pub fn native_of(&self, virtual_rank: u32, replica: u32) -> u32 {
        assert!(virtual_rank < self.virtual_size, "virtual rank {virtual_rank} of {}", self.virtual_size);
        assert!(replica < self.degree, "replica {replica} of {}", self.degree);
        let place = replica * self.virtual_size + virtual_rank;
        match &self.table {
            None => place,
            Some(table) => table.native_of_place[place as usize],
        }
    }

    /// The virtual rank for which a native rank stands.
    ///
    /// # Panics
    /// When there is no such native rank.
    pub fn virtual_of(&self, native: u32) -> u32 {
        self.place_of(native) % self.virtual_size
    }

    /// The replica index of a native rank.
    ///
    /// # Panics
    /// When there is no such native rank.
    pub fn replica_of(&self, native: u32) -> u32 {
        self.place_of(native) / self.virtual_size
    }

    /// The native ranks of one sphere, in order of virtual rank.
    ///
    /// # Panics
    /// When there is no such replica index (on the first item).
    pub fn sphere(&self, replica: u32) -> impl ExactSizeIterator<Item = u32> + '_ {
        // A range of u32 is no ExactSizeIterator; one of i32 is, and ranks fit.
        (0..self.virtual_size as i32).map(move |virtual_rank| self.native_of(virtual_rank as u32, replica))
    }

    /// The native ranks of one virtual rank, in order of replica index.
    ///
    /// # Panics
    /// When there is no such virtual rank (on the first item).
    pub fn replicas(&self, virtual_rank: u32) -> impl ExactSizeIterator<Item = u32> + '_ {
        (0..self.degree as i32).map(move |replica| self.native_of(virtual_rank, replica as u32))
    }

    fn place_of(&self, native: u32) -> u32 {
        assert!(native < self.native_size(), "native rank {native} of {}", self.native_size());
        match &self.table {
            None => native,
            Some(table) => table.place_of_native[native as usize],
        }
    }
}

fn number(text: &str, field: Field, size: u32) -> Result<u32, Problem> {
    // `parse` alone would take "+3".
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Problem::NotANumber { field, text: text.to_owned(), size });
    }
    // All digits: what does not fit is too large.
    match text.parse() {
        Ok(value) if value < size => Ok(value),
        _ => Err(Problem::OutOfRange { field, text: text.to_owned(), size }),
    }
}

/// Why there is no rank map. Its text is for the user: what was given, what is allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RankMapError {
    /// The degree is zero.
    NoDegree,
    /// The degree does not divide the native size (or there are no processes, or more than MPI can number).
    Size {
        /// Processes started.
        native_size: u32,
        /// Replicas wanted of each rank.
        degree: u32,
    },
    /// The file cannot be read.
    Unreadable {
        /// Its path.
        file: PathBuf,
        /// What the system says.
        reason: String,
    },
    /// A line breaks a rule.
    Line {
        /// Name of the file.
        file: String,
        /// Number of the line, from 1.
        line: usize,
        /// The rule it breaks.
        problem: Problem,
    },
    /// The file ended before every native rank had its line.
    Missing {
        /// Name of the file.
        file: String,
        /// Lines that are needed.
        native_size: u32,
        /// Lines that are missing.
        missing: usize,
        /// The first native ranks without a line.
        ranks: Vec<u32>,
        /// The first places without one, as (virtual, replica).
        places: Vec<(u32, u32)>,
    },
}

/// What is wrong with a line of a rank map file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Problem {
    /// There are not three fields.
    Fields {
        /// How many there are.
        given: usize,
        /// The line without its comment.
        text: String,
    },
    /// A field is no decimal number.
    NotANumber {
        /// Which field.
        field: Field,
        /// What it says.
        text: String,
        /// One more than the largest number allowed.
        size: u32,
    },
    /// A field is too large.
    OutOfRange {
        /// Which field.
        field: Field,
        /// What it says.
        text: String,
        /// One more than the largest number allowed.
        size: u32,
    },
    /// A native rank has two lines.
    NativeTwice {
        /// The native rank.
        native: u32,
        /// Line of the first.
        first: usize,
    },
    /// Two native ranks have the same place.
    PlaceTwice {
        /// The virtual rank.
        virtual_rank: u32,
        /// The replica index.
        replica: u32,
        /// The native rank that had the place first.
        holder: u32,
        /// Line of the first.
        first: usize,
    },
}

/// A column of a rank map file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// The first.
    Native,
    /// The second.
    Virtual,
    /// The third.
    Replica,
}

impl fmt::Display for Field {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Field::Native => "native rank",
            Field::Virtual => "virtual rank",
            Field::Replica => "replica index",
        })
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::Fields { given, text } => {
                let plural = if *given == 1 { "" } else { "s" };
                write!(out, "{given} field{plural} (`{text}`); a line has three: native virtual replica")
            }
            Problem::NotANumber { field, text, size } => {
                write!(out, "`{text}` is no {field}; a number from 0 to {} is needed", size - 1)
            }
            Problem::OutOfRange { field, text, size } => {
                write!(out, "{field} {text} is out of range; 0 to {} are allowed", size - 1)
            }
            Problem::NativeTwice { native, first } => {
                write!(out, "native rank {native} has a line already (line {first}); each has exactly one")
            }
            Problem::PlaceTwice { virtual_rank, replica, holder, first } => write!(
                out,
                "virtual rank {virtual_rank}, replica {replica} is taken by native rank {holder} already \
                 (line {first}); each place is given exactly once"
            ),
        }
    }
}

impl fmt::Display for RankMapError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RankMapError::NoDegree => {
                write!(out, "a replication degree of 0 was given; 1 (no replication) or more is allowed")
            }
            RankMapError::Size { native_size, degree } => size_text(out, *native_size, *degree),
            RankMapError::Unreadable { file, reason } => {
                write!(out, "rank map file {} cannot be read: {reason}", file.display())
            }
            RankMapError::Line { file, line, problem } => write!(out, "{file}:{line}: {problem}"),
            RankMapError::Missing { file, native_size, missing, ranks, places } => {
                let places: Vec<String> =
                    places.iter().map(|(virtual_rank, replica)| format!("({virtual_rank}, {replica})")).collect();
                let ranks: Vec<String> = ranks.iter().map(u32::to_string).collect();
                let more = |shown: usize| match missing - shown {
                    0 => String::new(),
                    more => format!(" and {more} more"),
                };
                write!(
                    out,
                    "{file}: {missing} of the {native_size} native ranks have no line: {}{}; still to be given, \
                     as (virtual, replica): {}{}",
                    ranks.join(", "),
                    more(ranks.len()),
                    places.join(", "),
                    more(places.len()),
                )
            }
        }
    }
}

fn size_text(out: &mut fmt::Formatter<'_>, native_size: u32, degree: u32) -> fmt::Result {
    let below = native_size.min(LARGEST_SIZE) / degree * degree;
    let above = below.checked_add(degree).filter(|size| *size <= LARGEST_SIZE);
    let sizes: Vec<u32> = Some(below).filter(|size| *size > 0).into_iter().chain(above).collect();
    let plural = if native_size == 1 { "" } else { "es" };
    write!(out, "{native_size} process{plural} cannot be divided into ranks of {degree} replicas each")?;
    if native_size > LARGEST_SIZE {
        write!(out, " (MPI numbers at most {LARGEST_SIZE})")?;
    }
    for (index, size) in sizes.iter().enumerate() {
        let ranks = size / degree;
        let plural = if ranks == 1 { "" } else { "s" };
        write!(out, "{}-n {size} ({ranks} rank{plural})", if index == 0 { "; use mpirun " } else { " or " })?;
    }
    Ok(())
}

impl std::error::Error for RankMapError {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text_of(result: Result<RankMap, RankMapError>) -> String {
        result.expect_err("an error was expected").to_string()
    }

    fn parse_error(text: &str) -> String {
        text_of(RankMap::parse(text, "map.txt", 4, 2))
    }

    /// Whether some rank has two replicas on one node.
    fn shares(map: &RankMap, nodes: &[u32]) -> bool {
        (0..map.virtual_size()).any(|rank| {
            let mut of: Vec<u32> = map.replicas(rank).map(|native| nodes[native as usize]).collect();
            of.sort_unstable();
            of.windows(2).any(|pair| pair[0] == pair[1])
        })
    }

    #[test]
    fn the_formula_stays_where_it_keeps_replicas_apart() {
        assert_eq!(RankMap::by_node(&[7, 7, 9, 9], 2), RankMap::by_formula(4, 2));
        assert_eq!(RankMap::by_node(&[0, 1, 1, 0], 2), RankMap::by_formula(4, 2));
    }

    #[test]
    fn processes_dealt_out_over_nodes_are_sorted() {
        let nodes = [4, 2, 4, 2];
        let map = RankMap::by_node(&nodes, 2).unwrap();
        assert_eq!(
            (0..4).map(|native| (map.virtual_of(native), map.replica_of(native))).collect::<Vec<_>>(),
            [(0, 0), (0, 1), (1, 0), (1, 1)]
        );
        assert!(!shares(&map, &nodes));
    }

    #[test]
    fn a_node_with_too_many_processes_cannot_be_helped() {
        assert_eq!(RankMap::by_node(&[0, 0, 0, 1], 2), RankMap::by_formula(4, 2));
        assert!(RankMap::by_node(&[0, 0, 1], 2).is_err());
    }

    proptest! {
        #[test]
        fn replicas_are_apart_wherever_that_is_possible(
            degree in 1..5_u32, size in 1..6_u32, dice in prop::collection::vec(0..4_u32, 30)
        ) {
            let nodes = &dice[..(degree * size) as usize];
            let map = RankMap::by_node(nodes, degree).unwrap();
            let fullest = nodes.iter().map(|node| nodes.iter().filter(|other| *other == node).count()).max().unwrap();
            prop_assert_eq!(shares(&map, nodes), fullest > size as usize && degree > 1);
            for native in 0..degree * size {
                prop_assert_eq!(map.native_of(map.virtual_of(native), map.replica_of(native)), native);
            }
            prop_assert_eq!(map.native_of(0, 0), 0);
        }
    }

    #[test]
    fn formula_is_the_one_of_the_paper() {
        let map = RankMap::by_formula(12, 3).unwrap();
        assert_eq!((map.native_size(), map.degree(), map.virtual_size()), (12, 3, 4));
        assert_eq!(map.native_of(1, 2), 9);
        assert_eq!((map.virtual_of(9), map.replica_of(9)), (1, 2));
        assert_eq!(map.sphere(1).collect::<Vec<_>>(), [4, 5, 6, 7]);
        assert_eq!(map.replicas(3).collect::<Vec<_>>(), [3, 7, 11]);
        assert_eq!(map.sphere(1).len(), 4);
    }

    #[test]
    fn sizes_that_cannot_be_divided_name_those_that_can() {
        assert_eq!(
            text_of(RankMap::by_formula(10, 3)),
            "10 processes cannot be divided into ranks of 3 replicas each; \
             use mpirun -n 9 (3 ranks) or -n 12 (4 ranks)"
        );
        assert_eq!(
            text_of(RankMap::by_formula(1, 3)),
            "1 process cannot be divided into ranks of 3 replicas each; use mpirun -n 3 (1 rank)"
        );
        assert!(text_of(RankMap::by_formula(0, 2)).ends_with("use mpirun -n 2 (1 rank)"));
        assert!(text_of(RankMap::by_formula(4, 0)).contains("degree of 0"));
        assert!(text_of(RankMap::by_formula(u32::MAX, 3)).ends_with("use mpirun -n 2147483646 (715827882 ranks)"));
        assert!(RankMap::by_formula(1, 1).is_ok());
    }

    #[test]
    fn a_file_may_say_anything_once() {
        let map = RankMap::parse("# comment\n\n 0 0 0\r\n1 0 1 # twin\n\t3 1 1\n2 1 0", "map.txt", 4, 2).unwrap();
        assert_eq!(map.sphere(0).collect::<Vec<_>>(), [0, 2]);
        assert_eq!(map.sphere(1).collect::<Vec<_>>(), [1, 3]);
        assert_eq!((map.virtual_of(3), map.replica_of(3)), (1, 1));
    }

    #[test]
    fn errors_name_file_and_line() {
        assert_eq!(
            parse_error("0 0 0\n1 0"),
            "map.txt:2: 2 fields (`1 0`); a line has three: native virtual replica"
        );
        assert_eq!(
            parse_error("0 0 0 0 # four"),
            "map.txt:1: 4 fields (`0 0 0 0`); a line has three: native virtual replica"
        );
        assert_eq!(parse_error("\n0 x 0"), "map.txt:2: `x` is no virtual rank; a number from 0 to 1 is needed");
        assert_eq!(parse_error("-1 0 0"), "map.txt:1: `-1` is no native rank; a number from 0 to 3 is needed");
        assert_eq!(parse_error("+1 0 0"), "map.txt:1: `+1` is no native rank; a number from 0 to 3 is needed");
        assert_eq!(parse_error("4 0 0"), "map.txt:1: native rank 4 is out of range; 0 to 3 are allowed");
        assert_eq!(
            parse_error("0 0 99999999999999"),
            "map.txt:1: replica index 99999999999999 is out of range; 0 to 1 are allowed"
        );
        assert_eq!(
            parse_error("0 0 0\n#\n0 1 0"),
            "map.txt:3: native rank 0 has a line already (line 1); each has exactly one"
        );
        assert_eq!(
            parse_error("0 0 0\n1 0 0"),
            "map.txt:2: virtual rank 0, replica 0 is taken by native rank 0 already (line 1); \
             each place is given exactly once"
        );
        assert_eq!(
            parse_error("0 0 0\n3 1 1"),
            "map.txt: 2 of the 4 native ranks have no line: 1, 2; still to be given, as (virtual, replica): \
             (1, 0), (0, 1)"
        );
        let many = text_of(RankMap::parse("", "map.txt", 100, 2));
        assert!(many.contains("0, 1, 2, 3, 4, 5, 6, 7 and 92 more;"), "{many}");
        let unreadable = text_of(RankMap::from_file("/no/such/map.txt", 4, 2));
        assert!(unreadable.starts_with("rank map file /no/such/map.txt cannot be read: "), "{unreadable}");
    }

    #[test]
    fn the_documented_example_is_valid() {
        let document = include_str!("../../docs/rank-map.md");
        let example = document.split("```text\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
        let map = RankMap::parse(example, "docs/rank-map.md", 8, 2).unwrap();
        assert_eq!(map.replicas(0).collect::<Vec<_>>(), [0, 4]);
        assert_eq!(map.replicas(3).collect::<Vec<_>>(), [3, 5]);
    }

    /// A degree, a virtual size, and a permutation of the native ranks.
    fn permuted() -> impl Strategy<Value = (u32, u32, Vec<u32>)> {
        (1_u32..6, 1_u32..20).prop_flat_map(|(degree, size)| {
            (Just(degree), Just(size), Just((0..degree * size).collect::<Vec<_>>()).prop_shuffle())
        })
    }

    fn is_consistent(map: &RankMap) -> Result<(), TestCaseError> {
        let mut seen = vec![false; map.native_size() as usize];
        for replica in 0..map.degree() {
            for (virtual_rank, native) in (0..).zip(map.sphere(replica)) {
                prop_assert!(!std::mem::replace(&mut seen[native as usize], true));
                prop_assert_eq!((map.virtual_of(native), map.replica_of(native)), (virtual_rank, replica));
                prop_assert_eq!(map.native_of(virtual_rank, replica), native);
            }
        }
        prop_assert!(seen.into_iter().all(|seen| seen));
        Ok(())
    }

    proptest! {
        #[test]
        fn formula_is_one_to_one(degree in 1_u32..8, size in 1_u32..50) {
            is_consistent(&RankMap::by_formula(degree * size, degree).unwrap())?;
        }

        #[test]
        fn formula_divides_or_says_what_would(native_size in 0_u32..u32::MAX, degree in 1_u32..u32::MAX) {
            match RankMap::by_formula(native_size, degree) {
                Ok(map) => prop_assert_eq!(map.native_size(), native_size),
                Err(error) => prop_assert!(error.to_string().contains("cannot be divided")),
            }
        }

        #[test]
        fn any_permutation_can_be_given((degree, size, natives) in permuted(), order in any::<u64>()) {
            let mut lines: Vec<String> = (0..)
                .zip(&natives)
                .map(|(place, native)| format!("{native} {} {}", place % size, place / size))
                .collect();
            let count = lines.len();
            lines.rotate_left((order % count as u64) as usize);
            let map = RankMap::parse(&lines.join("\n"), "map.txt", degree * size, degree).unwrap();
            is_consistent(&map)?;
            for (place, native) in (0..).zip(&natives) {
                prop_assert_eq!(map.native_of(place % size, place / size), *native);
            }
        }

        #[test]
        fn one_line_less_or_twice_is_an_error((degree, size, natives) in permuted(), index in any::<prop::sample::Index>()) {
            let mut lines: Vec<String> = (0..)
                .zip(&natives)
                .map(|(place, native)| format!("{native} {} {}", place % size, place / size))
                .collect();
            let line = lines.remove(index.index(lines.len()));
            prop_assert!(RankMap::parse(&lines.join("\n"), "map.txt", degree * size, degree).is_err());
            lines.extend([line.clone(), line]);
            prop_assert!(RankMap::parse(&lines.join("\n"), "map.txt", degree * size, degree).is_err());
        }

        #[test]
        fn no_text_makes_it_panic(text in "([0-9 \n#x-]|\\PC){0,80}") {
            let _ = RankMap::parse(&text, "map.txt", 6, 2).map_err(|error| error.to_string());
        }
    }
}
