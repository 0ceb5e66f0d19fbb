//! Nothing: the package is its benchmark, `benches/hot_paths.rs`.
