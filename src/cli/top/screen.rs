//! The live view in the terminal.

use std::io;
use std::time::Duration;

use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Cell, Row, Sparkline, Table};
use serde_json::Value;

use super::look::{Look, rows};

/// The seconds that the screen shows.
const SHOWN: u64 = 120;

/// What is on the screen.
struct Screen {
    look: Look,
    by: String,
    /// The index of the chosen limit.
    chosen: usize,
    paused: bool,
    /// Why the gateway could not be asked the last time.
    trouble: Option<String>,
}

/// Shows the view until the user quits. `again` asks the gateway.
pub(super) fn show(
    look: Look,
    by: &str,
    every: Duration,
    mut again: impl FnMut(&str, u64) -> Result<Look, String>,
) -> io::Result<()> {
    let mut screen = Screen { look, by: by.to_owned(), chosen: 0, paused: false, trouble: None };
    let mut terminal = ratatui::try_init()?;
    let ended = loop {
        if let Err(error) = terminal.draw(|frame| screen.draw(frame)) {
            break Err(error);
        }
        let ask = match event::poll(every) {
            Err(error) => break Err(error),
            Ok(false) => !screen.paused,
            Ok(true) => match event::read() {
                Err(error) => break Err(error),
                Ok(Event::Key(key)) if key.kind == KeyEventKind::Press => {
                    let interrupt =
                        key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
                    if interrupt || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc) {
                        break Ok(());
                    }
                    screen.press(key.code)
                }
                Ok(_) => false,
            },
        };
        if ask {
            let now = screen.look.live["time"].as_u64().unwrap_or(0);
            match again(&screen.by, now.saturating_sub(SHOWN)) {
                Ok(look) => (screen.look, screen.trouble) = (look, None),
                Err(why) => screen.trouble = Some(why),
            }
        }
    };
    ratatui::restore();
    ended
}

impl Screen {
    /// Acts on a key. Returns whether the gateway is asked again.
    fn press(&mut self, key: KeyCode) -> bool {
        match key {
            KeyCode::Tab => {
                self.by = if self.by == "refused" { "requests" } else { "refused" }.to_owned();
                return true;
            }
            KeyCode::Char('p') => self.paused = !self.paused,
            KeyCode::Down | KeyCode::Right => {
                self.chosen = (self.chosen + 1).min(self.look.tops.len().saturating_sub(1));
            }
            KeyCode::Up | KeyCode::Left => self.chosen = self.chosen.saturating_sub(1),
            _ => {}
        }
        false
    }

    fn draw(&self, frame: &mut Frame<'_>) {
        let limits = u16::try_from(self.look.tops.len().min(10)).unwrap_or(10) + 3;
        let areas = Layout::vertical([
            Constraint::Length(1),
            Constraint::Length(limits),
            Constraint::Length(5),
            Constraint::Min(3),
        ])
        .split(frame.area());
        frame.render_widget(self.head(), areas[0]);
        frame.render_widget(self.limits(), areas[1]);
        let refused = self.series("refused");
        let title = Line::from(" refused by the limit, 2 minutes ");
        frame.render_widget(
            Sparkline::default().data(&refused).block(Block::bordered().title(title)).style(Color::Red),
            areas[2],
        );
        frame.render_widget(self.keys(), areas[3]);
    }

    fn head(&self) -> Line<'static> {
        let now = |name: &str| {
            let counts = self.look.live["rings"][0][name].as_array();
            counts.and_then(|counts| counts.last()).and_then(Value::as_u64).unwrap_or(0)
        };
        let state = match (&self.trouble, self.paused) {
            (Some(why), _) => format!("  {why}"),
            (None, true) => "  paused".to_owned(),
            (None, false) => String::new(),
        };
        let text = format!(
            "{} requests/s, {} refused/s, {} errors/s{state}",
            now("requests"),
            now("refused"),
            now("errors")
        );
        let style = if self.trouble.is_some() { Style::new().fg(Color::Red) } else { Style::new() };
        Line::from(text).style(style.add_modifier(Modifier::BOLD))
    }

    /// The last two minutes of the chosen limit.
    fn series(&self, what: &str) -> Vec<u64> {
        let name = self.chosen_name();
        let counts = self.look.live["rings"][0]["limits"][name][what].as_array();
        counts.into_iter().flatten().map(|count| count.as_u64().unwrap_or(0)).collect()
    }

    fn chosen_name(&self) -> &str {
        self.look.tops.get(self.chosen).and_then(|top| top["limit"].as_str()).unwrap_or_default()
    }

    /// A row for each limit: what it admitted and refused in the last minute.
    fn limits(&self) -> Table<'static> {
        let rows = self.look.tops.iter().enumerate().map(|(at, top)| {
            let name = top["limit"].as_str().unwrap_or_default().to_owned();
            let sum = |what: &str| {
                let counts = self.look.live["rings"][0]["limits"][&name][what].as_array();
                let last = counts.into_iter().flatten().rev().take(60);
                last.map(|count| count.as_u64().unwrap_or(0)).sum::<u64>().to_string()
            };
            let cells = [sum("admitted"), sum("refused"), sum("shadow_refused")];
            let mark = if at == self.chosen { Modifier::REVERSED } else { Modifier::empty() };
            let cells = [Cell::from(name.clone())].into_iter().chain(cells.map(Cell::from));
            Row::new(cells).style(Style::new().add_modifier(mark))
        });
        let widths =
            [Constraint::Fill(1), Constraint::Length(12), Constraint::Length(12), Constraint::Length(14)];
        let head = Row::new(["limit", "admitted", "refused", "would refuse"]);
        Table::new(rows, widths).header(head).block(Block::bordered().title(" limits, last minute "))
    }

    /// The keys of the chosen limit.
    fn keys(&self) -> Table<'static> {
        let all = self.look.tops.get(self.chosen).into_iter().flat_map(rows);
        let rows = all.map(|(count, key)| Row::new([format!("{count:>16}"), key]));
        let title = format!(
            " {}: keys with the most {}, last hour ",
            self.chosen_name(),
            match self.by.as_str() {
                "refused" => "refused requests",
                _ => "requests",
            }
        );
        Table::new(rows, [Constraint::Length(17), Constraint::Fill(1)]).block(Block::bordered().title(title))
    }
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use serde_json::json;

    use super::*;

    /// The screen shows limits and keys, and keys cannot control the terminal.
    #[test]
    fn it_shows_limits_and_keys() {
        let live = json!({"rings": [{"requests": [7], "refused": [2], "errors": [0], "limits": {"l": {"admitted": [5], "refused": [2], "shadow_refused": [0]}}}]});
        let tops = vec![
            json!({"limit": "l", "by": "refused", "keys": [{"key": "ip:192.0.2.1", "count": 12, "error": 3}, {"key": "path:\u{1b}[2J", "count": 1, "error": 0}]}),
        ];
        let mut screen = Screen {
            look: Look { live, tops },
            by: "refused".to_owned(),
            chosen: 0,
            paused: false,
            trouble: None,
        };
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
        terminal.draw(|frame| screen.draw(frame)).unwrap();
        let shown = format!("{:?}", terminal.backend().buffer());
        for text in ["7 requests/s, 2 refused/s", "12 ±3", "ip:192.0.2.1", "refused requests", "\\u{1b}[2J"]
        {
            assert!(shown.contains(text), "{text}: {shown}");
        }
        assert!(screen.press(KeyCode::Tab) && screen.by == "requests");
        assert!(!screen.press(KeyCode::Down) && screen.chosen == 0);
    }
}
