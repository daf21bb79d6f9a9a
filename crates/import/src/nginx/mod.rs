//! nginx.conf
