//! The directives of one file of nginx.

use super::lexer::{Kind, LexError, Lexer, Token};
use crate::report::Source;

/// How deep blocks may be nested. nginx has no use for more than a few.
const DEEPEST: usize = 64;

/// A directive with everything in its block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directive {
    /// Its name.
    pub name: String,
    /// Its arguments, without quotes and escapes.
    pub args: Vec<String>,
    /// Where its name is.
    pub source: Source,
    /// The column of its name, from 1.
    pub column: u32,
    /// What is in its braces.
    pub block: Option<Block>,
    /// Of an `include` that was followed: how many files were read, or why none was.
    pub included: Option<Result<usize, String>>,
}

/// What is in the braces of a directive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Block {
    /// Directives.
    Directives(Vec<Directive>),
    /// Another language, such as Lua.
    Raw(String),
}

/// Why a text is not a configuration of nginx.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// The line, from 1.
    pub line: u32,
    /// The column in characters, from 1.
    pub column: u32,
    /// What was expected and found.
    pub message: String,
    /// What to do.
    pub help: &'static str,
}

impl Directive {
    /// The directives in its block; none if it has no block.
    pub fn children(&self) -> &[Self] {
        match &self.block {
            Some(Block::Directives(children)) => children,
            Some(Block::Raw(_)) | None => &[],
        }
    }

    /// An argument, or an empty text.
    pub fn arg(&self, index: usize) -> &str {
        self.args.get(index).map_or("", String::as_str)
    }

    /// The first argument, or an empty text.
    pub(super) fn arg0(&self) -> &str {
        self.arg(0)
    }

    /// The directive in one line.
    pub fn shown(&self) -> String {
        let mut shown = self.name.clone();
        for arg in &self.args {
            shown.push(' ');
            let quoted = arg.is_empty()
                || arg.contains(|c: char| c.is_whitespace() || c.is_control() || ";{}".contains(c));
            shown += &if quoted { format!("{arg:?}") } else { arg.clone() };
        }
        if self.block.is_some() {
            shown += " {…}";
        }
        shown
    }
}

impl From<LexError> for ParseError {
    fn from(error: LexError) -> Self {
        let LexError { line, column, message, help } = error;
        Self { line, column, message: message.to_owned(), help }
    }
}

/// Parses the text of one file.
///
/// # Errors
/// The first place that nginx would not accept either.
pub fn parse(file: &str, text: &str) -> Result<Vec<Directive>, ParseError> {
    Parser { lexer: Lexer::new(text), file }.directives(None, 0)
}

struct Parser<'a> {
    lexer: Lexer<'a>,
    file: &'a str,
}

impl Parser<'_> {
    /// Directives up to the end of the file, or of the block that `opened` names.
    fn directives(&mut self, opened: Option<(u32, u32)>, depth: usize) -> Result<Vec<Directive>, ParseError> {
        let mut found = Vec::new();
        loop {
            let (line, column) = self.lexer.place();
            let Some(token) = self.lexer.next()? else {
                return match opened {
                    None => Ok(found),
                    Some((line, column)) => {
                        let message = "the block that begins here has no end".to_owned();
                        Err(ParseError { line, column, message, help: "add the missing `}`" })
                    }
                };
            };
            match token.kind {
                Kind::Word(name) => {
                    found.push(self.directive(name, token.line, token.column, depth)?);
                }
                Kind::Close if opened.is_some() => return Ok(found),
                Kind::Close => {
                    return Err(unexpected(&token, "closes no block", "remove it, or add the missing `{`"));
                }
                Kind::Semicolon => return Err(unexpected(&token, "ends no directive", "remove it")),
                Kind::Open => {
                    return Err(unexpected(
                        &token,
                        "opens a block without a name",
                        "write the name of the block before it",
                    ));
                }
                Kind::Raw(_) => {
                    return Err(ParseError {
                        line,
                        column,
                        message: "unexpected text".into(),
                        help: "remove it",
                    });
                }
            }
        }
    }

    fn directive(
        &mut self,
        name: String,
        line: u32,
        column: u32,
        depth: usize,
    ) -> Result<Directive, ParseError> {
        let source = Source { file: self.file.to_owned(), line };
        let mut args = Vec::new();
        loop {
            let Some(token) = self.lexer.next()? else {
                let message = format!("`{name}` has no end");
                return Err(ParseError { line, column, message, help: "end it with `;`" });
            };
            match token.kind {
                Kind::Word(word) => args.push(word),
                Kind::Semicolon => {
                    return Ok(Directive { name, args, source, column, block: None, included: None });
                }
                Kind::Open if name.ends_with("_by_lua_block") => {
                    let Kind::Raw(raw) = self.lexer.raw_block()?.kind else { continue };
                    return Ok(Directive {
                        name,
                        args,
                        source,
                        column,
                        block: Some(Block::Raw(raw)),
                        included: None,
                    });
                }
                Kind::Open if depth == DEEPEST => {
                    return Err(unexpected(&token, "is nested too deep", "nginx needs only a few levels"));
                }
                Kind::Open => {
                    let children = self.directives(Some((token.line, token.column)), depth + 1)?;
                    return Ok(Directive {
                        name,
                        args,
                        source,
                        column,
                        block: Some(Block::Directives(children)),
                        included: None,
                    });
                }
                Kind::Close => {
                    let message = format!("`{name}` is not ended before the end of its block");
                    return Err(ParseError { line, column, message, help: "end it with `;`" });
                }
                Kind::Raw(_) => {}
            }
        }
    }
}

