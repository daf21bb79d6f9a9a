//! Tests of whole configurations.

use super::*;

/// A machine without files.
struct NoFiles;

impl Files for NoFiles {
    fn read(&self, path: &str) -> Result<String, String> {
        Err(format!("{path}: no such file"))
    }

    fn glob(&self, _: &str) -> Vec<String> {
        Vec::new()
    }
}

fn imported(text: &str) -> Imported {
    let text = format!("defaults\n  mode http\n{text}");
    let imported = import_text(&NoFiles, "h.cfg", &text, &|_| None).unwrap();
    sluicegate_config::parse_without_files(&imported.yaml)
        .unwrap_or_else(|errors| panic!("{errors}\n{}", imported.yaml));
    imported
}

#[test]
fn negations_become_the_order_of_routes() {
    let found = imported(
        "frontend f\n  bind :80\n  acl api path_beg /api/\n  acl get method GET\n  http-request deny if api !get\n  default_backend b\n\
         backend b\n  server s 127.0.0.1:9000\n",
    );
    let routes = found.yaml.split("routes:\n").nth(1).unwrap();
    let expected = "  - name: b-api-GET\n    match: {path: /api/*, methods: [GET]}\n    upstream: b  # h.cfg:8\n  - name: api-respond\n    \
                    match: {path: /api/*}\n    respond: {status: 403}  # h.cfg:7\n  - name: b\n    upstream: b  # h.cfg:8\n";
    assert_eq!(routes, expected);
}

#[test]
fn nothing_but_tcp_is_a_message() {
    let error = import_text(&NoFiles, "h.cfg", "listen x\n  bind :80\n  server s 127.0.0.1:1\n", &|_| None)
        .unwrap_err();
    assert!(error.contains("nothing in it that the gateway can listen on"), "{error}");
}
