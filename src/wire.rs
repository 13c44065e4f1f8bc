//! What redmpi's processes say to one another over the native world: digests, copies, the discovery handshake,
//! envelopes, clock values, reports. Pure encoding; `mca::channel` carries it.
//!
//! Every message about an application message carries that message's identity, [`Key`]: order of arrival means
//! nothing, because spheres run ahead of one another and the host may deliver large bodies late. Both ends are the
//! same build on the same architecture family, yet the encoding is explicit little-endian: a job may span machines.

use crate::digest::Digest;
use crate::protocol::msg_plus_hash::Status;
use crate::protocol::Value;

/// A communicator's identity, the same in every replica of its members and never used again: a hash of its ordered
/// members (virtual ranks), and how many communicators of exactly these members were made before.
/// The host's context ids are not used: spheres run apart, and the host reuses ids.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct CommId {
    /// Hash of the ordered members.
    pub members: u64,
    /// 0 for the first communicator of these members, 1 for the second …
    pub incarnation: u32,
}

/// An application message's identity: the `index`-th message from `source` with `tag` on `comm`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Key {
    /// The communicator.
    pub comm: CommId,
    /// The sender's rank there.
    pub source: i32,
    /// The MPI tag; negative inside collectives.
    pub tag: i32,
    /// Counted from 0 per (communicator, source, tag).
    pub index: u64,
}

/// Bytes that belong to a control message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Body {
    /// The rest of the control message.
    Inline,
    /// A message of its own follows on the native world, with this tag and length in bytes.
    Announced {
        /// Tag on the native world.
        tag: i32,
        /// Bytes.
        length: u64,
    },
}

/// A control message.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Control {
    /// MsgPlusHash: what another replica of the sender sent.
    Told(Key, Value),
    /// All-to-all: a whole copy from another replica of the sender.
    Copy(Key, Body),
    /// Discovery: my comparison failed; what do you have?
    Probe(Key, Status),
    /// Discovery: the answer, the paper's acknowledgement.
    Answer(Key, Status),
    /// The good message, from the higher replica to the lower.
    Correction(Key, Body),
    /// The leader's decision about the `ordinal`-th wildcard receive on a communicator.
    Envelope {
        /// The communicator.
        comm: CommId,
        /// Counted from 0 in the order of posting.
        ordinal: u64,
        /// Source that the leader's receive matched.
        source: i32,
        /// Tag that it matched.
        tag: i32,
    },
    /// The leader's decisions about calls whose outcome depends on timing, on one communicator (`determinism::decisions`).
    /// The outcome of a successful one is the body: numbers, four bytes each.
    Decided {
        /// The communicator.
        comm: CommId,
        /// Counted from 0 in the order in which they were sent.
        ordinal: u64,
        /// This many calls find nothing; 0: one call finds what the body says.
        run: u32,
        /// They go on where the decision before this one ended.
        on: bool,
        /// The outcome.
        body: Body,
    },
    /// So many messages with decisions have arrived from you.
    Heeded(u64),
    /// A value shared among the replicas of a virtual rank: the sender's `ordinal`-th of this kind.
    Shared {
        /// The communicator it is about; all zero for none.
        comm: CommId,
        /// What it is (`mca::share`).
        kind: u8,
        /// Counted from 0 per communicator and kind.
        ordinal: u64,
        /// The value.
        body: Body,
    },
    /// I wait for your `ordinal`-th value of this kind.
    Wanted {
        /// As in `Shared`.
        comm: CommId,
        /// As in `Shared`.
        kind: u8,
        /// As in `Shared`.
        ordinal: u64,
    },
    /// Values of this kind are not shared any more.
    Loose {
        /// As in `Shared`.
        comm: CommId,
        /// As in `Shared`.
        kind: u8,
    },
    /// I have waited long for something of yours: where are you?
    Where,
    /// What the sender is doing; the text follows inline.
    Here {
        /// It is in MPI_Finalize and will not do anything else for the application.
        finalizing: bool,
    },
    /// A process's record for the verdict (JSON).
    Report(Body),
    /// A hash of what all processes have to agree on: version, degree, protocol, digest, rank map.
    Agree(u64),
    /// Native rank 0 has printed the verdict; the exit status of the job.
    Done(i32),
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }
    fn u8(&mut self) -> Option<u8> {
        self.bytes::<1>().map(|b| b[0])
    }
    fn u32(&mut self) -> Option<u32> {
        self.bytes().map(u32::from_le_bytes)
    }
    fn i32(&mut self) -> Option<i32> {
        self.bytes().map(i32::from_le_bytes)
    }
    fn u64(&mut self) -> Option<u64> {
        self.bytes().map(u64::from_le_bytes)
    }
    fn comm(&mut self) -> Option<CommId> {
        Some(CommId { members: self.u64()?, incarnation: self.u32()? })
    }
    fn key(&mut self) -> Option<Key> {
        Some(Key { comm: self.comm()?, source: self.i32()?, tag: self.i32()?, index: self.u64()? })
    }
    fn value(&mut self) -> Option<Value> {
        Some(Value { length: self.u64()?, digest: Digest(self.bytes()?) })
    }
    fn status(&mut self) -> Option<Status> {
        match self.u8()? {
            0 => Some(Status::Clean),
            1 => Some(Status::Mismatch { held: self.value()?, told: self.value()? }),
            _ => None,
        }
    }
    fn body(&mut self) -> Option<Body> {
        match self.u8()? {
            0 => Some(Body::Inline),
            1 => Some(Body::Announced { tag: self.i32()?, length: self.u64()? }),
            _ => None,
        }
    }
}