fn unexpected(token: &Token, why: &str, help: &'static str) -> ParseError {
    let found = match token.kind {
        Kind::Semicolon => ";",
        Kind::Open => "{",
        Kind::Close => "}",
        Kind::Word(_) | Kind::Raw(_) => "the text",
    };
    ParseError { line: token.line, column: token.column, message: format!("`{found}` {why}"), help }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Vec<Directive> {
        parse("nginx.conf", text).unwrap_or_else(|error| panic!("{text}: {error:?}"))
    }

    #[test]
    fn words_are_read_as_nginx_reads_them() {
        for (text, args) in [
            (r"x a b;", vec!["a", "b"]),
            (r#"x "a b" 'c;{}#';"#, vec!["a b", "c;{}#"]),
            (r#"x "a\"b" 'c\'d' "e\\f";"#, vec!["a\"b", "c'd", "e\\f"]),
            (r"x \.php$ a\ b;", vec![r"\.php$", r"a\ b"]),
            ("x a#b; # c; d", vec!["a#b"]),
            ("x ${host}/a$b;", vec!["${host}/a$b"]),
            ("x ^/(a|b)$;", vec!["^/(a|b)$"]),
            ("x\n  a\r\n\tb\n;", vec!["a", "b"]),
            (r#"x "" a"b"c;"#, vec!["", "a\"b\"c"]),
            ("x a}b;", vec!["a}b"]),
            ("\u{feff}x ü;", vec!["ü"]),
        ] {
            let found = parsed(text);
            assert_eq!(
                (found.len(), &found[0].args),
                (1, &args.iter().map(ToString::to_string).collect()),
                "{text}"
            );
        }
    }

    #[test]
    fn blocks_and_places() {
        let found = parsed("http { # a comment {\n  server{listen 80;}\n}\nevents {}");
        let server = &found[0].children()[0];
        assert_eq!((server.source.line, server.column, server.name.as_str()), (2, 3, "server"));
        assert_eq!((server.children()[0].column, server.children()[0].shown()), (10, "listen 80".into()));
        assert_eq!((found[1].source.line, found[1].block.as_ref()), (4, Some(&Block::Directives(vec![]))));
    }

    #[test]
    fn lua_is_not_read() {
        let lua = "content_by_lua_block {\n local t = { a = '}' } -- }\n --[[ } ]]\n ngx.say([[ } ]], \"}\\\"\")\n}\nx y;";
        let found = parsed(lua);
        assert_eq!(found.len(), 2, "{found:#?}");
        assert!(matches!(&found[0].block, Some(Block::Raw(text)) if text.contains("ngx.say")));
        assert_eq!(found[1].source.line, 6);
    }

    #[test]
    fn mistakes_have_a_place() {
        for (text, line, column, message) in [
            ("a b\n", 1, 1, "`a` has no end"),
            ("a {\n b c;\n", 1, 3, "the block that begins here has no end"),
            ("a b; }", 1, 6, "`}` closes no block"),
            ("a { b }", 1, 5, "`b` is not ended before the end of its block"),
            ("a \"b;", 1, 3, "the quote has no end"),
            ("a \"b\"c;", 1, 6, "there is text behind the quote"),
            (";", 1, 1, "`;` ends no directive"),
            ("\n {", 2, 2, "`{` opens a block without a name"),
            ("x_by_lua_block { ", 1, 17, "the block has no end"),
        ] {
            let error = parse("nginx.conf", text).unwrap_err();
            assert_eq!((error.line, error.column, error.message.as_str()), (line, column, message), "{text}");
        }
        let deep = "a {".repeat(100_000);
        assert_eq!(parse("nginx.conf", &deep).unwrap_err().message, "`{` is nested too deep");
    }
}
