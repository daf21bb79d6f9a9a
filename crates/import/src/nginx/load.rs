//! The files of a configuration: the first one, and those that `include` names.

use sluicegate_config::{Place, Problem, Report as Mistakes};

use super::parse::{Block, Directive, ParseError, parse};
use crate::files::{Files, matches_glob};

/// How deep files may include each other.
const DEEPEST: usize = 16;

/// How many files are read in all, so that files that include each other twice come to an end.
const MOST_FILES: usize = 1_000;

/// How many directives are read in all. Large configurations have some ten thousand.
const MOST_DIRECTIVES: usize = 100_000;

/// All files of the output of `nginx -T`.
pub(super) struct Dump {
    files: Vec<(String, String)>,
}

impl Dump {
    /// Takes the output of `nginx -T` apart; `None` if the text is something else.
    pub(super) fn of(text: &str) -> Option<Self> {
        let mut files: Vec<(String, String)> = Vec::new();
        for line in text.lines() {
            match line.strip_prefix("# configuration file ").and_then(|rest| rest.strip_suffix(':')) {
                Some(path) => files.push((path.to_owned(), String::new())),
                None => match files.last_mut() {
                    Some((_, text)) => text.extend([line, "\n"]),
                    None if line.trim().is_empty() || line.starts_with("nginx: ") => {}
                    None => return None,
                },
            }
        }
        (!files.is_empty()).then_some(Self { files })
    }

    /// The path of the first file, which includes the others.
    pub(super) fn first(&self) -> &str {
        self.files.first().map_or("", |(path, _)| path)
    }
}

impl Files for Dump {
    fn read(&self, path: &str) -> Result<String, String> {
        let found = self.files.iter().find(|(name, _)| name == path);
        found.map(|(_, text)| text.clone()).ok_or_else(|| "it is not in the output of nginx -T".to_owned())
    }

    fn glob(&self, pattern: &str) -> Vec<String> {
        let mut found: Vec<_> = self
            .files
            .iter()
            .map(|(name, _)| name.clone())
            .filter(|name| matches_glob(pattern, name))
            .collect();
        found.sort();
        found
    }
}

/// Reads a file and all that it includes. What is included follows its `include`.
///
/// # Errors
/// The first mistake, with its line and a caret.
pub(super) fn load(files: &dyn Files, path: &str) -> Result<Vec<Directive>, String> {
    let text = files.read(path).map_err(|error| format!("cannot read {path}: {error}\n"))?;
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    Loader { files, folder, left: MOST_FILES, directives: MOST_DIRECTIVES }.file(path, &text, 0)
}

struct Loader<'a> {
    files: &'a dyn Files,
    folder: &'a str,
    left: usize,
    /// How many more directives are read.
    directives: usize,
}

impl Loader<'_> {
    fn file(&mut self, path: &str, text: &str, depth: usize) -> Result<Vec<Directive>, String> {
        let directives = parse(path, text).map_err(|error| match depth == 0 || self.is_within(path) {
            true => rendered(path, text, error),
            // An `include` may name any file, and this message would show a part of it.
            false => format!(
                "{path}:{}: error: this is not a configuration of nginx\n  help: look at this line; it is not shown, because the file is \
                 outside of the folder of the first one\n",
                error.line
            ),
        })?;
        self.expanded(directives, depth)
    }

    fn expanded(&mut self, directives: Vec<Directive>, depth: usize) -> Result<Vec<Directive>, String> {
        let mut out = Vec::with_capacity(directives.len());
        self.directives = self.directives.checked_sub(directives.len()).ok_or_else(|| {
            format!("there are more than {MOST_DIRECTIVES} directives\n  help: import a part of the servers, and look for files that include themselves\n")
        })?;
        for mut directive in directives {
            if let Some(Block::Directives(children)) = directive.block.take() {
                directive.block = Some(Block::Directives(self.expanded(children, depth)?));
                out.push(directive);
            } else if directive.name == "include" && directive.args.len() == 1 {
                let included = self.included(&mut directive, depth)?;
                out.push(directive);
                out.extend(included);
            } else {
                out.push(directive);
            }
        }
        Ok(out)
    }

    fn included(&mut self, include: &mut Directive, depth: usize) -> Result<Vec<Directive>, String> {
        let pattern = include.arg(0).to_owned();
        let many = pattern.contains(['*', '?', '[']);
        let mut out = Vec::new();
        let mut result = Err("no file has such a name".to_owned());
        for candidate in self.candidates(&pattern) {
            let paths = if many { self.files.glob(&candidate) } else { vec![candidate] };
            let mut read = 0;
            for path in paths {
                if depth == DEEPEST {
                    return Err(format!(
                        "{}: `{}`: files include each other without end\n",
                        include.source,
                        include.shown()
                    ));
                }
                self.left = self.left.checked_sub(1).ok_or_else(|| {
                    format!("more than {MOST_FILES} files are included\n  help: import a part of the servers, and look for files that include themselves\n")
                })?;
                match self.files.read(&path) {
                    Ok(text) => {
                        read += 1;
                        out.extend(self.file(&path, &text, depth + 1)?);
                    }
                    Err(why) => result = Err(why),
                }
            }
            if read > 0 {
                result = Ok(read);
                break;
            }
        }
        include.included = Some(result);
        Ok(out)
    }

    /// Whether a file is in the folder of the first one.
    fn is_within(&self, path: &str) -> bool {
        let rest = match self.folder {
            "" => (!path.starts_with('/')).then_some(path),
            folder => path.strip_prefix(folder).filter(|rest| rest.starts_with('/')),
        };
        rest.is_some_and(|rest| !rest.split('/').any(|part| part == ".."))
    }

    /// Where a file may be: relative names start at the folder of the first file, and so do those below /etc/nginx of a folder that
    /// was copied from there.
    fn candidates(&self, pattern: &str) -> Vec<String> {
        let within = |name: &str| match self.folder {
            "" if name.starts_with('/') => name.to_owned(),
            "" => name.to_owned(),
            folder => format!("{folder}/{name}"),
        };
        match pattern.strip_prefix("/etc/nginx/") {
            Some(name) if self.folder != "/etc/nginx" => vec![pattern.to_owned(), within(name)],
            _ if pattern.starts_with('/') => vec![pattern.to_owned()],
            _ => vec![within(pattern)],
        }
    }
}

