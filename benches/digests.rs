//! How fast each digest is beside a copy of the same bytes: `cargo bench --bench digests`.
//!
//! Every size is measured on a warm buffer, so small ones show what a message costs that the sender has just
//! written, and large ones what memory allows. The best of several rounds is printed: others share the machine.

use std::hint::black_box;
use std::time::{Duration, Instant};

use redmpi::digest::{digest, Algorithm, Hasher};

const SIZES: [(usize, &str); 7] = [
    (64, "64 B"),
    (512, "512 B"),
    (4 << 10, "4 KiB"),
    (32 << 10, "32 KiB"),
    (256 << 10, "256 KiB"),
    (2 << 20, "2 MiB"),
    (16 << 20, "16 MiB"),
];
const ROUNDS: u32 = 7;
const ROUND: Duration = Duration::from_millis(15);

/// GB/s (10^9 bytes) of `work`, which handles `size` bytes a call.
fn bandwidth(size: usize, mut work: impl FnMut()) -> f64 {
    // As many calls as fill a round, so that reading the clock does not count.
    let mut calls = 1u32;
    loop {
        let start = Instant::now();
        (0..calls).for_each(|_| work());
        if start.elapsed() >= ROUND || calls >= 1 << 28 {
            break;
        }
        calls *= 2;
    }
    let best = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            (0..calls).for_each(|_| work());
            start.elapsed()
        })
        .min()
        .unwrap_or(ROUND);
    size as f64 * f64::from(calls) / best.as_secs_f64() / 1e9
}

fn main() {
    print!("{:<16}", "GB/s");
    SIZES.iter().for_each(|(_, name)| print!("{name:>9}"));
    println!();
    let source: Vec<u8> = (0..SIZES[SIZES.len() - 1].0).map(|i| (i * 31) as u8).collect();
    let mut target = vec![0u8; source.len()];

    print!("{:<16}", "memcpy");
    for (size, _) in SIZES {
        let speed = bandwidth(size, || black_box(&mut target[..size]).copy_from_slice(black_box(&source[..size])));
        print!("{speed:>9.2}");
    }
    println!();
    for algorithm in Algorithm::ALL {
        print!("{:<16}", algorithm.name());
        for (size, _) in SIZES {
            let speed = bandwidth(size, || {
                black_box(digest(algorithm, black_box(&source[..size])));
            });
            print!("{speed:>9.2}");
        }
        print!("\n{:<16}", format!("{} in pieces", algorithm.name()));
        for (size, _) in SIZES {
            let speed = bandwidth(size, || {
                let mut hasher = Hasher::new(algorithm);
                let (head, tail) = black_box(&source[..size]).split_at(size / 3);
                hasher.update(head);
                hasher.update(tail);
                black_box(hasher.finish());
            });
            print!("{speed:>9.2}");
        }
        println!();
    }
}
