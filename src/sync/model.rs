//! STUB: the same faces made of the model checker's primitives.
