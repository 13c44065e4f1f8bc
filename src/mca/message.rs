//! An application's buffer as MPI describes it (address, count, datatype), and the message's bytes in it: hashed,
//! gathered, scattered and flipped in place, whatever the datatype, without a temporary copy.

use super::host::Datatype;
use crate::digest::{digest, Algorithm, Digest, Hasher};
use crate::protocol::Value;
use ompi_headers as mpi;
use std::ffi::{c_int, c_void};
use std::ops::ControlFlow;

/// A buffer. The datatype is retained by whoever keeps a `Buffer` beyond a call.
#[derive(Clone, Copy, Debug)]
pub struct Buffer {
    /// Address as the application gave it (not that of the first byte, where the datatype has a lower bound).
    pub address: *mut c_void,
    /// Number of elements.
    pub count: usize,
    /// Their type.
    pub datatype: *mut Datatype,
}

/// Which bytes of an element are no data: an x86 `long double` has 10 bytes in 16, and the rest is whatever was there
/// before, in every replica something else.
struct Padding {
    /// Runs of bytes, in the order in which they travel, and whether they are such numbers.
    runs: Vec<(u64, bool)>,
    size: u64,
}

/// Bytes that such a number takes, and how many of them are data.
const PADDED: (u64, u64) = (16, 10);

impl Padding {
    /// Of a datatype; `None` where every byte is data.
    fn of(datatype: *mut Datatype) -> Option<Padding> {
        let mut runs = Vec::new();
        loop {
            // SAFETY: a live datatype, and room for as many runs as are said.
            let count = unsafe { mpi::redmpi_shim_padding(datatype, runs.as_mut_ptr(), runs.len()) };
            if count == 0 {
                return None;
            }
            if count <= runs.len() {
                runs.truncate(count);
                break;
            }
            runs = vec![mpi::redmpi_run_t { bytes: 0, padded: 0 }; count];
        }
        let runs: Vec<(u64, bool)> = runs.iter().map(|run| (run.bytes as u64, run.padded != 0)).collect();
        let size = runs.iter().map(|(bytes, _)| bytes).sum();
        Some(Padding { runs, size })
    }

    /// Puts zeros where bytes are no data; the first one is the `at`-th of the message.
    fn clear(&self, at: u64, bytes: &mut [u8]) {
        let mut here = at % self.size;
        let mut begin = 0;
        let mut done = 0;
        for (length, padded) in self.runs.iter().cycle() {
            let end = begin + length;
            let count = end.saturating_sub(here).min((bytes.len() - done) as u64);
            if count > 0 && *padded {
                for offset in 0..count {
                    if (here + offset - begin) % PADDED.0 >= PADDED.1 {
                        bytes[done + offset as usize] = 0;
                    }
                }
            }
            done += count as usize;
            here += count;
            if done == bytes.len() {
                return;
            }
            begin = end;
        }
    }
}

struct Visit<'a> {
    visitor: &'a mut dyn FnMut(&mut [u8]) -> ControlFlow<()>,
    left: u64,
}

extern "C" fn visit(context: *mut c_void, address: *mut c_void, length: usize) -> c_int {
    // SAFETY: `context` is the `Visit` that `walk` gives the shim for the time of the call.
    let visit = unsafe { &mut *context.cast::<Visit>() };
    let length = (length as u64).min(visit.left) as usize;
    if length == 0 {
        return 1;
    }
    visit.left -= length as u64;
    // SAFETY: the convertor gives addresses inside the application's buffer, which MPI's rules leave to us between
    // the call that passes it and the request's completion.
    let piece = unsafe { std::slice::from_raw_parts_mut(address.cast::<u8>(), length) };
    // A visitor of ours does not panic; if one did, the unwinding must not reach the C frames.
    let flow = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| (visit.visitor)(piece)));
    match flow {
        Ok(ControlFlow::Continue(())) if visit.left > 0 => 0,
        Ok(_) => 1,
        Err(_) => -1,
    }
}

impl Buffer {
    /// Bytes of the whole message.
    pub fn size(&self) -> u64 {
        // SAFETY: a live datatype.
        unsafe { mpi::redmpi_shim_message_size(self.datatype, self.count) as u64 }
    }

    /// The whole message where it is one block of memory.
    fn block(&self) -> Option<*mut u8> {
        // SAFETY: a live datatype; the address is computed, not read.
        let address = unsafe { mpi::redmpi_shim_contiguous(self.datatype, self.count, self.address) };
        (!address.is_null()).then_some(address.cast())
    }

