//! The verification protocols of the paper (section III B) as pure state machines: events in, actions out.

use crate::digest::Digest;

/// What one replica of the sender sent, as far as a comparison needs it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Debug)]
pub struct Value {
    /// Bytes of the message.
    pub length: u64,
    /// Digest of these bytes.
    pub digest: Digest,
}
