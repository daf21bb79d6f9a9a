//! Configurations of other programs as a gateway.yaml.
//!
//! An importer reads a text, and through [`Files`] the files that it includes. Its result is the text of a gateway.yaml, whose parts
//! name the lines that they come from, and a [`Report`] with an item for every directive of the source. This crate starts no process
//! and opens neither file nor socket.
//!
//! The modules, from bottom to top: `report` (what became of each directive), `yaml` (the gateway.yaml as it is written), `files`,
//! `accepted` and `regex` (what the gateway accepts), `names`, `units`, `marks` (what was said of a part so far), `fields` (sources in
//! YAML), `sections` (the parts of a gateway.yaml), and one folder for each source.

mod accepted;
mod fields;
mod files;
pub mod haproxy;
pub mod kong;
pub mod kubernetes;
mod marks;
mod names;
pub mod nginx;
pub mod ratelimit;
mod regex;
mod report;
mod sections;
pub mod traefik;
mod units;
mod yaml;

pub use files::{Files, matches_glob, yaml_files};
pub use report::{Imported, Item, Outcome, Report, Source};
pub use yaml::{Node, boolean, list, map, text};
