//! Rules in a file of one gateway (SQLite).