    /// The first `length` bytes where they are one block of memory.
    #[allow(clippy::mut_from_ref)] // the memory is the application's, not this struct's
    fn slice(&self, length: u64) -> Option<&mut [u8]> {
        let length = length.min(self.size()) as usize;
        if length == 0 {
            return Some(&mut []);
        }
        // SAFETY: inside the application's buffer, see `visit`; not aliased by redmpi, which handles one receive or
        // send of a buffer at a time.
        self.block().map(|address| unsafe { std::slice::from_raw_parts_mut(address, length) })
    }

    /// Visits the first `length` bytes of the message in the order in which they travel.
    fn walk(&self, length: u64, mut visitor: impl FnMut(&mut [u8]) -> ControlFlow<()>) {
        if let Some(block) = self.slice(length) {
            if !block.is_empty() {
                let _ = visitor(block);
            }
            return;
        }
        let mut state = Visit { visitor: &mut visitor, left: length.min(self.size()) };
        // SAFETY: the shim walks the application's buffer with the host's own convertor and calls `visit` with the
        // context given here, which outlives the call.
        let stop = unsafe {
            mpi::redmpi_shim_walk(
                self.datatype,
                self.count,
                self.address,
                Some(visit),
                (&raw mut state).cast::<c_void>(),
            )
        };
        assert!(stop >= 0, "the host's convertor stopped in the middle of a message");
    }

    /// Visits the first `length` bytes of the message with zeros where its bytes are no data.
    fn read(&self, length: u64, mut visitor: impl FnMut(&[u8]) -> ControlFlow<()>) {
        let Some(padding) = Padding::of(self.datatype) else {
            return self.walk(length, |piece| visitor(piece));
        };
        let (mut at, mut scratch) = (0, Vec::new());
        self.walk(length, |piece| {
            for chunk in piece.chunks(4096) {
                scratch.clear();
                scratch.extend_from_slice(chunk);
                padding.clear(at, &mut scratch);
                at += chunk.len() as u64;
                visitor(&scratch)?;
            }
            ControlFlow::Continue(())
        });
    }

    /// Adds the first `length` bytes to a digest.
    fn hash(&self, hasher: &mut Hasher, length: u64) {
        self.read(length, |piece| {
            hasher.update(piece);
            ControlFlow::Continue(())
        });
    }

    /// Length and digest of the first `length` bytes.
    pub fn value(&self, algorithm: Algorithm, length: u64) -> Value {
        let digest = match self.contiguous(length) {
            // SAFETY: the block that `slice` has found, see there.
            Some(block) => digest(algorithm, unsafe { std::slice::from_raw_parts(block, length as usize) }),
            None => {
                let mut hasher = Hasher::new(algorithm);
                self.hash(&mut hasher, length);
                hasher.finish()
            }
        };
        Value { length, digest }
    }

    /// The first `length` bytes, packed.
    pub fn gather(&self, length: u64) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(length.min(self.size()) as usize);
        self.read(length, |piece| {
            bytes.extend_from_slice(piece);
            ControlFlow::Continue(())
        });
        bytes
    }

    /// The contiguous first `length` bytes' address, where every byte is data: for sending without a copy.
    pub fn contiguous(&self, length: u64) -> Option<*const u8> {
        if length > self.size() || Padding::of(self.datatype).is_some() {
            return None;
        }
        self.slice(length).map(|block| block.as_ptr())
    }

    /// Puts packed bytes into the buffer, as far as they fit.
    pub fn scatter(&self, bytes: &[u8]) {
        let mut rest = bytes;
        self.walk(bytes.len() as u64, |piece| {
            let (now, later) = rest.split_at(piece.len().min(rest.len()));
            piece[..now.len()].copy_from_slice(now);
            rest = later;
            ControlFlow::Continue(())
        });
    }

    /// Whether the first bytes are these.
    pub fn equals(&self, bytes: &[u8]) -> bool {
        let mut rest = bytes;
        let mut equal = true;
        self.read(bytes.len() as u64, |piece| {
            let (now, later) = rest.split_at(piece.len().min(rest.len()));
            equal = now == piece;
            rest = later;
            if equal {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        });
        equal && rest.is_empty()
    }

    /// Flips one bit of the message, counted in the order in which its bytes travel, in the application's memory.
    pub fn flip(&self, bit: u64) {
        let mut skip = bit / 8;
        self.walk(bit / 8 + 1, |piece| {
            if skip < piece.len() as u64 {
                piece[skip as usize] ^= 1 << (bit % 8);
                return ControlFlow::Break(());
            }
            skip -= piece.len() as u64;
            ControlFlow::Continue(())
        });
    }

    /// Keeps the datatype alive, as MPI_Type_free may be called before the message is complete.
    pub fn retain(&self) {
        // SAFETY: a live datatype; released by `release`.
        unsafe { mpi::redmpi_shim_datatype_retain(self.datatype) }
    }

    /// Gives up what `retain` took.
    pub fn release(&self) {
        // SAFETY: retained before.
        unsafe { mpi::redmpi_shim_datatype_release(self.datatype) }
    }
}

