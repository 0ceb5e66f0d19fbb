//! How much memory the process has.

use std::fs;

/// Resident memory of this process in bytes: `Rss` of
/// `/proc/self/smaps_rollup`, or `None` where there is no such file.
///
/// The kernel walks the page tables for it, milliseconds for a large process,
/// so read it at a few moments only.
pub fn resident() -> Option<u64> {
    parse(&fs::read_to_string("/proc/self/smaps_rollup").ok()?)
}

/// Finds `Rss:   1234 kB`; the kernel's kB are 1,024 bytes.
fn parse(rollup: &str) -> Option<u64> {
    let rest = rollup.lines().find_map(|line| line.strip_prefix("Rss:"))?;
    let kib: u64 = rest.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn the_kernels_file_is_understood() {
        let text = "55d0-7ffc ---p 00000000 00:00 0  [rollup]\nRss:    1860 kB\nPss:     120 kB\n";
        assert_eq!(parse(text), Some(1860 * 1024));
    }

    #[test]
    fn anything_else_is_not_available() {
        for text in ["", "Rss:", "Rss: many kB", "Rss: 99999999999999999999 kB", "Pss: 1 kB"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