fn put_comm(out: &mut Vec<u8>, comm: CommId) {
    out.extend_from_slice(&comm.members.to_le_bytes());
    out.extend_from_slice(&comm.incarnation.to_le_bytes());
}

fn put_key(out: &mut Vec<u8>, key: &Key) {
    put_comm(out, key.comm);
    out.extend_from_slice(&key.source.to_le_bytes());
    out.extend_from_slice(&key.tag.to_le_bytes());
    out.extend_from_slice(&key.index.to_le_bytes());
}

fn put_value(out: &mut Vec<u8>, value: &Value) {
    out.extend_from_slice(&value.length.to_le_bytes());
    out.extend_from_slice(&value.digest.0);
}

fn put_status(out: &mut Vec<u8>, status: &Status) {
    match status {
        Status::Clean => out.push(0),
        Status::Mismatch { held, told } => {
            out.push(1);
            put_value(out, held);
            put_value(out, told);
        }
    }
}

fn put_body(out: &mut Vec<u8>, body: Body) {
    match body {
        Body::Inline => out.push(0),
        Body::Announced { tag, length } => {
            out.push(1);
            out.extend_from_slice(&tag.to_le_bytes());
            out.extend_from_slice(&length.to_le_bytes());
        }
    }
}

/// Length of the longest control message without an inline body, in bytes.
pub const MAX_HEADER: usize = 1 + 28 + 1 + 2 * 28;

