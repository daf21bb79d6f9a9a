//! The modules of a crate: what each defines, what it imports, and which paths its code names.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemMod, ItemUse, Meta, UseTree};

use super::graph::Import;

/// The segments of a path.
type Segments = Vec<String>;

/// The most re-exports that are followed for one name.
const MOST_REEXPORTS: usize = 20;

/// A crate.
pub(crate) struct Crate {
    /// By path; that of the root is empty.
    modules: BTreeMap<Segments, Module>,
}

/// A module, in a file of its own or within one.
#[derive(Default)]
struct Module {
    /// The file, relative to the folder of the root.
    file: String,
    /// The names that it defines.
    items: BTreeSet<String>,
    /// What other names mean there.
    aliases: BTreeMap<String, Segments>,
    /// The modules whose names all are meant there.
    globs: Vec<Segments>,
    /// What it exports under a name of its own.
    exports: Vec<Segments>,
    /// The paths that its code names, besides.
    named: BTreeSet<Segments>,
}

impl Crate {
    /// Reads a crate by the file of its root.
    pub(crate) fn read(root: &Path) -> Self {
        let mut modules = BTreeMap::new();
        let folder = root.parent().expect("a folder");
        read_module(folder, root, folder, Segments::new(), &mut modules);
        Self { modules }
    }

    /// The imports of files.
    pub(crate) fn imports_of_files(&self) -> Vec<Import> {
        let mut imports = BTreeSet::new();
        for (at, module) in &self.modules {
            for path in &module.named {
                let to = self.definition(at, path, 0).map(|to| &self.modules[&to].file);
                if let Some(to) = to.filter(|to| **to != module.file) {
                    let (from, to) = (module.file.clone(), to.clone());
                    imports.insert(Import { from, to, path: path.join("::") });
                }
            }
        }
        imports.into_iter().collect()
    }

    /// The imports of top-level modules. The root, which declares them, has none.
    pub(crate) fn imports_of_modules(&self) -> Vec<Import> {
        let mut imports = BTreeSet::new();
        for (at, module) in &self.modules {
            for path in module.named.iter().chain(&module.exports) {
                let to = self.definition(at, path, 0);
                if let (Some(from), Some(to)) = (at.first(), to.as_ref().and_then(|to| to.first()))
                    && from != to
                {
                    let (from, to) = (from.clone(), to.clone());
                    imports.insert(Import { from, to, path: path.join("::") });
                }
            }
        }
        imports.into_iter().collect()
    }

    /// The module that defines what a path means in the module `at`; `None` if it is not of this crate, or is a module.
    fn definition(&self, at: &Segments, path: &[String], depth: usize) -> Option<Segments> {
        let (mut at, mut rest) = (at.clone(), path);
        while let Some((first, behind)) = rest.split_first() {
            match first.as_str() {
                "crate" => at.clear(),
                "self" => {}
                "super" => _ = at.pop()?,
                name => return self.named_in(&at, name, behind, depth, rest.len() < path.len()),
            }
            rest = behind;
        }
        None
    }

    /// What a name in a module, and the rest of a path behind it, lead to. `reached`: a path has led to the module, so that names of
    /// other crates are not meant.
    fn named_in(
        &self,
        at: &Segments,
        name: &str,
        behind: &[String],
        depth: usize,
        reached: bool,
    ) -> Option<Segments> {
        let module = self.modules.get(at)?;
        let child: Segments = at.iter().cloned().chain([name.to_owned()]).collect();
        if let (true, Some((next, behind))) = (self.modules.contains_key(&child), behind.split_first()) {
            return self.named_in(&child, next, behind, depth, true);
        }
        if module.items.contains(name) {
            return reached.then(|| at.clone()); // a name of the file itself is no import
        }
        if depth > MOST_REEXPORTS {
            return None;
        }
        if let Some(meant) = module.aliases.get(name) {
            let whole: Segments = meant.iter().chain(behind).cloned().collect();
            return self.definition(at, &whole, depth + 1);
        }
        module.globs.iter().find_map(|glob| {
            let whole: Segments =
                glob.iter().cloned().chain([name.to_owned()]).chain(behind.to_vec()).collect();
            self.definition(at, &whole, depth + 1)
        })
    }
}

/// Reads a module and those that it declares in files of their own, which are in `folder`.
fn read_module(
    base: &Path,
    file: &Path,
    folder: &Path,
    at: Segments,
    modules: &mut BTreeMap<Segments, Module>,
) {
    let depth = at.len();
    let text = std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let parsed = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let name = file.strip_prefix(base).expect("a file of the crate").display().to_string();
    for child in read_items(&name, &parsed.items, at, modules) {
        let folder = child.iter().skip(depth).fold(folder.to_path_buf(), |folder, name| folder.join(name));
        let (flat, nested): (PathBuf, PathBuf) = (folder.with_extension("rs"), folder.join("mod.rs"));
        read_module(base, if flat.exists() { &flat } else { &nested }, &folder, child, modules);
    }
}

