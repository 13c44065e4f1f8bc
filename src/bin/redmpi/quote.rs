//! Words of a command line as a POSIX shell reads them back.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// The word as it is when every character is harmless, otherwise in single quotes.
pub fn quoted(word: &OsStr) -> Vec<u8> {
    let bytes = word.as_bytes();
    let harmless = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-+=.,/:@%^".contains(byte);
    if !bytes.is_empty() && bytes.iter().all(harmless) {
        return bytes.to_vec();
    }
    let mut text = vec![b'\''];
    for &byte in bytes {
        match byte {
            b'\'' => text.extend(b"'\\''"),
            _ => text.push(byte),
        }
    }
    text.push(b'\'');
    text
}

/// The words, quoted, with blanks between them.
pub fn line<'a>(words: impl Iterator<Item = &'a OsStr>) -> Vec<u8> {
    let words: Vec<Vec<u8>> = words.map(quoted).collect();
    words.join(&b' ')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::process::Command;

    #[test]
    fn harmless_words_stay_readable() {
        let plain = |word: &str| String::from_utf8(quoted(OsStr::new(word))).unwrap();
        assert_eq!(plain("--mca"), "--mca");
        assert_eq!(plain("/usr/lib:a=b,c"), "/usr/lib:a=b,c");
        assert_eq!(plain(""), "''");
        assert_eq!(plain("a b"), "'a b'");
        assert_eq!(plain("it's"), "'it'\\''s'");
        assert_eq!(plain("~"), "'~'");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn a_shell_reads_back_what_was_quoted(words in prop::collection::vec("[^\0]{0,12}", 1..5)) {
            let mut script = b"printf '%s\\0' ".to_vec();
            script.extend(line(words.iter().map(OsStr::new)));
            let output = Command::new("sh").arg("-c").arg(OsStr::from_bytes(&script)).output().unwrap();
            let expected: String = words.iter().map(|word| format!("{word}\0")).collect();
            prop_assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
        }
    }
}
