//! What helpers of different replicas say to each other: a kind, a stream, a length, and bytes.

use super::marker::Kind;

const HEADER: usize = 6;
/// The longest text of one frame.
pub const LIMIT: usize = 1 << 16;

/// One thing said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// Bytes of a stream.
    Text(u8, Vec<u8>),
    /// A marker in a stream.
    Mark(u8, Kind, u64),
    /// A stream has ended.
    End(u8),
    /// What was written before the marker of this number is out.
    Out(u64),
}

impl Frame {
    /// Appends the frame as it travels.
    pub fn write(&self, to: &mut Vec<u8>) {
        match self {
            Frame::Text(stream, bytes) => {
                for part in bytes.chunks(LIMIT) {
                    header(to, b'T', *stream, part.len());
                    to.extend_from_slice(part);
                }
            }
            Frame::Mark(stream, kind, number) => {
                header(to, kind.code(), *stream, 8);
                to.extend_from_slice(&number.to_le_bytes());
            }
            Frame::End(stream) => header(to, b'.', *stream, 0),
            Frame::Out(number) => {
                header(to, b'O', 0, 8);
                to.extend_from_slice(&number.to_le_bytes());
            }
        }
    }
}

fn header(to: &mut Vec<u8>, kind: u8, stream: u8, length: usize) {
    to.extend_from_slice(&[kind, stream]);
    to.extend_from_slice(&(length as u32).to_le_bytes());
}

/// Frames out of bytes that come in pieces of any size.
#[derive(Default)]
pub struct Reader {
    bytes: Vec<u8>,
}

impl Reader {
    /// Takes the next bytes.
    pub fn take(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The frames that are whole by now.
    ///
    /// # Errors
    /// What came is no frame; the other side cannot be understood any more.
    pub fn frames(&mut self) -> Result<Vec<Frame>, String> {
        let (mut frames, mut at) = (Vec::new(), 0);
        while let Some(header) = self.bytes.get(at..at + HEADER) {
            let (code, stream) = (header[0], header[1]);
            let length = u32::from_le_bytes(header[2..].try_into().unwrap_or_default()) as usize;
            if length > LIMIT || stream > 1 {
                return Err(format!("not a frame: kind {code}, stream {stream}, length {length}"));
            }
            let Some(body) = self.bytes.get(at + HEADER..at + HEADER + length) else { break };
            let number = || <[u8; 8]>::try_from(body).map(u64::from_le_bytes).map_err(|_| "a number is cut");
            frames.push(match (code, Kind::of(code)) {
                (b'T', _) => Frame::Text(stream, body.to_vec()),
                (b'.', _) => Frame::End(stream),
                (b'O', _) => Frame::Out(number()?),
                (_, Some(kind)) => Frame::Mark(stream, kind, number()?),
                _ => return Err(format!("not a frame: kind {code}")),
            });
            at += HEADER + length;
        }
        self.bytes.drain(..at);
        Ok(frames)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_frame() -> impl Strategy<Value = Frame> {
        prop_oneof![
            (0_u8..2, prop::collection::vec(any::<u8>(), 1..300))
                .prop_map(|(stream, text)| Frame::Text(stream, text)),
            (0_u8..2, any::<u64>()).prop_map(|(stream, number)| Frame::Mark(stream, Kind::Exit, number)),
            (0_u8..2).prop_map(Frame::End),
            any::<u64>().prop_map(Frame::Out),
        ]
    }

    proptest! {
        #[test]
        fn frames_come_as_they_were_sent(sent in prop::collection::vec(any_frame(), 0..20), cut in 1_usize..50) {
            let mut bytes = Vec::new();
            sent.iter().for_each(|frame| frame.write(&mut bytes));
            let (mut reader, mut got) = (Reader::default(), Vec::new());
            for piece in bytes.chunks(cut) {
                reader.take(piece);
                got.extend(reader.frames().unwrap());
            }
            prop_assert_eq!(got, sent);
        }

        #[test]
        fn nonsense_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let mut reader = Reader::default();
            reader.take(&bytes);
            let _ = reader.frames();
        }
    }

    #[test]
    fn long_texts_are_cut() {
        let mut bytes = Vec::new();
        Frame::Text(1, vec![7; LIMIT * 2 + 5]).write(&mut bytes);
        let mut reader = Reader::default();
        reader.take(&bytes);
        assert_eq!(reader.frames().unwrap().len(), 3);
    }
}
