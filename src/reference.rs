//! The contract as literally as possible. STUB
