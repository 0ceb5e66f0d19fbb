//! Block hashing. STUB
