use axum::{Router, extract::Path, routing::post};
use lock_axum::{Keys, Lockable, PermitLocked};

struct Tenant {
    id: u64,
}

impl Lockable for Tenant {
    fn lock_key(&self) -> Keys {
        format!("tenant:{}", self.id).into()
    }
}

async fn call(_: PermitLocked<Path<Tenant>>) {}

fn main() {
    let _: Router = Router::new().route("/{id}", post(call));
}
