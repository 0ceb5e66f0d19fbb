//! What the process has of memory.

use std::fs;

/// A reading.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// Bytes that the allocator has handed out and not got back.
    pub live: f64,
    /// Bytes that lie in physical memory.
    pub resident: f64,
}

impl Memory {
    /// Reads after the allocator has given back what it can, so that pages
    /// which set-up freed are not reused unseen.
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    pub fn now() -> Self {
        // SAFETY: both calls take no pointer and may be made from any thread.
        let info = unsafe {
            libc::malloc_trim(0);
            libc::mallinfo2()
        };
        // Small blocks of all arenas, and those with a mapping of their own.
        let live = (info.uordblks + info.hblkhd) as f64;
        Self { live, resident: resident() }
    }

    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    pub fn now() -> Self {
        Self { live: f64::NAN, resident: resident() }
    }

    pub fn since(self, before: Self) -> Self {
        Self { live: self.live - before.live, resident: self.resident - before.resident }
    }
}

fn resident() -> f64 {
    let rollup = fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
    let kib = rollup
        .lines()
        .find_map(|line| line.strip_prefix("Rss:"))
        .and_then(|rest| rest.trim().strip_suffix("kB"))
        .and_then(|kib| kib.trim().parse::<f64>().ok());
    kib.map_or(f64::NAN, |kib| kib * 1024.0)
}
