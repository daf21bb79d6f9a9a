//! Directives that need no conversion, and those that have no equivalent, each with the reason.

use super::parse::Directive;
use crate::report::Outcome;

/// Directives without an effect on the result.
const IGNORED: [(&str, &str); 17] = [
    (
        "user group worker_processes worker_rlimit_nofile worker_cpu_affinity worker_priority worker_connections worker_shutdown_timeout daemon \
         master_process pid lock_file events use multi_accept accept_mutex accept_mutex_delay thread_pool pcre_jit timer_resolution env \
         load_module worker_aio_requests debug_connection working_directory worker_rlimit_core",
        "it manages processes of nginx; the gateway has one process with one worker per core",
    ),
    (
        "sendfile tcp_nopush tcp_nodelay aio directio output_buffers postpone_output sendfile_max_chunk open_file_cache open_file_cache_valid \
         open_file_cache_min_uses open_file_cache_errors read_ahead reset_timedout_connection lingering_close lingering_time lingering_timeout",
        "it tunes how nginx reads files and writes to sockets",
    ),
    (
        "client_header_buffer_size large_client_header_buffers client_body_buffer_size client_body_temp_path client_body_in_file_only \
         client_body_in_single_buffer connection_pool_size request_pool_size variables_hash_max_size variables_hash_bucket_size \
         server_names_hash_max_size server_names_hash_bucket_size types_hash_max_size types_hash_bucket_size map_hash_max_size \
         map_hash_bucket_size proxy_headers_hash_max_size proxy_headers_hash_bucket_size",
        "it sizes buffers and tables of nginx; max_head and max_headers bound the heads of requests",
    ),
    (
        "proxy_buffering proxy_buffer_size proxy_buffers proxy_busy_buffers_size proxy_max_temp_file_size proxy_temp_file_write_size \
         proxy_temp_path proxy_request_buffering fastcgi_buffering fastcgi_buffers fastcgi_buffer_size grpc_buffer_size",
        "the gateway forwards bodies as they arrive, in a bounded amount of memory, and writes no files",
    ),
    (
        "proxy_http_version grpc_http_version",
        "the gateway keeps connections to servers and speaks HTTP/1.1, or HTTP/2 with protocol: http2",
    ),
    ("proxy_socket_keepalive grpc_socket_keepalive", "the gateway checks connections itself"),
    (
        "http2 http2_max_concurrent_streams http2_body_preread_size http2_chunk_size",
        "HTTP/2 is always on, with bounds of its own",
    ),
    (
        "error_log log_not_found log_subrequest limit_req_log_level limit_conn_log_level rewrite_log",
        "the gateway logs to standard error, and names the limit of each refusal in its access log",
    ),
    (
        "types default_type charset source_charset override_charset",
        "content types are those of the servers behind the gateway",
    ),
    ("resolver resolver_timeout", "names of servers are resolved by the system, and again every 30 s"),
    (
        "server_name_in_redirect port_in_redirect absolute_redirect merge_slashes",
        "redirects are as they are written, and paths are matched in their normal form",
    ),
    (
        "ssl_ciphers ssl_prefer_server_ciphers ssl_session_cache ssl_session_timeout ssl_session_tickets ssl_session_ticket_key ssl_dhparam \
         ssl_ecdh_curve ssl_conf_command ssl_buffer_size ssl_early_data ssl_verify_depth",
        "the gateway has modern ciphers, curves and tickets, and nothing to choose; early data is not accepted",
    ),
    (
        "proxy_ssl_session_reuse proxy_ssl_protocols proxy_ssl_ciphers proxy_ssl_verify_depth",
        "TLS to servers is 1.2 or 1.3 with modern ciphers",
    ),
    ("ignore_invalid_headers", "malformed headers are answered 400"),
    ("proxy_redirect", "answers are forwarded as they are; Location is not changed"),
    ("proxy_pass_header grpc_pass_header", "headers are forwarded"),
    (
        "msie_padding msie_refresh keepalive_disable chunked_transfer_encoding zone recursive_error_pages limit_rate_after keepalive_requests",
        "it has no effect here",
    ),
];

