//! Digests of messages: what a receiver compares instead of a second copy (paper, section III B, MsgPlusHash).

/// A digest of one message, left-aligned and filled with zeros where the algorithm gives less than 20 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Debug)]
pub struct Digest(pub [u8; 20]);
