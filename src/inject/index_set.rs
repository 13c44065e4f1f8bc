//! A set of replica indices or virtual ranks as a user writes it: `1`, `0,2`, `0-3,7`, or nothing for all.

use std::ops::RangeInclusive;

/// Some of the indices below a limit, or all.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct IndexSet {
    /// As given, overlaps included: such lists are short. `None` is every index.
    ranges: Option<Vec<RangeInclusive<u32>>>,
}

impl IndexSet {
    /// Every index.
    pub const ALL: IndexSet = IndexSet { ranges: None };

    /// Reads a comma-separated list of indices and ranges `first-last`, all below `limit`; an empty text is every
    /// index. Blanks around numbers are ignored.
    ///
    /// # Errors
    ///
    /// One sentence for the user: what was given, what is wrong with it, what is allowed. The caller puts the
    /// name of the variable in front.
    pub fn parse(text: &str, limit: u32) -> Result<IndexSet, String> {
        if text.trim().is_empty() {
            return Ok(IndexSet::ALL);
        }
        let ranges = text.split(',').map(|part| parse_range(part.trim(), limit)).collect::<Result<_, _>>();
        let ranges = ranges.map_err(|wrong| {
            let allowed = match limit {
                0 => "there is no index to choose from here".to_owned(),
                1 => "the only index here is 0".to_owned(),
                _ => format!(
                    "allowed are indices from 0 to {}, ranges of them, and several of both separated by commas \
                     (such as \"0\", \"0,1\" or \"0-1\")",
                    limit - 1
                ),
            };
            format!("\"{text}\" was given, but {wrong}; {allowed}; an empty value means all")
        })?;
        Ok(IndexSet { ranges: Some(ranges) })
    }

    /// Whether this index belongs to the set.
    pub fn contains(&self, index: u32) -> bool {
        self.ranges.as_ref().is_none_or(|ranges| ranges.iter().any(|range| range.contains(&index)))
    }
}

/// `7` or `0-3`; what is wrong otherwise.
fn parse_range(part: &str, limit: u32) -> Result<RangeInclusive<u32>, String> {
    let index = |number: &str| {
        let number = number.trim();
        // Digits only: `parse` alone would let "+1" pass.
        if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(if part.is_empty() {
                "there is nothing between two commas or after the last".to_owned()
            } else {
                format!("\"{part}\" is neither an index nor a range")
            });
        }
        // A number too long for u32 is as much out of range as any other.
        number.parse().ok().filter(|&index| index < limit).ok_or_else(|| format!("there is no index {number}"))
    };
    match part.split_once('-') {
        None => index(part).map(|index| index..=index),
        Some((first, last)) => {
            let (first, last) = (index(first)?, index(last)?);
            if first > last {
                return Err(format!("the range {part} ends before it begins"));
            }
            Ok(first..=last)
        }
    }
}
