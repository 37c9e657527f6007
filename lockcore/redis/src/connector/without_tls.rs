//! Tests of the errors for users who request TLS without the feature `tls`.

use redis::IntoConnectionInfo as _;

use super::*;

const TIMEOUT: Duration = Duration::from_secs(2);
const TIMEOUTS: Timeouts = Timeouts { connect: TIMEOUT, request: TIMEOUT };

#[test]
fn a_url_that_wants_tls_is_told_of_the_feature() {
    for url in ["rediss://:hunter2@localhost/", "valkeys://:hunter2@localhost/"] {
        let error = Connector::from_url(url, &Tls::default(), TIMEOUTS).unwrap_err();
        assert_eq!(error.kind, ClientErrorKind::InvalidOption);
        let text = error.to_string();
        assert!(text.contains("feature `tls`") && !text.contains("hunter2"), "{text}");
    }
}

#[tokio::test]
async fn a_configuration_that_wants_tls_is_told_of_the_feature() {
    let host = "::1".into();
    let addr = ConnectionAddr::TcpTls { host, port: 1, insecure: false, tls_params: None };
    let info = addr.into_connection_info().unwrap();
    let connector = Connector::new(info, &Tls::default(), TIMEOUTS).unwrap();
    let attempt = ConnectAttempt::first(TIMEOUTS);
    for error in [
        connector.commands(TIMEOUT, &attempt).await.map(drop).unwrap_err(),
        connector.subscription(false, &attempt).await.map(drop).unwrap_err(),
    ] {
        assert_eq!(error.kind, ClientErrorKind::InvalidOption);
        assert!(error.detail.contains("feature `tls`"), "{}", error.detail);
    }
}

#[test]
fn a_url_that_is_none_is_not_told_of_tls() {
    let error = Connector::from_url("http://h/", &Tls::default(), TIMEOUTS).unwrap_err();
    assert!(!error.to_string().contains("feature"), "{error}");
}