/// Directives without an equivalent, and what to do instead.
const UNSUPPORTED: [(&str, &str); 21] = [
    (
        "if",
        "conditions are routes: match: {methods, headers, query, host} for requests, and the rest for others",
    ),
    ("rewrite", "use rewrite: {match, to} or redirect of a route"),
    (
        "error_page proxy_intercept_errors",
        "answers of servers are forwarded as they are; `reject` of a route replaces refusals",
    ),
    ("auth_request_set", "auth.check has headers for what an answer says"),
    (
        "auth_basic auth_basic_user_file",
        "use auth.api_key or auth.jwt, or let the application check passwords",
    ),
    ("auth_jwt auth_jwt_key_file auth_jwt_key_request", "use auth.jwt"),
    (
        "satisfy",
        "with `any`, nginx admits a client that its lists or its credentials admit; a route of the gateway requires both",
    ),
    (
        "secure_link secure_link_md5 secure_link_secret",
        "the gateway does not verify signed links: use auth.jwt with a token in the query, or auth.check; an `if` about $secure_link denies everybody",
    ),
    (
        "valid_referers",
        "use match: {headers: {Referer: …}} for exact values, which any client can send; an `if` about $invalid_referer denies everybody",
    ),
    (
        "proxy_cache proxy_cache_path proxy_cache_key proxy_cache_valid proxy_cache_bypass proxy_no_cache proxy_cache_lock proxy_cache_use_stale \
         proxy_cache_methods proxy_cache_min_uses proxy_cache_revalidate proxy_cache_background_update proxy_cache_lock_timeout fastcgi_cache \
         fastcgi_cache_path fastcgi_cache_key fastcgi_cache_valid proxy_store proxy_ignore_headers",
        "the gateway does not cache: keep a cache before or behind it",
    ),
    (
        "gzip gzip_types gzip_vary gzip_min_length gzip_comp_level gzip_proxied gzip_buffers gzip_disable gzip_http_version gzip_static gunzip \
         brotli brotli_types brotli_comp_level brotli_static",
        "the gateway does not compress: let the servers behind it compress",
    ),
    ("limit_rate", "bandwidth is not limited; a limit with cost: {bytes: response} bounds it over time"),
    (
        "proxy_send_timeout grpc_send_timeout",
        "a server that reads slowly has no timeout of its own; `timeout` of a route bounds the whole request",
    ),
    ("mirror mirror_request_body", "requests are not copied"),
    ("proxy_pass_request_headers proxy_pass_request_body", "headers and bodies are forwarded"),
    (
        "sub_filter sub_filter_once sub_filter_types addition_types add_before_body add_after_body",
        "bodies are not changed",
    ),
    ("expires etag if_modified_since", "write Cache-Control with response_headers"),
    ("limit_except", "write a route with match: {methods: …} for these methods before it"),
    (
        "health_check match state sticky ntlm slow_start queue",
        "see `health`, `overload` and balance: {hash: KEY} of an upstream",
    ),
    ("stream mail", "the gateway serves HTTP only"),
    (
        "js_import js_set lua_package_path lua_shared_dict init_by_lua_block access_by_lua_block rewrite_by_lua_block header_filter_by_lua_block \
      set_by_lua_block balancer_by_lua_block log_by_lua_block perl_set perl_modules",
        "the gateway runs no scripts: see auth.check and limits",
    ),
];

/// Directives that are converted where something uses them.
const UNUSED: &str = "limit_req limit_conn limit_req_dry_run limit_conn_dry_run limit_req_status limit_conn_status proxy_set_header \
     grpc_set_header add_header proxy_hide_header proxy_connect_timeout proxy_read_timeout grpc_connect_timeout grpc_read_timeout \
     proxy_next_upstream proxy_next_upstream_tries client_max_body_size set ssl_protocols ssl_certificate ssl_certificate_key \
     ssl_client_certificate ssl_verify_client root index alias try_files allow deny map geo real_ip_header real_ip_recursive \
     set_real_ip_from proxy_ssl_verify proxy_ssl_trusted_certificate proxy_ssl_certificate proxy_ssl_certificate_key proxy_ssl_name \
     proxy_ssl_server_name return proxy_pass grpc_pass";

/// What becomes of a directive that nothing was said about.
pub(super) fn rest(directive: &Directive) -> (Outcome, String) {
    let name = directive.name.as_str();
    let find = |table: &[(&'static str, &'static str)]| {
        table
            .iter()
            .find(|(names, _)| names.split_whitespace().any(|known| known == name))
            .map(|(_, text)| (*text).to_owned())
    };
    if name == "satisfy" && directive.arg(0) == "all" {
        return (Outcome::Ignored, "lists and credentials must both admit a request here, too".to_owned());
    }
    if let Some(text) = find(&IGNORED) {
        return (Outcome::Ignored, text);
    }
    if name.starts_with("proxy_pass_request_") && directive.arg(0) == "on" {
        return (Outcome::Ignored, "headers and bodies are forwarded".to_owned());
    }
    if let Some(text) = find(&UNSUPPORTED) {
        return (Outcome::Unsupported, text);
    }
    if UNUSED.split_whitespace().any(|known| known == name) {
        return (
            Outcome::Ignored,
            "no route needs it here: nothing uses it, or inner blocks replace it".to_owned(),
        );
    }
    match name {
        "server_tokens" => (
            Outcome::Approximated,
            "the gateway adds no header Server, and forwards that of the servers, which nginx replaces: response_headers: {remove: [Server]} hides it"
                .to_owned(),
        ),
        "http" => (Outcome::Converted, "the file".to_owned()),
        "include" => included(directive),
        "access_log" if directive.arg(0) == "off" => (
            Outcome::Approximated,
            "the access log is one for all routes: access_log: off writes none, `sample` a part".to_owned(),
        ),
        "access_log" | "log_format" => (
            Outcome::Approximated,
            "the gateway writes a short line for each request to standard output; for a file in the format of nginx: access_log: {path: \
             FILE, format: combined}"
                .to_owned(),
        ),
        _ if name.ends_with("_by_lua_block") || name.ends_with("_by_lua_file") || name.ends_with("_by_lua") => {
            (Outcome::Unsupported, "the gateway runs no scripts: see auth.check and limits".to_owned())
        }
        _ => (Outcome::Unsupported, "the importer does not know this directive: look for its purpose in docs/configuration.md".to_owned()),
    }
}

fn included(directive: &Directive) -> (Outcome, String) {
    match &directive.included {
        Some(Ok(1)) => (Outcome::Converted, "one file was read".to_owned()),
        Some(Ok(count)) => (Outcome::Converted, format!("{count} files were read")),
        Some(Err(why)) if directive.arg(0).contains(['*', '?', '[']) => (Outcome::Ignored, why.clone()),
        Some(Err(why)) => (
            Outcome::Unsupported,
            format!("left out: {why}. Import the folder of nginx, or the output of nginx -T"),
        ),
        None => (Outcome::Unsupported, "left out: it names no file".to_owned()),
    }
}
