//! Streams of random bytes that are told apart by who reads them: ChaCha20, keyed by a seed that the replicas of one
//! virtual rank have in common, and by which program, fork and thread of it asks.

use chacha20::rand_core::{Rng, SeedableRng};
use chacha20::ChaCha20Rng;

/// A key of a stream, or of further keys.
pub type Key = [u8; 32];

/// What a key is derived for. The numbers are part of no interface, only different from each other.
#[derive(Clone, Copy)]
#[repr(u8)]
pub enum Purpose {
    /// Words of a text.
    Text = 1,
    /// A virtual rank.
    Rank = 2,
    /// A program that a rank starts.
    Program = 3,
    /// A process that a program forks.
    Fork = 4,
    /// A thread.
    Thread = 5,
    /// An open file of random bytes.
    File = 6,
    /// The process ids of a job.
    Process = 7,
}

/// The `number`-th key for a purpose; from it nothing can be told about `key` or the other keys.
pub fn derive(key: &Key, purpose: Purpose, number: u64) -> Key {
    let mut generator = ChaCha20Rng::from_seed(*key);
    // The two words are the nonce: no two purposes, and no two numbers, share a stream.
    generator.set_stream(((purpose as u64) << 56) | (number & ((1 << 56) - 1)));
    let mut derived = Key::default();
    generator.fill_bytes(&mut derived);
    derived
}

/// A key that depends on every byte of the texts, in their order.
pub fn key_of<'a>(texts: impl IntoIterator<Item = &'a [u8]>) -> Key {
    texts.into_iter().fold(Key::default(), |key, text| {
        // The length first, so that no two lists of texts are the same chain of words; 7 bytes a word.
        let key = derive(&key, Purpose::Text, text.len() as u64);
        text.chunks(7).fold(key, |key, chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            derive(&key, Purpose::Text, u64::from_le_bytes(word))
        })
    })
}

/// A number of 64 bits made of a key.
pub fn number(key: &Key) -> u64 {
    let mut generator = ChaCha20Rng::from_seed(*key);
    generator.next_u64()
}

/// An endless stream of random bytes.
pub struct Stream(ChaCha20Rng);

impl Stream {
    /// The stream of a key.
    pub fn new(key: &Key) -> Stream {
        Stream(ChaCha20Rng::from_seed(*key))
    }

    /// The next bytes.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        self.0.fill_bytes(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn keys_depend_on_all_they_are_made_of() {
        let texts: &[&[&[u8]]] = &[
            &[],
            &[b""],
            &[b"", b""],
            &[b"a"],
            &[b"a", b"b"],
            &[b"ab"],
            &[b"b", b"a"],
            &[b"1234567\0"],
            &[b"1234567"],
        ];
        let keys: HashSet<Key> = texts.iter().map(|list| key_of(list.iter().copied())).collect();
        assert_eq!(keys.len(), texts.len());
        let key = key_of([&b"seed"[..]]);
        let mut derived = HashSet::from([key]);
        for purpose in [Purpose::Rank, Purpose::Program, Purpose::Fork, Purpose::Thread, Purpose::File] {
            for number in [0, 1, 2, 255, 256, 1 << 40] {
                assert!(derived.insert(derive(&key, purpose, number)));
            }
        }
    }

    #[test]
    fn the_same_key_gives_the_same_bytes_however_they_are_asked_for() {
        let key = key_of([&b"seed"[..]]);
        let mut whole = [0; 1000];
        Stream::new(&key).fill(&mut whole);
        assert!(whole.windows(8).collect::<HashSet<_>>().len() > 990, "it does not look random");
        let mut again = [0; 1000];
        Stream::new(&key).fill(&mut again);
        assert_eq!(whole, again);
    }
}
