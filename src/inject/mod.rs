//! The fault injector's decisions: which messages of this process are hit, and in which bit (paper, section IV).
//!
//! Each message that a process sends is hit with probability 1/x, in a bit chosen evenly over the whole message,
//! whatever its datatype. As in the paper the state is internal to redmpi: the application's own random numbers
//! are not touched. Beyond the paper, a run can be repeated: the choices depend on the seed, the replica index,
//! the virtual rank and the lengths of the messages sent so far, and on nothing else. (So they repeat where the
//! order of sends does: not for threads that send at the same time.)
//!
//! Flipping the bit in the application's memory, before the send, is the shell's work.

mod index_set;
#[cfg(test)]
mod tests;

pub use index_set::IndexSet;

/// Where a fault can hit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Place {
    /// The send buffer of a point-to-point message, just before it is sent.
    Message = 1,
    /// A message inside a collective operation, just before it is sent: the application's buffer or the operation's own.
    Internal = 2,
    /// What a process contributes to a collective operation, before the operation.
    Input = 4,
    /// What a collective operation has left in a process's receive buffer, before it is compared.
    Output = 8,
}

impl Place {
    /// All, with their names.
    pub const ALL: [(Place, &'static str); 4] = [
        (Place::Message, "message"),
        (Place::Internal, "internal"),
        (Place::Input, "input"),
        (Place::Output, "output"),
    ];
}

/// A set of places.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Places(u8);

impl Default for Places {
    /// Every message, as in the paper.
    fn default() -> Places {
        Places(Place::Message as u8 | Place::Internal as u8)
    }
}

impl Places {
    /// Reads names with commas between them; an empty text is the default.
    ///
    /// # Errors
    /// A text that says which word is not known, and which are.
    pub fn parse(text: &str) -> Result<Places, String> {
        let mut places = 0;
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            let Some((place, _)) = Place::ALL.iter().find(|(_, name)| *name == word) else {
                let names: Vec<&str> = Place::ALL.iter().map(|(_, name)| *name).collect();
                return Err(format!("'{word}' is not a place where a fault can hit: {} are", names.join(", ")));
            };
            places |= *place as u8;
        }
        Ok(if places == 0 { Places::default() } else { Places(places) })
    }

    /// Whether a place is in the set.
    pub fn contains(self, place: Place) -> bool {
        self.0 & place as u8 != 0
    }
}

/// What the user asked for. The default injects nothing.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Config {
    /// x in the probability 1/x that a message is hit; 1 hits every message, 0 turns injection off.
    pub rate: u64,
    /// Selects one of 2^64 repeatable runs.
    pub seed: u64,
    /// Replica indices that are hit.
    pub replicas: IndexSet,
    /// Virtual ranks that are hit.
    pub ranks: IndexSet,
    /// How many messages are hit at most, in each process; 0 sets no limit.
    pub count: u64,
    /// Where.
    pub places: Places,
    /// So many messages (or collective operations) pass first, in each process.
    pub after: u64,
}

/// The injector of one process.
#[derive(Clone, Debug)]
pub struct Injector {
    random: SplitMix64,
    rate: u64,
    limit: u64,
    injected: u64,
    places: Places,
    pass: u64,
}

impl Injector {
    /// The injector of this process, or `None` if it is never hit: then a send costs nothing.
    pub fn new(config: &Config, replica: u32, virtual_rank: u32) -> Option<Injector> {
        let hit = config.rate > 0 && config.replicas.contains(replica) && config.ranks.contains(virtual_rank);
        hit.then(|| Injector {
            random: SplitMix64::of_process(config.seed, replica, virtual_rank),
            rate: config.rate,
            limit: if config.count == 0 { u64::MAX } else { config.count },
            injected: 0,
            places: config.places,
            pass: config.after,
        })
    }

    /// To be called once for every message sent, and for what goes into and comes out of collective operations: the bit to flip, `0..message_bits`, if this one is hit.
    ///
    /// A message without bits is never hit and leaves no trace in the choices that follow.
    pub fn next(&mut self, place: Place, message_bits: u64) -> Option<u64> {
        if message_bits == 0 || !self.places.contains(place) {
            return None;
        }
        if self.pass > 0 {
            self.pass -= 1;
            return None;
        }
        if self.injected == self.limit || self.random.below(self.rate) != 0 {
            return None;
        }
        self.injected += 1;
        Some(self.random.below(message_bits))
    }

    /// How many messages have been hit.
    pub fn injected(&self) -> u64 {
        self.injected
    }
}

/// The generator SplitMix64 (Steele, Lea, Flood 2014): one addition and one mix a number, period 2^64.
#[derive(Clone, Debug)]
struct SplitMix64(u64);

impl SplitMix64 {
    const GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;

    /// Mixing is one-to-one, so that under one seed no two processes start at the same place.
    fn of_process(seed: u64, replica: u32, virtual_rank: u32) -> SplitMix64 {
        let process = u64::from(replica) << 32 | u64::from(virtual_rank);
        SplitMix64(Self::mix(Self::mix(seed.wrapping_add(Self::GAMMA)) ^ process))
    }

    fn mix(mut z: u64) -> u64 {
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(Self::GAMMA);
        Self::mix(self.0)
    }

    /// A number in `0..bound`, each exactly as likely (Lemire 2019: the high half of a product, with the few
    /// products thrown away that would favour some). `bound` is not 0.
    fn below(&mut self, bound: u64) -> u64 {
        loop {
            let product = u128::from(self.next()) * u128::from(bound);
            let low = product as u64;
            // 2^64 mod bound products are too many; the division is only met where it can matter.
            if low >= bound || low >= bound.wrapping_neg() % bound {
                return (product >> 64) as u64;
            }
        }
    }
}
