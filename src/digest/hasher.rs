//! The digest of a message that comes in pieces, as a non-contiguous datatype gives it.

use sha1::Digest as _;
use twox_hash::xxhash3_128::{RawHasher, SecretBuffer, DEFAULT_SECRET_LENGTH};

use super::{Algorithm, Digest};

/// XXH3 with the default secret, which is static: this form allocates nothing, the crate's plain one does.
type Xxh3 = RawHasher<&'static [u8; DEFAULT_SECRET_LENGTH]>;

/// Computes one digest from a message's bytes given in order, in pieces of any size.
///
/// Equal to [`digest`](super::digest) of the whole message for every split. Lives on the stack (about 400 bytes)
/// and allocates nothing. For a message in one piece `digest` is faster, above all for short ones.
#[derive(Clone)]
pub struct Hasher(State);

#[derive(Clone)]
enum State {
    Crc32c(crc_fast::Digest),
    Xxh3(Xxh3),
    Sha1(sha1::Sha1),
}

impl Hasher {
    /// A hasher that has seen nothing yet.
    pub fn new(algorithm: Algorithm) -> Hasher {
        Hasher(match algorithm {
            Algorithm::Crc32c => State::Crc32c(crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi)),
            Algorithm::Xxh3 => State::Xxh3(RawHasher::new(SecretBuffer::default())),
            Algorithm::Sha1 => State::Sha1(sha1::Sha1::new()),
        })
    }

    /// Takes the next piece of the message.
    pub fn update(&mut self, piece: &[u8]) {
        match &mut self.0 {
            State::Crc32c(state) => state.update(piece),
            State::Xxh3(state) => state.write(piece),
            State::Sha1(state) => state.update(piece),
        }
    }

    /// The digest of everything given so far.
    pub fn finish(self) -> Digest {
        match self.0 {
            // A CRC of 32 bits sits in the low half.
            State::Crc32c(state) => Digest::from_bytes(&(state.finalize() as u32).to_be_bytes()),
            State::Xxh3(state) => Digest::from_bytes(&state.finish_128().to_be_bytes()),
            State::Sha1(state) => Digest(state.finalize().into()),
        }
    }
}
