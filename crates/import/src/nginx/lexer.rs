//! The tokens of nginx.conf, each with its place, as `ngx_conf_read_token` reads them.

/// A token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) kind: Kind,
    /// The line, from 1.
    pub(super) line: u32,
    /// The column in characters, from 1.
    pub(super) column: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A word, without its quotes and escapes.
    Word(String),
    /// `;`
    Semicolon,
    /// `{`
    Open,
    /// `}`
    Close,
    /// The contents of a block that is not of nginx, such as `content_by_lua_block { … }`.
    Raw(String),
}

/// Why a text has no further tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LexError {
    pub(super) line: u32,
    pub(super) column: u32,
    pub(super) message: &'static str,
    pub(super) help: &'static str,
}

/// Reads tokens.
pub(super) struct Lexer<'a> {
    rest: std::iter::Peekable<std::str::Chars<'a>>,
    line: u32,
    column: u32,
}

impl<'a> Lexer<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        Self { rest: text.chars().peekable(), line: 1, column: 1 }
    }

    /// The place of the next character.
    pub(super) const fn place(&self) -> (u32, u32) {
        (self.line, self.column)
    }

    /// The next token; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<Token>, LexError> {
        self.skip_blanks();
        let (line, column) = self.place();
        let token = |kind| Ok(Some(Token { kind, line, column }));
        match self.rest.peek().copied() {
            None => Ok(None),
            Some(';') => self.take(Kind::Semicolon).map_or(Ok(None), token),
            Some('{') => self.take(Kind::Open).map_or(Ok(None), token),
            Some('}') => self.take(Kind::Close).map_or(Ok(None), token),
            Some(quote @ ('"' | '\'')) => self.quoted(quote).and_then(|word| token(Kind::Word(word))),
            Some(_) => token(Kind::Word(self.word())),
        }
    }

    /// The contents of a block of another language, whose `{` was read, up to its `}`. Braces in its strings and comments do not
    /// count; those of Lua are known.
    pub(super) fn raw_block(&mut self) -> Result<Token, LexError> {
        let (line, column) = self.place();
        let mut text = String::new();
        let mut depth = 0_usize;
        while let Some(c) = self.advance() {
            match c {
                '{' => depth += 1,
                '}' if depth == 0 => return Ok(Token { kind: Kind::Raw(text), line, column }),
                '}' => depth -= 1,
                '"' | '\'' => {
                    text.push(c);
                    self.raw_until(&mut text, |text, last| last == c && !text.ends_with('\\'));
                    continue;
                }
                '-' if self.rest.peek() == Some(&'-') => {
                    text.push(c);
                    let long = self.starts_with("-[[");
                    self.raw_until(&mut text, |text, last| {
                        if long { last == ']' && text.ends_with(']') } else { last == '\n' }
                    });
                    continue;
                }
                '[' if self.rest.peek() == Some(&'[') => {
                    text.push(c);
                    self.raw_until(&mut text, |text, last| last == ']' && text.ends_with(']'));
                    continue;
                }
                _ => {}
            }
            text.push(c);
        }
        let message = "the block has no end";
        Err(LexError { line, column, message, help: "add the missing `}`" })
    }

    /// Moves characters to `text`, including the first for which `is_end(text before it, character)`.
    fn raw_until(&mut self, text: &mut String, is_end: impl Fn(&str, char) -> bool) {
        while let Some(c) = self.advance() {
            let end = is_end(text, c);
            text.push(c);
            if end {
                return;
            }
        }
    }

    fn starts_with(&self, text: &str) -> bool {
        let mut rest = self.rest.clone();
        text.chars().all(|c| rest.next() == Some(c))
    }

    fn take(&mut self, kind: Kind) -> Option<Kind> {
        self.advance().map(|_| kind)
    }

    fn advance(&mut self) -> Option<char> {
        let c = self.rest.next()?;
        if c == '\n' {
            self.line = self.line.saturating_add(1);
            self.column = 1;
        } else {
            self.column = self.column.saturating_add(1);
        }
        Some(c)
    }

    fn skip_blanks(&mut self) {
        while let Some(c) = self.rest.peek().copied() {
            match c {
                ' ' | '\t' | '\r' | '\n' => _ = self.advance(),
                '#' => while self.rest.peek().is_some_and(|c| *c != '\n') && self.advance().is_some() {},
                _ => return,
            }
        }
    }

    /// A word without quotes. `${name}` belongs to it; a quote or `#` inside of it is a character like others.
    fn word(&mut self) -> String {
        let mut word = String::new();
        while let Some(c) = self.rest.peek().copied() {
            match c {
                ' ' | '\t' | '\r' | '\n' | ';' => break,
                '{' if !word.ends_with('$') => break,
                '\\' => self.escape(&mut word),
                _ => word.extend(self.advance()),
            }
        }
        word
    }

    fn quoted(&mut self, quote: char) -> Result<String, LexError> {
        let (line, column) = self.place();
        self.advance();
        let mut word = String::new();
        loop {
            match self.rest.peek().copied() {
                None => {
                    let message = "the quote has no end";
                    return Err(LexError { line, column, message, help: "add the missing quote" });
                }
                Some(c) if c == quote => break,
                Some('\\') => self.escape(&mut word),
                Some(_) => word.extend(self.advance()),
            }
        }
        self.advance();
        let (line, column) = self.place();
        match self.rest.peek() {
            None | Some(' ' | '\t' | '\r' | '\n' | ';' | '{' | ')') => Ok(word),
            Some(_) => {
                let message = "there is text behind the quote";
                Err(LexError {
                    line,
                    column,
                    message,
                    help: "put a space between them, or quote the whole word",
                })
            }
        }
    }

    /// A backslash and what it escapes. As in nginx, it stays unless a quote, a backslash or one of `t`, `r` and `n` follows.
    fn escape(&mut self, word: &mut String) {
        self.advance();
        match self.advance() {
            Some(c @ ('"' | '\'' | '\\')) => word.push(c),
            Some('t') => word.push('\t'),
            Some('r') => word.push('\r'),
            Some('n') => word.push('\n'),
            Some(c) => word.extend(['\\', c]),
            None => word.push('\\'),
        }
    }
}
