//! Marks that a process makes in its own streams: so that "everything before MPI_Finalize" is a place in the stream and
//! not a moment, whoever reads it and whenever. A marker is a secret of the job, a kind and a number, written in one go.

/// Length of a marker.
pub const LENGTH: usize = 16 + 1 + 8;

/// What a marker means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// MPI_Finalize: compare all, and say what was found.
    Compare,
    /// The process may be ended at once: show what there is.
    Hurry,
    /// The process ends by itself.
    Exit,
}

impl Kind {
    /// As it stands in a marker or a frame.
    pub const fn code(self) -> u8 {
        match self {
            Kind::Compare => b'C',
            Kind::Hurry => b'H',
            Kind::Exit => b'E',
        }
    }
    /// The kind of a code.
    pub const fn of(code: u8) -> Option<Kind> {
        match code {
            b'C' => Some(Kind::Compare),
            b'H' => Some(Kind::Hurry),
            b'E' => Some(Kind::Exit),
            _ => None,
        }
    }
}

/// The marker's bytes.
pub fn marker(secret: &[u8; 16], kind: Kind, number: u64) -> [u8; LENGTH] {
    let mut bytes = [0; LENGTH];
    bytes[..16].copy_from_slice(secret);
    bytes[16] = kind.code();
    bytes[17..].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// What a piece of a stream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// The application's bytes.
    Text(&'a [u8]),
    /// A marker and its number.
    Mark(Kind, u64),
}

/// Parts a stream that comes in pieces of any size into text and markers.
pub struct Parser {
    secret: [u8; 16],
    /// What may be the beginning of a marker.
    held: Vec<u8>,
}

impl Parser {
    /// A parser for markers with this secret.
    pub fn new(secret: [u8; 16]) -> Parser {
        Parser { secret, held: Vec::new() }
    }

    /// Takes the next bytes.
    pub fn take(&mut self, bytes: &[u8], mut each: impl FnMut(Piece<'_>)) {
        let joined;
        let mut rest = if self.held.is_empty() {
            bytes
        } else {
            let mut held = std::mem::take(&mut self.held);
            held.extend_from_slice(bytes);
            joined = held;
            &joined
        };
        loop {
            let at = self.find(rest);
            if at > 0 {
                each(Piece::Text(&rest[..at]));
                rest = &rest[at..];
            }
            if rest.len() < LENGTH {
                self.held = rest.to_vec();
                return;
            }
            // A full marker, as `find` has stopped here; an unknown kind is text after all.
            let number = u64::from_le_bytes(rest[17..LENGTH].try_into().unwrap_or_default());
            match Kind::of(rest[16]) {
                Some(kind) => each(Piece::Mark(kind, number)),
                None => each(Piece::Text(&rest[..LENGTH])),
            }
            rest = &rest[LENGTH..];
        }
    }

    /// The stream has ended: what was held was no marker.
    pub fn end(&mut self, each: impl FnOnce(Piece<'_>)) {
        let held = std::mem::take(&mut self.held);
        if !held.is_empty() {
            each(Piece::Text(&held));
        }
    }

    /// Where a marker begins, or may begin at the end; the length where there is none.
    fn find(&self, bytes: &[u8]) -> usize {
        let mut from = 0;
        while let Some(at) = bytes[from..].iter().position(|byte| *byte == self.secret[0]) {
            let at = from + at;
            let common = (bytes.len() - at).min(self.secret.len());
            if bytes[at..at + common] == self.secret[..common] {
                return at;
            }
            from = at + 1;
        }
        bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECRET: [u8; 16] = *b"aab-secret-aabab";

    proptest! {
        #[test]
        fn however_the_stream_is_cut(
            parts in prop::collection::vec((prop::collection::vec(prop::sample::select(&b"ab-s\n"[..]), 0..40), 0_u8..4), 0..8),
            cuts in prop::collection::vec(1_usize..30, 1..200),
        ) {
            let (mut stream, mut wanted, mut marks) = (Vec::new(), Vec::new(), Vec::new());
            for (number, (text, kind)) in parts.iter().enumerate() {
                stream.extend_from_slice(text);
                wanted.extend_from_slice(text);
                if let Some(kind) = [Kind::Compare, Kind::Hurry, Kind::Exit].get(usize::from(*kind)) {
                    stream.extend_from_slice(&marker(&SECRET, *kind, number as u64));
                    marks.push((wanted.len(), *kind, number as u64));
                }
            }
            let (mut text, mut seen) = (Vec::new(), Vec::new());
            let mut parser = Parser::new(SECRET);
            let mut at = 0;
            for cut in cuts.iter().cycle() {
                if at == stream.len() {
                    break;
                }
                let end = (at + cut).min(stream.len());
                parser.take(&stream[at..end], |piece| match piece {
                    Piece::Text(bytes) => text.extend_from_slice(bytes),
                    Piece::Mark(kind, number) => seen.push((text.len(), kind, number)),
                });
                at = end;
            }
            parser.end(|piece| match piece {
                Piece::Text(bytes) => text.extend_from_slice(bytes),
                Piece::Mark(..) => unreachable!(),
            });
            prop_assert_eq!(text, wanted);
            prop_assert_eq!(seen, marks);
        }
    }
}
