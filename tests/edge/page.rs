//! The page at the admin address and the report of replay, in a browser.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

use crate::harness::browser::Browser;
use crate::harness::{Folder, Gateway, Upstream, deadline, until, within};

const FILE: &str = "admin: {address: \"{admin}\", token: test-token, show_keys: true}\nrules: {file: rules.db, wait: 1s}\n\
    limits:\n  per-key: {key: api_key, rate: 2/day}\n  watched: {key: ip, rate: 1/day, mode: shadow}\n\
    upstreams: {gone: {servers: ['http://127.0.0.1:9']}}\n\
    routes:\n  - {name: orders, match: {path: /orders}, respond: {status: 200}, limits: [per-key, watched]}\n  \
    - {name: gone, match: {path: /gone}, upstream: gone}\n";

const WIDTHS: [(u32, &str); 4] = [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")];

/// A key that would be a script if it were put into the page as HTML.
const HOSTILE: &str = "<img src=x onerror=boom()>";

/// What operators look for is on the page, for screens of any width, and nothing on it fails.
#[test]
fn the_page_shows_what_happens() {
    let Some(mut browser) = Browser::start() else { return };
    let gateway = Gateway::start(FILE);
    assert_eq!(gateway.statuses(4, "/orders", &[("x-api-key", HOSTILE)]), [200, 200, 429, 429]);
    assert_eq!(gateway.ask("GET", "/gone", &[("x-forwarded-for", "192.0.2.1")]).status, 502);
    let url = format!("http://{}/", gateway.admin);
    for (width, scheme) in WIDTHS {
        browser.open(&url, width, scheme);
        for (place, text) in [
            ("limit-table", "per-key"),
            ("route-table", "orders"),
            ("server-table", "127.0.0.1:9"),
            ("server-table", "Connection refused"),
            ("server-table", "down"),
            ("upstream-table", "0 of 1"),
            ("refusal-table", "limit"),
            ("source-table", "rules"),
            ("banner", "gone: no server answers"),
            ("limit-table", "token_bucket, 2/day"),
            ("status", "generation 1"),
            ("banner", "trusted_proxies: [\"127.0.0.1\"]"),
        ] {
            browser.wait_for(&format!("at('{place}').textContent.includes('{text}')"));
        }
        browser.wait_for("document.querySelectorAll('#minutes rect').length > 0");
        let wide = browser.value("document.documentElement.scrollWidth").as_u64().unwrap();
        assert!(wide <= u64::from(width), "{wide} pixels on a screen of {width}");
        browser.value("document.querySelector('[aria-label=\"keys of per-key\"]').click()");
        browser.wait_for(&format!("at('limit-detail').textContent.includes('{HOSTILE}')"));
    }
    assert!(browser.errors.is_empty(), "{:#?}", browser.errors);
}

/// The form explains requests; a key is pardoned, and a rule written, with the token only.
#[test]
fn the_page_explains_and_changes() {
    let Some(mut browser) = Browser::start() else { return };
    let gateway = Gateway::start(FILE);
    let answers: Vec<_> =
        (0..3).map(|_| gateway.client().ask("GET", "/orders", &[("x-api-key", "k1")])).collect();
    let id = answers[2].header("x-request-id").unwrap();
    browser.open(&format!("http://{}/", gateway.admin), 1280, "light");
    browser.wait_for("at('limit-table').textContent.includes('per-key')");

    browser.value(&format!("at('e-request').value = '{id}'; at('explain-form').requestSubmit()"));
    browser.wait_for("at('explain-said').textContent.includes('refused')");
    browser.wait_for("at('explained').textContent.includes('api_key:k1')");
    browser.value(
        "at('e-request').value = ''; at('e-url').value = '/orders'; at('e-headers').value = 'X-Api-Key: k2'; \
         at('explain-form').requestSubmit()",
    );
    browser.wait_for("at('explain-said').textContent.includes('admitted')");

    let pardon = "[...document.querySelectorAll('#limit-detail button')].find(b => b.textContent === 'pardon').click()";
    browser.value("document.querySelector('[aria-label=\"keys of per-key\"]').click()");
    browser.wait_for("document.querySelectorAll('#limit-detail button').length > 0");
    browser.value(pardon);
    browser.wait_for("at('pardon-said').textContent.includes('token')");
    // The message stays when the table is drawn again, which happens every five seconds, until there is a token.
    browser.value("showTop().then(() => { window.drawn = true; })");
    browser.wait_for("window.drawn");
    browser.wait_for("at('pardon-said').textContent.includes('token')");
    assert_eq!(gateway.statuses(1, "/orders", &[("x-api-key", "k1")]), [429]);
    browser.value("at('token').value = 'test-token'; at('token').dispatchEvent(new Event('change'))");
    browser.wait_for("at('pardon-said').textContent === ''");
    browser.value(pardon);
    browser.wait_for("at('pardon-said').textContent.includes('has its full quota again')");
    assert_eq!(gateway.statuses(3, "/orders", &[("x-api-key", "k1")]), [200, 200, 429]);

    browser.value("put({id: 'more', limit: 'per-key', key: 'k3', rate: '3/day'}, null); at('save').click()");
    browser.wait_for("at('said').textContent.includes('in force')");
    assert_eq!(gateway.statuses(4, "/orders", &[("x-api-key", "k3")]), [200, 200, 200, 429]);

    // Notes keep their lines; what cannot be seen is shown as its number, and stays as it is.
    browser.value(
        "put({id: 'noted', limit: 'per-key', key: 'k4\\u202e', rate: '3/day', note: 'one\\ntwo\\u202e'}, null); \
         at('save').click()",
    );
    browser.wait_for("at('list').textContent.includes('one\\ntwo\\\\u{202e}')");
    browser.wait_for("at('list').textContent.includes('k4\\\\u{202e}')");
    browser.value("[...document.querySelectorAll('#list tr')].find(r => r.textContent.includes('noted')).querySelector('button').click()");
    browser.wait_for("at('title').textContent === 'Rule noted' && at('f-note').value === 'one\\ntwo\\u202e'");

    // A rule is removed only when it was asked for twice.
    browser.value("window.confirm = text => { window.asked = text; return false; }; at('remove').click()");
    browser.wait_for("window.asked.includes('noted')");
    browser.value("window.confirm = () => true; at('find').click()");
    browser.wait_for("at('list').textContent.includes('noted')");
    browser.value("at('remove').click()");
    browser.wait_for("at('said').textContent === 'removed' && !at('list').textContent.includes('noted')");
    assert!(browser.errors.is_empty(), "{:#?}", browser.errors);
}

/// The report of a refused reload is shown as the terminal shows it: the caret stands under the mistake.
#[test]
fn the_caret_of_a_report_stands_under_the_mistake() {
    let Some(mut browser) = Browser::start() else { return };
    let gateway = Gateway::start(FILE);
    gateway.write(&FILE.replace("key: api_key, rate: 2/day", "key: api_key, rate: 2/dya"));
    until("it is refused", || gateway.admin_get("/status").json()["last_reload_error"].as_str().map(drop));
    browser.open(&format!("http://{}/", gateway.admin), 390, "light");
    browser.wait_for("at('banner').textContent.includes('^')");
    // How far two characters of the report are from the left.
    browser.value(
        "window.left = at_ => { const text = document.querySelector('#banner pre').firstChild, range = document.createRange(); \
         range.setStart(text, at_); range.setEnd(text, at_ + 1); return range.getBoundingClientRect().left; }; \
         window.report = document.querySelector('#banner pre').textContent",
    );
    let lefts =
        browser.value("JSON.stringify([left(report.lastIndexOf('2/dya')), left(report.indexOf('^'))])");
    let lefts: [f64; 2] = serde_json::from_str(lefts.as_str().unwrap()).unwrap();
    assert!((lefts[0] - lefts[1]).abs() < 1.0, "{lefts:?}");
    let wide = browser.value("document.documentElement.scrollWidth").as_u64().unwrap();
    assert!(wide <= 390, "{wide} pixels");
    assert!(browser.errors.is_empty(), "{:#?}", browser.errors);
}

/// Tables are ordered by a column that is clicked or chosen with the keyboard, numbers as numbers, and stay so while they change.
#[test]
fn tables_are_ordered_by_columns() {
    let Some(mut browser) = Browser::start() else { return };
    let gateway = Gateway::start(
        "routes:\n  - {name: b, match: {path: /b}, respond: {status: 200}}\n  \
         - {name: a, match: {path: /a}, respond: {status: 200}}\n  - {name: c, match: {path: /c}, respond: {status: 200}}\n",
    );
    for (target, count) in [("/b", 9), ("/a", 10), ("/c", 2)] {
        gateway.statuses(count, target, &[]);
    }
    browser.open(&format!("http://{}/", gateway.admin), 1280, "light");
    browser.wait_for("at('status')");
    browser.value(
        "window.order = () => [...document.querySelectorAll('#route-table tbody tr')].map(row => row.children[0].firstChild.textContent + row.children[1].textContent).join(' '); \
         window.title = name => [...document.querySelectorAll('#route-table th button')].find(button => button.textContent === name); \
         window.sorted = () => [...document.querySelectorAll('#route-table th[aria-sort]')].map(th => th.textContent + ' ' + th.getAttribute('aria-sort')).join()",
    );
    browser.wait_for("order().includes('a10')");
    let before = browser.value("order()");
    browser.value("title('requests').click()");
    browser.wait_for("order() === 'a10 b9 c2' && sorted() === 'requests descending'");
    gateway.statuses(10, "/c", &[]);
    browser.wait_for("order() === 'c12 a10 b9' && sorted() === 'requests descending'");
    browser.value("title('requests').focus()");
    browser.press("Enter", "\r");
    browser.wait_for("order() === 'b9 a10 c12' && sorted() === 'requests ascending'");
    browser.wait_for("document.activeElement === title('requests')");
    browser.press("Enter", "\r");
    let names = before.as_str().unwrap().replace("c2", "c12");
    browser.wait_for(&format!("order() === '{names}' && sorted() === ''"));
    browser.value("title('route').click()");
    browser.wait_for("order() === 'a10 b9 c12' && sorted() === 'route ascending'");
    assert!(browser.errors.is_empty(), "{:#?}", browser.errors);
}

/// Charts show the time and the values under the pointer, or under the arrow keys.
#[test]
fn charts_show_values() {
    let Some(mut browser) = Browser::start() else { return };
    let gateway = Gateway::start(FILE);
    gateway.statuses(6, "/orders", &[("x-api-key", "k1")]);
    browser.open(&format!("http://{}/", gateway.admin), 1280, "light");
    browser.wait_for("at('status')");
    browser.wait_for("document.querySelectorAll('#hour rect').length > 0 && document.querySelectorAll('#limit-table rect').length > 0");
    browser.value("window.shown = () => at('tip').hidden ? '' : at('tip').textContent");
    // What is above a chart may change its height, and scrolling hides the values, so it is pointed at again, each time by a
    // pointer that moves along it: one that stays where it is has not moved.
    let mut shows = |chart: &str, text: &str| {
        let mut shown = Value::Null;
        let found = within(deadline(), || {
            browser.point_at(chart, 0.5);
            browser.point_at(chart, 0.999);
            shown = browser.value("shown()");
            (browser.value(&format!("/^{text}$/.test(shown())")) == true).then_some(())
        });
        assert!(found.is_some(), "{chart} shows {shown}");
    };
    let rates = "answered [0-9.]+\\/s, refused [0-9.]+\\/s, errors [0-9.]+\\/s";
    shows("#hour svg", &format!("[0-9:]{{8}}Z: ({rates}|no data)"));
    shows("#limit-table svg", "[0-9:]{8}Z, 10 s: ([0-9]+ refused|no data)");
    browser.point_at("h1", 0.5);
    browser.wait_for("shown() === ''");
    browser.value("document.querySelector('#hour svg').focus()");
    browser.wait_for("shown() !== ''");
    // The cursor counts from the end, so that the same number of keys finds the requests.
    for _ in 0..360 {
        if browser.value("shown().includes('refused 0.4/s')") == true {
            break;
        }
        browser.press("ArrowLeft", "");
    }
    browser.wait_for("shown().includes('answered 0.2/s, refused 0.4/s')");
    assert!(browser.errors.is_empty(), "{:#?}", browser.errors);
}

/// A server is drained with a button, after a question and with the token only.
#[test]
fn servers_are_drained_from_the_page() {
    let Some(mut browser) = Browser::start() else { return };
    let gateway = Gateway::start(
        "upstreams: {api: {servers: ['http://127.0.0.1:9', 'http://127.0.0.2:9']}}\nroutes: [{name: api, upstream: api}]\n",
    );
    let state = || gateway.admin_get("/upstreams/api/servers/127.0.0.1:9/state").json()["state"].clone();
    browser.open(&format!("http://{}/", gateway.admin), 1280, "light");
    browser.wait_for("at('status')");
    browser.value(
        "window.press = word => document.querySelector(`[aria-label=\"${word}: 127.0.0.1:9 of api\"]`).click(); \
         window.cell = () => document.querySelector('#server-table tbody tr [data-label=state]').textContent.replace('\\u00a0', ' ')",
    );
    browser.wait_for("cell() === '● up'");
    browser.value("window.confirm = text => { window.asked = text; return false; }; press('drain')");
    browser.wait_for("window.asked.startsWith('Drain 127.0.0.1:9 of api?') && !window.asked.includes('503')");
    browser.value("window.confirm = text => { window.asked = text; return true; }; press('drain')");
    browser.wait_for("at('server-said').textContent.includes('token')");
    assert_eq!(state(), "ready");
    browser.value(
        "at('token').value = 'test-token'; at('token').dispatchEvent(new Event('change')); press('drain')",
    );
    browser.wait_for("at('server-said').textContent === '127.0.0.1:9 of api: drain, 0 requests in flight'");
    browser.wait_for("cell() === '▲ drain' && at('upstream-table').textContent.includes('1 of 2')");
    browser.wait_for("at('banner').textContent.includes('api: 1 server drained or in maintenance')");
    assert_eq!(state(), "drain");
    let found = "[...document.querySelectorAll('#server-table tbody tr')].filter(row => !row.hidden).length";
    browser.value("at('filter').value = 'drain'; filtered()");
    browser.wait_for(&format!("{found} === 1"));
    browser.value("at('filter').value = ''; filtered()");
    browser.wait_for(&format!("{found} === 2"));
    browser.value("document.querySelector('[aria-label=\"maintenance: 127.0.0.2:9 of api\"]').click()");
    browser.wait_for("window.asked.includes('answered with 503') && at('banner').textContent.includes('all servers are drained')");
    browser.value("window.asked = ''; press('ready')");
    browser.wait_for("cell() === '● up' && window.asked === ''");
    assert_eq!(state(), "ready");
    assert!(browser.errors.is_empty(), "{:#?}", browser.errors);
}

/// On a phone rows are cards of two lines, and those without trouble are behind one line; on a wide screen words stay whole.
#[test]
fn tables_fit_phones_and_wide_screens() {
    let Some(mut browser) = Browser::start() else { return };
    let limits: String = (0..30)
        .map(|at| format!("  long-name-{at}: {{key: ip, rate: {}000/min, mode: shadow}}\n", at + 1))
        .collect();
    let (_, rest) = FILE.split_once("limits:\n").unwrap();
    let gateway = Gateway::start(&format!(
        "admin: {{address: \"{{admin}}\", token: test-token, show_keys: true}}\nlimits:\n{limits}{rest}"
    ));
    gateway.statuses(3, "/orders", &[("x-api-key", "k1")]);
    let url = format!("http://{}/", gateway.admin);
    browser.open(&url, 390, "light");
    browser.wait_for("at('status')");
    browser.value("window.seen = () => [...document.querySelectorAll('#limit-table tbody tr')].filter(row => row.offsetHeight > 0)");
    let fold = "document.querySelector('#limit-table .fold')";
    browser.wait_for(&format!(
        "{fold}.textContent === '31 limits without refusals – show' && seen().length === 1"
    ));
    browser.wait_for("seen()[0].textContent.includes('per-key') && seen()[0].offsetHeight < 80");
    let tall = browser.value("document.documentElement.scrollHeight").as_u64().unwrap();
    assert!(tall < 3_500, "{tall} pixels");
    browser.value("seen()[0].querySelector('.more').click()");
    browser.wait_for("seen()[0].offsetHeight > 120 && seen()[0].querySelector('.more').getAttribute('aria-expanded') === 'true'");
    browser.value(&format!("{fold}.click()"));
    browser.wait_for("seen().length === 32");
    browser.value(&format!("{fold}.click(); at('filter').value = 'long-name-7'; filtered()"));
    browser.wait_for("seen().length === 1 && seen()[0].textContent.includes('long-name-7')");

    browser.open(&url, 1280, "light");
    browser.wait_for("document.querySelectorAll('#limit-table tbody tr').length === 32");
    let broken = browser.value(
        "[...document.querySelectorAll('#limit-table th, #limit-table button.link, #limit-table td:nth-child(3)')] \
         .filter(node => { const range = document.createRange(); range.selectNodeContents(node); \
         return new Set([...range.getClientRects()].map(box => Math.round(box.top / 8))).size > 1; }).map(node => node.textContent).join()",
    );
    assert_eq!(broken, "");
    assert!(browser.errors.is_empty(), "{:#?}", browser.errors);
}

/// A report of replay opens without a network, for screens of any width.
#[test]
fn a_report_opens() {
    let Some(mut browser) = Browser::start() else { return };
    let line = |second: u32| {
        format!("{{\"time\": {}, \"client_ip\": \"192.0.2.1\", \"path\": \"/\"}}\n", 1_719_850_000 + second)
    };
    let folder = Folder::with(&[
        (
            "gateway.yaml",
            "listen: [127.0.0.1:18080]\nlimits: {per-ip: {key: ip, rate: 10/min}}\n\
             routes: [{name: all, respond: {status: 200}, limits: [per-ip]}]\n",
        ),
        ("access.log", &(0..60).map(line).collect::<String>()),
    ]);
    let done = folder.run(&["replay", "access.log", "--report", "report.html"]);
    assert!(done.status.success(), "{done:?}");
    for (width, scheme) in WIDTHS {
        browser.open(&format!("file://{}", folder.path("report.html").display()), width, scheme);
        browser.wait_for("document.body.innerText.includes('per-ip')");
        browser.wait_for("document.querySelectorAll('svg').length > 0");
        let wide = browser.value("document.documentElement.scrollWidth").as_u64().unwrap();
        assert!(wide <= u64::from(width), "{wide} pixels on a screen of {width}");
    }
    assert!(browser.errors.is_empty(), "{:#?}", browser.errors);
}

/// Queued requests that have failed are shown, and queued again from the page.
#[test]
fn dead_letters_are_queued_again_from_the_page() {
    let Some(mut browser) = Browser::start() else { return };
    let failing = Arc::new(AtomicBool::new(true));
    let of_upstream = Arc::clone(&failing);
    let upstream = Upstream::scripted(move |exchange| {
        exchange.answer(if of_upstream.load(Ordering::SeqCst) { 500 } else { 200 }, &[], b"");
    });
    let gateway = Gateway::before(
        &upstream,
        "admin: {address: \"{admin}\", token: test-token}\n\
         limits: {orders: {key: global, rate: 20/s, burst: 1, accept: 202, queue: {file: queue.db, max_attempts: 1}}}\n\
         upstreams: {api: {servers: ['http://{upstream}']}}\n\
         routes: [{name: api, upstream: api, limits: [orders]}]\n",
    );
    until("a request is queued", || (gateway.client().post("/", &[], b"x").status == 202).then_some(()));
    browser.open(&format!("http://{}/", gateway.admin), 1280, "light");
    browser.wait_for("at('banner').textContent.includes('failed')");
    browser.wait_for("!at('queues').hidden && at('queue-table').textContent.includes('orders')");
    failing.store(false, Ordering::SeqCst);
    browser.value("at('token').value = 'test-token'; at('token').dispatchEvent(new Event('change')); window.confirm = () => true");
    browser.value("document.querySelector('[aria-label=\"retry failed requests of orders\"]').click()");
    browser.wait_for("at('queue-said').textContent.includes('queued again')");
    until("it is delivered", || {
        (gateway.metric("sluicegate_queue_events_total", &[("limit", "orders"), ("event", "delivered")])
            >= 1.0)
            .then_some(())
    });
    assert!(browser.errors.is_empty(), "{:#?}", browser.errors);
}
