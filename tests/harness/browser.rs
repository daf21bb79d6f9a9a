//! A headless Chromium, driven by the DevTools protocol over pipes.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use serde_json::{Value, json};

use super::time::{deadline, within};

/// A browser with one page. It ends when it is dropped.
pub struct Browser {
    child: Child,
    commands: ChildStdin,
    messages: Receiver<Value>,
    session: String,
    next: u64,
    /// Scripts that failed, and what a policy has forbidden.
    pub errors: Vec<String>,
    _profile: tempfile::TempDir,
}

/// The program, by any of its names.
fn program() -> Option<&'static str> {
    let is_there = |name: &&str| {
        let version =
            Command::new(name).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        version.is_ok_and(|status| status.success())
    };
    ["chromium", "chromium-browser", "google-chrome"].into_iter().find(is_there)
}

impl Browser {
    /// A browser; `None`, and a line that says so, if none is installed.
    pub fn start() -> Option<Self> {
        let Some(program) = program() else {
            eprintln!("SKIPPED: there is no Chromium (Debian: the package chromium); no page was looked at");
            return None;
        };
        let profile = tempfile::tempdir().unwrap();
        // Commands are read from descriptor 3, answers are written to 4.
        let script = "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1";
        let mut child = Command::new("sh")
            .args(["-c", script, program, "--headless=new", "--no-sandbox", "--disable-gpu"])
            .args(["--disable-dev-shm-usage", "--no-first-run", "--remote-debugging-pipe"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (commands, answers) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (sender, messages) = channel();
        std::thread::spawn(move || {
            for message in BufReader::new(answers).split(0) {
                let Ok(message) = message else { return };
                if sender.send(serde_json::from_slice(&message).unwrap()).is_err() {
                    return;
                }
            }
        });
        let session = String::new();
        let mut browser =
            Self { child, commands, messages, session, next: 0, errors: Vec::new(), _profile: profile };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }))["targetId"].clone();
        let attach = json!({ "targetId": target, "flatten": true });
        let session = browser.call("Target.attachToTarget", attach)["sessionId"].as_str().unwrap().to_owned();
        browser.session = session;
        for domain in ["Runtime.enable", "Log.enable", "Page.enable"] {
            browser.call(domain, json!({}));
        }
        Some(browser)
    }

    fn call(&mut self, method: &str, params: Value) -> Value {
        self.next += 1;
        let mut message = json!({ "id": self.next, "method": method, "params": params });
        if !self.session.is_empty() {
            message["sessionId"] = self.session.clone().into();
        }
        self.commands.write_all(format!("{message}\0").as_bytes()).unwrap();
        let until = Instant::now() + deadline();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let message =
                self.messages.recv_timeout(left).unwrap_or_else(|error| panic!("{method}: {error}"));
            if message["id"] == self.next {
                assert!(message["error"].is_null(), "{method}: {}", message["error"]);
                return message["result"].clone();
            }
            self.note(&message);
        }
    }

    fn note(&mut self, event: &Value) {
        let params = &event["params"];
        let is_error = match event["method"].as_str() {
            Some("Runtime.exceptionThrown") => true,
            // An answer that is an error is logged too; what the page does with it is its own affair.
            Some("Log.entryAdded") => {
                params["entry"]["level"] == "error" && params["entry"]["source"] != "network"
            }
            Some("Runtime.consoleAPICalled") => params["type"] == "error",
            _ => false,
        };
        if is_error {
            self.errors.push(params.to_string());
        }
    }

    /// Shows a page of this address in a window of this width, in the `light` or `dark` scheme.
    pub fn open(&mut self, url: &str, width: u32, scheme: &str) {
        let phone = width < 600;
        let window = json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": phone });
        self.call("Emulation.setDeviceMetricsOverride", window);
        let scheme = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.call("Emulation.setEmulatedMedia", scheme);
        self.call("Page.navigate", json!({ "url": url }));
    }

    /// The value of an expression on the page.
    pub fn value(&mut self, expression: &str) -> Value {
        let answer = self.call("Runtime.evaluate", json!({ "expression": expression, "awaitPromise": true }));
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {}", answer["exceptionDetails"]);
        answer["result"]["value"].clone()
    }

    /// Moves the pointer to the middle of an element, with this share of its width from the left.
    pub fn point_at(&mut self, selector: &str, share: f64) {
        let place = format!(
            "(() => {{ const node = document.querySelector('{selector}'); node.scrollIntoView({{block: 'center'}}); \
             const box = node.getBoundingClientRect(); return [box.left + box.width * {share}, box.top + box.height / 2].join(); }})()"
        );
        let place = self.value(&place);
        let (x, y) = place.as_str().unwrap().split_once(',').unwrap();
        let at =
            json!({ "type": "mouseMoved", "x": x.parse::<f64>().unwrap(), "y": y.parse::<f64>().unwrap() });
        self.call("Input.dispatchMouseEvent", at);
    }

    /// Presses and releases a key, with the text that it writes.
    pub fn press(&mut self, key: &str, text: &str) {
        for kind in ["keyDown", "keyUp"] {
            let event = json!({ "type": kind, "key": key, "code": key, "text": if kind == "keyDown" { text } else { "" } });
            self.call("Input.dispatchKeyEvent", event);
        }
    }

    /// Waits until an expression on the page is true.
    pub fn wait_for(&mut self, expression: &str) {
        // Until the page is loaded, what the expression names may not exist.
        let guarded =
            format!("(() => {{ try {{ return Boolean({expression}); }} catch {{ return false; }} }})()");
        if within(deadline(), || (self.value(&guarded) == true).then_some(())).is_none() {
            let shown = self.value("document.body.innerText.slice(0, 3000)");
            panic!("not within {:?}: {expression}; errors {:?}; {shown}", deadline(), self.errors);
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