/// Reads the items of a module, and of the modules within it. Returns the modules that they declare in files of their own.
fn read_items(
    file: &str,
    items: &[Item],
    at: Segments,
    modules: &mut BTreeMap<Segments, Module>,
) -> Vec<Segments> {
    let mut reader =
        Reader { module: Module { file: file.to_owned(), ..Module::default() }, within: Vec::new() };
    for item in items {
        reader.define(item);
        reader.visit_item(item);
    }
    modules.insert(at.clone(), reader.module);
    let mut declared = Vec::new();
    for module in reader.within {
        let path: Segments = at.iter().cloned().chain([module.ident.to_string()]).collect();
        match &module.content {
            None => declared.push(path),
            Some((_, items)) => declared.extend(read_items(file, items, path, modules)),
        }
    }
    declared
}

/// Collects what a file defines, imports and names.
#[derive(Default)]
struct Reader {
    module: Module,
    /// The modules within it.
    within: Vec<ItemMod>,
}

impl Reader {
    fn define(&mut self, item: &Item) {
        let name = match item {
            Item::Const(item) => &item.ident,
            Item::Enum(item) => &item.ident,
            Item::Fn(item) => &item.sig.ident,
            Item::Static(item) => &item.ident,
            Item::Struct(item) => &item.ident,
            Item::Trait(item) => &item.ident,
            Item::Type(item) => &item.ident,
            Item::Union(item) => &item.ident,
            Item::Macro(syn::ItemMacro { ident: Some(name), .. }) => name,
            Item::Macro(item) => {
                // What it makes is written in it.
                let text = item.mac.tokens.to_string();
                let words: Vec<&str> = text.split(|c: char| !(c.is_alphanumeric() || c == '_')).collect();
                let made = words.windows(2).filter(|two| ["struct", "enum", "fn", "type"].contains(&two[0]));
                return self.module.items.extend(made.map(|two| two[1].to_owned()));
            }
            _ => return,
        };
        self.module.items.insert(name.to_string());
    }

    /// Adds what a `use` imports, of which these segments are the beginning.
    fn import(&mut self, tree: &UseTree, mut begun: Segments, exported: bool) {
        match tree {
            UseTree::Path(path) => {
                begun.push(path.ident.to_string());
                self.import(&path.tree, begun, exported);
            }
            UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.import(tree, begun.clone(), exported));
            }
            UseTree::Glob(_) => self.module.globs.push(begun),
            UseTree::Name(name) if name.ident == "self" => {
                let name = begun.last().cloned().unwrap_or_default();
                self.alias(name, begun, exported);
            }
            UseTree::Name(name) => {
                begun.push(name.ident.to_string());
                self.alias(name.ident.to_string(), begun, exported);
            }
            UseTree::Rename(rename) => {
                begun.push(rename.ident.to_string());
                self.alias(rename.rename.to_string(), begun, exported);
            }
        }
    }

    fn alias(&mut self, name: String, path: Segments, exported: bool) {
        match exported {
            true => self.module.exports.push(path.clone()),
            false => _ = self.module.named.insert(path.clone()),
        }
        self.module.aliases.insert(name, path);
    }
}

impl<'a> Visit<'a> for Reader {
    fn visit_item(&mut self, item: &'a Item) {
        if !attributes(item).iter().any(is_for_tests) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, item: &'a ItemMod) {
        self.within.push(item.clone());
    }

    fn visit_item_use(&mut self, item: &'a ItemUse) {
        let exported = !matches!(item.vis, syn::Visibility::Inherited);
        self.import(&item.tree, Segments::new(), exported);
    }

    fn visit_path(&mut self, path: &'a syn::Path) {
        let segments: Segments = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        // A single word in lower case is a variable, or a function whose `use` is looked at.
        if segments.len() > 1 || segments.iter().any(|name| name.starts_with(char::is_uppercase)) {
            self.module.named.insert(segments);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, item: &'a syn::Macro) {
        // A macro takes any tokens: paths that begin at a module are recognised.
        let text = item.tokens.to_string().replace(" :: ", "::");
        let words = text.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'));
        for word in words.filter(|word| word.contains("::")) {
            self.module.named.insert(word.trim_matches(':').split("::").map(str::to_owned).collect());
        }
        visit::visit_macro(self, item);
    }
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Whether an attribute keeps an item for tests, as `cfg(test)` and `cfg(all(test, …))` do.
fn is_for_tests(attribute: &Attribute) -> bool {
    let Meta::List(list) = &attribute.meta else { return false };
    let text = list.tokens.to_string();
    list.path.is_ident("cfg") && (text.starts_with("test") || text.replace(' ', "").starts_with("all(test"))
}
