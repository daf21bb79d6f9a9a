//! Blocks against the examples of RFC 7541 appendix C, and against a slow encoder and table of the tests' own.
