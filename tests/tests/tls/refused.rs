//! Servers, certificates and URLs that do not fit: no connection is made, and the error says why.

use lockcore::{LockErrorKind, Locks};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;

use crate::authority::Authority;
use crate::setup::{Clients, PASSWORD, Setup};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_of_another_authority_is_refused() {
    let setup = Setup::start();
    let builder = Locks::builder().tls_ca(Authority::new().pem);
    let error = setup.refusal(builder, &setup.url()).await;
    assert_eq!(error.kind(), LockErrorKind::Unavailable, "{error}");
    let text = error.to_string();
    assert!(text.contains("invalid peer certificate"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_only_its_own_authority_knows_is_refused_with_what_to_do() {
    let setup = Setup::start();
    let error = setup.refusal(Locks::builder(), &setup.url()).await;
    assert_eq!(error.kind(), LockErrorKind::Unavailable, "{error}");
    let text = error.to_string();
    assert!(text.contains("UnknownIssuer") && text.contains("tls_ca"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_of_another_name_is_refused() {
    let authority = Authority::new();
    let elsewhere = authority.sign("elsewhere.example");
    let setup = Setup::with(authority, &elsewhere, Clients::Any);
    let error = setup.refusal(setup.builder(), &setup.url()).await;
    assert_eq!(error.kind(), LockErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("not for this host name"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_whose_time_is_over_is_refused() {
    let authority = Authority::new();
    let expired = authority.sign_expired("127.0.0.1");
    let setup = Setup::with(authority, &expired, Clients::Any);
    let error = setup.refusal(setup.builder(), &setup.url()).await;
    assert_eq!(error.kind(), LockErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("the server's certificate has expired"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_url_that_asks_for_no_check_is_refused() {
    let setup = Setup::start();
    let url = format!("{}#insecure", setup.url());
    let error = setup.refusal(setup.builder(), &url).await;
    assert_eq!(error.kind(), LockErrorKind::InvalidOption, "{error}");
    assert!(error.to_string().contains("insecure"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_client_certificate_a_server_that_asks_for_one_is_closed() {
    let authority = Authority::new();
    let identity = authority.sign("127.0.0.1");
    let setup = Setup::with(authority, &identity, Clients::Certified);
    let error = setup.refusal(setup.builder(), &setup.url()).await;
    assert_eq!(error.kind(), LockErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("tls_identity"), "{error}");
    let stranger = Authority::new().sign("a stranger");
    let builder = setup.builder().tls_identity(&stranger.certificate, &stranger.key);
    let error = setup.refusal(builder, &setup.url()).await;
    assert_eq!(error.kind(), LockErrorKind::Unavailable, "{error}");
    // The server's word for it, UnknownCA, sounds as if its own certificate were meant.
    assert!(error.to_string().contains("our client certificate"), "{error}");
}

// T6: with TLS 1.3 the client writes its first command before the server has looked at its
// certificate. Whether it then reads the alert, or its write fails first, is chance.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_hangs_up_before_its_first_answer_may_want_a_client_certificate() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let hang_up = tokio::spawn(async move {
        for reads in [true, false] {
            let (mut socket, _) = listener.accept().await.expect("a client");
            let mut some = [0; 4_096];
            // A socket that is closed with bytes unread is reset.
            let _ = if reads { socket.read(&mut some).await } else { socket.peek(&mut some).await };
        }
    });
    for how in ["an end", "a reset"] {
        let url = format!("rediss://127.0.0.1:{port}");
        let error = Locks::builder().connect(&url).await.expect_err(how);
        assert_eq!(error.kind(), LockErrorKind::Unavailable, "{error}");
        assert!(error.to_string().contains("tls_identity"), "{how}: {error}");
    }
    hang_up.await.expect("it hangs up twice");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plain_text_and_tls_do_not_meet_and_the_error_says_what_to_write() {
    let setup = Setup::start();
    let with_password = setup.url_to("redis", "127.0.0.1");
    let without = with_password.replace(&format!(":{PASSWORD}@"), "");
    for plain in [with_password, without] {
        let error = setup.refusal(Locks::builder(), &plain).await;
        assert_eq!(error.kind(), LockErrorKind::Unavailable, "{error}");
        assert!(error.to_string().contains("write rediss:// in place"), "{error}");
    }
    let tls = setup.server.url().replace("redis://", "rediss://");
    let error = setup.refusal(setup.builder(), &tls).await;
    assert_eq!(error.kind(), LockErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("write redis:// in place"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_down_is_not_said_to_speak_tls() {
    let error = Locks::connect("redis://127.0.0.1:1/").await.expect_err("nothing listens there");
    assert_eq!(error.kind(), LockErrorKind::Unavailable, "{error}");
    assert!(!error.to_string().contains("rediss"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_for_a_plain_url_are_refused_because_nobody_would_look_at_them() {
    let setup = Setup::start();
    let error = setup.refusal(setup.builder(), &setup.server.url()).await;
    assert_eq!(error.kind(), LockErrorKind::InvalidOption, "{error}");
    assert!(error.to_string().contains("rediss://"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_certificate_or_key_is_refused_without_being_repeated() {
    let setup = Setup::start();
    let [one, other] = ["a", "b"].map(|name| setup.authority.sign(name));
    let broken = "-----BEGIN CERTIFICATE-----\nc2VjcmV0\n-----END CERTIFICATE-----\n";
    let builders = [
        Locks::builder().tls_ca(""),
        Locks::builder().tls_ca(&one.key),
        Locks::builder().tls_ca(broken),
        Locks::builder().tls_ca("-----BEGIN CERTIFICATE-----\n"),
        setup.builder().tls_identity(&one.certificate, ""),
        setup.builder().tls_identity(&one.certificate, &one.certificate),
        setup.builder().tls_identity(&one.certificate, &other.key),
        setup.builder().tls_identity("", &one.key),
    ];
    for (number, builder) in builders.into_iter().enumerate() {
        let error = setup.refusal(builder, &setup.url()).await;

        assert_eq!(error.kind(), LockErrorKind::InvalidOption, "{number}: {error}");
    }
}

#[test]
fn a_builder_does_not_show_its_certificates() {
    let authority = Authority::new();
    let identity = authority.sign("a client");
    let builder = Locks::builder().tls_identity(&identity.certificate, &identity.key);
    let builder = builder.tls_ca(&authority.pem);
    let text = format!("{builder:?} {builder:#?}");
    assert!(!text.contains("KEY") && !text.contains("45, 45, 45"), "{text}");
}
