//! A browser without a window: it opens pages, presses keys and reads their contents.
//!
//! Chromium takes commands of the DevTools protocol from one pipe and replies on another, each
//! message ended by a zero byte.
#![allow(dead_code, reason = "each test program uses a part of it")]

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The deadline of a reply, on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);

/// The exit code of a shell that finds no program of a name.
const NO_PROGRAM: i32 = 127;

/// The note of a test that needs a browser.
pub(crate) const MISSING: &str = "chromium is not installed (apt-get install chromium)";

pub(crate) struct Browser {
    child: Child,
    commands: ChildStdin,
    answers: Receiver<Value>,
    /// Received events, since the last command to open a page.
    events: Vec<Value>,
    session: Option<String>,
    asked: u64,
    _profile: TempDir,
}

impl Browser {
    /// Starts Chromium with one empty page; `None` if there is no Chromium.
    pub(crate) fn start() -> Option<Self> {
        let profile = tempfile::tempdir().expect("a folder for the profile");
        // Commands are read from descriptor 3, replies go to 4.
        let script =
            "command -v chromium >/dev/null || exit 127; exec chromium \"$@\" 3<&0 4>&1 1>&2";
        let mut child = Command::new("sh")
            .args(["-c", script, "sh", "--headless=new", "--no-sandbox", "--disable-gpu"])
            .args(["--remote-debugging-pipe", "--window-size=1400,900"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("sh starts");
        let commands = child.stdin.take().expect("it is piped");
        let answers = listen(BufReader::new(child.stdout.take().expect("it is piped")));
        let mut browser = Self {
            child,
            commands,
            answers,
            events: Vec::new(),
            session: None,
            asked: 0,
            _profile: profile,
        };
        let page = browser.try_call("Target.createTarget", json!({ "url": "about:blank" }));
        let Some(page) = page else {
            // Nothing happens to a program that has ended.
            let _ = browser.child.kill();
            let status = browser.child.wait().expect("it was started");
            assert_eq!(status.code(), Some(NO_PROGRAM), "chromium does not answer: {status}");
            return None;
        };
        let page = json!({ "targetId": page["targetId"], "flatten": true });
        let session = browser.call("Target.attachToTarget", page);
        browser.session = session["sessionId"].as_str().map(str::to_owned);
        browser.call("Page.enable", json!({}));
        browser.call("Runtime.enable", json!({}));
        browser.call("Network.enable", json!({}));
        Some(browser)
    }

    /// Opens a file at `place`, and returns when it is loaded. `media` are features of the reader's,
    /// such as `("prefers-color-scheme", "dark")`.
    ///
    /// # Panics
    /// If the page loads anything else.
    pub(crate) fn open(&mut self, page: &Path, place: &str, media: &[(&str, &str)]) {
        let features = media.iter().map(|(name, value)| json!({ "name": name, "value": value }));
        let features: Vec<Value> = features.collect();
        self.call("Emulation.setEmulatedMedia", json!({ "features": features }));
        // From a file to another place of itself nothing would be loaded.
        self.navigate("about:blank");
        let events = self.navigate(&format!("file://{}{place}", page.display()));
        let asked = events.iter().filter(|event| event["method"] == "Network.requestWillBeSent");
        let loads: Vec<&Value> = asked.map(|event| &event["params"]["request"]["url"]).collect();
        assert!(loads.len() <= 1, "{} loads {loads:?}", page.display());
    }

    /// Gives the window a size in pixels.
    pub(crate) fn resize(&mut self, width: u32, height: u32) {
        let size = json!({
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false,
        });
        self.call("Emulation.setDeviceMetricsOverride", size);
    }

    /// Presses and releases a key, such as `ArrowRight`.
    pub(crate) fn press(&mut self, key: &str) {
        for kind in ["keyDown", "keyUp"] {
            self.call("Input.dispatchKeyEvent", json!({ "type": kind, "key": key }));
        }
    }

    /// The value of an expression of JavaScript; a promise is waited for.
    ///
    /// # Panics
    /// If it throws.
    pub(crate) fn value(&mut self, expression: &str) -> Value {
        let asked = json!({
            "expression": expression, "returnByValue": true, "awaitPromise": true,
        });
        let answer = self.call("Runtime.evaluate", asked);
        let thrown = &answer["exceptionDetails"];
        assert!(thrown.is_null(), "{expression}: {thrown}");
        answer["result"]["value"].clone()
    }

    /// The text of the element `id`.
    pub(crate) fn text(&mut self, id: &str) -> String {
        let text = self.value(&format!("document.getElementById({id:?}).textContent"));
        text.as_str().expect("an element has text").to_owned()
    }

    /// Waits until an expression is true.
    pub(crate) fn wait_until(&mut self, expression: &str) {
        let start = Instant::now();
        while self.value(expression) != true {
            assert!(start.elapsed() < LIMIT, "still not true: {expression}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn call(&mut self, method: &str, params: Value) -> Value {
        self.try_call(method, params).unwrap_or_else(|| panic!("no answer to {method}"))
    }

    /// Sends a command; `None` if the browser has ended.
    fn try_call(&mut self, method: &str, params: Value) -> Option<Value> {
        self.asked += 1;
        let mut command = json!({ "id": self.asked, "method": method, "params": params });
        if let Some(session) = &self.session {
            command["sessionId"] = session.as_str().into();
        }
        self.commands.write_all(format!("{command}\0").as_bytes()).ok()?;
        loop {
            let answer = self.answers.recv_timeout(LIMIT).ok()?;
            if answer["id"] == self.asked {
                assert!(answer["error"].is_null(), "{method}: {answer}");
                return Some(answer["result"].clone());
            }
            self.events.push(answer);
        }
    }

    /// Opens an address. Returns the events until it was loaded.
    fn navigate(&mut self, url: &str) -> Vec<Value> {
        self.events.clear();
        self.call("Page.navigate", json!({ "url": url }));
        while !self.events.iter().any(|event| event["method"] == "Page.loadEventFired") {
            let event = self.answers.recv_timeout(LIMIT);
            self.events.push(event.unwrap_or_else(|_| panic!("{url} is not loaded")));
        }
        std::mem::take(&mut self.events)
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Presses the keys of all pages, on a page whose last step is `last`.
pub(crate) fn compare_keys(browser: &mut Browser, last: i64) {
    let first = browser.value("view.first").as_i64().expect("a number");
    for (key, step) in [
        ("ArrowRight", first + 1),
        ("ArrowRight", first + 2),
        ("ArrowLeft", first + 1),
        ("End", last),
        ("ArrowRight", last),
        ("Home", first),
        ("ArrowLeft", first),
        ("x", first),
    ] {
        browser.press(key);
        assert_eq!(browser.value("[now, +$('scrub').value]"), json!([step, step]), "{key}");
    }
    browser.press(" ");
    let pressed = "$('play').getAttribute('aria-pressed')";
    assert_eq!(browser.value(pressed), "true", "space plays");
    browser.wait_until("now > view.first");
    browser.press(" ");
    assert_eq!(browser.value(pressed), "false", "space stops");
    browser.press("End");
    browser.press(" ");
    assert_eq!(browser.value("now"), first, "playing begins anew after the end");
    browser.press(" ");
    browser.press("Home");
}

/// The messages of the browser, until it ends.
fn listen(mut answers: impl BufRead + Send + 'static) -> Receiver<Value> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut message = Vec::new();
        while answers.read_until(0, &mut message).is_ok_and(|bytes| bytes > 0) {
            message.pop();
            let Ok(parsed) = serde_json::from_slice(&message) else { break };
            if sender.send(parsed).is_err() {
                break;
            }
            message.clear();
        }
    });
    receiver
}
