//! Known answers, a bitwise CRC as oracle, the promises of CRC-32C, and pieces against the whole.

use proptest::prelude::*;

use super::{digest, Algorithm, Digest, Hasher};

/// CRC-32C, one bit at a time, from its definition.
fn crc32c_bitwise(message: &[u8]) -> u32 {
    !message.iter().fold(!0, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| (crc >> 1) ^ (0x82F6_3B78 & 0u32.wrapping_sub(crc & 1)))
    })
}

fn in_pieces<'a>(algorithm: Algorithm, pieces: impl IntoIterator<Item = &'a [u8]>) -> Digest {
    let mut hasher = Hasher::new(algorithm);
    pieces.into_iter().for_each(|piece| hasher.update(piece));
    hasher.finish()
}

/// Bytes that no kernel could treat alike.
fn message(length: usize) -> Vec<u8> {
    (0..length as u32).map(|i| (i.wrapping_mul(0x9E37_79B1) >> 24) as u8).collect()
}

#[test]
fn known_answers() {
    let answers = [
        (Algorithm::Crc32c, "123456789", "e3069283"),
        (Algorithm::Crc32c, "", "00000000"),
        (Algorithm::Xxh3, "", "99aa06d3014798d86001c324468d497f"),
        (Algorithm::Xxh3, "a", "a96faf705af16834e6c632b61e964e1f"),
        (Algorithm::Sha1, "", "da39a3ee5e6b4b0d3255bfef95601890afd80709"),
        (Algorithm::Sha1, "abc", "a9993e364706816aba3e25717850c26c9cd0d89d"),
    ];
    for (algorithm, text, answer) in answers {
        let expected = format!("{answer:0<40}");
        assert_eq!(digest(algorithm, text.as_bytes()).to_string(), expected, "{algorithm} of {text:?}");
        assert_eq!(in_pieces(algorithm, [text.as_bytes()]).to_string(), expected, "{algorithm} of {text:?}");
    }
    // RFC 3720, appendix B.4.
    let answers = [([0u8; 32], 0x8A91_36AAu32), ([0xFF; 32], 0x62A8_AB43)];
    for (bytes, answer) in answers {
        assert_eq!(digest(Algorithm::Crc32c, &bytes).0[..4], answer.to_be_bytes());
    }
}

/// Where the processor has the instructions, they are used: a portable fallback would be a silent loss of speed.
#[test]
#[cfg(target_arch = "x86_64")]
fn crc32c_runs_in_hardware() {
    let target = crc_fast::get_calculator_target(crc_fast::CrcAlgorithm::Crc32Iscsi);
    let capable = is_x86_feature_detected!("pclmulqdq") && is_x86_feature_detected!("sse4.2");
    assert_eq!(capable, target != "software-fallback-tables", "{target}");
}

#[test]
fn names_lead_back() {
    for algorithm in Algorithm::ALL {
        assert_eq!(Algorithm::from_name(algorithm.name()), Some(algorithm));
        assert!(digest(algorithm, b"x").0[algorithm.size()..].iter().all(|&byte| byte == 0));
    }
    assert_eq!(Algorithm::from_name("CRC32C"), None);
    assert_eq!(Algorithm::default(), Algorithm::ALL[0]);
}

#[test]
fn every_length_agrees_with_the_definition_and_in_two_pieces() {
    let message = message(1500);
    for length in 0..message.len() {
        let message = &message[..length];
        assert_eq!(digest(Algorithm::Crc32c, message).0[..4], crc32c_bitwise(message).to_be_bytes());
        for algorithm in Algorithm::ALL {
            let (head, tail) = message.split_at(length * 2 / 3);
            assert_eq!(in_pieces(algorithm, [head, tail]), digest(algorithm, message), "{algorithm} of {length}");
        }
    }
}

/// What the documentation of CRC-32C promises about one and two flipped bits, in all places of a short message.
#[test]
fn crc32c_detects_all_single_and_double_flips() {
    let mut message = message(80);
    let right = digest(Algorithm::Crc32c, &message);
    let bits = message.len() * 8;
    let flip = |message: &mut [u8], bit: usize| message[bit / 8] ^= 1 << (bit % 8);
    for first in 0..bits {
        flip(&mut message, first);
        assert_ne!(digest(Algorithm::Crc32c, &message), right);
        for second in 0..first {
            flip(&mut message, second);
            assert_ne!(digest(Algorithm::Crc32c, &message), right);
            flip(&mut message, second);
        }
        flip(&mut message, first);
    }
}

/// The two facts behind "any length": x + 1 divides the generator, and x has the order 2^31 − 1 modulo it.
#[test]
fn crc32c_generator_has_the_documented_structure() {
    const GENERATOR: u64 = 0x1_1EDC_6F41;
    assert_eq!(GENERATOR.count_ones() % 2, 0, "x + 1 divides exactly the polynomials with an even number of terms");
    let multiply = |a: u64, b: u64| {
        let mut product = (0..32).filter(|i| b >> i & 1 == 1).fold(0, |sum, i| sum ^ a << i);
        for degree in (32..64).rev() {
            if product >> degree & 1 == 1 {
                product ^= GENERATOR << (degree - 32);
            }
        }
        product
    };
    // x^(2^31) by squaring. It equals x, so the order of x divides 2^31 − 1, which is prime.
    let mut power = 2;
    for _ in 0..31 {
        power = multiply(power, power);
    }
    assert_eq!(power, 2);
}

proptest! {
    #[test]
    fn pieces_equal_the_whole(
        bytes in prop::collection::vec(any::<u8>(), 0..5000),
        mut cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let mut cuts: Vec<usize> = cuts.drain(..).map(|cut| cut.index(bytes.len() + 1)).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        for algorithm in Algorithm::ALL {
            let pieces = cuts.windows(2).map(|cut| &bytes[cut[0]..cut[1]]);
            prop_assert_eq!(in_pieces(algorithm, pieces), digest(algorithm, &bytes));
        }
    }

    #[test]
    fn crc32c_detects_bursts(
        bytes in prop::collection::vec(any::<u8>(), 8..2000),
        place in any::<prop::sample::Index>(),
        burst in 1..=u32::MAX,
    ) {
        let mut wrong = bytes.clone();
        let first = place.index(bytes.len() * 8 - 31);
        for bit in (0..32).filter(|bit| burst >> bit & 1 == 1) {
            wrong[(first + bit) / 8] ^= 1 << ((first + bit) % 8);
        }
        prop_assert_ne!(digest(Algorithm::Crc32c, &wrong), digest(Algorithm::Crc32c, &bytes));
    }

    #[test]
    fn crc32c_detects_up_to_five_flips_in_655_bytes(
        bytes in prop::collection::vec(any::<u8>(), 8..=655),
        flips in prop::collection::vec(any::<prop::sample::Index>(), 1..=5),
    ) {
        let mut wrong = bytes.clone();
        for flip in flips {
            let bit = flip.index(bytes.len() * 8);
            wrong[bit / 8] ^= 1 << (bit % 8);
        }
        prop_assume!(wrong != bytes);
        prop_assert_ne!(digest(Algorithm::Crc32c, &wrong), digest(Algorithm::Crc32c, &bytes));
    }
}
