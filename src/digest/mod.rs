//! Digests of messages: what a receiver compares instead of a second copy (paper, section III B, MsgPlusHash).
//!
//! A digest only has to tell a wrong message from the right one; nobody forges messages here. So the default is
//! not the SHA-1 of the paper but CRC-32C: as fast as memory, and for the errors that hardware really makes (few
//! flipped bits, short bursts) its detection is a theorem and not a probability. The others can be chosen by name.
//!
//! All replicas of a job have to use the same [`Algorithm`]. Digests do not depend on the processor: values are
//! stored most significant byte first, and the vector kernels, chosen at run time, agree with the portable code.
//! A digest is compared together with the length of its message (`protocol::Value`); the guarantees below are
//! for two messages of equal length.

mod hasher;
#[cfg(test)]
mod tests;

use std::fmt;

pub use hasher::Hasher;

/// A digest of one message, left-aligned and filled with zeros where the algorithm gives less than 20 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Debug)]
pub struct Digest(pub [u8; 20]);

impl Digest {
    /// Left-aligns the bytes that an algorithm gives; at most 20.
    fn from_bytes(bytes: &[u8]) -> Digest {
        let mut digest = [0; 20];
        digest[..bytes.len()].copy_from_slice(bytes);
        Digest(digest)
    }
}

/// All 20 bytes in hexadecimal.
impl fmt::Display for Digest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

/// How a digest is computed, and with it what it is certain to detect.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum Algorithm {
    /// CRC-32C (Castagnoli; CRC-32/ISCSI), 4 bytes, by the processor's own instructions where it has them.
    ///
    /// With the generator 0x1EDC6F41, two messages of equal length get different digests **for certain** if they
    /// differ
    /// - in one burst: all differing bits lie within 32 consecutive ones (so in particular in 4 adjacent bytes), at
    ///   any message length; bytes count from their least significant bit;
    /// - in an odd number of bits, at any message length (x + 1 divides the generator); so every single bit flip
    ///   and every three;
    /// - in 2 bits, up to a message length of 2^31 − 1 bits (256 MiB); beyond, two flips pass only at distances
    ///   that are a multiple of 2^31 − 1 bits;
    /// - in up to 5 bits, up to 5243 bits (655 bytes; Hamming distance 6);
    /// - in up to 7 bits, up to 177 bits (22 bytes; Hamming distance 8).
    ///
    /// Any other difference, taken at random, passes with probability 2^-32.
    /// (Castagnoli, Bräuer, Herrmann 1993; Koopman 2002, whose lengths count the message without the digest.)
    #[default]
    Crc32c,
    /// XXH3-128, 16 bytes.
    ///
    /// No difference is certain to be detected, not even a single bit or a short burst; measured on test suites it
    /// behaves like a random function, where any difference passes with probability 2^-128. Not cryptographic.
    Xxh3,
    /// SHA-1, 20 bytes: the paper's.
    ///
    /// No difference is certain to be detected, but no accident is known or expected to pass: probability 2^-160
    /// for a random function. Collisions can be constructed on purpose (since 2017), which faults do not do.
    Sha1,
}

impl Algorithm {
    /// Every algorithm, the default first.
    pub const ALL: [Algorithm; 3] = [Algorithm::Crc32c, Algorithm::Xxh3, Algorithm::Sha1];

    /// The name that a user gives and reports print.
    pub const fn name(self) -> &'static str {
        match self {
            Algorithm::Crc32c => "crc32c",
            Algorithm::Xxh3 => "xxh3",
            Algorithm::Sha1 => "sha1",
        }
    }

    /// The algorithm of this exact [`name`](Self::name).
    pub fn from_name(name: &str) -> Option<Algorithm> {
        Algorithm::ALL.into_iter().find(|algorithm| algorithm.name() == name)
    }

    /// How many of the 20 bytes of a [`Digest`] are used; the others are zero.
    pub const fn size(self) -> usize {
        match self {
            Algorithm::Crc32c => 4,
            Algorithm::Xxh3 => 16,
            Algorithm::Sha1 => 20,
        }
    }

    /// What is detected, in one line for lists of choices. The variants' documentation has the conditions.
    pub const fn guarantee(self) -> &'static str {
        match self {
            Algorithm::Crc32c => {
                "4 bytes; certain: bursts up to 32 bits, odd numbers of flipped bits, any 2 within 256 MiB, \
                 any 5 within 655 bytes; else misses 1 in 2^32"
            }
            Algorithm::Xxh3 => "16 bytes; nothing certain, expected to miss 1 in 2^128",
            Algorithm::Sha1 => "20 bytes, as in the RedMPI paper; nothing certain, expected to miss 1 in 2^160",
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// The digest of a message that lies in one piece. Allocates nothing; for messages in pieces see [`Hasher`].
pub fn digest(algorithm: Algorithm, message: &[u8]) -> Digest {
    match algorithm {
        Algorithm::Crc32c => Digest::from_bytes(&crc_fast::crc32_iscsi(message).to_be_bytes()),
        Algorithm::Xxh3 => Digest::from_bytes(&twox_hash::XxHash3_128::oneshot(message).to_be_bytes()),
        Algorithm::Sha1 => Digest(<sha1::Sha1 as sha1::Digest>::digest(message).into()),
    }
}