/// A mistake with its line and a caret.
fn rendered(path: &str, text: &str, error: ParseError) -> String {
    let place = Place::new(error.line.into(), error.column.into(), 1);
    let mut mistakes = Mistakes::default();
    mistakes.error(Problem::new(place, error.message).help(error.help));
    mistakes.render(path, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(directives: &[Directive]) -> Vec<String> {
        directives.iter().map(|d| format!("{}:{} {}", d.source.file, d.source.line, d.name)).collect()
    }

    #[test]
    fn the_output_of_nginx_t_is_a_folder() {
        let text = "# configuration file /etc/nginx/nginx.conf:\na 1;\ninclude conf.d/*.conf;\ninclude /x;\n\
                    # configuration file /etc/nginx/conf.d/b.conf:\nb 1;\n# configuration file /etc/nginx/conf.d/a.conf:\n\nc 1;\n";
        let dump = Dump::of(text).unwrap();
        let loaded = load(&dump, dump.first()).unwrap();
        let expected = [
            "/etc/nginx/nginx.conf:1 a",
            "/etc/nginx/nginx.conf:2 include",
            "/etc/nginx/conf.d/a.conf:2 c",
            "/etc/nginx/conf.d/b.conf:1 b",
            "/etc/nginx/nginx.conf:3 include",
        ];
        assert_eq!(names(&loaded), expected);
        assert_eq!(loaded[1].included, Some(Ok(2)));
        assert_eq!(loaded[4].included, Some(Err("it is not in the output of nginx -T".to_owned())));
        assert!(Dump::of("a 1;").is_none());
    }

    #[test]
    fn files_that_include_each_other_come_to_an_end() {
        let dump = Dump { files: vec![("n".into(), "include n; include n;".into())] };
        assert_eq!(load(&dump, "n").unwrap_err(), "n:1: `include n`: files include each other without end\n");
    }

    #[test]
    fn directives_are_bounded() {
        let files = vec![("n".into(), "include m; ".repeat(101)), ("m".into(), "a 1; ".repeat(1_000))];
        let dump = Dump { files };
        assert!(load(&dump, "n").unwrap_err().contains("more than 100000 directives"));
    }

    #[test]
    fn mistakes_are_shown() {
        let dump = Dump {
            files: vec![("n/n".into(), "include /x;".into()), ("/x".into(), "secret:x:1\nb {".into())],
        };
        let shown = load(&dump, "n/n").unwrap_err();
        assert!(shown.starts_with("/x:") && !shown.contains("secret") && !shown.contains("b {"), "{shown}");
        let dump = Dump { files: vec![("n".into(), "a 1;\nb {".into())] };
        let shown = load(&dump, "n").unwrap_err();
        assert!(shown.starts_with("n:2:3: error: the block that begins here has no end\n"), "{shown}");
        assert!(shown.contains("help: add the missing `}`"), "{shown}");
    }
}
