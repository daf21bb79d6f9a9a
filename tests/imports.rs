//! No files of a crate import each other in a circle, and no top-level modules do: whoever reads one knows what is below it.
//!
//! A file imports another if its code, without tests, names an item that is defined there. Re-exports are followed to the
//! definition, and are no imports themselves within a top-level module: a folder may collect what its files offer.

#[path = "imports/graph.rs"]
mod graph;
#[path = "imports/source.rs"]
mod source;

use std::path::{Path, PathBuf};

use graph::{Import, circles};
use source::Crate;

/// The roots of the crates, from the folder of this package.
fn roots() -> Vec<PathBuf> {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut roots = vec![package.join("src/lib.rs"), package.join("fuzz/wire/src/lib.rs")];
    let crates = std::fs::read_dir(package.join("crates")).expect("the folder of the crates");
    roots.extend(crates.map(|found| found.expect("a crate").path().join("src/lib.rs")));
    roots.sort();
    roots
}

/// The circles among these imports, each with the imports that make it.
fn found(kind: &str, imports: &[Import]) -> Vec<String> {
    let described = circles(imports).into_iter().map(|circle| {
        let within = imports.iter().filter(|one| circle.contains(&one.from) && circle.contains(&one.to));
        let lines: Vec<String> =
            within.map(|one| format!("    {} -> {}: {}", one.from, one.to, one.path)).collect();
        format!("{kind} that import each other in a circle: {}\n{}", circle.join(", "), lines.join("\n"))
    });
    described.collect()
}

#[test]
fn neither_files_nor_modules_import_each_other_in_a_circle() {
    let mut all = Vec::new();
    for root in roots() {
        let sources = Crate::read(&root);
        all.extend(found("files", &sources.imports_of_files()));
        all.extend(found("modules", &sources.imports_of_modules()));
    }
    assert!(all.is_empty(), "{}", all.join("\n"));
}

/// A crate of these files, by their paths.
fn crate_of(files: &[(&str, &str)]) -> (Vec<Vec<String>>, Vec<Vec<String>>) {
    let folder = tempfile::TempDir::new().expect("a folder");
    for (path, text) in files {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
        std::fs::write(path, text).expect("a file");
    }
    let sources = Crate::read(&folder.path().join("lib.rs"));
    (circles(&sources.imports_of_files()), circles(&sources.imports_of_modules()))
}

#[test]
fn a_circle_is_found_through_re_exports_aliases_and_macros() {
    for user in [
        "use crate::b::B;\nfn f(_: B) {}",
        "use crate::b;\nfn f(_: b::B) {}",
        "use crate::b as other;\nfn f(_: other::B) {}",
        "use super::{b::{B as C}};\nfn f(_: C) {}",
        "fn f() { g!(crate::b::B); }",
        "fn f() -> crate::b::B { crate::b::B }",
        "use crate::b::*;\nfn f(_: B) {}",
    ] {
        let user = format!("{user}\npub struct A;");
        let files = [
            ("lib.rs", "mod a;\nmod b;"),
            ("a.rs", user.as_str()),
            ("b/mod.rs", "mod c;\npub use self::c::B;"),
            ("b/c.rs", "pub struct B;\nuse crate::a::A;\nfn g(_: A) {}"),
        ];
        assert_eq!(crate_of(&files).0, [["a.rs", "b/c.rs"]], "{user}");
    }
}

#[test]
fn tests_comments_and_re_exports_make_no_circle() {
    let files = [
        ("lib.rs", "mod a;\nmod b;"),
        ("a/mod.rs", "mod c;\nmod d;\npub use self::c::C;\npub(crate) use self::d::D;"),
        (
            "a/c.rs",
            "// crate::b::B\npub struct C;\n#[cfg(test)]\nmod tests { use crate::b::B; fn f(_: B) {} }",
        ),
        ("a/d.rs", "use super::C;\npub struct D(C);"),
        ("b.rs", "use crate::a::{C, D};\npub struct B(C, D);\nconst TEXT: &str = \"crate::b\";"),
    ];
    assert_eq!(crate_of(&files), (Vec::<Vec<String>>::new(), Vec::new()));
}

#[test]
fn modules_can_be_in_a_circle_without_a_circle_of_files() {
    let files = [
        ("lib.rs", "mod a;\nmod b;"),
        ("a/mod.rs", "mod c;\nmod d;\npub use self::d::D;"),
        ("a/c.rs", "use crate::b::B;\nstruct C(B);"),
        ("a/d.rs", "pub struct D;"),
        ("b.rs", "use crate::a::D;\npub struct B(D);"),
    ];
    assert_eq!(crate_of(&files), (Vec::<Vec<String>>::new(), vec![vec!["a".to_owned(), "b".to_owned()]]));
}
