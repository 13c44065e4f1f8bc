//! The choices repeat, differ between processes, have the promised frequencies, and stop at the limit.

use proptest::prelude::*;

use super::{Config, IndexSet, Injector, Place, Places, SplitMix64};

fn config(rate: u64) -> Config {
    Config { rate, seed: 42, ..Config::default() }
}

fn choices(config: &Config, replica: u32, virtual_rank: u32) -> Vec<Option<u64>> {
    let mut injector = Injector::new(config, replica, virtual_rank).unwrap();
    (1..=1000).map(|length| injector.next(Place::Message, 8 * length)).collect()
}

#[test]
fn generator_is_splitmix64() {
    // The sequence of the authors' reference code for the state 1234567.
    let mut random = SplitMix64(1_234_567);
    let numbers: Vec<u64> = (0..3).map(|_| random.next()).collect();
    assert_eq!(numbers, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
}

#[test]
fn off_unless_asked_for() {
    assert!(Injector::new(&Config::default(), 0, 0).is_none());
    let config =
        Config { replicas: IndexSet::parse("1", 3).unwrap(), ranks: IndexSet::parse("0,2", 4).unwrap(), ..config(5) };
    let hit: Vec<_> = (0..3)
        .flat_map(|replica| (0..4).map(move |rank| (replica, rank)))
        .filter(|&(replica, rank)| Injector::new(&config, replica, rank).is_some())
        .collect();
    assert_eq!(hit, [(1, 0), (1, 2)]);
}

#[test]
fn runs_repeat_and_processes_and_seeds_differ() {
    let config = config(3);
    let mut seen = Vec::new();
    for replica in 0..4 {
        for rank in 0..64 {
            let choices_here = choices(&config, replica, rank);
            assert_eq!(choices_here, choices(&config, replica, rank));
            assert!(!seen.contains(&choices_here), "replica {replica}, rank {rank} repeats another process");
            seen.push(choices_here);
        }
    }
    assert_ne!(choices(&Config { seed: 43, ..config }, 0, 0), seen[0]);
}

#[test]
fn hits_are_as_frequent_as_asked_for() {
    const MESSAGES: u64 = 200_000;
    for rate in [1, 2, 10, 1000] {
        let mut injector = Injector::new(&config(rate), 1, 2).unwrap();
        let hits = (0..MESSAGES).filter(|_| injector.next(Place::Message, 64).is_some()).count() as u64;
        assert_eq!(hits, injector.injected());
        let expected = MESSAGES as f64 / rate as f64;
        // Five standard deviations of the binomial distribution; the seed is fixed, so this never fails by chance.
        let allowed = 5.0 * (expected * (1.0 - 1.0 / rate as f64)).sqrt();
        assert!((hits as f64 - expected).abs() <= allowed, "rate {rate}: {hits} hits, expected {expected}");
    }
}

#[test]
fn bits_are_spread_evenly() {
    const BITS: u64 = 24; // not a power of two
    const MESSAGES: u64 = 240_000;
    let mut injector = Injector::new(&config(1), 0, 0).unwrap();
    let mut hits = [0u64; BITS as usize];
    for _ in 0..MESSAGES {
        hits[injector.next(Place::Message, BITS).unwrap() as usize] += 1;
    }
    let expected = (MESSAGES / BITS) as f64;
    let chi_squared: f64 = hits.iter().map(|&hits| (hits as f64 - expected).powi(2) / expected).sum();
    // The 99.99 % quantile for 23 degrees of freedom.
    assert!(chi_squared < 56.0, "{chi_squared}: {hits:?}");
}

#[test]
fn count_limits_the_hits() {
    let mut injector = Injector::new(&Config { count: 3, ..config(1) }, 0, 0).unwrap();
    let hits: Vec<bool> = [8, 0, 8, 0, 8, 8, 8].map(|bits| injector.next(Place::Message, bits).is_some()).to_vec();
    assert_eq!(hits, [true, false, true, false, true, false, false]);
    assert_eq!(injector.injected(), 3);
}

#[test]
fn empty_messages_change_nothing() {
    let mut plain = Injector::new(&config(2), 0, 0).unwrap();
    let mut mixed = plain.clone();
    for _ in 0..100 {
        assert_eq!(mixed.next(Place::Message, 0), None);
        assert_eq!(mixed.next(Place::Message, 800), plain.next(Place::Message, 800));
    }
}

#[test]
fn index_sets_as_users_write_them() {
    let members = |text: &str| {
        let set = IndexSet::parse(text, 8).unwrap();
        (0..8).filter(|&index| set.contains(index)).collect::<Vec<u32>>()
    };
    assert_eq!(members("1"), [1]);
    assert_eq!(members("0,2"), [0, 2]);
    assert_eq!(members("0-3,7"), [0, 1, 2, 3, 7]);
    assert_eq!(members(" 7 , 2 - 3, 3-3,2"), [2, 3, 7]);
    assert_eq!(members(""), [0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(members("  "), members(""));
    assert_eq!(IndexSet::parse("", 0), Ok(IndexSet::ALL));
}

#[test]
fn index_set_errors_say_what_was_given_and_what_is_allowed() {
    let cases = [
        ("8", "there is no index 8"),
        ("0-8", "there is no index 8"),
        ("99999999999999999999", "there is no index 99999999999999999999"),
        ("3-1", "the range 3-1 ends before it begins"),
        ("a", "\"a\" is neither an index nor a range"),
        ("-1", "\"-1\" is neither an index nor a range"),
        ("1-", "\"1-\" is neither an index nor a range"),
        ("1-2-3", "\"1-2-3\" is neither an index nor a range"),
        ("+1", "\"+1\" is neither an index nor a range"),
        ("0,,1", "there is nothing between two commas or after the last"),
        ("0,", "there is nothing between two commas or after the last"),
    ];
    for (text, wrong) in cases {
        let error = IndexSet::parse(text, 8).unwrap_err();
        assert!(error.starts_with(&format!("\"{text}\" was given, but {wrong}; ")), "{error}");
        assert!(error.contains("from 0 to 7"), "{error}");
    }
    assert!(IndexSet::parse("1", 1).unwrap_err().contains("the only index here is 0"));
    assert!(IndexSet::parse("0", 0).unwrap_err().contains("no index to choose from"));
}

proptest! {
    #[test]
    fn numbers_stay_below_their_bound(seed: u64, bound in 1..=u64::MAX, shift in 0..64u32) {
        let bound = (bound >> shift).max(1);
        let mut random = SplitMix64(seed);
        prop_assert!((0..50).all(|_| random.below(bound) < bound));
    }

    #[test]
    fn any_text_is_a_set_or_an_error(text in "[0-9,\\- a]{0,12}", limit in 0..10u32, index in 10..u32::MAX) {
        if let Ok(set) = IndexSet::parse(&text, limit) {
            prop_assert!(text.trim().is_empty() || !set.contains(index));
        }
    }
}

#[test]
fn places_are_read_by_name() {
    let places = Places::parse(" input, output").unwrap();
    assert!(places.contains(Place::Input) && places.contains(Place::Output) && !places.contains(Place::Message));
    assert_eq!(Places::parse("").unwrap(), Places::default());
    assert!(Places::default().contains(Place::Internal));
    assert!(Places::parse("inputs").unwrap_err().contains("'inputs'"));
}

#[test]
fn only_the_places_asked_for_are_hit_and_the_first_ones_pass() {
    let asked = Config { places: Places::parse("output").unwrap(), after: 2, ..config(1) };
    let mut injector = Injector::new(&asked, 0, 0).unwrap();
    let hits: Vec<bool> = [Place::Message, Place::Output, Place::Input, Place::Output, Place::Output]
        .map(|place| injector.next(place, 8).is_some())
        .to_vec();
    assert_eq!(hits, [false, false, false, false, true]);
}
