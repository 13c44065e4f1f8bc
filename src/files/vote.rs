//! What the replicas' bytes of one range of a file say together: where they differ, and what the majority has.

/// A run of bytes in which a replica differs from what is right, or in which nobody knows what is right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// First byte, from the beginning of what was compared.
    pub start: usize,
    /// Behind its last byte.
    pub end: usize,
    /// Positions, in what was given, of the replicas that differ from the majority; all of them without one.
    pub wrong: Vec<usize>,
    /// Whether every byte has a majority.
    pub decided: bool,
}

/// The outcome of a vote over one range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// What the majority has; where there is none, what the first replica has.
    pub right: Vec<u8>,
    /// Where somebody differs, ascending. Bytes are one difference while the same replicas are wrong in them.
    pub differences: Vec<Difference>,
}

/// Votes byte by byte: so two replicas that are wrong in different bytes of one range do not spoil it. What a replica
/// lacks at its end counts as zeros, as in a file that is read beyond a hole.
pub fn vote(replicas: &[&[u8]]) -> Outcome {
    let length = replicas.iter().map(|bytes| bytes.len()).max().unwrap_or(0);
    let byte = |replica: usize, at: usize| replicas[replica].get(at).copied().unwrap_or(0);
    let mut right = Vec::with_capacity(length);
    let mut differences: Vec<Difference> = Vec::new();
    for at in 0..length {
        let first = byte(0, at);
        if (1..replicas.len()).all(|replica| byte(replica, at) == first) {
            right.push(first);
            continue;
        }
        let votes = |value: u8| (0..replicas.len()).filter(|replica| byte(*replica, at) == value).count();
        let majority =
            (0..replicas.len()).map(|replica| byte(replica, at)).find(|value| 2 * votes(*value) > replicas.len());
        let wrong: Vec<usize> = (0..replicas.len()).filter(|replica| majority != Some(byte(*replica, at))).collect();
        right.push(majority.unwrap_or(first));
        match differences.last_mut() {
            Some(last) if last.end == at && last.wrong == wrong && last.decided == majority.is_some() => {
                last.end += 1
            }
            _ => differences.push(Difference { start: at, end: at + 1, wrong, decided: majority.is_some() }),
        }
    }
    Outcome { right, differences }
}

/// The value that more than half have.
pub fn majority<T: PartialEq>(values: &[T]) -> Option<&T> {
    values.iter().find(|value| 2 * values.iter().filter(|other| other == value).count() > values.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_bytes_have_no_differences() {
        assert_eq!(vote(&[b"abc", b"abc", b"abc"]), Outcome { right: b"abc".to_vec(), differences: vec![] });
        assert_eq!(vote(&[]), Outcome { right: vec![], differences: vec![] });
    }

    #[test]
    fn two_wrong_in_different_bytes() {
        let outcome = vote(&[b"Xbcd", b"abcd", b"abYY"]);
        assert_eq!(outcome.right, b"abcd");
        assert_eq!(
            outcome.differences,
            [
                Difference { start: 0, end: 1, wrong: vec![0], decided: true },
                Difference { start: 2, end: 4, wrong: vec![2], decided: true },
            ]
        );
    }

    #[test]
    fn two_replicas_never_decide() {
        let outcome = vote(&[b"abcd", b"aXcd"]);
        assert_eq!(outcome.differences, [Difference { start: 1, end: 2, wrong: vec![0, 1], decided: false }]);
    }

    #[test]
    fn all_different() {
        let outcome = vote(&[b"a", b"b", b"c"]);
        assert_eq!(outcome.differences, [Difference { start: 0, end: 1, wrong: vec![0, 1, 2], decided: false }]);
    }

    #[test]
    fn what_is_missing_counts_as_zeros() {
        let outcome = vote(&[b"ab\0", b"ab", b"abc"]);
        assert_eq!(outcome.right, b"ab\0");
        assert_eq!(outcome.differences, [Difference { start: 2, end: 3, wrong: vec![2], decided: true }]);
    }

    #[test]
    fn majorities() {
        assert_eq!(majority(&[1, 2, 1]), Some(&1));
        assert_eq!(majority(&[1, 2]), None);
        assert_eq!(majority::<u8>(&[]), None);
        assert_eq!(majority(&[3]), Some(&3));
    }
}
