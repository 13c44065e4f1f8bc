//! Standard output and error of the replicas of one virtual rank: compared, and shown once.
//!
//! Pure: bytes and times in, bytes and findings out. [`vote`] decides what is shown, [`marker`] finds in a stream the
//! places that the application's process marks (MPI_Finalize, its exit), and [`frame`] is what helpers of different
//! replicas say to each other. Who calls all this is in docs/stdio.md. The paper's voting (section III) is about
//! messages; here the same is done to what a program prints.

pub mod frame;
pub mod marker;
pub mod vote;

use serde::{Deserialize, Serialize};

/// Streams of a process, by number: standard output is 0 and standard error 1.
pub const STREAMS: [&str; 2] = ["stdout", "stderr"];

/// What the process of the application tells its helper at the start.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Setup {
    /// Version of the library: another one may mean other frames.
    pub version: String,
    /// The process that is helped.
    pub pid: u32,
    /// Its native rank.
    pub native: u32,
    /// Its virtual rank.
    pub rank: u32,
    /// Its replica index.
    pub replica: u8,
    /// Name of its node.
    pub host: String,
    /// Replicas of the virtual rank.
    pub degree: u8,
    /// What this helper does.
    pub role: Role,
    /// How long the leader's text waits for that of others, in milliseconds.
    pub delay_ms: u64,
    /// What announces a marker in the streams.
    pub secret: [u8; 16],
    /// What a helper of another replica has to know to be heard, and what it is answered.
    pub password: [u8; 32],
    /// Whether standard output and error are one stream, as after `2>&1`.
    pub merged: bool,
    /// Descriptors by number.
    pub descriptors: Descriptors,
}

/// Numbers of the descriptors that a helper inherits, besides 0, 1, 2 and [`CONTROL`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Descriptors {
    /// Where the process's streams are read.
    pub streams: [Option<i32>; 2],
    /// Where helpers of other replicas on this host come in.
    pub local_listener: Option<i32>,
    /// Where helpers on other hosts do.
    pub listener: Option<i32>,
    /// The way to the leader's helper.
    pub leader: Option<i32>,
}

/// Number of the descriptor by which a helper and its process talk.
pub const CONTROL: i32 = 3;

/// What a follower says to the leader's helper when it comes in, before its helper takes the connection over.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Greeting {
    /// The first half of [`Setup::password`]; the answer is the second.
    pub password: [u8; 16],
    /// Replica index.
    pub replica: u8,
    /// Native rank.
    pub native: u32,
    /// Name of the node.
    pub host: String,
    /// The application's process.
    pub pid: u32,
}

/// What a helper does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// Compares, and shows.
    Vote,
    /// Sends what its process writes to the leader's helper.
    Follow,
    /// Shows everything, each line with the process's place in front.
    Tag,
}

/// What a helper says to its process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Answer {
    /// It has begun.
    Ready,
    /// It cannot begin, and why.
    Unable(String),
    /// All text before the marker of this number is out (or with the leader's helper).
    Out(u64),
    /// The same, and it was compared: what was found since the last time.
    Compared(u64, Findings),
}

/// What the comparison of output has found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Findings {
    /// Bytes that were shown.
    pub bytes: u64,
    /// Lines that were wrong or doubtful.
    pub mismatched: u64,
    /// Of these, those in whose place the right ones were shown.
    pub corrected: u64,
    /// Wrong lines by replica.
    pub suspected: Vec<u64>,
    /// The earliest.
    pub events: Vec<Found>,
}

/// One difference.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Found {
    /// Replicas that may have written what is wrong.
    pub replicas: Vec<u8>,
    /// "stdout line 17".
    pub place: String,
    /// Bytes of the line.
    pub bytes: u64,
    /// Whether the right one was shown.
    pub corrected: bool,
    /// Seconds since the helper began.
    pub time_s: f64,
}

impl Findings {
    /// Differences kept as events; all are counted.
    pub const EVENTS: usize = 50;
}
