//! Certificates that are replaced while locks are held.

use std::sync::{Arc, Mutex, PoisonError};

use lock_tests::{Raw, eventually};
use lockcore::operate::Connection;
use lockcore::{Certificates, HoldState, LockErrorKind, Locks};
use redis::cmd;

use crate::authority::{Authority, Identity};
use crate::setup::{Clients, SOON, Setup, soon};

/// The files of a provider, as another program would replace them.
#[derive(Clone)]
struct Files(Arc<Mutex<[String; 2]>>);

impl Files {
    fn new(identity: &Identity) -> Self {
        let files = Self(Arc::default());
        files.replace(&identity.certificate, &identity.key);
        files
    }

    fn replace(&self, certificate: &str, key: &str) {
        let both = [certificate, key].map(str::to_owned);
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = both;
    }

    fn read(&self) -> [String; 2] {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn cut_all(redis: &mut Raw) {
    for kind in ["normal", "pubsub"] {
        let killed: usize = redis.ask(cmd("CLIENT").arg("KILL").arg("TYPE").arg(kind)).await;
        assert!(killed >= 1, "{kind}");
    }
}

// B5: it could not be replaced, and the hold was lost until the process was started again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_certificate_is_replaced_while_a_lock_is_held() {
    let authority = Authority::new();
    let identity = authority.sign("127.0.0.1");
    let setup = Setup::with(authority, &identity, Clients::Certified);
    let first = setup.authority.sign("a client");
    let files = Files::new(&first);
    let (provided, authority) = (files.clone(), setup.authority.pem.clone());
    let builder = Locks::builder().certificates(move || {
        let [certificate, key] = provided.read();
        Ok(Certificates::new().ca(&authority).identity(certificate, key))
    });
    let locks = soon(builder.connect(setup.url())).await.expect("it shows its certificate");
    let guard = soon(locks.lock("k")).await.expect("free");
    let mut redis = Raw::connect(&setup.server.url()).await;

    // One that the server refuses, as it refuses one that has expired.
    let stranger = Authority::new().sign("a stranger");
    files.replace(&stranger.certificate, &stranger.key);
    cut_all(&mut redis).await;
    eventually("it is refused", SOON, async || {
        let Connection::Down { reason, .. } = locks.status().commands else { return false };
        reason.contains("client certificate")
    })
    .await;
    let second = setup.authority.sign("the same client, later");
    files.replace(&second.certificate, &second.key);
    eventually("all connections are back", SOON, async || locks.status().is_connected()).await;

    // Half of a pair, as between two writes: the last pair does.
    files.replace(&first.certificate, &second.key);
    cut_all(&mut redis).await;
    eventually("all connections are back", SOON, async || locks.status().is_connected()).await;
    assert_eq!(guard.state(), HoldState::Held);
    soon(guard.release()).await.expect("held");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_of_certificates_that_gives_none_that_can_be_used_is_named() {
    let setup = Setup::start();
    for pem in ["", "-----BEGIN CERTIFICATE-----\nc2VjcmV0\n-----END CERTIFICATE-----\n"] {
        let builder = Locks::builder().certificates(move || Ok(Certificates::new().ca(pem)));
        let error = setup.refusal(builder, &setup.url()).await;
        assert_eq!(error.kind(), LockErrorKind::Unavailable, "{error}");
        let text = error.to_string();
        assert!(
            text.contains("the provider of certificates failed") && !text.contains("c2Vj"),
            "{text}"
        );
    }
    let builder = Locks::builder().certificates(|| unreachable!("there is no TLS"));
    let error = setup.refusal(builder, &setup.server.url()).await;
    assert_eq!(error.kind(), LockErrorKind::InvalidOption, "{error}");
    assert!(error.to_string().contains("rediss://"), "{error}");
}
