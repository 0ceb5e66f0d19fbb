//! Msgpack, read in place.