impl Control {
    /// Appends the encoding; an inline body is to be appended after it.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Control::Told(key, value) => {
                out.push(1);
                put_key(out, key);
                put_value(out, value);
            }
            Control::Copy(key, body) => {
                out.push(2);
                put_key(out, key);
                put_body(out, *body);
            }
            Control::Probe(key, status) => {
                out.push(3);
                put_key(out, key);
                put_status(out, status);
            }
            Control::Answer(key, status) => {
                out.push(4);
                put_key(out, key);
                put_status(out, status);
            }
            Control::Correction(key, body) => {
                out.push(5);
                put_key(out, key);
                put_body(out, *body);
            }
            Control::Envelope { comm, ordinal, source, tag } => {
                out.push(6);
                put_comm(out, *comm);
                out.extend_from_slice(&ordinal.to_le_bytes());
                out.extend_from_slice(&source.to_le_bytes());
                out.extend_from_slice(&tag.to_le_bytes());
            }
            Control::Decided { comm, ordinal, run, on, body } => {
                out.push(7);
                put_comm(out, *comm);
                out.extend_from_slice(&ordinal.to_le_bytes());
                out.extend_from_slice(&run.to_le_bytes());
                out.push(u8::from(*on));
                put_body(out, *body);
            }
            Control::Shared { comm, kind, ordinal, body } => {
                out.push(8);
                put_comm(out, *comm);
                out.push(*kind);
                out.extend_from_slice(&ordinal.to_le_bytes());
                put_body(out, *body);
            }
            Control::Heeded(count) => {
                out.push(12);
                out.extend_from_slice(&count.to_le_bytes());
            }
            Control::Where => out.push(13),
            Control::Wanted { comm, kind, ordinal } => {
                out.push(15);
                put_comm(out, *comm);
                out.push(*kind);
                out.extend_from_slice(&ordinal.to_le_bytes());
            }
            Control::Loose { comm, kind } => {
                out.push(16);
                put_comm(out, *comm);
                out.push(*kind);
            }
            Control::Here { finalizing } => {
                out.push(14);
                out.push(u8::from(*finalizing));
            }
            Control::Report(body) => {
                out.push(9);
                put_body(out, *body);
            }
            Control::Agree(hash) => {
                out.push(11);
                out.extend_from_slice(&hash.to_le_bytes());
            }
            Control::Done(code) => {
                out.push(10);
                out.extend_from_slice(&code.to_le_bytes());
            }
        }
    }

    /// The control message, and the bytes behind it; `None` where they are not one of ours.
    pub fn decode(bytes: &[u8]) -> Option<(Control, &[u8])> {
        let mut reader = Reader(bytes);
        let control = match reader.u8()? {
            1 => Control::Told(reader.key()?, reader.value()?),
            2 => Control::Copy(reader.key()?, reader.body()?),
            3 => Control::Probe(reader.key()?, reader.status()?),
            4 => Control::Answer(reader.key()?, reader.status()?),
            5 => Control::Correction(reader.key()?, reader.body()?),
            6 => Control::Envelope {
                comm: reader.comm()?,
                ordinal: reader.u64()?,
                source: reader.i32()?,
                tag: reader.i32()?,
            },
            7 => Control::Decided {
                comm: reader.comm()?,
                ordinal: reader.u64()?,
                run: reader.u32()?,
                on: reader.u8()? != 0,
                body: reader.body()?,
            },
            8 => Control::Shared {
                comm: reader.comm()?,
                kind: reader.u8()?,
                ordinal: reader.u64()?,
                body: reader.body()?,
            },
            9 => Control::Report(reader.body()?),
            10 => Control::Done(reader.i32()?),
            11 => Control::Agree(reader.u64()?),
            12 => Control::Heeded(reader.u64()?),
            13 => Control::Where,
            15 => Control::Wanted { comm: reader.comm()?, kind: reader.u8()?, ordinal: reader.u64()? },
            16 => Control::Loose { comm: reader.comm()?, kind: reader.u8()? },
            14 => Control::Here { finalizing: reader.u8()? != 0 },
            _ => return None,
        };
        Some((control, reader.0))
    }

    /// The communicator that the message is about, where it is about one.
    pub fn comm(&self) -> Option<CommId> {
        match self {
            Control::Told(key, _)
            | Control::Copy(key, _)
            | Control::Probe(key, _)
            | Control::Answer(key, _)
            | Control::Correction(key, _) => Some(key.comm),
            Control::Envelope { comm, .. } | Control::Decided { comm, .. } => Some(*comm),
            Control::Shared { .. }
            | Control::Wanted { .. }
            | Control::Loose { .. }
            | Control::Heeded(_)
            | Control::Where
            | Control::Here { .. }
            | Control::Report(_)
            | Control::Done(_)
            | Control::Agree(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn values() -> impl Strategy<Value = Value> {
        (any::<u64>(), any::<[u8; 20]>()).prop_map(|(length, digest)| Value { length, digest: Digest(digest) })
    }

    fn keys() -> impl Strategy<Value = Key> {
        (any::<u64>(), any::<u32>(), any::<i32>(), any::<i32>(), any::<u64>()).prop_map(
            |(members, incarnation, source, tag, index)| Key {
                comm: CommId { members, incarnation },
                source,
                tag,
                index,
            },
        )
    }

    fn controls() -> impl Strategy<Value = Control> {
        let statuses = prop_oneof![
            Just(Status::Clean),
            (values(), values()).prop_map(|(held, told)| Status::Mismatch { held, told })
        ];
        let bodies = prop_oneof![
            Just(Body::Inline),
            (any::<i32>(), any::<u64>()).prop_map(|(tag, length)| Body::Announced { tag, length })
        ];
        prop_oneof![
            (keys(), values()).prop_map(|(k, v)| Control::Told(k, v)),
            (keys(), bodies.clone()).prop_map(|(k, b)| Control::Copy(k, b)),
            (keys(), statuses.clone()).prop_map(|(k, s)| Control::Probe(k, s)),
            (keys(), statuses).prop_map(|(k, s)| Control::Answer(k, s)),
            (keys(), bodies.clone()).prop_map(|(k, b)| Control::Correction(k, b)),
            (keys(), any::<u64>()).prop_map(|(k, ordinal)| Control::Envelope {
                comm: k.comm,
                ordinal,
                source: k.source,
                tag: k.tag
            }),
            (keys(), any::<(u32, bool)>(), bodies.clone()).prop_map(|(k, (run, on), body)| Control::Decided {
                comm: k.comm,
                ordinal: k.index,
                run,
                on,
                body
            }),
            (keys(), any::<u8>(), bodies.clone()).prop_map(|(k, kind, body)| Control::Shared {
                comm: k.comm,
                kind,
                ordinal: k.index,
                body
            }),
            any::<u64>().prop_map(Control::Heeded),
            Just(Control::Where),
            (keys(), any::<u8>()).prop_map(|(k, kind)| Control::Wanted { comm: k.comm, kind, ordinal: k.index }),
            (keys(), any::<u8>()).prop_map(|(k, kind)| Control::Loose { comm: k.comm, kind }),
            any::<bool>().prop_map(|finalizing| Control::Here { finalizing }),
            bodies.prop_map(Control::Report),
            any::<i32>().prop_map(Control::Done),
            any::<u64>().prop_map(Control::Agree),
        ]
    }

    proptest! {
        #[test]
        fn what_is_said_is_heard(control in controls(), body in any::<Vec<u8>>()) {
            let mut bytes = Vec::new();
            control.encode(&mut bytes);
            prop_assert!(bytes.len() <= MAX_HEADER);
            bytes.extend_from_slice(&body);
            prop_assert_eq!(Control::decode(&bytes), Some((control, &body[..])));
        }

        #[test]
        fn noise_is_refused_without_a_panic(bytes in any::<Vec<u8>>()) {
            let _ = Control::decode(&bytes);
        }
    }
}