/// All that a call reads or writes: one buffer, or several (MPI_Gatherv, MPI_Alltoallw).
#[derive(Clone, Debug)]
pub enum Region {
    /// One buffer.
    One(Buffer),
    /// Several, in this order.
    Many(Box<[Buffer]>),
}

impl Region {
    /// Nothing: the standard defines no result here.
    pub fn none() -> Region {
        Region::Many(Box::new([]))
    }

    fn parts(&self) -> &[Buffer] {
        match self {
            Region::One(buffer) => std::slice::from_ref(buffer),
            Region::Many(buffers) => buffers,
        }
    }

    /// The only buffer of a point-to-point message.
    pub fn one(&self) -> Buffer {
        match self {
            Region::One(buffer) => *buffer,
            Region::Many(_) => panic!("a message has one buffer"),
        }
    }

    /// Bytes in all.
    pub fn size(&self) -> u64 {
        self.parts().iter().map(Buffer::size).sum()
    }

    /// Calls `visit` with each part and how many of the first `length` bytes are in it.
    fn each(&self, length: u64, mut visit: impl FnMut(&Buffer, u64)) {
        let mut left = length;
        for part in self.parts() {
            let here = part.size().min(left);
            visit(part, here);
            left -= here;
        }
    }

    /// Length and digest of the first `length` bytes.
    pub fn value(&self, algorithm: Algorithm, length: u64) -> Value {
        if let Region::One(buffer) = self {
            return buffer.value(algorithm, length);
        }
        let mut hasher = Hasher::new(algorithm);
        self.each(length, |part, here| {
            part.hash(&mut hasher, here);
        });
        Value { length, digest: hasher.finish() }
    }

    /// The first `length` bytes, packed.
    pub fn gather(&self, length: u64) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(length as usize);
        self.each(length, |part, here| bytes.extend_from_slice(&part.gather(here)));
        bytes
    }

    /// Puts packed bytes into the region, as far as they fit.
    pub fn scatter(&self, bytes: &[u8]) {
        let mut rest = bytes;
        self.each(bytes.len() as u64, |part, here| {
            let (now, later) = rest.split_at(here as usize);
            part.scatter(now);
            rest = later;
        });
    }

    /// Whether the first bytes are these.
    pub fn equals(&self, bytes: &[u8]) -> bool {
        if self.size() < bytes.len() as u64 {
            return false;
        }
        let (mut rest, mut equal) = (bytes, true);
        self.each(bytes.len() as u64, |part, here| {
            let (now, later) = rest.split_at(here as usize);
            equal = equal && part.equals(now);
            rest = later;
        });
        equal
    }

    /// Flips one bit, counted in the order of the bytes.
    pub fn flip(&self, bit: u64) {
        let mut skip = bit;
        for part in self.parts() {
            let bits = part.size() * 8;
            if skip < bits {
                return part.flip(skip);
            }
            skip -= bits;
        }
    }

    /// Keeps the datatypes alive.
    pub fn retain(&self) {
        self.parts().iter().for_each(Buffer::retain);
    }

    /// Gives up what `retain` took.
    pub fn release(&self) {
        self.parts().iter().for_each(Buffer::release);
    }
}

/// A buffer of bytes of our own.
pub fn byte() -> *mut Datatype {
    // SAFETY: the address of Open MPI's predefined datatype.
    unsafe { mpi::redmpi_shim_byte() }
}

/// A digest for values that are compared otherwise (truncated messages, classes of equal copies).
pub fn class(number: u8) -> Digest {
    let mut bytes = [0; 20];
    bytes[0] = number;
    Digest(bytes)
}

#[cfg(test)]
mod tests {
    use super::Padding;

    #[test]
    fn only_bytes_that_are_no_data_are_cleared() {
        // A long double and an int, as in MPI_LONG_DOUBLE_INT.
        let padding = Padding { runs: vec![(16, true), (4, false)], size: 20 };
        for at in 0..40 {
            let mut bytes = [1; 50];
            padding.clear(at, &mut bytes);
            for (offset, byte) in bytes.iter().enumerate() {
                let place = (at + offset as u64) % 20;
                assert_eq!(*byte == 0, (10..16).contains(&place), "at {at}, byte {offset}");
            }
        }
    }
}
